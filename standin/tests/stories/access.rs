//! Access to a stand-in: its TLS port and the logs of its containers.

use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use http::Request;
use serde_json::json;
use standin::Link;
use tokio::net::TcpStream;

use crate::common::{APPS, CORE, TestCluster, deployment};

#[tokio::test]
async fn logs_of_a_container_are_read_and_followed() {
    let cluster = TestCluster::new().await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 1, json!({}))).await;
    cluster.until(&format!("{APPS}/deployments/web"), |web| web["status"]["availableReplicas"] == 1).await;
    let pod = cluster.names(&format!("{CORE}/pods")).await.remove(0);
    let log = format!("{CORE}/pods/{pod}/log");
    let all = cluster.text(&log).await.unwrap();
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines[0].starts_with("nginx:1 starts on east-") && lines[1] == "ready", "{all}");
    assert_eq!(cluster.text(&format!("{log}?tailLines=1")).await.unwrap(), "ready\n");
    let dated = cluster.text(&format!("{log}?tailLines=1&timestamps=true")).await.unwrap();
    assert!(dated.ends_with("Z ready\n") && dated.starts_with("20"), "{dated}");
    assert!(cluster.text(&format!("{log}?container=other")).await.is_err());
    assert!(cluster.text(&format!("{CORE}/pods/none/log")).await.is_err());
    // A follower gets all lines up to the deletion of the pod.
    let request = Request::get(format!("{log}?follow=true")).body(Vec::new()).unwrap();
    let mut followed = cluster.client.request_stream(request).await.unwrap().lines();
    assert!(followed.next().await.unwrap().unwrap().contains("starts"));
    cluster.delete(&format!("{APPS}/deployments/web")).await;
    while let Some(line) = followed.next().await {
        line.unwrap();
    }
}

#[tokio::test]
async fn the_port_is_closed_while_the_link_is_cut_and_stays_the_same() {
    let cluster = TestCluster::new().await;
    let until_open = async |open: bool| {
        // The relay closes and opens its port a moment after the link changes.
        while TcpStream::connect(cluster.standin.address()).await.is_ok() != open {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until_open(true).await;
    cluster.standin.faults().set_link(Link::Cut);
    until_open(false).await;
    cluster.standin.faults().clear();
    until_open(true).await;
    let text = cluster.standin.kubeconfig().unwrap();
    assert!(text.contains(&format!("server: https://{}\n", cluster.standin.address())), "{text}");
}
