//! Reasons why the server cannot connect to a physical cluster, and how it reports them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use standin::{Options, Standin};

use crate::client::Client;
use crate::{PHYSICAL, WEB, World, base64};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn secret(kubeconfig: &str) -> Value {
    json!({ "metadata": { "name": "east" }, "data": { "kubeconfig": base64(kubeconfig) } })
}

/// Returns the object for east as a GitOps tool would apply it: its Secret may be created later.
fn physical_cluster() -> Value {
    let reference = json!({ "namespace": "default", "name": "east" });
    json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster",
        "metadata": { "name": "east" }, "spec": { "connection": { "push": { "secretRef": reference } } },
    })
}

impl World {
    #[track_caller]
    fn ask(&self, method: &str, path: &str, object: &Value) {
        let answer = self.admin.ask(method, path, object);
        assert!(matches!(answer.code, 200 | 201), "{method} {path}: {}", answer.body);
    }

    #[track_caller]
    fn until_said(&self, status: &str, reason: &str, words: &str) {
        self.until(&format!("{status}, {reason}: {words}"), || {
            let ready = self.ready();
            let says = ready["message"].as_str().is_some_and(|message| message.contains(words));
            says && ready["status"] == status && ready["reason"] == reason
        });
    }
}

#[test]
fn the_ready_condition_reports_connection_problems() {
    let world = World::new();
    world.ask("POST", PHYSICAL, &physical_cluster());
    world.until_said("False", "CannotConnect", "there is no Secret default/east; run `holon join` to write");
    world.ask("POST", SECRETS, &json!({ "metadata": { "name": "east" }, "data": { "config": "" } }));
    world.until_said("False", "CannotConnect", "Secret default/east has no kubeconfig");
    // A user who may read the PhysicalCluster may lack the right to read the Secret, so messages must not quote it.
    let path = format!("{SECRETS}/east");
    world.ask("PUT", &path, &secret("a-token-that-somebody-put-there"));
    world.until_said("False", "CannotConnect", "kubeconfig of Secret default/east cannot be used");
    let told = world.ready()["message"].to_string();
    assert!(!told.contains("a-token"), "{told}");
    let programs = world.east.kubeconfig().unwrap().replace("client-key-data", "exec");
    world.ask("PUT", &path, &secret(&programs));
    world.until_said("False", "CannotConnect", "cannot be used");
    assert_eq!(world.east.requests().total(), 0);

    world.ask("PUT", &path, &secret(&world.east.kubeconfig().unwrap()));
    world.until_said("True", "Reachable", "the syncer reports");
    world.put_app();

    // A working connection continues, and the condition says that it could not be opened again.
    world.ask("DELETE", &path, &Value::Null);
    world.until_said("True", "Reachable", "cannot connect again: there is no Secret default/east");
    world.ask("POST", SECRETS, &secret("garbage"));
    world.until_said("True", "Reachable", "cannot connect again: kubeconfig of Secret default/east cannot");
    world.below("DELETE", WEB, &Value::Null).unwrap();
    world.until("it is made again", || world.below("GET", WEB, &Value::Null).is_some());
    world.ask("PUT", &path, &secret(&world.east.kubeconfig().unwrap()));
    world.until("all is well", || world.ready()["message"] == "the syncer reports");
}

/// A wrong key for its stored state made a syncer end again and again, and only the log said so.
#[test]
fn a_syncer_that_cannot_run_is_said_to_be_so() {
    let mut world = World::new();
    let start = |world: &mut World, key: &str| {
        let file = world.server.file("key");
        std::fs::write(&file, base64(key)).unwrap();
        world.server.restart_with(&["--state-key-file", file.to_str().unwrap()], |_| {});
        world.admin = Client::new(&world.server, true);
    };
    let (key, other) = ("thirty-two bytes of a state key.", "thirty-two bytes of another key.");
    start(&mut world, key);
    world.ask("POST", SECRETS, &secret(&world.east.kubeconfig().unwrap()));
    world.ask("POST", PHYSICAL, &physical_cluster());
    world.put_app_when_ready();
    start(&mut world, other);
    world.until_said("False", "CannotConnect", "its syncer cannot run: cannot use its state directory");
    // The condition stays while the server retries.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(12) {
        assert_eq!(world.ready()["reason"], "CannotConnect", "{}", world.ready());
        std::thread::sleep(Duration::from_millis(200));
    }
    start(&mut world, key);
    world.until_said("True", "Reachable", "the syncer reports");
}

/// The credentials of one cluster were written over those of another. The other cluster has none of the applied
/// objects, which must count neither as their deletion nor as a reason to apply them there.
#[test]
fn a_secret_that_leads_to_another_cluster_changes_nothing_in_either() {
    let world = World::new();
    let other = world.runtime.block_on(Standin::start(Options::new("other"))).unwrap();
    world.ask("POST", SECRETS, &secret(&world.east.kubeconfig().unwrap()));
    world.ask("POST", PHYSICAL, &physical_cluster());
    world.put_app_when_ready();
    let (in_east, in_other) = (world.east.requests(), other.requests());
    let path = format!("{SECRETS}/east");
    world.ask("PUT", &path, &secret(&other.kubeconfig().unwrap()));
    world.until_said("False", "OtherCluster", "leads to another cluster");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(other.requests().since(&in_other).writes(), 0, "{:?}", other.requests());
    assert_eq!(world.mailbox(WEB)["status"]["readyReplicas"], 3);
    world.ask("PUT", &path, &secret(&world.east.kubeconfig().unwrap()));
    world.until_said("True", "Reachable", "the syncer reports");
    let late = json!({ "metadata": { "name": "late", "labels": { "holon.dev/placed": "true" } } });
    world.put("/api/v1/namespaces/shop/configmaps", &late);
    let late = "/api/v1/namespaces/shop/configmaps/late";
    world.until("it is looked after again", || world.below("GET", late, &Value::Null).is_some());
    assert_eq!(world.east.requests().since(&in_east).deletes(), 0);
    assert_eq!(other.requests().since(&in_other).writes(), 0);
}

impl World {
    fn put_app_when_ready(&self) {
        self.until_said("True", "Reachable", "the syncer reports");
        self.put_app();
    }
}
