//! The credential of a pull syncer through restarts, new Pods, lost keys and revocation.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{base64, from_base64};
use testkit::until;
use testkit::wait::PATIENCE;
use testkit::{Client, Server};

use crate::common::HOLON;
use crate::{EastFleet, MAILBOX, WEB, mount, objects, print_manifest, print_ticket};

const CREDENTIAL: &str = "/api/v1/namespaces/holon-syncer/secrets/holon-syncer-credential";
const ROLE: &str = "/clusters/root:mailbox-east/apis/rbac.authorization.k8s.io/v1/clusterroles/holon:syncer";

impl EastFleet {
    /// Applies the manifest in `east`, as its administrator does. Returns the ticket.
    pub(crate) fn apply_manifest(&self, options: &[&str]) -> String {
        let objects = objects(&print_manifest(&self.server, options));
        for object in &objects {
            let (path, name) = (path(object), object["metadata"]["name"].as_str().unwrap());
            let exists = self.get_downstream("east", &format!("{path}/{name}")).is_some();
            let applied = match exists {
                true => self.send_downstream("east", "PATCH", &format!("{path}/{name}"), object),
                false => self.send_downstream("east", "POST", &path, object),
            };
            assert!(applied.is_some(), "{object:#}");
        }
        mount(&self.server, &objects)
    }

    /// Returns the credential of the syncer that is stored downstream.
    fn credential(&self) -> Value {
        let Some(secret) = self.get_downstream("east", CREDENTIAL) else { return Value::Null };
        let bytes = from_base64(secret["data"]["credential"].as_str().unwrap());
        serde_json::from_slice(&bytes).unwrap()
    }

    fn is_ticket_revoked(&self) -> bool {
        self.credential()["isRevoked"] == true
    }

    /// Returns the status code of a request with the token of this ticket.
    fn code_with_ticket(&self, ticket: &str) -> u16 {
        let ticket: Value = serde_json::from_str(ticket).unwrap();
        let bearer = format!("Authorization: Bearer {}", ticket["token"].as_str().unwrap());
        Client::anonymous(&self.server).with(&bearer).get("/api/v1/namespaces").code
    }

    /// Creates an object in the mailbox and waits until it is downstream.
    fn apply_through_mailbox(&self, name: &str) {
        let labels = json!({ "holon.dev/placed": "true" });
        let namespace = json!({ "metadata": { "name": "late", "labels": labels } });
        self.admin.ask("POST", &format!("{MAILBOX}/api/v1/namespaces"), &namespace);
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        self.put("/api/v1/namespaces/late/configmaps", &object);
        let path = format!("/api/v1/namespaces/late/configmaps/{name}");
        until(&format!("{name} is applied downstream"), || self.get_downstream("east", &path).is_some());
    }
}

fn path(object: &Value) -> String {
    let plural = match object["kind"].as_str().unwrap() {
        "Namespace" => return "/api/v1/namespaces".to_owned(),
        "ClusterRoleBinding" => return "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        "Deployment" => return "/apis/apps/v1/namespaces/holon-syncer/deployments".to_owned(),
        "ServiceAccount" => "serviceaccounts",
        "Secret" => "secrets",
        other => panic!("unexpected kind {other}"),
    };
    format!("/api/v1/namespaces/holon-syncer/{plural}")
}

/// A drain, an eviction or a rollout creates another Pod, with an empty disk. Such a Pod once had only a ticket that
/// was already used, and failed forever.
#[test]
fn a_new_pod_uses_the_credential_of_the_previous_one() {
    let mut fleet = EastFleet::not_joined();
    let ticket = fleet.apply_manifest(&[]);
    fleet.start_syncer_with("first", &[]);
    until("the ticket is revoked", || fleet.is_ticket_revoked());
    assert_eq!(fleet.code_with_ticket(&ticket), 401);
    fleet.apply_through_mailbox("one");
    fleet.end_syncer();
    fleet.start_syncer_with("second", &[]);
    fleet.apply_through_mailbox("two");
    assert_eq!(fleet.code_with_ticket(&ticket), 401);
}

