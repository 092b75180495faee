//! Physical clusters from joining to leaving, as an administrator uses them: the built binary, and stand-ins that it
//! reaches over TLS.

#[path = "../common/mod.rs"]
mod common;
mod connecting;
mod dev;
mod inside;
mod joining;
mod offline;
mod pull;
mod real;
mod revoked;
mod transcripts;
mod tunnels;
mod upgrade;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use standin::Standin;
use testkit::objects::{condition, deployment};
use testkit::{Client, Process, Server, until};

use common::HOLON;
use common::fleet::{PHYSICAL_CLUSTERS, TestFleet};
use connecting::{physical_cluster, secret};

const MAILBOX: &str = "/clusters/root:mailbox-east";
const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const PODS: &str = "/api/v1/namespaces/shop/pods";

/// A server, one physical cluster, `east`, and the process of its syncer if that runs beside it.
struct EastFleet {
    // The syncer ends first: fields are dropped in this order.
    syncer: Option<Process>,
    fleet: TestFleet,
}

impl Deref for EastFleet {
    type Target = TestFleet;

    fn deref(&self) -> &TestFleet {
        &self.fleet
    }
}

impl DerefMut for EastFleet {
    fn deref_mut(&mut self) -> &mut TestFleet {
        &mut self.fleet
    }
}

/// Returns the manifest that `holon join east --print` prints.
fn print_manifest(server: &Server, options: &[&str]) -> String {
    let mut command = server.command(&["join", "east", "--print", "--image", "holon:test"]);
    let output = command.args(options).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("\"image\": \"holon:test\""), "{printed}");
    printed
}

/// Returns the objects of a manifest.
fn objects(printed: &str) -> Vec<Value> {
    let texts = printed.split("---\n").map(str::trim).filter(|text| !text.is_empty());
    texts.map(|text| serde_json::from_str(text).unwrap()).collect()
}

/// Writes the files that a Pod of `east` would have mounted, and returns the ticket.
fn mount(server: &Server, objects: &[Value]) -> String {
    let secret = objects.iter().find(|object| object["kind"] == "Secret").expect("a Secret");
    for name in ["ticket", "state-key"] {
        std::fs::write(server.file(name), secret["stringData"][name].as_str().unwrap()).unwrap();
    }
    secret["stringData"]["ticket"].as_str().unwrap().to_owned()
}

/// Writes the files for the syncer of `east`, and returns the ticket.
fn print_ticket(server: &Server) -> String {
    mount(server, &objects(&print_manifest(server, &[])))
}

/// Returns the command of a syncer for `east` with this state directory.
fn syncer_command(server: &Server, state: &str) -> Command {
    let mut command = Command::new(HOLON);
    command.arg("syncer").arg("--ticket").arg(server.file("ticket"));
    command.arg("--kubeconfig").arg(server.file("east.kubeconfig"));
    command.arg("--state-dir").arg(server.file(state));
    command
}

