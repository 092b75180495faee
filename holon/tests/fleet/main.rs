//! Physical clusters from joining to leaving, as an administrator uses them: the built binary, and stand-ins that it
//! reaches over TLS.

#[path = "../common/bind.rs"]
mod bind;
#[path = "../common/client.rs"]
mod client;
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

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use common::Server;
use serde_json::{Value, json};
use standin::{Options, Standin};
use tokio::runtime::Runtime;

const MAILBOX: &str = "/clusters/root:mailbox-east";
const PHYSICAL: &str = "/apis/holon.dev/v1alpha1/physicalclusters";
/// How long a wait may take. Everything takes moments; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and a physical cluster that is registered as `east`.
struct World {
    server: Server,
    admin: Client,
    east: Standin,
    runtime: Runtime,
    /// The process of the syncer, if it runs beside the physical cluster.
    syncer: Option<Child>,
}

/// Runs a command with the server's data directory.
fn holon(server: &Server, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holon"));
    let output = command.args(arguments).arg("--data-dir").arg(server.file("")).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

/// Returns the manifest that `holon join east --print` prints.
fn print_manifest(server: &Server, options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holon"));
    command.args(["join", "east", "--print", "--image", "holon:test"]).args(options);
    let output = command.arg("--data-dir").arg(server.file("")).output().unwrap();
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
fn seat(server: &Server, state: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holon"));
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
    let deployment = json!({
        "metadata": { "name": "web", "labels": labels },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [container] },
            },
        },
    });
    [
        ("/api/v1/namespaces", json!({ "metadata": { "name": "shop", "labels": labels } })),
        ("/apis/apps/v1/namespaces/shop/deployments", deployment),
    ]
}

impl Drop for World {
    fn drop(&mut self) {
        self.end_syncer();
    }
}

impl World {
    fn new() -> World {
        World::with(Server::start())
    }

    /// Returns a world with a server that the caller started.
    fn with(server: Server) -> World {
        let runtime = Runtime::new().unwrap();
        let options = Options { metrics_server: true, ..Options::new("east") };
        let east = runtime.block_on(Standin::start(options)).unwrap();
        let admin = Client::new(&server, true);
        let world = World { server, admin, east, runtime, syncer: None };
        std::fs::write(world.server.file("east.kubeconfig"), world.east.kubeconfig().unwrap()).unwrap();
        world
    }

    fn joined() -> World {
        let world = World::new();
        world.join();
        world
    }

    /// Joins `east` with push.
    fn join(&self) {
        let file = self.server.file("east.kubeconfig");
        let (worked, said) =
            self.holon(&["join", "east", "--label", "region=eu", "--kubeconfig", file.to_str().unwrap()]);
        assert!(worked && said.contains("joined east: Kubernetes v1.36"), "{said}");
    }

    /// Returns a world in which `east` is joined with pull.
    fn dialled() -> World {
        let mut world = World::new();
        world.print_ticket();
        world.start_syncer();
        world.until("east is there", || world.ready()["status"] == "True");
        world
    }

    /// Writes the files for the syncer, and returns the ticket.
    fn print_ticket(&self) -> String {
        print_ticket(&self.server)
    }

    /// Returns the command of a syncer with this state directory.
    fn seat(&self, state: &str) -> Command {
        seat(&self.server, state)
    }

    fn start_syncer(&mut self) {
        self.syncer = Some(self.seat("state").spawn().unwrap());
    }

    fn end_syncer(&mut self) {
        if let Some(mut syncer) = self.syncer.take() {
            let _ = syncer.kill();
            let _ = syncer.wait();
        }
    }

    fn holon(&self, arguments: &[&str]) -> (bool, String) {
        holon(&self.server, arguments)
    }

