//! Physical clusters of different logical clusters may have the same name.

use std::time::Duration;

use anyhow::Result;
use scenarios::client::{TestClient, until};
use scenarios::fleet::{Fleet, FleetMember};
use serde_json::json;
use standin::{Clock, Delays, Options};

use crate::app::*;

const WEBS: &str = "/apis/apps/v1/deployments";

/// Creates a ConfigMap and a Deployment that needs it.
async fn apply(user: &TestClient) -> Result<()> {
    user.create(NAMESPACES, namespace("shop")).await?;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" } });
    user.create(&format!("{SHOP}/configmaps"), map).await?;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
    user.create(DEPLOYMENTS, web).await.map(drop)
}

/// Returns the numbers of Deployments and of ConfigMaps named `settings` on the physical cluster.
async fn present(member: &FleetMember) -> Result<(usize, usize)> {
    let maps = member.downstream.list("/api/v1/configmaps").await?;
    let settings = maps.iter().filter(|map| map["metadata"]["name"] == "settings").count();
    Ok((member.downstream.list(WEBS).await?.len(), settings))
}

/// Mailbox objects were once looked up by the name of the target alone, over the mailboxes of all logical clusters.
/// Workloads of one team were sent to the cluster of another team that had the same name.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_name_means_the_visible_physical_cluster() -> Result<()> {
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
    until("each cluster runs the app of its own team", async || {
        let own = [present(fleet.member("root:a/east")).await?, present(fleet.member("root:b/east")).await?];
        Ok(own == [(1, 1), (1, 1)])
    })
    .await?;
    assert_eq!(present(fleet.member("east")).await?, (0, 0));
    // A logical cluster without a cluster of this name uses that of its parent.
    let user = fleet.client("root:c")?;
    apply(&user).await?;
    user.until_available(WEB, 2).await?;
    until("the cluster of the parent runs it", async || Ok(present(fleet.member("east")).await? == (1, 1)))
        .await
}

/// A team that gets its own cluster of the same name moves there, as to any other cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_takes_over_a_name_is_ready_before_the_old_target_is_removed() -> Result<()> {
    let mut fleet = Fleet::of(&["east"]).await?;
    let user = fleet.logical("a").await?;
    apply(&user).await?;
    user.until_available(WEB, 2).await?;
    until(
        "it runs on the cluster of the parent",
        async || Ok(present(fleet.member("east")).await? == (1, 1)),
    )
    .await?;
    let (clock, minute) = (Clock::held(), Duration::from_secs(60));
    let slow = Delays { start: minute, ..Delays::NONE };
    fleet
        .join_within("root:a", Options { clock: clock.clone(), delays: slow, ..Options::new("east") })
        .await?;
    let own = "root:a/east";
    until("the team's own cluster has it", async || Ok(present(fleet.member(own)).await? == (1, 1))).await?;
    let is_observed = |object: &serde_json::Value| object["status"]["replicas"] == 2;
    let deployments = fleet.member(own).downstream.list(WEBS).await?;
    let at = deployments[0]["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let mailbox_path = WEB.replace("/shop/", &format!("/{at}/"));
    fleet.member(own).mailbox.until(&mailbox_path, is_observed).await?;
    assert_eq!(present(fleet.member("east")).await?, (1, 1));
    clock.advance(minute);
    user.until_available(WEB, 2).await?;
    until("it is deleted on the cluster of the parent", async || {
        Ok(present(fleet.member("east")).await? == (0, 0))
    })
    .await
}
