//! The credential of a pull syncer through restarts, new Pods, lost keys and revocation.

use std::fs::File;
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::client::Client;
use crate::common::Server;
use crate::{MAILBOX, WEB, World, mount, objects, print_manifest, print_ticket};

const CREDENTIAL: &str = "/api/v1/namespaces/holon-syncer/secrets/holon-syncer-credential";
const ROLE: &str = "/clusters/root:mailbox-east/apis/rbac.authorization.k8s.io/v1/clusterroles/holon:syncer";

impl World {
    /// Applies the manifest in `east`, as its administrator does. Returns the ticket.
    pub(crate) fn apply_manifest(&self, options: &[&str]) -> String {
        let objects = objects(&print_manifest(&self.server, options));
        for object in &objects {
            let (path, name) = (path(object), object["metadata"]["name"].as_str().unwrap());
            let is_there = self.below("GET", &format!("{path}/{name}"), &Value::Null).is_some();
            let applied = match is_there {
                true => self.below("PATCH", &format!("{path}/{name}"), object),
                false => self.below("POST", &path, object),
            };
            assert!(applied.is_some(), "{object:#}");
        }
        mount(&self.server, &objects)
    }

    /// Starts the syncer as a new Pod would: with an empty disk. Its log goes to a file.
    fn start_pod(&mut self, state: &str, options: &[&str]) {
        let log = File::create(self.server.file("syncer.log")).unwrap();
        self.syncer = Some(self.seat(state).args(options).stderr(log).spawn().unwrap());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.server.file("syncer.log")).unwrap_or_default()
    }

    /// Returns the credential of the syncer that is stored downstream.
    fn credential(&self) -> Value {
        let Some(secret) = self.below("GET", CREDENTIAL, &Value::Null) else { return Value::Null };
        let bytes = decode(secret["data"]["credential"].as_str().unwrap());
        serde_json::from_slice(&bytes).unwrap()
    }

    fn is_spent(&self) -> bool {
        self.credential()["isSpent"] == true
    }

    /// Returns the status code of a request with the token of this ticket.
    fn with_ticket(&self, ticket: &str) -> u16 {
        let ticket: Value = serde_json::from_str(ticket).unwrap();
        let bearer = format!("Authorization: Bearer {}", ticket["token"].as_str().unwrap());
        Client::new(&self.server, false).with(&bearer).get("/api/v1/namespaces").code
    }

    /// Creates an object in the mailbox and waits until it is downstream.
    fn arrives(&self, name: &str) {
        let labels = json!({ "holon.dev/placed": "true" });
        let namespace = json!({ "metadata": { "name": "late", "labels": labels } });
        self.admin.ask("POST", &format!("{MAILBOX}/api/v1/namespaces"), &namespace);
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        self.put("/api/v1/namespaces/late/configmaps", &object);
        let path = format!("/api/v1/namespaces/late/configmaps/{name}");
        self.until(&format!("{name} arrives"), || self.below("GET", &path, &Value::Null).is_some());
    }
}

fn path(object: &Value) -> String {
    let plural = match object["kind"].as_str().unwrap() {
        "Namespace" => return "/api/v1/namespaces".to_owned(),
        "ClusterRoleBinding" => return "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        "Deployment" => return "/apis/apps/v1/namespaces/holon-syncer/deployments".to_owned(),
        "ServiceAccount" => "serviceaccounts",
        "Secret" => "secrets",
        other => panic!("nobody asked for a {other}"),
    };
    format!("/api/v1/namespaces/holon-syncer/{plural}")
}

