//! The downstream credentials of a syncer are revoked and replaced.

use anyhow::Result;
use serde_json::json;

use crate::joined::{JoinedCluster, Physical, SyncMode};
use crate::setup::*;

/// The syncer's account is deleted, so its token is invalid: this is reported, nothing is deleted, and changes wait.
/// With the token of a new account in the Secret, the syncer continues by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_syncer_continues_with_a_new_kubeconfig_after_its_token_was_rejected() -> Result<()> {
    let joined = JoinedCluster::new(Physical::logical().await?, SyncMode::Push).await?;
    joined.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["kept", "deleted"] {
        joined.mailbox.create(CONFIG_MAPS, placed(map(name, "one"))).await?;
        joined.downstream.until_exists(&format!("{CONFIG_MAPS}/{name}")).await?;
    }
    joined.downstream.delete("/api/v1/namespaces/kube-system/serviceaccounts/holon").await?;
    until("Ready is False", async || Ok(joined.condition("Ready").await?["status"] == "False")).await?;
    let ready = joined.condition("Ready").await?;
    assert!(ready["message"].as_str().is_some_and(|text| text.contains("401")), "{ready:#}");
    joined.mailbox.merge(&format!("{CONFIG_MAPS}/kept"), json!({ "data": { "key": "two" } })).await?;
    joined.mailbox.delete(&format!("{CONFIG_MAPS}/deleted")).await?;
    tokio::time::sleep(STEADY).await;
    assert!(joined.downstream.get(&format!("{CONFIG_MAPS}/deleted")).await?.is_some());

    joined.renew().await?;
    joined.downstream.until(&format!("{CONFIG_MAPS}/kept"), |found| found["data"]["key"] == "two").await?;
    joined.downstream.until_deleted(&format!("{CONFIG_MAPS}/deleted")).await?;
    joined.mailbox.until_deleted(&format!("{CONFIG_MAPS}/deleted")).await?;
    until("Ready is True", async || Ok(joined.condition("Ready").await?["status"] == "True")).await?;
    let deletes = joined.physical.deletes(&[])?;
    assert_eq!(deletes.into_iter().collect::<Vec<_>>(), [("configmaps".to_owned(), 1)]);
    Ok(())
}
