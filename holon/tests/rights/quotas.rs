//! Limits: no logical cluster uses more than its share, and one at its limit can still delete.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::Client;

use crate::{TestServer, check_status};

const CLUSTERS: &str = "/apis/holon.dev/v1alpha1/logicalclusters";

/// Sets the limits of the logical cluster `a`.
fn limit(test: &TestServer, limits: &Value) {
    let path = format!("{CLUSTERS}/a");
    let mut object = test.admin.get(&path).json();
    object["spec"] = json!({ "limits": limits });
    let updated = test.admin.ask("PUT", &path, &object);
    assert_eq!(updated.code, 200, "{}", updated.body);
}

fn map(name: &str, bytes: usize) -> Value {
    json!({ "metadata": { "name": name }, "data": { "a": "x".repeat(bytes) } })
}

/// Returns a server with a logical cluster `a`, where ann has all rights.
fn server_with_a_tenant() -> (TestServer, String) {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    test.admin.bind(&a, "holon:access", "User ann");
    test.admin.bind(&a, "cluster-admin", "User ann");
    (test, a)
}

/// Returns how many objects are stored in a logical cluster, from the message of a create beyond a limit of zero.
fn used(test: &TestServer, cluster: &str) -> i64 {
    limit(test, &json!({ "objects": 0 }));
    let refused = test.admin.ask("POST", &format!("{cluster}/api/v1/namespaces"), &map("counted", 0));
    let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
    let (_, rest) = message.split_once("used: objects=").unwrap_or_else(|| panic!("{message}"));
    rest.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn objects_are_counted_towards_their_logical_cluster_and_its_ancestors() {
    let (test, a) = server_with_a_tenant();
    let (ann, maps) = (test.user("ann"), format!("{a}/api/v1/namespaces/default/configmaps"));
    let used = used(&test, &a);
    limit(&test, &json!({ "objects": used + 2 }));
    let full = |name: &str| {
        let (all, own) = (used + 2, "this logical cluster, requested: objects=1");
        format!(
            "configmaps \"{name}\" is forbidden: exceeded quota: {own}, used: objects={all}, limited: objects={all}"
        )
    };
    assert_eq!(ann.ask("POST", &maps, &map("one", 1)).code, 201);
    assert_eq!(ann.ask("POST", &maps, &map("two", 1)).code, 201);
    check_status(&ann.ask("POST", &maps, &map("three", 1)), 403, &full("three"));
    // The limit also applies to administrators, to dry runs, and to creates by apply.
    check_status(
        &test.admin.ask("POST", &format!("{maps}?dryRun=All"), &map("three", 1)),
        403,
        &full("three"),
    );
    let applying = ann.with("Content-Type: application/apply-patch+yaml");
    let applied = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "three" } });
    check_status(
        &applying.ask("PATCH", &format!("{maps}/three?fieldManager=me"), &applied),
        403,
        &full("three"),
    );
    // Existing objects can be changed and deleted; after a deletion there is room again.
    assert_eq!(ann.ask("PUT", &format!("{maps}/one"), &map("one", 2)).code, 200);
    assert_eq!(ann.ask("DELETE", &format!("{maps}/two"), &json!({})).code, 200);
    // A child logical cluster is an object too, and its objects count towards the parent.
    test.admin.create_logical_cluster("root:a:b");
    let inner = "/clusters/root:a:b/api/v1/namespaces/default/configmaps";
    check_status(
        &test.admin.ask("POST", inner, &map("four", 1)),
        403,
        &format!(
            "configmaps \"four\" is forbidden: exceeded quota: an ancestor of this logical cluster, \
             requested: objects=1, limited: objects={}",
            used + 2
        ),
    );
    // Other logical clusters are not affected.
    let other = test.admin.create_logical_cluster("root:other");
    let created =
        test.admin.ask("POST", &format!("{other}/api/v1/namespaces/default/configmaps"), &map("four", 1));
    assert_eq!(created.code, 201);
}

