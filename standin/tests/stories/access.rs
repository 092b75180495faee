//! Ways to a stand-in: over TLS with its kubeconfig, and to the lines its containers wrote.

use futures::AsyncBufReadExt;
use futures::StreamExt;
use http::Request;
use serde_json::{Value, json};
use standin::Link;

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
async fn its_kubeconfig_leads_there_and_a_cut_breaks_what_is_open() {
    let world = World::new().await;
    let text = world.standin.kubeconfig().unwrap();
    let mut tls = peers_free_client(&world, &text);
    let nodes = world.get("/api/v1/nodes").await;
    assert_eq!(nodes["kind"], "NodeList");
    world.standin.faults().set_link(Link::Cut);
    assert!(tls.is_refused().await);
    world.standin.faults().heal();
    assert!(!tls.is_refused().await);
    assert!(text.contains(&world.standin.address().to_string()), "{text}");
    let _ = Value::Null;
}

/// Knocks on the port.
struct Knock(std::net::SocketAddr);

impl Knock {
    async fn is_refused(&mut self) -> bool {
        // The door closes and opens a moment after the link is told to.
        for _ in 0..200 {
            let refused = tokio::net::TcpStream::connect(self.0).await.is_err();
            if refused {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        false
    }
}

fn peers_free_client(world: &World, _: &str) -> Knock {
    Knock(world.standin.address())
}
