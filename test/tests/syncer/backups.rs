//! Holon is restored from an older backup: the mailbox lacks the changes made since.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{End, Server};

use crate::joined::{JoinedCluster, Physical, SyncMode};
use crate::setup::*;

#[tokio::test(flavor = "multi_thread")]
async fn of_a_server_that_dials() -> Result<()> {
    restore(JoinedCluster::new(Physical::standin().await?, SyncMode::Push).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_server_that_is_dialled() -> Result<()> {
    restore(JoinedCluster::new(Physical::standin().await?, SyncMode::Pull).await?).await
}

/// Downstream objects that the mailbox no longer has stay and are reported; objects that it has are applied in their
/// older state; and nothing is deleted except what users deleted, before or after.
async fn restore(mut joined: JoinedCluster) -> Result<()> {
    let path = |name: &str| format!("{MAPS}/{name}");
    joined.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    joined.mailbox.make(DEPLOYMENTS, placed(deployment("web"))).await?;
    for name in ["kept", "changed", "deleted"] {
        joined.mailbox.make(MAPS, placed(map(name, "one"))).await?;
        joined.below.until_there(&path(name)).await?;
    }
    ready(&joined, 2).await?;
    let kept = joined.below.until_there(&path("kept")).await?;
    joined.holon.while_stopped(End::Terminated, &[], |holon| store(holon, "export"))?;

    since_then(&joined).await?;
    let new = joined.below.until_there(&path("new")).await?;
    let asked = BTreeMap::from([("configmaps".to_owned(), 1)]);
    assert_eq!(joined.physical.deletes(&[])?, asked);
    joined.holon.while_stopped(End::Killed, &[], |holon| {
        // Moves the store away, as an administrator who restores does.
        std::fs::rename(holon.file("store"), holon.file("lost"))?;
        store(holon, "import")
    })?;

    for name in ["changed", "deleted"] {
        joined.below.until(&path(name), |found| found["data"]["key"] == "one").await?;
    }
    ready(&joined, 2).await?;
    until("it is said what is held", async || {
        let said = joined.condition("Synced").await?;
        let message = said["message"].as_str().unwrap_or_default();
        Ok(said["status"] == "False"
            && ["new", "fresh"].iter().all(|name| message.contains(&format!("shop/{name}: NoTombstone"))))
    })
    .await
    .with_context(|| format!("{joined}"))?;
    for (name, before) in [("new", &new), ("kept", &kept)] {
        let found = joined.below.until_there(&path(name)).await?;
        assert_eq!(found["metadata"]["uid"], before["metadata"]["uid"], "{name}");
    }
    assert_eq!(joined.physical.deletes(&[])?, asked, "deletes that nobody asked for");
    from_now_on(&joined).await
}

/// Makes the changes that are not in the backup.
async fn since_then(joined: &JoinedCluster) -> Result<()> {
    let JoinedCluster { mailbox, below, .. } = joined;
    mailbox.merge(&format!("{MAPS}/changed"), json!({ "data": { "key": "two" } })).await?;
    mailbox.make(MAPS, placed(map("new", "one"))).await?;
    mailbox.make(DEPLOYMENTS, placed(deployment("fresh"))).await?;
    mailbox.delete(&format!("{MAPS}/deleted")).await?;
    mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 3 } })).await?;
    below.until(&format!("{MAPS}/changed"), |found| found["data"]["key"] == "two").await?;
    below.until_gone(&format!("{MAPS}/deleted")).await?;
    mailbox.until(&format!("{DEPLOYMENTS}/fresh"), |found| found["status"]["readyReplicas"] == 2).await?;
    ready(joined, 3).await
}

/// The syncer continues with the restored state: objects that are created again are taken over, and deletions work.
async fn from_now_on(joined: &JoinedCluster) -> Result<()> {
    let JoinedCluster { mailbox, below, .. } = joined;
    mailbox.make(MAPS, placed(map("new", "three"))).await?;
    mailbox.make(DEPLOYMENTS, placed(deployment("fresh"))).await?;
    below.until(&format!("{MAPS}/new"), |found| found["data"]["key"] == "three").await?;
    mailbox.until(&format!("{DEPLOYMENTS}/fresh"), |found| found["status"]["readyReplicas"] == 2).await?;
    until("all is said to be well", async || Ok(joined.condition("Synced").await?["status"] == "True"))
        .await?;
    for name in ["new", "kept"] {
        mailbox.delete(&format!("{MAPS}/{name}")).await?;
        below.until_gone(&format!("{MAPS}/{name}")).await?;
        mailbox.until_gone(&format!("{MAPS}/{name}")).await?;
    }
    let deletes = joined.physical.deletes(&[])?;
    assert_eq!(deletes, BTreeMap::from([("configmaps".to_owned(), 3)]));
    Ok(())
}

/// Waits until the Deployment has so many ready pods on both sides.
async fn ready(joined: &JoinedCluster, replicas: u64) -> Result<()> {
    for client in [&joined.mailbox, &joined.below] {
        let path = format!("{DEPLOYMENTS}/web");
        let ready = client.until(&path, |found| {
            found["spec"]["replicas"] == replicas && found["status"]["readyReplicas"] == replicas
        });
        ready.await.with_context(|| format!("{joined}"))?;
    }
    Ok(())
}

/// Exports or imports the store.
fn store(holon: &Server, verb: &str) -> Result<()> {
    let mut command = holon.other(&["store", verb]);
    command.arg("--data-dir").arg(holon.file("")).arg(holon.file("backup"));
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