/// Returns a namespace and a Deployment in it, for a mailbox.
fn app() -> [(&'static str, Value); 2] {
    let labels = json!({ "holon.dev/placed": "true" });
    let container =
        json!({ "name": "web", "image": "nginx", "ports": [{ "name": "http", "containerPort": 8080 }] });
    let mut web = deployment("web", 3, json!({ "containers": [container] }));
    web["metadata"]["labels"] = labels.clone();
    [
        ("/api/v1/namespaces", json!({ "metadata": { "name": "shop", "labels": labels } })),
        ("/apis/apps/v1/namespaces/shop/deployments", web),
    ]
}

impl EastFleet {
    /// Starts a server and `east`, which is not registered yet.
    fn not_joined() -> EastFleet {
        EastFleet::with_server(Server::start(HOLON))
    }

    /// The same with a server that the caller started.
    fn with_server(server: Server) -> EastFleet {
        EastFleet { syncer: None, fleet: TestFleet::not_joined(server, &["east"]) }
    }

    /// Starts a server and `east`, joined with push.
    fn joined() -> EastFleet {
        EastFleet { syncer: None, fleet: TestFleet::start(&["east"]) }
    }

    /// Starts a server, `east`, and a syncer beside it, joined with pull.
    fn with_syncer() -> EastFleet {
        let mut fleet = EastFleet::not_joined();
        print_ticket(&fleet.server);
        fleet.start_syncer();
        until("east is ready", || fleet.ready_condition("east")["status"] == "True");
        fleet
    }

    fn east(&self) -> &Standin {
        &self.standins["east"]
    }

    fn start_syncer(&mut self) {
        self.syncer = Some(Process::spawn(&mut syncer_command(&self.server, "state")));
    }

    /// Starts the syncer with this state directory. Its log goes to a file.
    fn start_syncer_with(&mut self, state: &str, options: &[&str]) {
        let log = File::create(self.server.file("syncer.log")).unwrap();
        let mut command = syncer_command(&self.server, state);
        self.syncer = Some(Process::spawn(command.args(options).stderr(log)));
    }

    /// Kills the syncer.
    fn end_syncer(&mut self) {
        self.syncer = None;
    }

    /// Returns the log of the syncer that [`EastFleet::start_syncer_with`] started.
    fn syncer_log(&self) -> String {
        std::fs::read_to_string(self.server.file("syncer.log")).unwrap_or_default()
    }

    /// Creates an object in the mailbox.
    #[track_caller]
    fn put(&self, path: &str, object: &Value) {
        self.admin.create(&format!("{MAILBOX}{path}"), object);
    }

    /// Creates a namespace and a Deployment with three pods in the mailbox.
    #[track_caller]
    fn put_app(&self) {
        app().iter().for_each(|(path, object)| self.put(path, object));
        until("web is ready", || self.mailbox(WEB)["status"]["readyReplicas"] == 3);
    }

    /// Reads from the mailbox.
    fn mailbox(&self, path: &str) -> Value {
        self.admin.get(&format!("{MAILBOX}{path}")).json()
    }

    /// Returns the pods of the mailbox.
    fn pods(&self) -> Vec<Value> {
        self.admin.list(&format!("{MAILBOX}{PODS}"))
    }
}

#[test]
fn placed_objects_run_report_status_and_are_deleted_when_the_cluster_leaves() {
    let fleet = EastFleet::joined();
    let physical_cluster = fleet.admin.get(&format!("{PHYSICAL_CLUSTERS}/east")).json();
    assert_eq!(physical_cluster["metadata"]["labels"]["region"], "eu");
    assert_eq!(physical_cluster["status"]["nodes"]["ready"], 2);
    assert_eq!(physical_cluster["status"]["allocatable"]["memory"], "64Gi");
    assert!(physical_cluster["status"]["lastHeartbeatTime"].is_string(), "{physical_cluster:#}");
    fleet.put_app();
    let running = |pod: &Value| pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"].is_string();
    until("three pods run", || fleet.pods().len() == 3 && fleet.pods().iter().all(running));
    let of_east = |pod: &Value| pod["metadata"]["labels"]["holon.dev/physical-cluster"] == "east";
    assert!(fleet.pods().iter().all(of_east), "{:#?}", fleet.pods());
    // The status is identical to the downstream one, except for its generation.
    let downstream = fleet.get_downstream("east", WEB).unwrap();
    until("the status equals the downstream status", || fleet.mailbox(WEB)["status"] == downstream["status"]);

    // Drift of the downstream object is corrected, and it is created again after a deletion.
    fleet.send_downstream("east", "PATCH", WEB, &json!({ "spec": { "replicas": 1 } })).unwrap();
    until("the drift is corrected", || fleet.get_downstream("east", WEB).unwrap()["spec"]["replicas"] == 3);
    fleet.send_downstream("east", "DELETE", WEB, &Value::Null).unwrap();
    let uid = downstream["metadata"]["uid"].clone();
    until("the Deployment is created again", || {
        fleet.get_downstream("east", WEB).is_some_and(|web| web["metadata"]["uid"] != uid)
    });

    let (worked, output) = fleet.server.run(&["leave", "east"]);
    assert!(worked && output.contains("east has left"), "{output}");
    assert!(fleet.get_downstream("east", WEB).is_none());
    until("the namespace is deleted downstream", || {
        fleet.get_downstream("east", "/api/v1/namespaces/shop").is_none()
    });
    until("the mailbox is deleted", || fleet.admin.get(&format!("{MAILBOX}/api/v1/namespaces")).code == 404);
    // The server also removes its Secret and the syncer's state.
    let secret = "/api/v1/namespaces/kube-system/secrets/physical-cluster-east";
    until("its Secret is deleted", || fleet.admin.get(secret).code == 404);
    let state_dir =
        fleet.server.file(&format!("syncers/{}", physical_cluster["status"]["mailbox"].as_str().unwrap()));
    until("the state of its syncer is deleted", || !state_dir.exists());
}

/// `holon leave` reported that a physical cluster had left as soon as the server did not answer.
#[test]
fn leave_fails_if_the_server_stops_answering() {
    let mut fleet = EastFleet::joined();
    fleet.put_app();
    fleet.kill_cluster("east");
    let mut leaving = fleet.server.command(&["leave", "east"]);
    let mut leaving = leaving.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = String::new();
    BufReader::new(leaving.stdout.as_mut().unwrap()).read_line(&mut output).unwrap();
    fleet.server.kill();
    let finished = leaving.wait_with_output().unwrap();
    let [rest, error] = [finished.stdout, finished.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(!finished.status.success() && !rest.contains("has left"), "{output}{rest}{error}");
    assert!(error.contains("the server did not answer whether it has left"), "{error}");
}

#[test]
fn an_unreachable_physical_cluster_loses_nothing() {
    let mut fleet = EastFleet::joined();
    fleet.put_app();
    until("three pods are projected", || fleet.pods().len() == 3);
    let before = fleet.east().requests();
    fleet.kill_cluster("east");
    until("east is reported as not ready", || fleet.ready_condition("east")["status"] == "False");
    let labels = json!({ "holon.dev/placed": "true" });
    let late = json!({ "metadata": { "name": "late", "labels": labels }, "data": { "a": "b" } });
    fleet.put("/api/v1/namespaces/shop/configmaps", &late);
    fleet.restart_cluster("east");
    until("east is ready again", || fleet.ready_condition("east")["status"] == "True");
    let path = "/api/v1/namespaces/shop/configmaps/late";
    until("the object created meanwhile is applied", || fleet.get_downstream("east", path).is_some());
    assert_eq!(fleet.east().requests().since(&before).deletes(), 0, "no delete was requested");
    assert_eq!(fleet.mailbox(WEB)["status"]["readyReplicas"], 3);
}

/// A user who may write PhysicalClusters in some logical cluster must not be able to make the server connect to an
/// arbitrary address, for example one behind the same firewall.
#[test]
fn the_server_connects_only_for_allowed_logical_clusters() {
    let fleet = EastFleet::not_joined();
    let (worked, output) = fleet.server.run(&["lc", "create", "team-a"]);
    assert!(worked, "{output}");
    let home = "/clusters/root:team-a";
    let secret = secret(&fleet.east().kubeconfig().unwrap());
    fleet.admin.create(&format!("{home}/api/v1/namespaces/default/secrets"), &secret);
    fleet.admin.create(&format!("{home}{PHYSICAL_CLUSTERS}"), &physical_cluster());
    // It has a mailbox, but no syncer runs for it.
    until("it has a mailbox", || {
        fleet.admin.get(&format!("{home}:mailbox-east/api/v1/namespaces")).code == 200
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(fleet.east().requests().total(), 0);
    until("the Ready condition names --push-from", || {
        let ready = condition(&fleet.admin.get(&format!("{home}{PHYSICAL_CLUSTERS}/east")).json(), "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["reason"] == "CannotConnect" && message.contains("--push-from")
    });
}

#[test]
fn an_unusable_kubeconfig_is_rejected_before_anything_is_created() {
    let fleet = EastFleet::not_joined();
    let file = fleet.server.file("wrong.kubeconfig");
    std::fs::write(&file, "apiVersion: v1\nkind: Config\n").unwrap();
    let (worked, output) = fleet.server.run(&["join", "east", "--kubeconfig", file.to_str().unwrap()]);
    assert!(!worked && output.contains("has no context"), "{output}");
    let (worked, output) = fleet.server.run(&["join", "east", "--kubeconfig", "/nonexistent"]);
    assert!(!worked && output.contains("cannot read the kubeconfig /nonexistent"), "{output}");
    assert_eq!(fleet.admin.get(&format!("{PHYSICAL_CLUSTERS}/east")).code, 404);
}

/// A physical cluster that never answers must not keep its administrator waiting; if it answers later, it has lost
/// nothing.
#[test]
fn a_forgotten_physical_cluster_keeps_its_objects() {
    let mut fleet = EastFleet::joined();
    fleet.put_app();
    fleet.kill_cluster("east");
    let (worked, output) = fleet.server.run(&["leave", "east", "--force"]);
    assert!(worked && output.contains("east has left"), "{output}");
    let before = fleet.east().requests();
    fleet.restart_cluster("east");
    assert_eq!(fleet.get_downstream("east", WEB).unwrap()["status"]["readyReplicas"], 3);
    assert_eq!(fleet.east().requests().since(&before).deletes(), 0);
    until("the mailbox is deleted", || fleet.admin.get(&format!("{MAILBOX}/api/v1/namespaces")).code == 404);
}

/// The same with pull: the syncer runs beside the physical cluster and opens all connections itself.
#[test]
fn a_pull_syncer_runs_placed_objects_and_its_ticket_is_exchanged_once() {
    let mut fleet = EastFleet::not_joined();
    let secret = print_ticket(&fleet.server);
    fleet.start_syncer();
    until("east is ready", || fleet.ready_condition("east")["status"] == "True");
    fleet.put_app();
    until("three pods are projected", || fleet.pods().len() == 3);
    // The exchanged ticket is worthless to a thief.
    let token: Value = serde_json::from_str(&secret).unwrap();
    let thief = Client::anonymous(&fleet.server)
        .with(&format!("Authorization: Bearer {}", token["token"].as_str().unwrap()));
    assert_eq!(thief.get("/api/v1/namespaces").code, 401);
    // The token that was exchanged for it gives access to the mailbox and to nothing else.
    let own = std::fs::read_to_string(fleet.server.file("state/token")).unwrap();
    let own = Client::anonymous(&fleet.server).with(&format!("Authorization: Bearer {own}"));
    assert_eq!(own.get("/api/v1/namespaces").code, 200);
    assert_eq!(own.get("/clusters/root/api/v1/namespaces").code, 404);
    // A restarted syncer continues.
    fleet.end_syncer();
    let labels = json!({ "holon.dev/placed": "true" });
    let late = json!({ "metadata": { "name": "late", "labels": labels } });
    fleet.put("/api/v1/namespaces/shop/configmaps", &late);
    fleet.start_syncer();
    let path = "/api/v1/namespaces/shop/configmaps/late";
    until("the object created meanwhile is applied", || fleet.get_downstream("east", path).is_some());
    fleet.end_syncer();
    // The used ticket alone cannot start another syncer.
    let output = syncer_command(&fleet.server, "elsewhere").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("the server refuses the ticket"), "{error}");
}
