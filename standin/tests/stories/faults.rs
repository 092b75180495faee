//! A stand-in that is cut off, slow, broken, frozen, killed.

use std::time::Duration;

use serde_json::{Value, json};
use standin::{Link, Trouble};

use crate::common::{APPS, CORE, World, deployment};

#[tokio::test]
async fn a_killed_stand_in_goes_on_where_it_was() {
    let mut world = World::new().await;
    world.create(&format!("{APPS}/deployments"), deployment("web", 2, json!({}))).await;
    let path = format!("{APPS}/deployments/web");
    world.until(&path, |web| web["status"]["availableReplicas"] == 2).await;
    let pods = world.names(&format!("{CORE}/pods")).await;
    let identity = world.get("/api/v1/namespaces/kube-system").await["metadata"]["uid"].clone();
    world.standin.kill().await;
    assert!(world.ask("GET", &path, Value::Null).await.is_err());
    assert!(tokio::net::TcpStream::connect(world.standin.address()).await.is_err());
    world.standin.restart().await.unwrap();
    world.until(&path, |web| web["status"]["availableReplicas"] == 2).await;
    assert_eq!(world.names(&format!("{CORE}/pods")).await, pods);
    // Clusters are told apart by this.
    assert_eq!(world.get("/api/v1/namespaces/kube-system").await["metadata"]["uid"], identity);
    let other = World::new().await;
    assert_ne!(other.get("/api/v1/namespaces/kube-system").await["metadata"]["uid"], identity);
    world.merge(&path, json!({"spec": {"replicas": 3}})).await;
    world.until(&path, |web| web["status"]["availableReplicas"] == 3).await;
}

#[tokio::test]
async fn nothing_comes_of_writes_while_it_is_frozen() {
    let world = World::new().await;
    world.until("/api/v1/nodes/east-2", |node| !node["status"]["capacity"].is_null()).await;
    world.standin.freeze();
    world.create(&format!("{APPS}/deployments"), deployment("web", 1, json!({}))).await;
    let before = world.get(&format!("{APPS}/deployments/web")).await;
    tokio::task::yield_now().await;
    assert_eq!(world.get(&format!("{APPS}/deployments/web")).await, before);
    world.standin.thaw();
    world.until(&format!("{APPS}/deployments/web"), |web| web["status"]["availableReplicas"] == 1).await;
}

#[tokio::test]
async fn a_cut_link_refuses_and_a_silent_one_says_nothing() {
    let world = World::new().await;
    let faults = world.standin.faults();
    faults.set_link(Link::Cut);
    assert!(world.ask("GET", "/version", Value::Null).await.is_err());
    faults.set_link(Link::Silent);
    let asking = world.ask("GET", "/version", Value::Null);
    tokio::pin!(asking);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut asking).await.is_err());
    faults.heal();
    assert!(asking.await.is_ok());
}

#[tokio::test]
async fn requests_fail_as_asked_and_are_counted() {
    let world = World::new().await;
    let code = async || match world.ask("GET", "/api/v1/nodes", Value::Null).await {
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
        Ok(_) => 200,
    };
    for (trouble, expected) in [
        (Trouble::TooManyRequests, 429),
        (Trouble::Internal, 500),
        (Trouble::Unavailable, 503),
        (Trouble::Garbage, 0),
    ] {
        world.standin.faults().trouble(trouble, 100);
        assert_eq!(code().await, expected, "{trouble:?}");
    }
    world.standin.faults().heal();
    assert_eq!(code().await, 200);
    let before = world.standin.requests();
    world.standin.faults().trouble(Trouble::LostAnswer, 100);
    let lost = world.ask("POST", &format!("{APPS}/deployments"), deployment("web", 0, json!({}))).await;
    assert!(lost.is_err());
    world.standin.faults().heal();
    assert_eq!(world.names(&format!("{APPS}/deployments")).await, ["web"]);
    let news = world.standin.requests().since(&before);
    // What the controllers inside do is not counted.
    assert_eq!((news.writes(), news.deletes(), news.of(&["list"])), (1, 0, 1));
}

#[tokio::test]
async fn pods_of_a_node_that_is_gone_come_back_elsewhere() {
    let world = World::new().await;
    world.create(&format!("{APPS}/deployments"), deployment("web", 4, json!({}))).await;
    let path = format!("{APPS}/deployments/web");
    world.until(&path, |web| web["status"]["availableReplicas"] == 4).await;
    world.delete("/api/v1/nodes/east-1").await;
    world
        .until(&format!("{CORE}/pods"), |pods| {
            let pods = pods["items"].as_array().unwrap();
            pods.len() == 4 && pods.iter().all(|pod| pod["spec"]["nodeName"] == "east-2")
        })
        .await;
    world.until(&path, |web| web["status"]["availableReplicas"] == 4).await;
}
