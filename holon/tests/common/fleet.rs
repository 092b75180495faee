//! A server and its physical clusters: stand-ins that it reaches over TLS.

use std::collections::BTreeMap;

use serde_json::Value;
use standin::{Options, Standin};
use testkit::objects::{condition, items};
use testkit::{Client, Server};
use tokio::runtime::Runtime;

use super::HOLON;

pub(crate) const PHYSICAL_CLUSTERS: &str = "/apis/holon.dev/v1alpha1/physicalclusters";

/// A server, a client of its administrator, and physical clusters by name.
pub(crate) struct TestFleet {
    pub(crate) server: Server,
    pub(crate) admin: Client,
    pub(crate) standins: BTreeMap<String, Standin>,
    pub(crate) runtime: Runtime,
}

impl TestFleet {
    /// Starts a server and physical clusters, and joins them. Returns once all of them are ready.
    pub(crate) fn start(clusters: &[&str]) -> TestFleet {
        TestFleet::with_server(Server::start(HOLON), clusters)
    }

    /// The same with additional options of the server.
    pub(crate) fn start_with(clusters: &[&str], options: &[&str]) -> TestFleet {
        TestFleet::with_server(Server::start_with(HOLON, options), clusters)
    }

    /// The same with a server that the caller started.
    pub(crate) fn with_server(server: Server, clusters: &[&str]) -> TestFleet {
        let fleet = TestFleet::not_joined(server, clusters);
        clusters.iter().for_each(|name| fleet.join(name));
        fleet
    }

    /// The same without joining them. The kubeconfig of `east` is the file `east.kubeconfig` of the server's directory.
    pub(crate) fn not_joined(server: Server, clusters: &[&str]) -> TestFleet {
        let runtime = Runtime::new().unwrap();
        let start = |name: &&str| {
            let options = Options { metrics_server: true, ..Options::new(*name) };
            let standin = runtime.block_on(Standin::start(options)).unwrap();
            let kubeconfig = server.file(&format!("{name}.kubeconfig"));
            std::fs::write(kubeconfig, standin.kubeconfig().unwrap()).unwrap();
            ((*name).to_owned(), standin)
        };
        let standins = clusters.iter().map(start).collect();
        TestFleet { admin: Client::admin(&server), server, standins, runtime }
    }

    /// Joins a physical cluster with push, by the kubeconfig in the server's directory, and waits until it is ready.
    #[track_caller]
    pub(crate) fn join(&self, name: &str) {
        let kubeconfig = self.server.file(&format!("{name}.kubeconfig"));
        let kubeconfig = kubeconfig.to_str().unwrap();
        let (joined, output) =
            self.server.run(&["join", name, "--label", "region=eu", "--kubeconfig", kubeconfig]);
        assert!(joined && output.contains(&format!("joined {name}: Kubernetes v1.")), "{output}");
    }

    pub(crate) fn physical_cluster(&self, name: &str) -> Value {
        self.admin.get(&format!("{PHYSICAL_CLUSTERS}/{name}")).json()
    }

    /// Returns the Ready condition of a physical cluster.
    pub(crate) fn ready_condition(&self, name: &str) -> Value {
        condition(&self.physical_cluster(name), "Ready")
    }

    /// Kills a physical cluster; it keeps its data.
    pub(crate) fn kill_cluster(&mut self, name: &str) {
        self.runtime.block_on(self.standins.get_mut(name).unwrap().kill());
    }

    pub(crate) fn restart_cluster(&mut self, name: &str) {
        self.runtime.block_on(self.standins.get_mut(name).unwrap().restart()).unwrap();
    }

    /// Sends a request to a physical cluster directly. Returns `None` if it fails.
    pub(crate) fn send_downstream(
        &self,
        cluster: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Option<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", kind).body(body);
        let standin = &self.standins[cluster];
        // A client can be made only within the runtime.
        self.runtime.block_on(async { standin.client().request::<Value>(request.unwrap()).await }).ok()
    }

    /// Reads from a physical cluster directly. Returns `None` if that fails.
    pub(crate) fn get_downstream(&self, cluster: &str, path: &str) -> Option<Value> {
        self.send_downstream(cluster, "GET", path, &Value::Null)
    }

    /// The same. Returns null if that fails.
    pub(crate) fn read_downstream(&self, cluster: &str, path: &str) -> Value {
        self.get_downstream(cluster, path).unwrap_or_default()
    }

    /// Returns the objects of a collection on a physical cluster.
    pub(crate) fn list_downstream(&self, cluster: &str, path: &str) -> Vec<Value> {
        items(&self.read_downstream(cluster, path))
    }
}