    /// Sends a request to the physical cluster directly.
    fn below(&self, method: &str, path: &str, body: &Value) -> Option<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", kind).body(body);
        self.runtime.block_on(async { self.east.client().request::<Value>(request.unwrap()).await }).ok()
    }

    fn put(&self, path: &str, object: &Value) {
        let made = self.admin.ask("POST", &format!("{MAILBOX}{path}"), object);
        assert_eq!(made.code, 201, "{}", made.body);
    }

    /// Creates a namespace and a Deployment with three pods in the mailbox.
    fn put_app(&self) {
        app().iter().for_each(|(path, object)| self.put(path, object));
        self.until("web is ready", || self.mailbox(WEB)["status"]["readyReplicas"] == 3);
    }

    fn mailbox(&self, path: &str) -> Value {
        self.admin.get(&format!("{MAILBOX}{path}")).json()
    }

    /// Returns the pods of the mailbox.
    fn pods(&self) -> Vec<Value> {
        self.mailbox(PODS)["items"].as_array().cloned().unwrap_or_default()
    }

    fn ready(&self) -> Value {
        let object = self.admin.get(&format!("{PHYSICAL}/east")).json();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default()
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const PODS: &str = "/api/v1/namespaces/shop/pods";

#[test]
fn placed_objects_run_report_status_and_are_deleted_when_the_cluster_leaves() {
    let world = World::joined();
    let known = world.admin.get(&format!("{PHYSICAL}/east")).json();
    assert_eq!(known["metadata"]["labels"]["region"], "eu");
    assert_eq!(known["status"]["nodes"]["ready"], 2);
    assert_eq!(known["status"]["allocatable"]["memory"], "64Gi");
    assert!(known["status"]["lastHeartbeatTime"].is_string(), "{known:#}");
    world.put_app();
    let running = |pod: &Value| pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"].is_string();
    world.until("three pods run", || world.pods().len() == 3 && world.pods().iter().all(running));
    let of_east = |pod: &Value| pod["metadata"]["labels"]["holon.dev/physical-cluster"] == "east";
    assert!(world.pods().iter().all(of_east), "{:#?}", world.pods());
    // The status is identical to the downstream one, except for its generation.
    let below = world.below("GET", WEB, &Value::Null).unwrap();
    world.until("the status is the same", || world.mailbox(WEB)["status"] == below["status"]);

    // Drift of the downstream object is corrected, and it is created again after a deletion.
    world.below("PATCH", WEB, &json!({ "spec": { "replicas": 1 } })).unwrap();
    world
        .until("it is corrected", || world.below("GET", WEB, &Value::Null).unwrap()["spec"]["replicas"] == 3);
    world.below("DELETE", WEB, &Value::Null).unwrap();
    let uid = below["metadata"]["uid"].clone();
    world.until("it is made again", || {
        world.below("GET", WEB, &Value::Null).is_some_and(|web| web["metadata"]["uid"] != uid)
    });

    let (worked, said) = world.holon(&["leave", "east"]);
    assert!(worked && said.contains("east has left"), "{said}");
    assert!(world.below("GET", WEB, &Value::Null).is_none());
    world.until("its namespace goes", || {
        world.below("GET", "/api/v1/namespaces/shop", &Value::Null).is_none()
    });
    world.until("the mailbox goes", || world.admin.get(&format!("{MAILBOX}/api/v1/namespaces")).code == 404);
    // The server also removes its Secret and the syncer's state.
    let secret = "/api/v1/namespaces/kube-system/secrets/physical-cluster-east";
    world.until("its Secret goes", || world.admin.get(secret).code == 404);
    let kept = world.server.file(&format!("syncers/{}", known["status"]["mailbox"].as_str().unwrap()));
    world.until("what was kept for it goes", || !kept.exists());
}

/// `holon leave` reported that a physical cluster had left as soon as the server did not answer.
#[test]
fn leave_fails_if_the_server_stops_answering() {
    let mut world = World::joined();
    world.put_app();
    world.runtime.block_on(world.east.kill());
    let mut command = Command::new(env!("CARGO_BIN_EXE_holon"));
    command.args(["leave", "east", "--data-dir"]).arg(world.server.file(""));
    let mut leaving = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(leaving.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    world.server.kill();
    let output = leaving.wait_with_output().unwrap();
    let [rest, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(!output.status.success() && !rest.contains("has left"), "{said}{rest}{error}");
    assert!(error.contains("the server did not answer whether it has left"), "{error}");
}

#[test]
fn a_physical_cluster_that_is_away_loses_nothing() {
    let mut world = World::joined();
    world.put_app();
    world.until("three pods are shown", || world.pods().len() == 3);
    let before = world.east.requests();
    world.runtime.block_on(world.east.kill());
    world.until("it is said", || world.ready()["status"] == "False");
    let labels = json!({ "holon.dev/placed": "true" });
    let late = json!({ "metadata": { "name": "late", "labels": labels }, "data": { "a": "b" } });
    world.put("/api/v1/namespaces/shop/configmaps", &late);
    world.runtime.block_on(world.east.restart()).unwrap();
    world.until("it is there again", || world.ready()["status"] == "True");
    let path = "/api/v1/namespaces/shop/configmaps/late";
    world.until("what was put there meanwhile arrives", || world.below("GET", path, &Value::Null).is_some());
    assert_eq!(world.east.requests().since(&before).deletes(), 0, "nobody asked for any");
    assert_eq!(world.mailbox(WEB)["status"]["readyReplicas"], 3);
}

/// A user who may write PhysicalClusters in some logical cluster must not be able to make the server connect to an
/// arbitrary address, for example one behind the same firewall.
#[test]
fn the_server_connects_where_it_was_told_to_and_nowhere_else() {
    let world = World::new();
    let (worked, said) = world.holon(&["lc", "create", "team-a"]);
    assert!(worked, "{said}");
    let home = "/clusters/root:team-a";
    let kubeconfig = base64(&world.east.kubeconfig().unwrap());
    let secret = json!({ "metadata": { "name": "east" }, "data": { "kubeconfig": kubeconfig } });
    assert_eq!(
        world.admin.ask("POST", &format!("{home}/api/v1/namespaces/default/secrets"), &secret).code,
        201
    );
    let reference = json!({ "namespace": "default", "name": "east" });
    let object = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster",
        "metadata": { "name": "east" }, "spec": { "connection": { "push": { "secretRef": reference } } },
    });
    assert_eq!(world.admin.ask("POST", &format!("{home}{PHYSICAL}"), &object).code, 201);
    // It has a mailbox, but no syncer runs for it.
    world.until("it has a mailbox", || {
        world.admin.get(&format!("{home}:mailbox-east/api/v1/namespaces")).code == 200
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(world.east.requests().total(), 0);
    world.until("it is said", || {
        let conditions =
            world.admin.get(&format!("{home}{PHYSICAL}/east")).json()["status"]["conditions"].take();
        let ready = conditions.as_array().into_iter().flatten().find(|said| said["type"] == "Ready");
        let told = ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default();
        ready.is_some_and(|ready| ready["reason"] == "CannotConnect") && told.contains("--push-from")
    });
}

fn base64(text: &str) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_said_before_anything_is_made() {
    let world = World::new();
    let file = world.server.file("wrong.kubeconfig");
    std::fs::write(&file, "apiVersion: v1\nkind: Config\n").unwrap();
    let (worked, said) = world.holon(&["join", "east", "--kubeconfig", file.to_str().unwrap()]);
    assert!(!worked && said.contains("has no context"), "{said}");
    let (worked, said) = world.holon(&["join", "east", "--kubeconfig", "/nonexistent"]);
    assert!(!worked && said.contains("cannot read the kubeconfig /nonexistent"), "{said}");
    assert_eq!(world.admin.get(&format!("{PHYSICAL}/east")).code, 404);
}

/// A physical cluster that never answers must not keep its administrator waiting; if it answers later, it has lost
/// nothing.
#[test]
fn a_forgotten_physical_cluster_keeps_its_objects() {
    let mut world = World::joined();
    world.put_app();
    world.runtime.block_on(world.east.kill());
    let (worked, said) = world.holon(&["leave", "east", "--force"]);
    assert!(worked && said.contains("east has left"), "{said}");
    let before = world.east.requests();
    world.runtime.block_on(world.east.restart()).unwrap();
    assert_eq!(world.below("GET", WEB, &Value::Null).unwrap()["status"]["readyReplicas"], 3);
    assert_eq!(world.east.requests().since(&before).deletes(), 0);
    world.until("the mailbox goes", || world.admin.get(&format!("{MAILBOX}/api/v1/namespaces")).code == 404);
}

/// The same with pull: the syncer runs beside the physical cluster and opens all connections itself.
#[test]
fn a_syncer_that_dials_in_does_the_same_and_its_ticket_is_good_for_one_exchange() {
    let mut world = World::new();
    let secret = world.print_ticket();
    world.start_syncer();
    world.until("it is there", || world.ready()["status"] == "True");
    world.put_app();
    world.until("three pods are shown", || world.pods().len() == 3);
    // The exchanged ticket is worthless to a thief.
    let token: Value = serde_json::from_str(&secret).unwrap();
    let thief = Client::new(&world.server, false)
        .with(&format!("Authorization: Bearer {}", token["token"].as_str().unwrap()));
    assert_eq!(thief.get("/api/v1/namespaces").code, 401);
    // The token that was exchanged for it gives access to the mailbox and to nothing else.
    let own = std::fs::read_to_string(world.server.file("state/token")).unwrap();
    let own = Client::new(&world.server, false).with(&format!("Authorization: Bearer {own}"));
    assert_eq!(own.get("/api/v1/namespaces").code, 200);
    assert_eq!(own.get("/clusters/root/api/v1/namespaces").code, 404);
    // A restarted syncer continues.
    world.end_syncer();
    let labels = json!({ "holon.dev/placed": "true" });
    let late = json!({ "metadata": { "name": "late", "labels": labels } });
    world.put("/api/v1/namespaces/shop/configmaps", &late);
    world.start_syncer();
    let path = "/api/v1/namespaces/shop/configmaps/late";
    world.until("what was put there meanwhile arrives", || world.below("GET", path, &Value::Null).is_some());
    world.end_syncer();
    // The used ticket alone cannot start another syncer.
    let output = world.seat("elsewhere").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the server refuses the ticket"), "{said}");
}
