//! JVM clients against `holon dev`, with the kubeconfig it writes.
//!
//! fabric8's client watches over WebSocket, the official one over plain HTTP. Both exec over WebSocket, and both read
//! the client key only in the form `EC PRIVATE KEY`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use scenarios::holon;
use serde_json::{Value, json};

use crate::{PATIENCE, connect, objects, program};

const NAMESPACE: &str = "default";
const PEERS: [&str; 2] = ["java-fabric8", "java-kubernetes"];

/// A running `holon dev`. It is killed when dropped.
struct Dev {
    child: Child,
    kubeconfig: String,
}

impl Dev {
    /// Starts it. Returns once it has printed the suggested commands.
    fn start() -> Result<Dev> {
        let mut command = Command::new(holon::program()?);
        let mut child = command.args(["dev", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn()?;
        let stdout = BufReader::new(child.stdout.as_mut().context("stdout is not a pipe")?);
        let mut kubeconfig = String::new();
        for line in stdout.lines().map_while(Result::ok) {
            if let Some(path) = line.trim().strip_prefix("export KUBECONFIG=") {
                path.clone_into(&mut kubeconfig);
            }
            // The last line of its output.
            if line.contains("Ctrl-C stops the server") {
                break;
            }
        }
        ensure!(!kubeconfig.is_empty(), "holon dev printed no kubeconfig");
        Ok(Dev { child, kubeconfig })
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It removes its directory when it is terminated by a signal.
        let _ = holon::signal("INT", self.child.id());
        let _ = self.child.wait();
    }
}

/// Creates a Deployment, and returns the name of its pod once that runs.
async fn running_pod(client: &kube::Client) -> Result<String> {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let labels = json!({ "app": "web" });
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "web", "image": "web" }] },
            },
        },
    });
    let deployments = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    objects::request(client, "POST", &deployments, Some(&deployment)).await?;
    let begun = Instant::now();
    loop {
        let listed = objects::request(client, "GET", &pods, None).await?;
        let items = listed["items"].as_array().context("not a list")?;
        if let Some(pod) = items.iter().find(|pod| pod["status"]["phase"] == "Running") {
            return Ok(pod["metadata"]["name"].as_str().context("the pod has no name")?.to_owned());
        }
        ensure!(begun.elapsed() < PATIENCE, "no pod runs: {items:?}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// Returns how many watches of ConfigMaps were answered with this status code.
async fn watches(client: &kube::Client, code: u16) -> Result<u64> {
    let metrics = client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
    let series = format!(
        "apiserver_request_total{{verb=\"WATCH\",group=\"\",resource=\"configmaps\",code=\"{code}\"}} "
    );
    Ok(metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or_default())
}

/// fabric8's request for a WebSocket was once answered with an endless plain response, and neither client could read
/// the client key.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs java-fabric8 and java-kubernetes"]
async fn jvm_clients_write_watch_and_run_commands() -> Result<()> {
    let dev = Dev::start()?;
    let client = connect(&dev.kubeconfig).await?;
    let pod = running_pod(&client).await?;
    for peer in PEERS {
        let (begun, before) = (Instant::now(), watches(&client, 101).await?);
        let output = tokio::task::block_in_place(|| program::run(peer, &[&dev.kubeconfig, NAMESPACE, &pod]))?;
        let over_websocket = watches(&client, 101).await? - before;
        println!("{peer}: {output:?}, {over_websocket} watches over WebSocket, {:?}", begun.elapsed());
        let expected: [Value; 2] =
            [json!({ "followed": 4, "left": 0 }), json!({ "command": "hello", "code": 0 })];
        ensure!(output == expected, "{peer} printed {output:?}");
        ensure!((over_websocket > 0) == (peer == "java-fabric8"), "{peer}: {over_websocket} over WebSocket");
    }
    Ok(())
}
