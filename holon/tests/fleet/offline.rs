//! A pull syncer whose server is unreachable, was restored to an earlier state, or has another certificate authority.

use std::fs::File;
use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::Client;
use crate::pull::holding;
use crate::{MAILBOX, WEB, World, holon, mount, objects, print_manifest};

/// A stable address for syncers that leads to the current address of the server.
struct Relay {
    url: String,
    leads_to: Arc<Mutex<Option<SocketAddr>>>,
}

impl Relay {
    fn start() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let leads_to: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let target = leads_to.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let address = *target.lock().unwrap();
                // Without a target, the connection is closed.
                if let Some(far) = address.and_then(|address| TcpStream::connect(address).ok()) {
                    join(near, far);
                }
            }
        });
        Relay { url, leads_to }
    }

    fn lead_to(&self, url: &str) {
        let address = url.trim_start_matches("https://").parse().unwrap();
        *self.leads_to.lock().unwrap() = Some(address);
    }

    fn lead_nowhere(&self) {
        *self.leads_to.lock().unwrap() = None;
    }
}

fn join(near: TcpStream, far: TcpStream) {
    let ways = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
    for (mut from, mut to) in ways {
        std::thread::spawn(move || {
            let _ = copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
}

/// Returns a world whose syncer reaches the server through a relay.
fn relayed() -> (World, Relay) {
    let (mut world, relay) = (World::new(), Relay::start());
    relay.lead_to(&world.server.url);
    mount(&world.server, &objects(&print_manifest(&world.server, &["--server", &relay.url])));
    start(&mut world);
    world.until("east is there", || world.ready()["status"] == "True");
    (world, relay)
}

fn start(world: &mut World) {
    let log = File::create(world.server.file("syncer.log")).unwrap();
    world.syncer = Some(world.seat("state").stderr(log).spawn().unwrap());
}

fn said(world: &World) -> String {
    std::fs::read_to_string(world.server.file("syncer.log")).unwrap_or_default()
}

fn delete_web(world: &World) -> Value {
    let uid = world.below("GET", WEB, &Value::Null).unwrap()["metadata"]["uid"].clone();
    world.below("DELETE", WEB, &Value::Null).unwrap();
    uid
}

fn web_is_made_again(world: &World, uid: &Value) {
    world.until("web is made again", || {
        world.below("GET", WEB, &Value::Null).is_some_and(|web| web["metadata"]["uid"] != *uid)
    });
}

/// The server is unreachable while the syncer is killed and restarted: the syncer still enforces the last desired
/// state.
#[test]
fn a_syncer_started_without_its_server_enforces_the_last_desired_state() {
    let (mut world, relay) = relayed();
    world.put_app();
    relay.lead_nowhere();
    world.server.kill();
    world.end_syncer();
    let uid = delete_web(&world);
    start(&mut world);
    web_is_made_again(&world, &uid);
    // After reconnecting, nothing is different, so nothing is written.
    let before = world.east.requests();
    world.server.restart(|_| {});
    relay.lead_to(&world.server.url);
    world.admin = Client::new(&world.server, true);
    world.until("web is ready", || world.mailbox(WEB)["status"]["readyReplicas"] == 3);
    assert_eq!(world.east.requests().since(&before).deletes(), 0);
}

/// A deleted object must not come back from the state directory of a syncer that is killed during the deletion and
/// restarted without its server. The stored object was once removed last.
#[test]
fn deleted_objects_do_not_come_back_from_the_state_directory() {
    let (mut world, relay) = relayed();
    world.put_app();
    let maps = "/api/v1/namespaces/shop/configmaps";
    let labels = json!({ "holon.dev/placed": "true" });
    let kept = |world: &World, name: &str| {
        holding(&world.server.file("state/asked"), &format!("\"name\":\"{name}\""))
    };
    for name in ["going", "gone"] {
        world.put(maps, &json!({ "metadata": { "name": name, "labels": labels } }));
        world.until("it is below", || world.below("GET", &format!("{maps}/{name}"), &Value::Null).is_some());
        world.until("it is kept", || kept(&world, name) == 1);
    }
    // A finalizer downstream delays the deletion, so that the syncer is killed in the middle of it.
    let going = format!("{maps}/going");
    let held = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    world.below("PATCH", &going, &held(json!(["example.com/wait"]))).unwrap();
    world.admin.ask("DELETE", &format!("{MAILBOX}{going}"), &Value::Null);
    world.until("it leaves", || {
        world.below("GET", &going, &Value::Null).unwrap()["metadata"]["deletionTimestamp"].is_string()
    });
    assert_eq!(kept(&world, "going"), 0);
    relay.lead_nowhere();
    world.server.kill();
    world.end_syncer();
    world.below("PATCH", &going, &held(Value::Null)).unwrap();
    let uid = delete_web(&world);
    start(&mut world);
    web_is_made_again(&world, &uid);
    assert!(world.below("GET", &going, &Value::Null).is_none());

    // Objects that were deleted on both sides meanwhile are forgotten once the mailbox is read.
    world.end_syncer();
    world.server.restart(|_| {});
    world.admin = Client::new(&world.server, true);
    let gone = format!("{maps}/gone");
    let mut object = world.mailbox(&gone);
    object["metadata"].as_object_mut().unwrap().remove("finalizers");
    assert_eq!(world.admin.ask("PUT", &format!("{MAILBOX}{gone}"), &object).code, 200);
    assert_eq!(world.admin.ask("DELETE", &format!("{MAILBOX}{gone}"), &Value::Null).code, 200);
    world.below("DELETE", &gone, &Value::Null).unwrap();
    assert_eq!(kept(&world, "gone"), 1);
    relay.lead_to(&world.server.url);
    start(&mut world);
    world.until("it is forgotten", || kept(&world, "gone") == 0);
    assert_eq!(kept(&world, "web"), 1);
}

/// Disconnected for longer than its token is valid, the syncer logs what to do, keeps enforcing, and reconnects with
/// another ticket.
#[test]
fn a_syncer_with_an_expired_token_enforces_and_waits_for_another_ticket() {
    let (mut world, relay) = relayed();
    world.put_app();
    relay.lead_nowhere();
    world.end_syncer();
    let file = world.server.file("state/credential");
    let mut credential: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    world.server.restart(|directory| {
        let mailbox = credential["mailbox"].as_str().unwrap().to_owned();
        let token = credential["token"].as_str().unwrap().to_owned();
        credential["token"] = expired::token(directory, &mailbox, &token).into();
    });
    std::fs::write(&file, credential.to_string()).unwrap();
    relay.lead_to(&world.server.url);
    world.admin = Client::new(&world.server, true);
    start(&mut world);
    world.until("it is said what to do", || {
        said(&world).contains("the token has expired while the server was unreachable")
            && said(&world).contains("holon join east --print | kubectl apply -f -")
    });
    let uid = delete_web(&world);
    web_is_made_again(&world, &uid);
    assert!(!said(&world).contains("no longer accepts the token of this syncer"), "{}", said(&world));
    mount(&world.server, &objects(&print_manifest(&world.server, &["--server", &relay.url])));
    world.until("web is ready", || world.mailbox(WEB)["status"]["readyReplicas"] == 3);
    world.until("it is heard", || {
        let credential: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        credential["isSpent"] == true
    });
}

/// The certificate authority of the server is rotated in three steps. A syncer that is connected during the first step
/// follows without manual action.
#[test]
fn a_syncer_follows_its_server_to_another_authority() {
    let (mut world, relay) = relayed();
    world.put_app();
    let authorities = |world: &World| {
        let credential: Value =
            serde_json::from_slice(&std::fs::read(world.server.file("state/credential")).unwrap()).unwrap();
        credential["authority"].as_str().unwrap().matches("BEGIN").count()
    };
    for expected in [2, 2, 1] {
        let (worked, said) = holon(&world.server, &["ca", "rotate"]);
        assert!(worked, "{said}");
        world.server.restart(|_| {});
        relay.lead_to(&world.server.url);
        world.admin = Client::new(&world.server, true);
        world.until("it is trusted", || authorities(&world) == expected);
        let uid = delete_web(&world);
        web_is_made_again(&world, &uid);
        world.until("it reports", || world.mailbox(WEB)["status"]["readyReplicas"] == 3);
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
        let kept: Value = serde_json::from_slice(entry.value()).unwrap();
        let key = STANDARD.decode(kept["keys"][0].as_str().unwrap()).unwrap();
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
