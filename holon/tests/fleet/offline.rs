//! A pull syncer whose server is unreachable, was restored to an earlier state, or has another certificate authority.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::Client;
use testkit::until;

use crate::pull::files_containing;
use crate::{EastFleet, MAILBOX, WEB, mount, objects, print_manifest};

/// A stable address for syncers that leads to the current address of the server.
struct Relay {
    url: String,
    target_address: Arc<Mutex<Option<SocketAddr>>>,
}

impl Relay {
    fn start() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let target_address: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let target = target_address.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let address = *target.lock().unwrap();
                // Without a target, the connection is closed.
                if let Some(far) = address.and_then(|address| TcpStream::connect(address).ok()) {
                    join(near, far);
                }
            }
        });
        Relay { url, target_address }
    }

    fn connect_to(&self, url: &str) {
        let address = url.trim_start_matches("https://").parse().unwrap();
        *self.target_address.lock().unwrap() = Some(address);
    }

    fn disconnect(&self) {
        *self.target_address.lock().unwrap() = None;
    }
}

fn join(near: TcpStream, far: TcpStream) {
    let directions = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
    for (mut from, mut to) in directions {
        std::thread::spawn(move || {
            let _ = copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
}

/// Returns a fleet whose syncer reaches the server through a relay.
fn relayed() -> (EastFleet, Relay) {
    let (mut fleet, relay) = (EastFleet::not_joined(), Relay::start());
    relay.connect_to(&fleet.server.url);
    mount(&fleet.server, &objects(&print_manifest(&fleet.server, &["--server", &relay.url])));
    fleet.start_syncer_with("state", &[]);
    until("east is ready", || fleet.ready_condition("east")["status"] == "True");
    (fleet, relay)
}

fn delete_web(fleet: &EastFleet) -> Value {
    let uid = fleet.get_downstream("east", WEB).unwrap()["metadata"]["uid"].clone();
    fleet.send_downstream("east", "DELETE", WEB, &Value::Null).unwrap();
    uid
}

fn until_web_is_recreated(fleet: &EastFleet, uid: &Value) {
    until("web is created again", || {
        fleet.get_downstream("east", WEB).is_some_and(|web| web["metadata"]["uid"] != *uid)
    });
}

/// The server is unreachable while the syncer is killed and restarted: the syncer still enforces the last desired
/// state.
#[test]
fn a_syncer_started_without_its_server_enforces_the_last_desired_state() {
    let (mut fleet, relay) = relayed();
    fleet.put_app();
    relay.disconnect();
    fleet.server.kill();
    fleet.end_syncer();
    let uid = delete_web(&fleet);
    fleet.start_syncer_with("state", &[]);
    until_web_is_recreated(&fleet, &uid);
    // After reconnecting, nothing is different, so nothing is written.
    let before = fleet.east().requests();
    fleet.server.restart();
    relay.connect_to(&fleet.server.url);
    fleet.admin = Client::admin(&fleet.server);
    until("web is ready", || fleet.mailbox(WEB)["status"]["readyReplicas"] == 3);
    assert_eq!(fleet.east().requests().since(&before).deletes(), 0);
}

/// A deleted object must not come back from the state directory of a syncer that is killed during the deletion and
/// restarted without its server. The stored object was once removed last.
#[test]
fn deleted_objects_do_not_come_back_from_the_state_directory() {
    let (mut fleet, relay) = relayed();
    fleet.put_app();
    let maps = "/api/v1/namespaces/shop/configmaps";
    let labels = json!({ "holon.dev/placed": "true" });
    let stored_files = |fleet: &EastFleet, name: &str| {
        files_containing(&fleet.server.file("state/desired"), &format!("\"name\":\"{name}\""))
    };
    for name in ["going", "gone"] {
        fleet.put(maps, &json!({ "metadata": { "name": name, "labels": labels } }));
        until("the object is downstream", || {
            fleet.get_downstream("east", &format!("{maps}/{name}")).is_some()
        });
        until("the object is stored", || stored_files(&fleet, name) == 1);
    }
    // A finalizer downstream delays the deletion, so that the syncer is killed in the middle of it.
    let going = format!("{maps}/going");
    let with_finalizers = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    fleet.send_downstream("east", "PATCH", &going, &with_finalizers(json!(["example.com/wait"]))).unwrap();
    fleet.admin.ask("DELETE", &format!("{MAILBOX}{going}"), &Value::Null);
    until("the object is being deleted downstream", || {
        fleet.get_downstream("east", &going).unwrap()["metadata"]["deletionTimestamp"].is_string()
    });
    assert_eq!(stored_files(&fleet, "going"), 0);
    relay.disconnect();
    fleet.server.kill();
    fleet.end_syncer();
    fleet.send_downstream("east", "PATCH", &going, &with_finalizers(Value::Null)).unwrap();
    let uid = delete_web(&fleet);
    fleet.start_syncer_with("state", &[]);
    until_web_is_recreated(&fleet, &uid);
    assert!(fleet.get_downstream("east", &going).is_none());

    // Objects that were deleted on both sides meanwhile are forgotten once the mailbox is read.
    fleet.end_syncer();
    fleet.server.restart();
    fleet.admin = Client::admin(&fleet.server);
    let gone = format!("{maps}/gone");
    let mut object = fleet.mailbox(&gone);
    object["metadata"].as_object_mut().unwrap().remove("finalizers");
    assert_eq!(fleet.admin.ask("PUT", &format!("{MAILBOX}{gone}"), &object).code, 200);
    assert_eq!(fleet.admin.ask("DELETE", &format!("{MAILBOX}{gone}"), &Value::Null).code, 200);
    fleet.send_downstream("east", "DELETE", &gone, &Value::Null).unwrap();
    assert_eq!(stored_files(&fleet, "gone"), 1);
    relay.connect_to(&fleet.server.url);
    fleet.start_syncer_with("state", &[]);
    until("the stored object is removed", || stored_files(&fleet, "gone") == 0);
    assert_eq!(stored_files(&fleet, "web"), 1);
}

/// Disconnected for longer than its token is valid, the syncer logs what to do, keeps enforcing, and reconnects with
/// another ticket.
#[test]
fn a_syncer_with_an_expired_token_enforces_and_waits_for_another_ticket() {
    let (mut fleet, relay) = relayed();
    fleet.put_app();
    relay.disconnect();
    fleet.end_syncer();
    let file = fleet.server.file("state/credential");
    let mut credential: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    fleet.server.restart_with(&[], |directory| {
        let mailbox = credential["mailbox"].as_str().unwrap().to_owned();
        let token = credential["token"].as_str().unwrap().to_owned();
        credential["token"] = expired::token(directory, &mailbox, &token).into();
    });
    std::fs::write(&file, credential.to_string()).unwrap();
    relay.connect_to(&fleet.server.url);
    fleet.admin = Client::admin(&fleet.server);
    fleet.start_syncer_with("state", &[]);
    until("the log names the next step", || {
        fleet.syncer_log().contains("the token has expired while the server was unreachable")
            && fleet.syncer_log().contains("holon join east --print | kubectl apply -f -")
    });
    let uid = delete_web(&fleet);
    until_web_is_recreated(&fleet, &uid);
    assert!(
        !fleet.syncer_log().contains("no longer accepts the token of this syncer"),
        "{}",
        fleet.syncer_log()
    );
    mount(&fleet.server, &objects(&print_manifest(&fleet.server, &["--server", &relay.url])));
    until("web is ready", || fleet.mailbox(WEB)["status"]["readyReplicas"] == 3);
    until("the ticket is exchanged", || {
        let credential: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        credential["isRevoked"] == true
    });
}

/// The certificate authority of the server is rotated in three steps. A syncer that is connected during the first step
/// follows without manual action.
#[test]
fn a_syncer_follows_its_server_to_another_authority() {
    let (mut fleet, relay) = relayed();
    fleet.put_app();
    let authorities = |fleet: &EastFleet| {
        let credential: Value =
            serde_json::from_slice(&std::fs::read(fleet.server.file("state/credential")).unwrap()).unwrap();
        credential["authority"].as_str().unwrap().matches("BEGIN").count()
    };
    for expected in [2, 2, 1] {
        let (worked, output) = fleet.server.run(&["ca", "rotate"]);
        assert!(worked, "{output}");
        fleet.server.restart();
        relay.connect_to(&fleet.server.url);
        fleet.admin = Client::admin(&fleet.server);
        until("the new authority is trusted", || authorities(&fleet) == expected);
        let uid = delete_web(&fleet);
        until_web_is_recreated(&fleet, &uid);
        until("web is ready", || fleet.mailbox(WEB)["status"]["readyReplicas"] == 3);
    }
}

/// Tokens that a server made too long ago.
mod expired {
    use std::path::Path;

    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use serde_json::Value;
    use storage::embedded::{Embedded, Options};
    use storage::{Key, Store};

    /// Returns the same token, valid until an hour ago, for the same mailbox. No server runs in the directory.
    pub(super) fn token(directory: &Path, mailbox: &str, token: &str) -> String {
        let store = Embedded::open(&directory.join("store"), Options::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let entry =
            runtime.block_on(store.get(&Key::from(format!("~keys/{mailbox}")))).unwrap().value.unwrap();
        let stored: Value = serde_json::from_slice(entry.value()).unwrap();
        let key = STANDARD.decode(stored["keys"][0].as_str().unwrap()).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, &SystemRandom::new()).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
        claims["exp"] = (claims["iat"].as_i64().unwrap() - 3600).into();
        let signed = format!("{}.{}", parts[0], URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
