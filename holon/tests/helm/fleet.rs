//! `helm --wait` over physical clusters. Helm 4 waits with kstatus, like Argo and Flux: it relies on the status of the
//! user's object, which must therefore be right over one target and over several.

use std::path::Path;

use serde_json::Value;
use testkit::Kubectl;
use testkit::objects::{has_condition, placed_namespace};

use super::common::fleet::TestFleet;
use super::common::repository;
use super::programs;
use super::story::Helm;

const NAMESPACE: &str = "helm-true";

/// Helm and kubectl of a user whose namespace is placed on all physical clusters of a fleet.
struct Placed {
    helm: Helm,
    kubectl: Kubectl,
    fleet: TestFleet,
    replicas: usize,
}

impl Placed {
    fn new(helm: &Path, kubectl: &Path, clusters: &[&str]) -> Placed {
        let fleet = TestFleet::start(clusters);
        let kubectl = Kubectl::new(&fleet.server, kubectl, "root");
        fleet.admin.create("/api/v1/namespaces", &placed_namespace(NAMESPACE, "*"));
        let helm = Helm::new(helm, &fleet.server.file("root.kubeconfig"), "true");
        Placed { helm, kubectl, fleet, replicas: 2 * clusters.len() }
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
        let pods = |name| self.fleet.list_downstream(name, "/api/v1/pods?labelSelector=app%3Dshop");
        let is_ready =
            |pod: &Value| pod["spec"]["containers"][0]["image"] == image && has_condition(pod, "Ready");
        self.fleet.standins.keys().flat_map(|name| pods(name)).filter(is_ready).count()
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
    let placed = Placed::new(&helm, &kubectl, clusters);
    // When Helm reports success, all pods of all clusters have the new image.
    for (revision, image) in [("1", "shop:1"), ("2", "shop:2")] {
        let (worked, told) = placed.upgrades(&format!("image={image}"), "120s");
        assert!(worked && told.contains(&format!("REVISION: {revision}")), "{told}");
        assert_eq!(placed.ready(image), placed.replicas, "Helm says that {image} is there");
    }
    // An image that never becomes ready is never reported as deployed, and the previous pods keep running.
    let (worked, told) = placed.upgrades("image=shop:3,misfortune=NotReady", "10s");
    assert!(!worked, "what cannot become ready is said to be: {told}");
    placed.says(&["status", "shop"], "STATUS: failed");
    assert_eq!(placed.ready("shop:3"), 0);
    let missing = placed.replicas / 4;
    assert!(placed.ready("shop:2") >= placed.replicas - missing, "{} are left", placed.ready("shop:2"));

    placed.says(&["rollback", "shop", "2", "--wait", "--timeout=120s"], "Rollback was a success");
    assert_eq!(placed.ready("shop:2"), placed.replicas);
    placed.says(&["status", "shop"], "STATUS: deployed");
    placed.says(&["uninstall", "shop", "--wait", "--timeout=120s"], "uninstalled");
    placed.kubectl.fails(&["get", "deploy", "shop", "-n", NAMESPACE], "not found");
    placed.kubectl.finish();
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
