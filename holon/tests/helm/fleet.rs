//! `helm --wait` over physical clusters. Helm 4 waits with kstatus, like Argo and Flux: it relies on the status of the
//! user's object, which must therefore be right over one target and over several.

use std::path::Path;

use serde_json::Value;
use standin::{Options, Standin};
use tokio::runtime::Runtime;

use super::common::kubectl::Kubectl;
use super::common::{Server, repository};
use super::programs;
use super::story::Helm;

const NAMESPACE: &str = "helm-true";

/// A server with physical clusters, and Helm and kubectl of a user whose namespace is placed on all of them.
struct World {
    helm: Helm,
    kubectl: Kubectl,
    standins: Vec<Standin>,
    replicas: usize,
    runtime: Runtime,
    _server: Server,
}

impl World {
    fn new(helm: &Path, kubectl: &Path, clusters: &[&str]) -> World {
        let (server, runtime) = (Server::start(), Runtime::new().unwrap());
        let root = Kubectl::new(&server, kubectl, "root");
        let mut standins = Vec::new();
        for name in clusters {
            let standin = runtime.block_on(Standin::start(Options::new(*name))).unwrap();
            let file = server.file(name);
            std::fs::write(&file, standin.kubeconfig().unwrap()).unwrap();
            let joined = std::process::Command::new(env!("CARGO_BIN_EXE_holon"))
                .args(["join", name, "--kubeconfig", file.to_str().unwrap(), "--data-dir"])
                .arg(server.file(""))
                .output()
                .unwrap();
            assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
            standins.push(standin);
        }
        root.says(&["create", "namespace", NAMESPACE], "created");
        root.says(&["annotate", "namespace", NAMESPACE, "holon.dev/placement=*"], "annotated");
        root.finish();
        let helm = Helm::new(helm, &server.file("root.kubeconfig"), "true");
        World { helm, kubectl: root, standins, replicas: 2 * clusters.len(), runtime, _server: server }
    }

    /// Runs `helm upgrade --install --wait`, and returns whether it succeeded, and its output.
    fn upgrades(&self, values: &str, timeout: &str) -> (bool, String) {
        let chart = repository().join("test/charts/shop");
        let values = format!("--set=replicas={},{values}", self.replicas);
        let timeout = format!("--timeout={timeout}");
        let chart = chart.to_str().unwrap();
        self.helm.run(&["upgrade", "--install", "shop", chart, "--wait", &values, &timeout])
    }

    /// Returns how many ready pods have this image, read from the physical clusters.
    fn ready(&self, image: &str) -> usize {
        let pods = |standin: &Standin| {
            let request =
                http::Request::get("/api/v1/pods?labelSelector=app%3Dshop").body(Vec::new()).unwrap();
            let list =
                self.runtime.block_on(async { standin.client().request::<Value>(request).await }).unwrap();
            list["items"].as_array().cloned().unwrap_or_default()
        };
        let is_ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            pod["spec"]["containers"][0]["image"] == image
                && conditions.into_iter().any(|said| said["type"] == "Ready" && said["status"] == "True")
        };
        self.standins.iter().flat_map(pods).filter(is_ready).count()
    }

    #[track_caller]
    fn says(&self, arguments: &[&str], expected: &str) {
        let (worked, told) = self.helm.run(arguments);
        assert!(worked && told.contains(expected), "helm {arguments:?} said {told}");
    }
}

#[track_caller]
fn waited(clusters: &[&str]) {
    let [helm, kubectl] = programs();
    let world = World::new(&helm, &kubectl, clusters);
    // When Helm reports success, all pods of all clusters have the new image.
    for (revision, image) in [("1", "shop:1"), ("2", "shop:2")] {
        let (worked, told) = world.upgrades(&format!("image={image}"), "120s");
        assert!(worked && told.contains(&format!("REVISION: {revision}")), "{told}");
        assert_eq!(world.ready(image), world.replicas, "Helm says that {image} is there");
    }
    // An image that never becomes ready is never reported as deployed, and the previous pods keep running.
    let (worked, told) = world.upgrades("image=shop:3,misfortune=NotReady", "10s");
    assert!(!worked, "what cannot become ready is said to be: {told}");
    world.says(&["status", "shop"], "STATUS: failed");
    assert_eq!(world.ready("shop:3"), 0);
    let missing = world.replicas / 4;
    assert!(world.ready("shop:2") >= world.replicas - missing, "{} are left", world.ready("shop:2"));

    world.says(&["rollback", "shop", "2", "--wait", "--timeout=120s"], "Rollback was a success");
    assert_eq!(world.ready("shop:2"), world.replicas);
    world.says(&["status", "shop"], "STATUS: deployed");
    world.says(&["uninstall", "shop", "--wait", "--timeout=120s"], "uninstalled");
    world.kubectl.fails(&["get", "deploy", "shop", "-n", NAMESPACE], "not found");
    world.kubectl.finish();
}

#[test]
#[ignore = "needs helm and kubectl"]
fn helm_waits_for_one_target() {
    waited(&["east"]);
}

#[test]
#[ignore = "needs helm and kubectl"]
fn helm_waits_for_two_targets() {
    waited(&["east", "west"]);
}

#[test]
#[ignore = "needs helm and kubectl"]
fn helm_waits_for_five_targets() {
    waited(&["east", "north", "south", "up", "west"]);
}
