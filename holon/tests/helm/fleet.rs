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
struct HelmFleet {
    helm: Helm,
    kubectl: Kubectl,
    fleet: TestFleet,
    replicas: usize,
}

impl HelmFleet {
    fn new(helm: &Path, kubectl: &Path, clusters: &[&str]) -> HelmFleet {
        let fleet = TestFleet::start(clusters);
        let kubectl = Kubectl::new(&fleet.server, kubectl, "root");
        fleet.admin.create("/api/v1/namespaces", &placed_namespace(NAMESPACE, "*"));
        let helm = Helm::new(helm, &fleet.server.file("root.kubeconfig"), "true");
        HelmFleet { helm, kubectl, fleet, replicas: 2 * clusters.len() }
    }

    /// Runs `helm upgrade --install --wait`, and returns whether it succeeded, and its output.
    fn upgrade(&self, values: &str, timeout: &str) -> (bool, String) {
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
    fn expect_output(&self, arguments: &[&str], expected: &str) {
        let (succeeded, output) = self.helm.run(arguments);
        assert!(succeeded && output.contains(expected), "helm {arguments:?} printed {output}");
    }
}

#[track_caller]
fn check_helm_waits(clusters: &[&str]) {
    let [helm, kubectl] = programs();
    let helm_fleet = HelmFleet::new(&helm, &kubectl, clusters);
    // When Helm reports success, all pods of all clusters have the new image.
    for (revision, image) in [("1", "shop:1"), ("2", "shop:2")] {
        let (succeeded, output) = helm_fleet.upgrade(&format!("image={image}"), "120s");
        assert!(succeeded && output.contains(&format!("REVISION: {revision}")), "{output}");
        assert_eq!(helm_fleet.ready(image), helm_fleet.replicas, "Helm reported that {image} is deployed");
    }
    // An image that never becomes ready is never reported as deployed, and the previous pods keep running.
    let (succeeded, output) = helm_fleet.upgrade("image=shop:3,misfortune=NotReady", "10s");
    assert!(!succeeded, "Helm reported a rollout that cannot finish: {output}");
    helm_fleet.expect_output(&["status", "shop"], "STATUS: failed");
    assert_eq!(helm_fleet.ready("shop:3"), 0);
    let missing = helm_fleet.replicas / 4;
    assert!(
        helm_fleet.ready("shop:2") >= helm_fleet.replicas - missing,
        "{} are left",
        helm_fleet.ready("shop:2")
    );

    helm_fleet
        .expect_output(&["rollback", "shop", "2", "--wait", "--timeout=120s"], "Rollback was a success");
    assert_eq!(helm_fleet.ready("shop:2"), helm_fleet.replicas);
    helm_fleet.expect_output(&["status", "shop"], "STATUS: deployed");
    helm_fleet.expect_output(&["uninstall", "shop", "--wait", "--timeout=120s"], "uninstalled");
    helm_fleet.kubectl.fails(&["get", "deploy", "shop", "-n", NAMESPACE], "not found");
    helm_fleet.kubectl.finish();
}

#[test]
#[ignore = "needs helm and kubectl"]
fn helm_waits_for_one_target() {
    check_helm_waits(&["east"]);
}

#[test]
#[ignore = "needs helm and kubectl"]
fn helm_waits_for_two_targets() {
    check_helm_waits(&["east", "west"]);
}

#[test]
#[ignore = "needs helm and kubectl"]
fn helm_waits_for_five_targets() {
    check_helm_waits(&["east", "north", "south", "up", "west"]);
}