#[test]
fn concurrent_creates_do_not_exceed_the_limit() {
    let (test, a) = server_with_a_tenant();
    let maps = format!("{a}/api/v1/namespaces/default/configmaps");
    let used = used(&test, &a);
    limit(&test, &json!({ "objects": used + 25 }));
    let created = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..10)
            .map(|writer| {
                let (ann, maps) = (test.user("ann"), &maps);
                scope.spawn(move || {
                    let create =
                        |n: &i32| ann.ask("POST", maps, &map(&format!("m-{writer}-{n}"), 1)).code == 201;
                    (0..10).filter(create).count()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>()
    });
    assert_eq!(created, 25);
    let listed = test.admin.get(&maps).json();
    // Every namespace has one ConfigMap from the beginning.
    assert_eq!(listed["items"].as_array().unwrap().len(), 26);
}

#[test]
fn bytes_are_counted_and_objects_over_the_limit_may_shrink() {
    let (test, a) = server_with_a_tenant();
    let (ann, maps) = (test.user("ann"), format!("{a}/api/v1/namespaces/default/configmaps"));
    limit(&test, &json!({ "bytes": "100Ki" }));
    assert_eq!(ann.ask("POST", &maps, &map("big", 60_000)).code, 201);
    let refused = ann.ask("POST", &maps, &map("other", 60_000));
    let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(refused.code == 403 && message.ends_with("limited: bytes=102400"), "{message}");
    assert_eq!(ann.ask("PUT", &format!("{maps}/big"), &map("big", 110_000)).code, 403);
    // With a limit below the current use, an object can still shrink and be deleted.
    limit(&test, &json!({ "bytes": 1000 }));
    assert_eq!(ann.ask("PUT", &format!("{maps}/big"), &map("big", 50_000)).code, 200);
    assert_eq!(ann.ask("PUT", &format!("{maps}/big"), &map("big", 51_000)).code, 403);
    assert_eq!(ann.ask("DELETE", &format!("{maps}/big"), &json!({})).code, 200);
    // An invalid limit is rejected when it is written.
    for wrong in [json!({ "bytes": "lots" }), json!({ "objects": -1 }), json!({ "watches": "many" })] {
        let mut object = test.admin.get(&format!("{CLUSTERS}/a")).json();
        object["spec"] = json!({ "limits": wrong });
        let refused = test.admin.ask("PUT", &format!("{CLUSTERS}/a"), &object);
        assert!([400, 422].contains(&refused.code), "{wrong} {}", refused.body);
    }
}

#[test]
fn requests_beyond_the_rate_limit_are_rejected_except_deletes() {
    let (test, a) = server_with_a_tenant();
    let (ann, maps) = (test.user("ann"), format!("{a}/api/v1/namespaces/default/configmaps"));
    assert_eq!(ann.ask("POST", &maps, &map("one", 1)).code, 201);
    limit(&test, &json!({ "requestsPerSecond": 1 }));
    let refused = (0..50).map(|_| ann.get(&maps)).find(|answer| answer.code != 200).expect("a limit");
    let message =
        "too many requests for a logical cluster with limits: requestsPerSecond=1, please try again later";
    check_status(&refused, 429, message);
    assert_ne!(refused.header("Retry-After"), "");
    assert_eq!(ann.ask("DELETE", &format!("{maps}/one"), &json!({})).code, 200);
    // Administrators are not limited.
    assert_eq!(test.admin.get(&maps).code, 200);
    // Requests of users without access do not count towards the limit.
    let eve = test.user("eve");
    assert!((0..50).all(|_| eve.get(&maps).code == 404));
}

#[test]
fn watches_beyond_the_limit_are_rejected() {
    let (test, a) = server_with_a_tenant();
    let maps = format!("{a}/api/v1/namespaces/default/configmaps");
    limit(&test, &json!({ "watches": 2 }));
    let is_rejected = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (test, maps, is_rejected) = (&test, &maps, &is_rejected);
        let watch =
            move |seconds: u32| test.user("ann").get(&format!("{maps}?watch=1&timeoutSeconds={seconds}"));
        // Two others watch again and again until this user is rejected: a watch of its own may take a place first.
        let others = move || {
            while !is_rejected.load(Ordering::Relaxed) {
                watch(5);
            }
        };
        let open: Vec<_> = (0..2).map(|_| scope.spawn(others)).collect();
        let message = "too many watches for a logical cluster with limits: watches=2, please try again later";
        let refused = (0..40).map(|_| watch(1)).find(|answer| answer.code != 200);
        is_rejected.store(true, Ordering::Relaxed);
        check_status(&refused.expect("a limit"), 429, message);
        open.into_iter().for_each(|open| open.join().unwrap());
        // After other watches have ended, there is room again.
        assert_eq!(watch(1).code, 200);
    });
}

/// After the upgrade to WebSocket a watch is no longer an HTTP request, and still counts as long as it lasts.
#[test]
fn watches_over_websocket_count_towards_the_limit() {
    let (test, a) = server_with_a_tenant();
    let maps = format!("{a}/api/v1/namespaces/default/configmaps");
    limit(&test, &json!({ "watches": 2 }));
    let (plain, socket) = (test.user("ann"), test.user("ann").over_websocket());
    let watch =
        |client: &Client, seconds: u32| client.get(&format!("{maps}?watch=1&timeoutSeconds={seconds}"));
    std::thread::scope(|scope| {
        let open = [&socket, &socket].map(|client| scope.spawn(move || watch(client, 5)));
        std::thread::sleep(std::time::Duration::from_secs(1));
        let message = "too many watches for a logical cluster with limits: watches=2, please try again later";
        check_status(&watch(&plain, 1), 429, message);
        check_status(&watch(&socket, 1), 429, message);
        for open in open {
            let answer = open.join().unwrap();
            assert!(answer.code == 101 && answer.is_closed(), "{}: {:?}", answer.code, answer.body);
        }
    });
    // After other watches have ended, there is room again.
    assert_eq!((watch(&socket, 1).code, watch(&plain, 1).code), (101, 200));
}
