//! Revoked rights end at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Client;

use crate::{GROUP, TestServer};

/// Lets ann into a logical cluster. Returns the paths of the bindings and of the objects she may read, and the body of
/// the binding that allows it.
fn grant_view(test: &TestServer, cluster: &str) -> (String, String, Value) {
    test.admin.bind(cluster, "holon:access", "User ann");
    let bindings = format!("{cluster}/apis/{GROUP}/v1/clusterrolebindings");
    let maps = format!("{cluster}/api/v1/namespaces/default/configmaps");
    let body = json!({
        "metadata": { "name": "reads" },
        "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": "ann" }],
    });
    (bindings, maps, body)
}

#[test]
fn a_revoked_binding_stops_the_next_request_and_ends_open_watches() {
    let test = TestServer::start();
    let (a, ann) = (test.admin.create_logical_cluster("root:a"), test.user("ann"));
    let (bindings, maps, body) = grant_view(&test, &a);
    for _ in 0..20 {
        assert_eq!(test.admin.ask("POST", &bindings, &body).code, 201);
        assert_eq!(ann.get(&maps).code, 200);
        assert_eq!(test.admin.ask("DELETE", &format!("{bindings}/reads"), &json!({})).code, 200);
        assert_eq!(ann.get(&maps).code, 403);
    }

    assert_eq!(test.admin.ask("POST", &bindings, &body).code, 201);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let body = ann.get(&format!("{maps}?watch=1")).body;
            (body, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(500));
        // A change that revokes nothing ends no watch.
        test.admin.bind(&a, "view", "User bob");
        std::thread::sleep(Duration::from_millis(300));
        assert!(!watching.is_finished());
        assert_eq!(test.admin.ask("DELETE", &format!("{bindings}/reads"), &json!({})).code, 200);
        let (revoked, (body, ended)) = (Instant::now(), watching.join().unwrap());
        println!("the watch ended {:?} after the revocation", ended.saturating_duration_since(revoked));
        // The server ends the response properly; a client that timed out would not see this last chunk.
        assert!(body.ends_with("0\r\n\r\n"), "{body:?}");
        let events = body.lines().filter(|line| line.starts_with('{')).count();
        assert_eq!(events, 1, "only the existing object, and no later event");
    });
    // After the access is revoked too, the logical cluster looks as if it did not exist.
    let listed = test.admin.get(&bindings).json();
    for binding in listed["items"].as_array().unwrap() {
        let name = binding["metadata"]["name"].as_str().unwrap();
        if name.starts_with("made-for-a-test") {
            test.admin.ask("DELETE", &format!("{bindings}/{name}"), &json!({}));
        }
    }
    assert_eq!(ann.get(&maps).code, 404);
}

/// After the upgrade to WebSocket a watch is no longer an HTTP request, and still ends with the binding.
#[test]
fn a_revoked_binding_ends_watches_over_websocket() {
    let test = TestServer::start();
    let (a, ann) = (test.admin.create_logical_cluster("root:a"), test.user("ann").over_websocket());
    let (bindings, maps, body) = grant_view(&test, &a);
    assert_eq!(test.admin.ask("POST", &bindings, &body).code, 201);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| ann.get(&format!("{maps}?watch=1")));
        std::thread::sleep(Duration::from_millis(500));
        assert!(!watching.is_finished());
        assert_eq!(test.admin.ask("DELETE", &format!("{bindings}/reads"), &json!({})).code, 200);
        let late = json!({ "metadata": { "name": "late" } });
        assert_eq!(test.admin.ask("POST", &maps, &late).code, 201);
        let answer = watching.join().unwrap();
        assert_eq!(answer.code, 101);
        assert!(answer.is_closed(), "{:?}", answer.body);
        assert_eq!(
            answer.body.matches("ADDED").count(),
            1,
            "only the existing object, and no later event: {:?}",
            answer.body
        );
    });
    // A user without the right to watch gets a plain HTTP response.
    let refused = ann.get(&format!("{maps}?watch=1"));
    assert_eq!((refused.code, refused.json()["reason"].as_str()), (403, Some("Forbidden")));
}