#[test]
fn a_token_is_renewed_in_time_and_a_new_pod_uses_the_latest() {
    let mut fleet = EastFleet::not_joined();
    fleet.apply_manifest(&[]);
    fleet.start_syncer_with("first", &["--renew-after", "1"]);
    until("the ticket is exchanged", || fleet.is_ticket_revoked());
    let first = fleet.credential()["token"].clone();
    until("the token is renewed", || fleet.credential()["token"] != first);
    let second = fleet.credential()["token"].clone();
    until("the token is renewed again", || ![&first, &second].contains(&&fleet.credential()["token"]));
    fleet.apply_through_mailbox("one");
    fleet.end_syncer();
    fleet.start_syncer_with("second", &[]);
    fleet.apply_through_mailbox("two");
}

/// A syncer that is killed after it stored its token and before it revoked the ticket revokes it later.
#[test]
fn a_ticket_that_could_not_be_revoked_is_revoked_later() {
    let mut fleet = EastFleet::not_joined();
    let ticket = fleet.apply_manifest(&[]);
    let role = fleet.admin.get(ROLE).json();
    let mut less = role.clone();
    let rules = less["rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["verbs"] != json!(["delete"]));
    less["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(fleet.admin.ask("PUT", ROLE, &less).code, 200);
    fleet.start_syncer_with("first", &[]);
    until("the syncer tried to revoke the ticket", || {
        fleet.syncer_log().contains("cannot revoke the ticket")
    });
    assert_eq!((fleet.is_ticket_revoked(), fleet.code_with_ticket(&ticket)), (false, 200));
    fleet.end_syncer();
    let mut full = role;
    full["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(fleet.admin.ask("PUT", ROLE, &full).code, 200);
    fleet.start_syncer_with("second", &[]);
    until("the ticket is revoked", || fleet.is_ticket_revoked());
    assert_eq!(fleet.code_with_ticket(&ticket), 401);
    fleet.apply_through_mailbox("one");
}

/// The mailbox's signing keys were replaced, so all its tokens are invalid; whether the physical cluster was removed is
/// unknown. With a new ticket the syncer continues in the same Pod; with an old one it does not.
#[test]
fn a_new_ticket_is_exchanged_after_the_first_became_invalid() {
    let mut fleet = EastFleet::not_joined();
    let old = fleet.apply_manifest(&[]);
    fleet.start_syncer_with("first", &[]);
    fleet.put_app();
    until("the ticket is revoked", || fleet.is_ticket_revoked());
    let keys = format!("{MAILBOX}/openid/v1/jwks");
    assert!(fleet.admin.ask("POST", &keys, &Value::Null).code < 300);
    assert!(fleet.admin.ask("DELETE", &keys, &Value::Null).code < 300);
    until("the log names the next step", || {
        fleet.syncer_log().contains("holon join east --print | kubectl apply -f -")
    });
    let template = "/apis/apps/v1/namespaces/holon-syncer/deployments/holon-syncer";
    let annotations = |fleet: &EastFleet| {
        fleet.get_downstream("east", template).unwrap()["spec"]["template"]["metadata"]["annotations"].clone()
    };
    let before = annotations(&fleet);
    let new = fleet.apply_manifest(&[]);
    assert_ne!(annotations(&fleet), before, "another ticket starts another Pod");
    until("the new ticket is revoked", || fleet.code_with_ticket(&new) == 401);
    fleet.apply_through_mailbox("one");
    assert_eq!(fleet.code_with_ticket(&old), 401);
    // Someone applies the old manifest again: the ticket is rejected, and the syncer keeps its credential.
    std::fs::write(fleet.server.file("ticket"), &old).unwrap();
    until("the old ticket is refused", || fleet.syncer_log().contains("cannot exchange the ticket"));
    fleet.apply_through_mailbox("two");
}

/// A syncer whose physical cluster was forgotten while it was unreachable must stop enforcing the old desired state.
/// The applied objects stay. If it joins again, it starts as a new one.
#[test]
fn a_forgotten_syncer_enforces_nothing_once_its_token_is_rejected() {
    let mut fleet = EastFleet::not_joined();
    fleet.apply_manifest(&[]);
    fleet.start_syncer_with("state", &[]);
    fleet.put_app();
    until("the ticket is revoked", || fleet.is_ticket_revoked());
    fleet.end_syncer();
    let (worked, output) = fleet.server.run(&["leave", "east", "--forget"]);
    assert!(worked && output.contains("kubectl delete namespace/holon-syncer"), "{output}");
    let before = fleet.east().requests();
    fleet.start_syncer_with("state", &[]);
    until("the credential is fenced", || fleet.credential()["isFenced"] == true);
    assert!(
        fleet.syncer_log().contains("the server no longer accepts the token of this syncer"),
        "{}",
        fleet.syncer_log()
    );
    assert_eq!(fleet.east().requests().since(&before).deletes(), 0);
    fleet.send_downstream("east", "DELETE", WEB, &Value::Null).unwrap();
    // The same holds after a restart. Waits longer than enforcing would take.
    fleet.end_syncer();
    fleet.start_syncer_with("state", &[]);
    std::thread::sleep(Duration::from_secs(5));
    assert!(fleet.get_downstream("east", WEB).is_none());
    fleet.apply_manifest(&[]);
    until("east is ready again", || fleet.ready_condition("east")["status"] == "True");
    fleet.apply_through_mailbox("one");
}

/// Waits until the syncer ends by itself, and returns its exit code.
fn await_exit(fleet: &mut EastFleet) -> Option<i32> {
    let mut syncer = fleet.syncer.take().unwrap();
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(status) = syncer.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the syncer does not end: {}", fleet.syncer_log());
}

#[test]
fn a_leaving_physical_cluster_uninstalls_its_syncer() {
    let mut fleet = EastFleet::not_joined();
    fleet.apply_manifest(&[]);
    fleet.start_syncer_with("state", &[]);
    fleet.put_app();
    let (worked, output) = fleet.server.run(&["leave", "east"]);
    assert!(worked && output.contains("east has left"), "{output}");
    assert_eq!(await_exit(&mut fleet), Some(0), "{}", fleet.syncer_log());
    for path in [
        WEB,
        "/api/v1/namespaces/shop",
        "/api/v1/namespaces/holon-syncer",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/holon-syncer",
    ] {
        until(path, || fleet.get_downstream("east", path).is_none());
    }
    let secret = "/api/v1/namespaces/kube-system/secrets/physical-cluster-east";
    until("its Secret is deleted", || fleet.admin.get(secret).code == 404);
    assert!(!fleet.server.file("state/credential").exists());
    assert_eq!(std::fs::read_dir(fleet.server.file("state/desired")).unwrap().count(), 0);
}

/// Returns the number of files under a directory that contain this text.
pub(crate) fn files_containing(directory: &std::path::Path, text: &str) -> usize {
    let output = Command::new("grep").args(["-r", "-l", "-a", text]).arg(directory).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count()
}

fn put_secret(fleet: &EastFleet) -> String {
    let labels = json!({ "holon.dev/placed": "true" });
    let secret =
        json!({ "metadata": { "name": "db", "labels": labels }, "stringData": { "password": "hunter2" } });
    fleet.put("/api/v1/namespaces", &json!({ "metadata": { "name": "shop", "labels": labels } }));
    fleet.put("/api/v1/namespaces/shop/secrets", &secret);
    let path = "/api/v1/namespaces/shop/secrets/db";
    until("the Secret is applied downstream", || fleet.get_downstream("east", path).is_some());
    base64("hunter2")
}

/// A wrong encryption key must not look like an empty desired state.
#[test]
fn the_state_directory_is_encrypted_with_the_key_of_the_manifest() {
    let mut fleet = EastFleet::not_joined();
    print_ticket(&fleet.server);
    let key = fleet.server.file("state-key");
    let encrypted = ["--state-key-file", key.to_str().unwrap()];
    fleet.start_syncer_with("sealed", &encrypted);
    until("east is ready", || fleet.ready_condition("east")["status"] == "True");
    let password = put_secret(&fleet);
    let desired = fleet.server.file("sealed/desired");
    until("the desired objects are stored", || {
        let stored = std::fs::read_dir(&desired).into_iter().flatten().flatten();
        stored.map(|entry| std::fs::read_dir(entry.path()).map_or(0, Iterator::count)).sum::<usize>() >= 3
    });
    assert_eq!(files_containing(&desired, &password), 0);
    fleet.end_syncer();

    let other = fleet.server.file("other-key");
    std::fs::write(&other, base64("thirty-two bytes of another key.")).unwrap();
    for options in [&["--state-key-file", other.to_str().unwrap()][..], &[]] {
        fleet.start_syncer_with("sealed", options);
        assert_eq!(await_exit(&mut fleet), Some(1));
        assert!(fleet.syncer_log().contains("(--state-key-file)"), "{}", fleet.syncer_log());
    }
    // Printing another ticket keeps the key, so that the existing state can still be read.
    let before = std::fs::read(&key).unwrap();
    print_ticket(&fleet.server);
    assert_eq!(std::fs::read(&key).unwrap(), before);
    // Without a key the state is readable, which proves that the check above would find it.
    fleet.start_syncer_with("open", &[]);
    until("the objects are stored", || files_containing(&fleet.server.file("open"), &password) == 1);
}

/// The same for a syncer in the server (push).
#[test]
fn the_state_of_push_syncers_is_encrypted_with_the_given_key() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, base64("thirty-two bytes of a state key.")).unwrap();
    let fleet =
        EastFleet::with_server(Server::start_with(HOLON, &["--state-key-file", key.to_str().unwrap()]));
    fleet.join("east");
    let password = put_secret(&fleet);
    let stored = fleet.server.file("syncers");
    until("the objects are stored", || files_containing(&stored, ".") >= 3);
    assert_eq!(files_containing(&stored, &password), 0);
}

/// The printed manifest applies to a real Kubernetes unchanged, its service account has sufficient rights, and the
/// syncer uninstalls itself when its cluster leaves. No container runs there: the syncer process runs outside, with
/// that account's token.
#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn a_real_cluster_accepts_the_manifest_and_keeps_none_of_it_after_leaving() {
    let cluster = testkit::peers::Cluster::start(&[]);
    let mut fleet = EastFleet::not_joined();
    let printed = print_manifest(&fleet.server, &["--state-claim", "state"]);
    mount(&fleet.server, &objects(&printed));
    let applied = cluster.run(&["apply", "--validate=strict", "-f", "-"], &printed);
    assert_eq!(applied.lines().filter(|line| line.ends_with(" created")).count(), 5, "{applied}");
    let second_apply = cluster.run(&["apply", "--validate=strict", "-f", "-"], &printed);
    let changed = |line: &&str| !line.ends_with(" unchanged") && !line.ends_with(" configured");
    assert_eq!(second_apply.lines().filter(changed).count(), 0, "{second_apply}");

    let namespaced = ["-n", "holon-syncer"];
    let token = cluster.run(&[&["create", "token", "holon-syncer"][..], &namespaced].concat(), "");
    let admin = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    std::fs::write(fleet.server.file("east.kubeconfig"), &admin).unwrap();
    let user = fleet.server.file("east.kubeconfig");
    let config = ["config", "--kubeconfig", user.to_str().unwrap()];
    let kubectl = |arguments: &[&str]| {
        let status =
            Command::new(testkit::peers::program("kubectl")).args(config).args(arguments).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    kubectl(&["set-credentials", "syncer", "--token", token.trim()]);
    kubectl(&["set-context", "--current", "--user", "syncer"]);

    fleet.start_syncer_with("state", &[]);
    until("east is ready", || fleet.ready_condition("east")["status"] == "True");
    let app = crate::app();
    app.iter().for_each(|(path, object)| fleet.put(path, object));
    until("web is ready", || fleet.mailbox(WEB)["status"]["readyReplicas"] == 3);
    let credential = cluster.run(&[&["get", "secret", "-o", "name"][..], &namespaced].concat(), "");
    assert!(credential.contains("holon-syncer-credential"), "{credential}");
    let (worked, output) = fleet.server.run(&["leave", "east"]);
    assert!(worked, "{output}");
    assert_eq!(await_exit(&mut fleet), Some(0), "{}", fleet.syncer_log());
    for object in ["namespace/shop", "namespace/holon-syncer", "clusterrolebinding/holon-syncer"] {
        cluster.run(&["wait", "--for=delete", object, "--timeout=60s"], "");
    }
}
