//! The downstream credentials of a syncer are revoked and replaced.

use anyhow::Result;
use serde_json::json;

use crate::joined::{JoinedCluster, Physical, SyncMode};
use crate::setup::*;

/// The syncer's account is deleted, so its token is invalid: this is reported, nothing is deleted, and changes wait.
/// With the token of a new account in the Secret, the syncer continues by itself.
#[tokio::test(flavor = "multi_thread")]
async fn with_another_kubeconfig_a_syncer_goes_on_where_the_old_one_was_refused() -> Result<()> {
    let joined = JoinedCluster::new(Physical::logical().await?, SyncMode::Push).await?;
    joined.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["kept", "deleted"] {
        joined.mailbox.make(MAPS, placed(map(name, "one"))).await?;
        joined.below.until_there(&format!("{MAPS}/{name}")).await?;
    }
    joined.below.delete("/api/v1/namespaces/kube-system/serviceaccounts/holon").await?;
    until("it is said", async || Ok(joined.condition("Ready").await?["status"] == "False")).await?;
    let said = joined.condition("Ready").await?;
    assert!(said["message"].as_str().is_some_and(|text| text.contains("401")), "{said:#}");
    joined.mailbox.merge(&format!("{MAPS}/kept"), json!({ "data": { "key": "two" } })).await?;
    joined.mailbox.delete(&format!("{MAPS}/deleted")).await?;
    tokio::time::sleep(STEADY).await;
    assert!(joined.below.get(&format!("{MAPS}/deleted")).await?.is_some());

    joined.renew().await?;
    joined.below.until(&format!("{MAPS}/kept"), |found| found["data"]["key"] == "two").await?;
    joined.below.until_gone(&format!("{MAPS}/deleted")).await?;
    joined.mailbox.until_gone(&format!("{MAPS}/deleted")).await?;
    until("it is said", async || Ok(joined.condition("Ready").await?["status"] == "True")).await?;
    let deletes = joined.physical.deletes(&[])?;
    assert_eq!(deletes.into_iter().collect::<Vec<_>>(), [("configmaps".to_owned(), 1)]);
    Ok(())
}
