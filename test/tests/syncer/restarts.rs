//! Holon restarts and is killed while clients write.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testkit::End;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::joined::{JoinedCluster, Physical, SyncMode};
use crate::setup::*;

const WRITERS: usize = 4;
const ENDS: [End; 3] = [End::Killed, End::Terminated, End::Killed];

#[tokio::test(flavor = "multi_thread")]
async fn of_a_server_that_dials() -> Result<()> {
    survive(JoinedCluster::new(Physical::standin().await?, SyncMode::Push).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_server_that_is_dialled() -> Result<()> {
    survive(JoinedCluster::new(Physical::standin().await?, SyncMode::Pull).await?).await
}

/// In the end the physical cluster equals the mailbox, untouched objects were not replaced, and nothing was deleted
/// except what the writers deleted.
async fn survive(mut joined: JoinedCluster) -> Result<()> {
    joined.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    joined.mailbox.make(MAPS, placed(map("kept", "one"))).await?;
    let kept = joined.below.until_there(&format!("{MAPS}/kept")).await?;
    let over = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(joined.mailbox.clone(), writer, over.clone()));
    }
    for end in ENDS {
        sleep(Duration::from_secs(2)).await;
        joined.holon.restart_in_place(end, &[]);
    }
    sleep(Duration::from_secs(2)).await;
    over.store(true, Ordering::Relaxed);
    let mut asked = 0;
    while let Some(deletes) = writers.join_next().await {
        asked += deletes??;
    }
    // An object leaves the mailbox only after the syncer has deleted it downstream, so both sides are read until they
    // agree.
    let mut differ = Vec::new();
    let same = until("the physical cluster has what the mailbox says", async || {
        let (here, below) = (values(&joined.mailbox).await?, values(&joined.below).await?);
        assert!(here.len() > WRITERS && asked > 0, "the writers wrote nothing: {here:?}, {asked} deletes");
        differ = here.symmetric_difference(&below).cloned().collect();
        Ok(differ.is_empty())
    });
    same.await.with_context(|| format!("{joined}: {differ:?}"))?;
    let found = joined.below.until_there(&format!("{MAPS}/kept")).await?;
    assert_eq!(found["metadata"]["uid"], kept["metadata"]["uid"]);
    let deleted = joined.physical.deletes(&[])?;
    let names: BTreeSet<&str> = deleted.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["configmaps"]), "{deleted:?}");
    assert!(deleted["configmaps"] <= asked, "{deleted:?} of {asked}");
    Ok(())
}

/// Creates, changes and deletes until `over`, and ignores failures. Returns how many deletions it may have requested.
async fn write(mailbox: TestClient, writer: usize, over: Arc<AtomicBool>) -> Result<u64> {
    let mut deletes = 0;
    for turn in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let path = |turn: u64| format!("{MAPS}/w{writer}-{turn}");
        let made = mailbox.make(MAPS, placed(map(&format!("w{writer}-{turn}"), "one"))).await;
        let changed = mailbox.merge(&path(turn), json!({ "data": { "key": turn.to_string() } })).await;
        if made.is_err() || changed.is_err() {
            // The server is down for a moment.
            sleep(Duration::from_millis(50)).await;
        }
        // One of three objects is deleted; a deletion may have happened even if the request failed.
        if turn % 3 == 2 {
            deletes += 1;
            let _ = mailbox.delete(&path(turn - 1)).await;
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(deletes)
}

/// Returns the placed ConfigMaps and their values.
async fn values(client: &TestClient) -> Result<BTreeSet<(String, String)>> {
    let list = client.get(&format!("{MAPS}?labelSelector=holon.dev/placed")).await?.unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.map(|item| (text(&item["metadata"]["name"]), text(&item["data"]["key"]))).collect())
}
