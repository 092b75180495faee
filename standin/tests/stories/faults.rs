//! A stand-in that is disconnected, slow, broken, frozen or killed.

use std::time::Duration;

use serde_json::{Value, json};
use standin::{Link, ResponseFault};

use crate::common::{APPS, CORE, TestCluster, deployment};

#[tokio::test]
async fn a_killed_stand_in_continues_after_a_restart() {
    let mut cluster = TestCluster::new().await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 2, json!({}))).await;
    let path = format!("{APPS}/deployments/web");
    cluster.until(&path, |web| web["status"]["availableReplicas"] == 2).await;
    let pods = cluster.names(&format!("{CORE}/pods")).await;
    let identity = cluster.get("/api/v1/namespaces/kube-system").await["metadata"]["uid"].clone();
    cluster.standin.kill().await;
    assert!(cluster.request("GET", &path, Value::Null).await.is_err());
    assert!(tokio::net::TcpStream::connect(cluster.standin.address()).await.is_err());
    cluster.standin.restart().await.unwrap();
    cluster.until(&path, |web| web["status"]["availableReplicas"] == 2).await;
    assert_eq!(cluster.names(&format!("{CORE}/pods")).await, pods);
    // Clients identify a cluster by this uid.
    assert_eq!(cluster.get("/api/v1/namespaces/kube-system").await["metadata"]["uid"], identity);
    let other = TestCluster::new().await;
    assert_ne!(other.get("/api/v1/namespaces/kube-system").await["metadata"]["uid"], identity);
    cluster.merge(&path, json!({"spec": {"replicas": 3}})).await;
    cluster.until(&path, |web| web["status"]["availableReplicas"] == 3).await;
}

#[tokio::test]
async fn a_frozen_stand_in_does_not_reconcile() {
    let cluster = TestCluster::new().await;
    cluster.until("/api/v1/nodes/east-2", |node| !node["status"]["capacity"].is_null()).await;
    cluster.standin.freeze();
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 1, json!({}))).await;
    let before = cluster.get(&format!("{APPS}/deployments/web")).await;
    tokio::task::yield_now().await;
    assert_eq!(cluster.get(&format!("{APPS}/deployments/web")).await, before);
    cluster.standin.thaw();
    cluster.until(&format!("{APPS}/deployments/web"), |web| web["status"]["availableReplicas"] == 1).await;
}

#[tokio::test]
async fn a_cut_link_refuses_connections_and_a_silent_one_does_not_respond() {
    let cluster = TestCluster::new().await;
    let faults = cluster.standin.faults();
    faults.set_link(Link::Cut);
    assert!(cluster.request("GET", "/version", Value::Null).await.is_err());
    faults.set_link(Link::Silent);
    let pending_request = cluster.request("GET", "/version", Value::Null);
    tokio::pin!(pending_request);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut pending_request).await.is_err());
    faults.clear();
    assert!(pending_request.await.is_ok());
}

#[tokio::test]
async fn requests_fail_with_the_injected_fault_and_are_counted() {
    let cluster = TestCluster::new().await;
    let code = async || match cluster.request("GET", "/api/v1/nodes", Value::Null).await {
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
        Ok(_) => 200,
    };
    for (fault, expected) in [
        (ResponseFault::TooManyRequests, 429),
        (ResponseFault::Internal, 500),
        (ResponseFault::Unavailable, 503),
        (ResponseFault::Garbage, 0),
    ] {
        cluster.standin.faults().inject(fault, 100);
        assert_eq!(code().await, expected, "{fault:?}");
    }
    cluster.standin.faults().clear();
    assert_eq!(code().await, 200);
    let before = cluster.standin.requests();
    cluster.standin.faults().inject(ResponseFault::LostResponse, 100);
    let lost = cluster.request("POST", &format!("{APPS}/deployments"), deployment("web", 0, json!({}))).await;
    assert!(lost.is_err());
    cluster.standin.faults().clear();
    assert_eq!(cluster.names(&format!("{APPS}/deployments")).await, ["web"]);
    let new_requests = cluster.standin.requests().since(&before);
    // Requests of its own controllers are not counted.
    assert_eq!((new_requests.writes(), new_requests.deletes(), new_requests.of(&["list"])), (1, 0, 1));
}

#[tokio::test]
async fn pods_of_a_deleted_node_are_created_on_another() {
    let cluster = TestCluster::new().await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 4, json!({}))).await;
    let path = format!("{APPS}/deployments/web");
    cluster.until(&path, |web| web["status"]["availableReplicas"] == 4).await;
    cluster.delete("/api/v1/nodes/east-1").await;
    cluster
        .until(&format!("{CORE}/pods"), |pods| {
            let pods = pods["items"].as_array().unwrap();
            pods.len() == 4 && pods.iter().all(|pod| pod["spec"]["nodeName"] == "east-2")
        })
        .await;
    cluster.until(&path, |web| web["status"]["availableReplicas"] == 4).await;
}