/// Watches once outlived the credentials of their clients: a token's account, pod or Secret, its line in the operator's
/// file, and the logical cluster itself.
#[test]
fn a_watch_ends_with_the_credential_of_its_client() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    for name in ["one", "two", "three", "four", "five"] {
        test.account(&a, name);
    }
    test.admin.bind(&a, "view", "Group system:serviceaccounts");
    test.admin.bind(&a, "cluster-admin", "User ann");
    let pods = format!("{a}/api/v1/namespaces/default/pods");
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": { "serviceAccountName": "two", "containers": [{ "name": "c", "image": "i" }] },
    });
    assert_eq!(test.admin.ask("POST", &pods, &pod).code, 201);
    let secrets = format!("{a}/api/v1/namespaces/default/secrets");
    let secret_token = test.secret_token(&a, "key", "three");
    let token =
        |name: &str, spec: Value| test.token(&a, name, spec)["status"]["token"].as_str().unwrap().to_owned();
    let bound = json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": "p" } });
    let clients = [
        test.with_token(&token("one", json!({}))),
        test.with_token(&token("two", bound)),
        test.with_token(&secret_token),
        test.user("ann"),
        test.with_token(&token("four", json!({}))),
        Client::admin(&test.server),
    ];
    let maps = format!("{a}/api/v1/namespaces/default/configmaps?watch=1");
    std::thread::scope(|scope| {
        let watches = clients.each_ref().map(|client| scope.spawn(|| client.get(&maps)));
        std::thread::sleep(Duration::from_millis(700));
        let mut watches = watches.into_iter();
        let mut ends = |credential: &str| {
            let started = Instant::now();
            let answer = watches.next().unwrap().join().unwrap();
            println!("{credential}: ended after {:?}", started.elapsed());
            assert_eq!(answer.code, 200, "{credential}: {}", answer.body);
            // The server ends the response properly; a client that timed out would not see this last chunk.
            assert!(answer.body.ends_with("0\r\n\r\n"), "{credential}: {:?}", answer.body);
        };
        let delete = |path: &str| assert_eq!(test.admin.ask("DELETE", path, &json!({})).code, 200, "{path}");
        delete(&format!("{a}/api/v1/namespaces/default/serviceaccounts/one"));
        ends("an account that was deleted");
        delete(&format!("{pods}/p?gracePeriodSeconds=0"));
        ends("a pod that was deleted");
        let cleared = json!({ "data": { "token": "bm90aGluZw==" } });
        assert_eq!(test.admin.ask("PATCH", &format!("{secrets}/key"), &cleared).code, 200);
        ends("a Secret that holds another token");
        std::fs::write(test.server.file("tokens.csv"), "token-of-bob,bob,1\n").unwrap();
        ends("a line that was removed");
        delete("/apis/holon.dev/v1alpha1/logicalclusters/a");
        ends("a logical cluster that was deleted, for its account");
        ends("a logical cluster that was deleted, for an administrator");
    });
    for client in &clients[..5] {
        assert!([401, 404].contains(&client.get("/apis").code), "the credential still authenticates");
    }
}

/// An event that was written after the binding was deleted was once sent, depending on timing.
#[test]
fn no_event_written_after_a_revocation_is_sent() {
    let test = TestServer::start();
    let (a, ann) = (test.admin.create_logical_cluster("root:a"), test.user("ann"));
    let (bindings, maps, body) = grant_view(&test, &a);
    for turn in 0..30 {
        assert_eq!(test.admin.ask("POST", &bindings, &body).code, 201);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| ann.get(&format!("{maps}?watch=1")).body);
            std::thread::sleep(Duration::from_millis(100));
            // The second request is sent after the first response, on connections that are already open.
            assert_eq!(test.admin.ask("DELETE", &format!("{bindings}/reads"), &json!({})).code, 200);
            let late = json!({ "metadata": { "name": format!("late-{turn}") } });
            assert_eq!(test.admin.ask("POST", &maps, &late).code, 201);
            let answer = watching.join().unwrap();
            assert!(!answer.contains(&format!("late-{turn}")), "{answer}");
        });
    }
}

/// The default bindings of a logical cluster can be deleted in that logical cluster alone.
#[test]
fn discovery_can_be_revoked_for_all_users() {
    let test = TestServer::start();
    let (a, b, ann) = (
        test.admin.create_logical_cluster("root:a"),
        test.admin.create_logical_cluster("root:b"),
        test.user("ann"),
    );
    for cluster in [&a, &b] {
        test.admin.bind(cluster, "holon:access", "User ann");
        assert_eq!(ann.get(&format!("{cluster}/apis")).code, 200);
    }
    let binding = format!("{a}/apis/{GROUP}/v1/clusterrolebindings/system:discovery");
    assert_eq!(test.admin.ask("DELETE", &binding, &json!({})).code, 200);
    assert_eq!([&a, &b].map(|cluster| ann.get(&format!("{cluster}/apis")).code), [403, 200]);
}
