//! Ways to a stand-in: over TLS with its kubeconfig, and to the lines its containers wrote.

use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use http::Request;
use serde_json::json;
use standin::Link;
use tokio::net::TcpStream;

use crate::common::{APPS, CORE, World, deployment};

#[tokio::test]
async fn lines_of_a_container_are_read_and_followed() {
    let world = World::new().await;
    world.create(&format!("{APPS}/deployments"), deployment("web", 1, json!({}))).await;
    world.until(&format!("{APPS}/deployments/web"), |web| web["status"]["availableReplicas"] == 1).await;
    let pod = world.names(&format!("{CORE}/pods")).await.remove(0);
    let log = format!("{CORE}/pods/{pod}/log");
    let all = world.text(&log).await.unwrap();
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines[0].starts_with("nginx:1 starts on east-") && lines[1] == "ready", "{all}");
    assert_eq!(world.text(&format!("{log}?tailLines=1")).await.unwrap(), "ready\n");
    let dated = world.text(&format!("{log}?tailLines=1&timestamps=true")).await.unwrap();
    assert!(dated.ends_with("Z ready\n") && dated.starts_with("20"), "{dated}");
    assert!(world.text(&format!("{log}?container=other")).await.is_err());
    assert!(world.text(&format!("{CORE}/pods/none/log")).await.is_err());
    // Who follows hears the last word when the pod goes.
    let request = Request::get(format!("{log}?follow=true")).body(Vec::new()).unwrap();
    let mut followed = world.client.request_stream(request).await.unwrap().lines();
    assert!(followed.next().await.unwrap().unwrap().contains("starts"));
    world.delete(&format!("{APPS}/deployments/web")).await;
    while let Some(line) = followed.next().await {
        line.unwrap();
    }
}

#[tokio::test]
async fn its_port_is_closed_while_the_link_is_cut_and_the_same_afterwards() {
    let world = World::new().await;
    let until_open = async |open: bool| {
        // The door closes and opens a moment after the link is told to.
        while TcpStream::connect(world.standin.address()).await.is_ok() != open {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until_open(true).await;
    world.standin.faults().set_link(Link::Cut);
    until_open(false).await;
    world.standin.faults().heal();
    until_open(true).await;
    let text = world.standin.kubeconfig().unwrap();
    assert!(text.contains(&format!("server: https://{}\n", world.standin.address())), "{text}");
}
