//! Reasons why the server cannot connect to a physical cluster, and how it reports them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use standin::{Options, Standin};
use testkit::Client;
use testkit::client::base64;
use testkit::until;

use crate::common::fleet::PHYSICAL_CLUSTERS;
use crate::{EastFleet, WEB};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Returns the Secret with a kubeconfig of east.
pub(crate) fn secret(kubeconfig: &str) -> Value {
    json!({ "metadata": { "name": "east" }, "data": { "kubeconfig": base64(kubeconfig) } })
}

/// Returns the object for east as a GitOps tool would apply it: its Secret may be created later.
pub(crate) fn physical_cluster() -> Value {
    let reference = json!({ "namespace": "default", "name": "east" });
    json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster",
        "metadata": { "name": "east" }, "spec": { "connection": { "push": { "secretRef": reference } } },
    })
}

impl EastFleet {
    #[track_caller]
    fn write(&self, method: &str, path: &str, object: &Value) {
        let answer = self.admin.ask(method, path, object);
        assert!(matches!(answer.code, 200 | 201), "{method} {path}: {}", answer.body);
    }

    #[track_caller]
    fn until_condition(&self, status: &str, reason: &str, text: &str) {
        until(&format!("{status}, {reason}: {text}"), || {
            let ready = self.ready_condition("east");
            let matches = ready["message"].as_str().is_some_and(|message| message.contains(text));
            matches && ready["status"] == status && ready["reason"] == reason
        });
    }
}

#[test]
fn the_ready_condition_reports_connection_problems() {
    let fleet = EastFleet::not_joined();
    fleet.write("POST", PHYSICAL_CLUSTERS, &physical_cluster());
    fleet.until_condition(
        "False",
        "CannotConnect",
        "there is no Secret default/east; run `holon join` to write",
    );
    fleet.write("POST", SECRETS, &json!({ "metadata": { "name": "east" }, "data": { "config": "" } }));
    fleet.until_condition("False", "CannotConnect", "Secret default/east has no kubeconfig");
    // A user who may read the PhysicalCluster may lack the right to read the Secret, so messages must not quote it.
    let path = format!("{SECRETS}/east");
    fleet.write("PUT", &path, &secret("a-token-in-the-wrong-field"));
    fleet.until_condition("False", "CannotConnect", "kubeconfig of Secret default/east cannot be used");
    let message = fleet.ready_condition("east")["message"].to_string();
    assert!(!message.contains("a-token"), "{message}");
    let programs = fleet.east().kubeconfig().unwrap().replace("client-key-data", "exec");
    fleet.write("PUT", &path, &secret(&programs));
    fleet.until_condition("False", "CannotConnect", "cannot be used");
    assert_eq!(fleet.east().requests().total(), 0);

    fleet.write("PUT", &path, &secret(&fleet.east().kubeconfig().unwrap()));
    fleet.until_condition("True", "Reachable", "the syncer renews its lease and reaches the cluster");
    fleet.put_app();

    // A working connection continues, and the condition reports that it could not be opened again.
    fleet.write("DELETE", &path, &Value::Null);
    fleet.until_condition("True", "Reachable", "a new one would fail: there is no Secret default/east");
    fleet.write("POST", SECRETS, &secret("garbage"));
    fleet.until_condition(
        "True",
        "Reachable",
        "a new one would fail: kubeconfig of Secret default/east cannot",
    );
    fleet.send_downstream("east", "DELETE", WEB, &Value::Null).unwrap();
    until("the Deployment is created again", || fleet.get_downstream("east", WEB).is_some());
    fleet.write("PUT", &path, &secret(&fleet.east().kubeconfig().unwrap()));
    until("the connection is reported as healthy", || {
        fleet.ready_condition("east")["message"] == "the syncer renews its lease and reaches the cluster"
    });
}

/// A wrong key for its stored state made a syncer fail repeatedly, and only the log reported it.
#[test]
fn the_ready_condition_reports_a_syncer_that_cannot_run() {
    let mut fleet = EastFleet::not_joined();
    let start = |fleet: &mut EastFleet, key: &str| {
        let file = fleet.server.file("key");
        std::fs::write(&file, base64(key)).unwrap();
        fleet.server.restart_with(&["--state-key-file", file.to_str().unwrap()], |_| {});
        fleet.admin = Client::admin(&fleet.server);
    };
    let (key, other) = ("thirty-two bytes of a state key.", "thirty-two bytes of another key.");
    start(&mut fleet, key);
    fleet.write("POST", SECRETS, &secret(&fleet.east().kubeconfig().unwrap()));
    fleet.write("POST", PHYSICAL_CLUSTERS, &physical_cluster());
    fleet.put_app_when_ready();
    start(&mut fleet, other);
    fleet.until_condition("False", "CannotConnect", "its syncer cannot run: cannot use its state directory");
    // The condition stays while the server retries.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(12) {
        assert_eq!(
            fleet.ready_condition("east")["reason"],
            "CannotConnect",
            "{}",
            fleet.ready_condition("east")
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    start(&mut fleet, key);
    fleet.until_condition("True", "Reachable", "the syncer renews its lease and reaches the cluster");
}

/// The credentials of one cluster were written over those of another. The other cluster has none of the applied
/// objects, which must count neither as their deletion nor as a reason to apply them there.
#[test]
fn a_secret_that_leads_to_another_cluster_changes_nothing_in_either() {
    let fleet = EastFleet::not_joined();
    let other = fleet.runtime.block_on(Standin::start(Options::new("other"))).unwrap();
    fleet.write("POST", SECRETS, &secret(&fleet.east().kubeconfig().unwrap()));
    fleet.write("POST", PHYSICAL_CLUSTERS, &physical_cluster());
    fleet.put_app_when_ready();
    let (in_east, in_other) = (fleet.east().requests(), other.requests());
    let path = format!("{SECRETS}/east");
    fleet.write("PUT", &path, &secret(&other.kubeconfig().unwrap()));
    fleet.until_condition("False", "OtherCluster", "leads to another cluster");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(other.requests().since(&in_other).writes(), 0, "{:?}", other.requests());
    assert_eq!(fleet.mailbox(WEB)["status"]["readyReplicas"], 3);
    fleet.write("PUT", &path, &secret(&fleet.east().kubeconfig().unwrap()));
    fleet.until_condition("True", "Reachable", "the syncer renews its lease and reaches the cluster");
    let late = json!({ "metadata": { "name": "late", "labels": { "holon.dev/placed": "true" } } });
    fleet.put("/api/v1/namespaces/shop/configmaps", &late);
    let late = "/api/v1/namespaces/shop/configmaps/late";
    until("new objects are applied again", || fleet.get_downstream("east", late).is_some());
    assert_eq!(fleet.east().requests().since(&in_east).deletes(), 0);
    assert_eq!(other.requests().since(&in_other).writes(), 0);
}

impl EastFleet {
    fn put_app_when_ready(&self) {
        self.until_condition("True", "Reachable", "the syncer renews its lease and reaches the cluster");
        self.put_app();
    }
}
