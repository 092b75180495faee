//! Physical clusters of different logical clusters may have the same name.

use std::time::Duration;

use anyhow::Result;
use scenarios::client::{TestClient, until};
use scenarios::fleet::{Fleet, Member};
use serde_json::json;
use standin::{Clock, Delays, Options};

use crate::app::*;

const WEBS: &str = "/apis/apps/v1/deployments";

/// Creates a ConfigMap and a Deployment that needs it.
async fn apply(user: &TestClient) -> Result<()> {
    user.make(NAMESPACES, namespace("shop")).await?;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" } });
    user.make(&format!("{SHOP}/configmaps"), map).await?;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
    user.make(DEPLOYMENTS, web).await.map(drop)
}

/// Returns the numbers of Deployments and of ConfigMaps named `settings` on the physical cluster.
async fn present(member: &Member) -> Result<(usize, usize)> {
    let maps = member.below.list("/api/v1/configmaps").await?;
    let settings = maps.iter().filter(|map| map["metadata"]["name"] == "settings").count();
    Ok((member.below.list(WEBS).await?.len(), settings))
}

/// Mailbox objects were once looked up by the name of the target alone, over the mailboxes of all logical clusters.
/// Workloads of one team were sent to the cluster of another team that had the same name.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_means_the_physical_cluster_that_can_be_seen() -> Result<()> {
    let mut fleet = Fleet::of(&["east"]).await?;
    for team in ["a", "b", "c"] {
        fleet.logical(team).await?;
    }
    fleet.join_within("root:a", Options::new("east")).await?;
    fleet.join_within("root:b", Options::new("east")).await?;
    for team in ["a", "b"] {
        let user = fleet.client(&format!("root:{team}"))?;
        apply(&user).await?;
        user.until_available(WEB, 2).await?;
    }
    until("each has what its own team applied", async || {
        let own = [present(fleet.member("root:a/east")).await?, present(fleet.member("root:b/east")).await?];
        Ok(own == [(1, 1), (1, 1)])
    })
    .await?;
    assert_eq!(present(fleet.member("east")).await?, (0, 0));
    // A logical cluster without a cluster of this name uses that of its parent.
    let user = fleet.client("root:c")?;
    apply(&user).await?;
    user.until_available(WEB, 2).await?;
    until("the one above has it", async || Ok(present(fleet.member("east")).await? == (1, 1))).await
}

/// A team that gets its own cluster of the same name moves there, as to any other cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_takes_over_a_name_is_ready_before_the_other_is_left() -> Result<()> {
    let mut fleet = Fleet::of(&["east"]).await?;
    let user = fleet.logical("a").await?;
    apply(&user).await?;
    user.until_available(WEB, 2).await?;
    until("it runs above", async || Ok(present(fleet.member("east")).await? == (1, 1))).await?;
    let (clock, minute) = (Clock::held(), Duration::from_secs(60));
    let slow = Delays { start: minute, ..Delays::NONE };
    fleet
        .join_within("root:a", Options { clock: clock.clone(), delays: slow, ..Options::new("east") })
        .await?;
    let own = "root:a/east";
    until("its own is asked", async || Ok(present(fleet.member(own)).await? == (1, 1))).await?;
    let is_observed = |copy: &serde_json::Value| copy["status"]["replicas"] == 2;
    let copies = fleet.member(own).below.list(WEBS).await?;
    let at = copies[0]["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let copy = WEB.replace("/shop/", &format!("/{at}/"));
    fleet.member(own).mailbox.until(&copy, is_observed).await?;
    assert_eq!(present(fleet.member("east")).await?, (1, 1));
    clock.advance(minute);
    user.until_available(WEB, 2).await?;
    until("the other is left", async || Ok(present(fleet.member("east")).await? == (0, 0))).await
}