fn decode(text: &str) -> Vec<u8> {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

/// A drain, an eviction or a rollout creates another Pod, with an empty disk. Such a Pod once had only a ticket that
/// was already used, and failed forever.
#[test]
fn a_new_pod_uses_the_credential_of_the_previous_one() {
    let mut world = World::new();
    let ticket = world.apply_manifest(&[]);
    world.start_pod("first", &[]);
    world.until("the ticket is spent", || world.is_spent());
    assert_eq!(world.with_ticket(&ticket), 401);
    world.arrives("one");
    world.end_syncer();
    world.start_pod("second", &[]);
    world.arrives("two");
    assert_eq!(world.with_ticket(&ticket), 401);
}

#[test]
fn a_token_is_replaced_in_time_and_a_new_pod_has_the_last_one() {
    let mut world = World::new();
    world.apply_manifest(&[]);
    world.start_pod("first", &["--renew-after", "1"]);
    world.until("there is a token", || world.is_spent());
    let first = world.credential()["token"].clone();
    world.until("it is replaced", || world.credential()["token"] != first);
    let second = world.credential()["token"].clone();
    world.until("it is replaced again", || ![&first, &second].contains(&&world.credential()["token"]));
    world.arrives("one");
    world.end_syncer();
    world.start_pod("second", &[]);
    world.arrives("two");
}

/// A syncer that is killed after it stored its token and before it revoked the ticket revokes it later.
#[test]
fn a_ticket_that_could_not_be_spent_is_spent_later() {
    let mut world = World::new();
    let ticket = world.apply_manifest(&[]);
    let role = world.admin.get(ROLE).json();
    let mut less = role.clone();
    let rules = less["rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["verbs"] != json!(["delete"]));
    less["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(world.admin.ask("PUT", ROLE, &less).code, 200);
    world.start_pod("first", &[]);
    world.until("it is tried", || world.log().contains("cannot revoke the ticket"));
    assert_eq!((world.is_spent(), world.with_ticket(&ticket)), (false, 200));
    world.end_syncer();
    let mut whole = role;
    whole["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(world.admin.ask("PUT", ROLE, &whole).code, 200);
    world.start_pod("second", &[]);
    world.until("it is spent", || world.is_spent());
    assert_eq!(world.with_ticket(&ticket), 401);
    world.arrives("one");
}

/// The mailbox's signing keys were replaced, so all its tokens are invalid; whether the physical cluster was removed is
/// unknown. With a new ticket the syncer continues in the same Pod; with an old one it does not.
#[test]
fn another_ticket_is_exchanged_where_the_first_is_worth_nothing() {
    let mut world = World::new();
    let old = world.apply_manifest(&[]);
    world.start_pod("first", &[]);
    world.put_app();
    world.until("the ticket is spent", || world.is_spent());
    let keys = format!("{MAILBOX}/openid/v1/jwks");
    assert!(world.admin.ask("POST", &keys, &Value::Null).code < 300);
    assert!(world.admin.ask("DELETE", &keys, &Value::Null).code < 300);
    world.until("it is said what to do", || {
        world.log().contains("holon join east --print | kubectl apply -f -")
    });
    let template = "/apis/apps/v1/namespaces/holon-syncer/deployments/holon-syncer";
    let annotations = |world: &World| {
        world.below("GET", template, &Value::Null).unwrap()["spec"]["template"]["metadata"]["annotations"]
            .clone()
    };
    let before = annotations(&world);
    let new = world.apply_manifest(&[]);
    assert_ne!(annotations(&world), before, "another ticket starts another Pod");
    world.until("the other is spent", || world.with_ticket(&new) == 401);
    world.arrives("one");
    assert_eq!(world.with_ticket(&old), 401);
    // Someone applies the old manifest again: the ticket is rejected, and the syncer keeps its credential.
    std::fs::write(world.server.file("ticket"), &old).unwrap();
    world.until("it is refused", || world.log().contains("cannot exchange the ticket"));
    world.arrives("two");
}

/// A syncer whose physical cluster was forgotten while it was unreachable must stop enforcing the old desired state.
/// The applied objects stay. If it joins again, it starts as a new one.
#[test]
fn one_that_was_forgotten_enforces_nothing_when_it_hears_of_it() {
    let mut world = World::new();
    world.apply_manifest(&[]);
    world.start_pod("state", &[]);
    world.put_app();
    world.until("the ticket is spent", || world.is_spent());
    world.end_syncer();
    let (worked, said) = world.holon(&["leave", "east", "--forget"]);
    assert!(worked && said.contains("kubectl delete namespace/holon-syncer"), "{said}");
    let before = world.east.requests();
    world.start_pod("state", &[]);
    world.until("it is fenced", || world.credential()["isFenced"] == true);
    assert!(world.log().contains("the server no longer accepts the token of this syncer"), "{}", world.log());
    assert_eq!(world.east.requests().since(&before).deletes(), 0);
    world.below("DELETE", WEB, &Value::Null).unwrap();
    // The same holds after a restart. Waits longer than enforcing would take.
    world.end_syncer();
    world.start_pod("state", &[]);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert!(world.below("GET", WEB, &Value::Null).is_none());
    world.apply_manifest(&[]);
    world.until("it is there again", || world.ready()["status"] == "True");
    world.arrives("one");
}

fn ended(world: &mut World) -> Option<i32> {
    let mut syncer: Child = world.syncer.take().unwrap();
    let begun = std::time::Instant::now();
    while begun.elapsed() < crate::PATIENCE {
        if let Some(status) = syncer.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let _ = syncer.kill();
    let _ = syncer.wait();
    panic!("it goes on: {}", world.log());
}

#[test]
fn one_that_leaves_takes_its_syncer_along() {
    let mut world = World::new();
    world.apply_manifest(&[]);
    world.start_pod("state", &[]);
    world.put_app();
    let (worked, said) = world.holon(&["leave", "east"]);
    assert!(worked && said.contains("east has left"), "{said}");
    assert_eq!(ended(&mut world), Some(0), "{}", world.log());
    for path in [
        WEB,
        "/api/v1/namespaces/shop",
        "/api/v1/namespaces/holon-syncer",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/holon-syncer",
    ] {
        world.until(path, || world.below("GET", path, &Value::Null).is_none());
    }
    let secret = "/api/v1/namespaces/kube-system/secrets/physical-cluster-east";
    world.until("its Secret goes", || world.admin.get(secret).code == 404);
    assert!(!world.server.file("state/credential").exists());
    assert_eq!(std::fs::read_dir(world.server.file("state/asked")).unwrap().count(), 0);
}

/// Returns the number of files under a directory that contain this text.
pub(crate) fn holding(directory: &std::path::Path, text: &str) -> usize {
    let output = Command::new("grep").args(["-r", "-l", "-a", text]).arg(directory).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count()
}

fn put_secret(world: &World) -> String {
    let labels = json!({ "holon.dev/placed": "true" });
    let secret =
        json!({ "metadata": { "name": "db", "labels": labels }, "stringData": { "password": "hunter2" } });
    world.put("/api/v1/namespaces", &json!({ "metadata": { "name": "shop", "labels": labels } }));
    world.put("/api/v1/namespaces/shop/secrets", &secret);
    let path = "/api/v1/namespaces/shop/secrets/db";
    world.until("the Secret arrives", || world.below("GET", path, &Value::Null).is_some());
    crate::base64("hunter2")
}

/// A wrong encryption key must not look like an empty desired state.
#[test]
fn the_state_directory_is_encrypted_with_the_key_of_the_manifest() {
    let mut world = World::new();
    world.print_ticket();
    let key = world.server.file("state-key");
    let sealed = ["--state-key-file", key.to_str().unwrap()];
    world.start_pod("sealed", &sealed);
    world.until("there is a mailbox", || world.ready()["status"] == "True");
    let password = put_secret(&world);
    let asked = world.server.file("sealed/asked");
    world.until("it is kept", || {
        let kept = std::fs::read_dir(&asked).into_iter().flatten().flatten();
        kept.map(|entry| std::fs::read_dir(entry.path()).map_or(0, Iterator::count)).sum::<usize>() >= 3
    });
    assert_eq!(holding(&asked, &password), 0);
    world.end_syncer();

    let other = world.server.file("other-key");
    std::fs::write(&other, crate::base64("thirty-two bytes of another key.")).unwrap();
    for options in [&["--state-key-file", other.to_str().unwrap()][..], &[]] {
        world.start_pod("sealed", options);
        assert_eq!(ended(&mut world), Some(1));
        assert!(world.log().contains("(--state-key-file)"), "{}", world.log());
    }
    // Printing another ticket keeps the key, so that the existing state can still be read.
    let before = std::fs::read(&key).unwrap();
    print_ticket(&world.server);
    assert_eq!(std::fs::read(&key).unwrap(), before);
    // Without a key the state is readable, which proves that the check above would find it.
    world.start_pod("open", &[]);
    world.until("it is kept", || holding(&world.server.file("open"), &password) == 1);
}

/// The same for a syncer in the server (push).
#[test]
fn the_state_of_push_syncers_is_encrypted_with_the_given_key() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, crate::base64("thirty-two bytes of a state key.")).unwrap();
    let world = World::with(Server::start_with(&["--state-key-file", key.to_str().unwrap()]));
    world.join();
    let password = put_secret(&world);
    let kept = world.server.file("syncers");
    world.until("it is kept", || holding(&kept, ".") >= 3);
    assert_eq!(holding(&kept, &password), 0);
}

/// The printed manifest applies to a real Kubernetes unchanged, its service account has sufficient rights, and the
/// syncer uninstalls itself when its cluster leaves. No container runs there: the syncer process runs outside, with
/// that account's token.
#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn a_real_cluster_takes_the_manifest_and_is_rid_of_it_afterwards() {
    let cluster = peers::Cluster::start(&[]);
    let mut world = World::new();
    let printed = print_manifest(&world.server, &["--state-claim", "state"]);
    mount(&world.server, &objects(&printed));
    let applied = cluster.run(&["apply", "--validate=strict", "-f", "-"], &printed);
    assert_eq!(applied.lines().filter(|line| line.ends_with(" created")).count(), 5, "{applied}");
    let again = cluster.run(&["apply", "--validate=strict", "-f", "-"], &printed);
    let changed = |line: &&str| !line.ends_with(" unchanged") && !line.ends_with(" configured");
    assert_eq!(again.lines().filter(changed).count(), 0, "{again}");

    let namespaced = ["-n", "holon-syncer"];
    let token = cluster.run(&[&["create", "token", "holon-syncer"][..], &namespaced].concat(), "");
    let admin = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    std::fs::write(world.server.file("east.kubeconfig"), &admin).unwrap();
    let user = world.server.file("east.kubeconfig");
    let config = ["config", "--kubeconfig", user.to_str().unwrap()];
    let kubectl = |arguments: &[&str]| {
        let done = Command::new(peers::program("kubectl")).args(config).args(arguments).status().unwrap();
        assert!(done.success(), "{arguments:?}");
    };
    kubectl(&["set-credentials", "syncer", "--token", token.trim()]);
    kubectl(&["set-context", "--current", "--user", "syncer"]);

    world.start_pod("state", &[]);
    world.until("it is there", || world.ready()["status"] == "True");
    let app = crate::app();
    app.iter().for_each(|(path, object)| world.put(path, object));
    world.until("web is ready", || world.mailbox(WEB)["status"]["readyReplicas"] == 3);
    let credential = cluster.run(&[&["get", "secret", "-o", "name"][..], &namespaced].concat(), "");
    assert!(credential.contains("holon-syncer-credential"), "{credential}");
    let (worked, said) = world.holon(&["leave", "east"]);
    assert!(worked, "{said}");
    assert_eq!(ended(&mut world), Some(0), "{}", world.log());
    for what in ["namespace/shop", "namespace/holon-syncer", "clusterrolebinding/holon-syncer"] {
        cluster.run(&["wait", "--for=delete", what, "--timeout=60s"], "");
    }
}
