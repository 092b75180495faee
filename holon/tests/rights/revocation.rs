//! What is taken away is gone at once.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{GROUP, World};

#[test]
fn a_revoked_binding_stops_the_next_request_and_ends_open_watches() {
    let world = World::new();
    let (a, ann) = (world.cluster("a"), world.user("ann"));
    world.admin.bind(&a, "holon:access", "User ann");
    let bindings = format!("{a}/apis/{GROUP}/v1/clusterrolebindings");
    let maps = format!("{a}/api/v1/namespaces/default/configmaps");
    let body = json!({
        "metadata": { "name": "reads" },
        "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": "ann" }],
    });
    for _ in 0..20 {
        assert_eq!(world.admin.ask("POST", &bindings, &body).code, 201);
        assert_eq!(ann.get(&maps).code, 200);
        assert_eq!(world.admin.ask("DELETE", &format!("{bindings}/reads"), &json!({})).code, 200);
        assert_eq!(ann.get(&maps).code, 403);
    }

    assert_eq!(world.admin.ask("POST", &bindings, &body).code, 201);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let body = ann.get(&format!("{maps}?watch=1")).body;
            (body, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(500));
        // A change that takes nothing away ends nothing.
        world.admin.bind(&a, "view", "User bob");
        std::thread::sleep(Duration::from_millis(300));
        assert!(!watching.is_finished());
        assert_eq!(world.admin.ask("DELETE", &format!("{bindings}/reads"), &json!({})).code, 200);
        let (revoked, (body, ended)) = (Instant::now(), watching.join().unwrap());
        println!("the watch ended {:?} after the revocation", ended.saturating_duration_since(revoked));
        // The server says that this is all; a client that gave up waiting would not have heard that.
        assert!(body.ends_with("0\r\n\r\n"), "{body:?}");
        let events = body.lines().filter(|line| line.starts_with('{')).count();
        assert_eq!(events, 1, "what was there, and nothing after");
    });
    // Whoever is not let in any more is not told that there is something.
    let listed = world.admin.get(&bindings).json();
    for binding in listed["items"].as_array().unwrap() {
        let name = binding["metadata"]["name"].as_str().unwrap();
        if name.starts_with("made-for-a-test") {
            world.admin.ask("DELETE", &format!("{bindings}/{name}"), &json!({}));
        }
    }
    assert_eq!(ann.get(&maps).code, 404);
}

/// What every newborn is bound to can be unbound, in one logical cluster alone.
#[test]
fn discovery_can_be_taken_from_everybody() {
    let world = World::new();
    let (a, b, ann) = (world.cluster("a"), world.cluster("b"), world.user("ann"));
    for cluster in [&a, &b] {
        world.admin.bind(cluster, "holon:access", "User ann");
        assert_eq!(ann.get(&format!("{cluster}/apis")).code, 200);
    }
    let binding = format!("{a}/apis/{GROUP}/v1/clusterrolebindings/system:discovery");
    assert_eq!(world.admin.ask("DELETE", &binding, &json!({})).code, 200);
    assert_eq!([&a, &b].map(|cluster| ann.get(&format!("{cluster}/apis")).code), [403, 200]);
}
