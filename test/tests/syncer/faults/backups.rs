//! Holon is restored from an older backup: the mailbox lacks the changes made since.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{End, Server};

use crate::joined::{JoinedCluster, Physical, SyncMode};
use crate::setup::*;

#[tokio::test(flavor = "multi_thread")]
async fn with_a_push_syncer() -> Result<()> {
    restore(JoinedCluster::new(Physical::standin().await?, SyncMode::Push).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_pull_syncer() -> Result<()> {
    restore(JoinedCluster::new(Physical::standin().await?, SyncMode::Pull).await?).await
}

/// Downstream objects that the mailbox no longer has stay and are reported; objects that it has are applied in their
/// older state; and nothing is deleted except what users deleted, before or after.
async fn restore(mut joined: JoinedCluster) -> Result<()> {
    let path = |name: &str| format!("{CONFIG_MAPS}/{name}");
    joined.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    joined.mailbox.create(DEPLOYMENTS, placed(deployment("web"))).await?;
    for name in ["kept", "changed", "deleted"] {
        joined.mailbox.create(CONFIG_MAPS, placed(map(name, "one"))).await?;
        joined.downstream.until_exists(&path(name)).await?;
    }
    until_ready(&joined, 2).await?;
    let kept = joined.downstream.until_exists(&path("kept")).await?;
    joined.holon.while_stopped(End::Terminated, &[], |holon| store(holon, "export"))?;

    change_after_backup(&joined).await?;
    let new = joined.downstream.until_exists(&path("new")).await?;
    let requested = BTreeMap::from([("configmaps".to_owned(), 1)]);
    assert_eq!(joined.physical.deletes(&[])?, requested);
    joined.holon.while_stopped(End::Killed, &[], |holon| {
        // Moves the store away, as an administrator who restores does.
        std::fs::rename(holon.file("store"), holon.file("lost"))?;
        store(holon, "import")
    })?;

    for name in ["changed", "deleted"] {
        joined.downstream.until(&path(name), |found| found["data"]["key"] == "one").await?;
    }
    until_ready(&joined, 2).await?;
    until("Synced reports the missing tombstone", async || {
        let synced = joined.condition("Synced").await?;
        let message = synced["message"].as_str().unwrap_or_default();
        Ok(synced["status"] == "False"
            && ["new", "fresh"].iter().all(|name| message.contains(&format!("shop/{name}: NoTombstone"))))
    })
    .await
    .with_context(|| format!("{joined}"))?;
    for (name, before) in [("new", &new), ("kept", &kept)] {
        let found = joined.downstream.until_exists(&path(name)).await?;
        assert_eq!(found["metadata"]["uid"], before["metadata"]["uid"], "{name}");
    }
    assert_eq!(joined.physical.deletes(&[])?, requested, "the syncer made deletions that no user requested");
    check_after_restore(&joined).await
}

/// Makes the changes that are not in the backup.
async fn change_after_backup(joined: &JoinedCluster) -> Result<()> {
    let JoinedCluster { mailbox, downstream, .. } = joined;
    mailbox.merge(&format!("{CONFIG_MAPS}/changed"), json!({ "data": { "key": "two" } })).await?;
    mailbox.create(CONFIG_MAPS, placed(map("new", "one"))).await?;
    mailbox.create(DEPLOYMENTS, placed(deployment("fresh"))).await?;
    mailbox.delete(&format!("{CONFIG_MAPS}/deleted")).await?;
    mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 3 } })).await?;
    downstream.until(&format!("{CONFIG_MAPS}/changed"), |found| found["data"]["key"] == "two").await?;
    downstream.until_deleted(&format!("{CONFIG_MAPS}/deleted")).await?;
    mailbox.until(&format!("{DEPLOYMENTS}/fresh"), |found| found["status"]["readyReplicas"] == 2).await?;
    until_ready(joined, 3).await
}

/// The syncer continues with the restored state: objects that are created again are taken over, and deletions work.
async fn check_after_restore(joined: &JoinedCluster) -> Result<()> {
    let JoinedCluster { mailbox, downstream, .. } = joined;
    mailbox.create(CONFIG_MAPS, placed(map("new", "three"))).await?;
    mailbox.create(DEPLOYMENTS, placed(deployment("fresh"))).await?;
    downstream.until(&format!("{CONFIG_MAPS}/new"), |found| found["data"]["key"] == "three").await?;
    mailbox.until(&format!("{DEPLOYMENTS}/fresh"), |found| found["status"]["readyReplicas"] == 2).await?;
    until("Synced is True", async || Ok(joined.condition("Synced").await?["status"] == "True")).await?;
    for name in ["new", "kept"] {
        mailbox.delete(&format!("{CONFIG_MAPS}/{name}")).await?;
        downstream.until_deleted(&format!("{CONFIG_MAPS}/{name}")).await?;
        mailbox.until_deleted(&format!("{CONFIG_MAPS}/{name}")).await?;
    }
    let deletes = joined.physical.deletes(&[])?;
    assert_eq!(deletes, BTreeMap::from([("configmaps".to_owned(), 3)]));
    Ok(())
}

/// Waits until the Deployment has so many ready pods on both sides.
async fn until_ready(joined: &JoinedCluster, replicas: u64) -> Result<()> {
    for client in [&joined.mailbox, &joined.downstream] {
        let path = format!("{DEPLOYMENTS}/web");
        let until_ready = client.until(&path, |found| {
            found["spec"]["replicas"] == replicas && found["status"]["readyReplicas"] == replicas
        });
        until_ready.await.with_context(|| format!("{joined}"))?;
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
