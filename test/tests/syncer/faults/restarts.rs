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
async fn with_a_push_syncer() -> Result<()> {
    check_restarts(JoinedCluster::new(Physical::standin().await?, SyncMode::Push).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_pull_syncer() -> Result<()> {
    check_restarts(JoinedCluster::new(Physical::standin().await?, SyncMode::Pull).await?).await
}

/// In the end the physical cluster equals the mailbox, untouched objects were not replaced, and nothing was deleted
/// except what the writers deleted.
async fn check_restarts(mut joined: JoinedCluster) -> Result<()> {
    joined.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    joined.mailbox.create(CONFIG_MAPS, placed(map("kept", "one"))).await?;
    let kept = joined.downstream.until_exists(&format!("{CONFIG_MAPS}/kept")).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write_until_over(joined.mailbox.clone(), writer, is_over.clone()));
    }
    for end in ENDS {
        sleep(Duration::from_secs(2)).await;
        joined.holon.restart_in_place(end, &[]);
    }
    sleep(Duration::from_secs(2)).await;
    is_over.store(true, Ordering::Relaxed);
    let mut requested = 0;
    while let Some(deletes) = writers.join_next().await {
        requested += deletes??;
    }
    // An object leaves the mailbox only after the syncer has deleted it downstream, so both sides are read until they
    // agree.
    let mut difference = Vec::new();
    let same = until("the physical cluster equals the mailbox", async || {
        let (in_mailbox, downstream) = (values(&joined.mailbox).await?, values(&joined.downstream).await?);
        assert!(
            in_mailbox.len() > WRITERS && requested > 0,
            "the writers wrote nothing: {in_mailbox:?}, {requested} deletes"
        );
        difference = in_mailbox.symmetric_difference(&downstream).cloned().collect();
        Ok(difference.is_empty())
    });
    same.await.with_context(|| format!("{joined}: {difference:?}"))?;
    let found = joined.downstream.until_exists(&format!("{CONFIG_MAPS}/kept")).await?;
    assert_eq!(found["metadata"]["uid"], kept["metadata"]["uid"]);
    let deleted = joined.physical.deletes(&[])?;
    let names: BTreeSet<&str> = deleted.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["configmaps"]), "{deleted:?}");
    assert!(deleted["configmaps"] <= requested, "{deleted:?} of {requested}");
    Ok(())
}

/// Creates, changes and deletes until `is_over`, and ignores failures. Returns how many deletions it may have
/// requested.
async fn write_until_over(mailbox: TestClient, writer: usize, is_over: Arc<AtomicBool>) -> Result<u64> {
    let mut deletes = 0;
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let path = |round: u64| format!("{CONFIG_MAPS}/w{writer}-{round}");
        let created = mailbox.create(CONFIG_MAPS, placed(map(&format!("w{writer}-{round}"), "one"))).await;
        let changed = mailbox.merge(&path(round), json!({ "data": { "key": round.to_string() } })).await;
        if created.is_err() || changed.is_err() {
            // The server is down for a moment.
            sleep(Duration::from_millis(50)).await;
        }
        // One of three objects is deleted; a deletion may have happened even if the request failed.
        if round % 3 == 2 {
            deletes += 1;
            let _ = mailbox.delete(&path(round - 1)).await;
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(deletes)
}

/// Returns the placed ConfigMaps and their values.
async fn values(client: &TestClient) -> Result<BTreeSet<(String, String)>> {
    let list =
        client.get(&format!("{CONFIG_MAPS}?labelSelector=holon.dev/placed")).await?.unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.map(|item| (text(&item["metadata"]["name"]), text(&item["data"]["key"]))).collect())
}
