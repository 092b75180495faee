//! The API as bytes on the wire: requests that kubectl never sends, and details of responses that it hides.

mod common;

use serde_json::{Value, json};
use testkit::{Client, Server};

use common::HOLON;

/// A kind with almost no validation, and of which a new namespace has no objects.
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn named(name: &str, labels: Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels } })
}

#[test]
fn anonymous_clients_read_health_and_version_and_nothing_else() {
    let server = Server::start(HOLON);
    let anonymous = Client::anonymous(&server);
    for path in ["/healthz", "/livez", "/readyz", "/clusters/root/readyz"] {
        let answer = anonymous.get(path);
        assert_eq!((answer.code, answer.body.as_str()), (200, "ok"), "{path}");
    }
    assert_eq!(anonymous.get("/version").json()["major"], "1");
    for path in
        ["/api", "/api/v1/namespaces", "/clusters/root:nowhere/api", "/openapi/v3", "/clusters/*/api/v1/pods"]
    {
        let answer = anonymous.get(path);
        assert_eq!((answer.code, &answer.json()["reason"]), (401, &json!("Unauthorized")), "{path}");
        assert_eq!(answer.header("Content-Type"), "application/json");
        // A header with a user name proves nothing, whichever header it is.
        let forged = anonymous.with("X-Remote-User: holon-admin").with("X-Remote-Group: system:masters");
        let forged = forged.with("Impersonate-User: holon-admin").with("Impersonate-Group: system:masters");
        assert_eq!(forged.get(path).code, 401, "{path}");
    }
}

#[test]
fn invalid_requests_are_refused_with_the_statuses_of_kubernetes() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let check = |method: &str, path: &str, body: Value, code: u16, reason: &str| {
        let answer = client.ask(method, path, &body);
        let status = answer.json();
        let found = (answer.code, status["reason"].as_str().unwrap_or_default(), &status["kind"]);
        assert_eq!(found, (code, reason, &json!("Status")), "{method} {path}: {status}");
    };
    let created = client.ask("POST", SECRETS, &json!({ "metadata": { "name": "a" } }));
    assert_eq!(created.code, 201, "{}", created.body);
    let version = created.json()["metadata"]["resourceVersion"].clone();
    let none = Value::Null;
    check("GET", "/nothing", none.clone(), 404, "NotFound");
    check("GET", "/api/v1/nothing", none.clone(), 404, "NotFound");
    check("GET", "/clusters/root:nowhere/api/v1/namespaces", none.clone(), 404, "NotFound");
    check("GET", "/apis/apiregistration.k8s.io/v1/apiservices", none.clone(), 404, "NotFound");
    check("GET", &format!("{SECRETS}/b"), none.clone(), 404, "NotFound");
    check("GET", &format!("{SECRETS}/a/status"), none.clone(), 404, "NotFound");
    check("GET", &format!("{SECRETS}?labelSelector=a%20in"), none.clone(), 400, "BadRequest");
    check("GET", &format!("{SECRETS}?fieldSelector=data.x%3Dy"), none.clone(), 400, "BadRequest");
    check("GET", &format!("{SECRETS}?continue=xyz"), none.clone(), 400, "BadRequest");
    check("GET", &format!("{SECRETS}?watch=1&sendInitialEvents=true"), none.clone(), 422, "Invalid");
    check("POST", "/api", none.clone(), 405, "MethodNotAllowed");
    check("PUT", SECRETS, none.clone(), 405, "MethodNotAllowed");
    check("POST", SECRETS, json!({ "metadata": { "name": "A_" } }), 422, "Invalid");
    check("POST", SECRETS, json!({ "metadata": {} }), 422, "Invalid");
    check("POST", SECRETS, json!({ "kind": "ConfigMap", "apiVersion": "v1" }), 400, "BadRequest");
    check(
        "POST",
        SECRETS,
        json!({ "metadata": { "name": "b", "namespace": "kube-system" } }),
        400,
        "BadRequest",
    );
    check("POST", SECRETS, json!([]), 400, "BadRequest");
    check("POST", SECRETS, named("a", json!({})), 409, "AlreadyExists");
    check("POST", "/api/v1/namespaces/nowhere/secrets", named("a", json!({})), 404, "NotFound");
    // An unknown value of dryRun must not become a real write.
    check("POST", &format!("{SECRETS}?dryRun=Maybe"), named("b", json!({})), 422, "Invalid");
    check("DELETE", &format!("{SECRETS}/a"), json!({ "preconditions": { "uid": "other" } }), 409, "Conflict");
    check("DELETE", &format!("{SECRETS}/a"), json!({ "dryRun": ["Maybe"] }), 422, "Invalid");

    let same = json!({ "metadata": { "name": "a", "resourceVersion": version } });
    let unchanged = client.ask("PUT", &format!("{SECRETS}/a"), &same).json();
    assert_eq!(unchanged["metadata"]["resourceVersion"], version, "an update without a change is no write");
    let change = json!({ "metadata": { "name": "a", "resourceVersion": version }, "data": { "x": "eQ==" } });
    assert_eq!(client.ask("PUT", &format!("{SECRETS}/a"), &change).code, 200);
    check("PUT", &format!("{SECRETS}/a"), change, 409, "Conflict");
    let huge = json!({ "data": { "x": "y".repeat(4 << 20) } });
    check("POST", SECRETS, huge, 413, "RequestEntityTooLarge");
}

#[test]
fn a_list_in_pages_is_one_list() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    for number in 0..5 {
        let labels = json!({ "even": (number % 2 == 0).to_string() });
        assert_eq!(client.ask("POST", SECRETS, &named(&format!("m{number}"), labels)).code, 201);
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = client.get(&format!("{SECRETS}?limit=2")).json();
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["m0".into(), "m1".into()], &json!(3))
    );
    // A change between two pages must not show in the second page.
    assert_eq!(client.ask("DELETE", &format!("{SECRETS}/m3"), &Value::Null).code, 200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = client.get(&format!("{SECRETS}?limit=9&continue={token}")).json();
    assert_eq!(names(&rest), ["m2", "m3", "m4"]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(rest["metadata"].get("continue").is_none());
    // A continue token of one namespace must not work in another.
    let elsewhere = client.get(&format!("/api/v1/namespaces/kube-system/secrets?continue={token}"));
    assert_eq!(elsewhere.code, 400);
    let selected = client.get(&format!("{SECRETS}?limit=2&labelSelector=even%3Dtrue")).json();
    assert_eq!(
        (names(&selected), selected["metadata"].get("remainingItemCount")),
        (vec!["m0".into(), "m2".into()], None)
    );
    let token = selected["metadata"]["continue"].as_str().unwrap();
    let rest = client.get(&format!("{SECRETS}?limit=2&labelSelector=even%3Dtrue&continue={token}")).json();
    assert_eq!(names(&rest), ["m4"]);
    assert_eq!(client.ask("DELETE", &format!("{SECRETS}?labelSelector=even%3Dtrue"), &Value::Null).code, 200);
    assert_eq!(names(&client.get(SECRETS).json()), ["m1"]);
}

#[test]
fn a_watch_shows_objects_entering_changing_and_leaving_its_selection() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let relabel = |value: &str| {
        let patch = json!({ "metadata": { "labels": { "tier": value } } });
        assert_eq!(client.ask("PATCH", &format!("{SECRETS}/a"), &patch).code, 200);
    };
    assert_eq!(client.ask("POST", SECRETS, &named("a", json!({ "tier": "back" }))).code, 201);
    let from = client.get(SECRETS).json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    relabel("front");
    assert_eq!(client.ask("PATCH", &format!("{SECRETS}/a"), &json!({ "data": { "x": "eQ==" } })).code, 200);
    relabel("back");
    relabel("front");
    assert_eq!(client.ask("DELETE", &format!("{SECRETS}/a"), &Value::Null).code, 200);
    let selector = "labelSelector=tier%3Dfront&timeoutSeconds=1";
    let events = client.watched(&format!("{SECRETS}?watch=1&{selector}&resourceVersion={from}"));
    let kinds: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
    // Each event has a later version than the previous one, deletions included.
    let versions = events.iter().map(|(_, object)| object["metadata"]["resourceVersion"].as_str().unwrap());
    let versions: Vec<u64> = versions.map(|version| version.parse().unwrap()).collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    assert!(events.iter().all(|(_, object)| object["metadata"]["labels"]["tier"] == "front"));
}

#[test]
fn a_watch_can_begin_with_a_list_and_marks_its_end() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let begin = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let check = |expected: &[&str]| {
        let events = client.watched(&format!("{SECRETS}?{begin}"));
        let kinds: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, expected);
        let marked = events
            .iter()
            .filter(|(_, object)| object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true");
        assert_eq!(marked.count(), 1, "{events:?}");
    };
    // Also without any object there is a last bookmark before the end.
    check(&["BOOKMARK", "BOOKMARK"]);
    assert_eq!(client.ask("POST", SECRETS, &named("a", json!({}))).code, 201);
    check(&["ADDED", "BOOKMARK", "BOOKMARK"]);
}

#[test]
fn a_status_write_does_not_change_the_id_of_a_logical_cluster() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let clusters = "/apis/holon.dev/v1alpha1/logicalclusters";
    let created = client.ask(
        "POST",
        clusters,
        &json!({ "metadata": { "name": "a" }, "status": { "id": "~bbbbbbbbbbbbbbbb" } }),
    );
    let id = created.json()["status"]["id"].clone();
    assert!(created.code == 201 && id != "~bbbbbbbbbbbbbbbb", "{}", created.body);
    for path in [format!("{clusters}/a"), format!("{clusters}/a/status")] {
        let answer = client.ask("PATCH", &path, &json!({ "status": { "id": "~bbbbbbbbbbbbbbbb" } }));
        assert_eq!((answer.code, &answer.json()["status"]["id"]), (200, &id), "{}", answer.body);
    }
    assert_eq!(client.ask("POST", clusters, &json!({ "metadata": { "name": "a:b" } })).code, 422);
    assert!(server.kubeconfig("root:a").contains("/clusters/root:a\n"));
    assert!(server.stop());
}

/// A path can be reused, an id never is: after any changes to the first logical cluster at a path, the second one has
/// only bootstrap objects.
#[test]
fn a_logical_cluster_created_again_at_the_same_path_has_no_objects_of_the_old_one() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let clusters = "/apis/holon.dev/v1alpha1/logicalclusters";
    let maps = "/clusters/root:a/api/v1/namespaces/default/configmaps";
    let accounts = "/clusters/root:a/api/v1/namespaces/default/serviceaccounts/default";
    let named_a = json!({ "metadata": { "name": "a" } });
    assert_eq!(client.ask("POST", clusters, &named_a).code, 201);
    assert_eq!(client.ask("POST", clusters, &named_a).code, 409);

    let authority = client.ask("GET", &format!("{maps}/kube-root-ca.crt"), &json!(null)).json();
    assert!(authority["data"]["ca.crt"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    let second_create = client.ask("POST", maps, &named("kube-root-ca.crt", json!({})));
    assert_eq!((second_create.code, &second_create.json()["reason"]), (409, &json!("AlreadyExists")));
    let uid = client.ask("GET", accounts, &json!(null)).json()["metadata"]["uid"].clone();
    let edited = client.ask("PATCH", accounts, &json!({ "automountServiceAccountToken": false }));
    assert_eq!((edited.code, &edited.json()["metadata"]["uid"]), (200, &uid), "{}", edited.body);
    let class = "/clusters/root:a/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    assert_eq!(client.ask("DELETE", class, &json!(null)).code, 200);
    assert_eq!(client.ask("GET", class, &json!(null)).code, 404);
    assert_eq!(client.ask("POST", maps, &named("mine", json!({}))).code, 201);
    let names = |path: &str| -> Vec<String> {
        let list = client.ask("GET", path, &json!(null)).json();
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(maps), ["kube-root-ca.crt", "mine"]);

    assert_eq!(client.ask("DELETE", &format!("{clusters}/a"), &json!(null)).code, 200);
    assert_eq!(client.ask("GET", maps, &json!(null)).code, 404);
    // Its name can be used again once everything in it is deleted.
    let created = (0..500).map(|_| client.ask("POST", clusters, &named_a)).find(|answer| answer.code != 409);
    assert_eq!(created.map(|answer| answer.code), Some(201));
    assert_eq!(names(maps), ["kube-root-ca.crt"]);
    assert_eq!(names("/clusters/root:a/api/v1/namespaces").len(), 4);
    assert_eq!(client.ask("GET", class, &json!(null)).code, 200);
    let account = client.ask("GET", accounts, &json!(null)).json();
    assert!(
        account["metadata"]["uid"] != uid && account["automountServiceAccountToken"].is_null(),
        "{account}"
    );
    let service =
        client.ask("GET", "/clusters/root:a/api/v1/namespaces/default/services/kubernetes", &json!(null));
    assert_eq!(service.json()["spec"]["clusterIP"], "10.96.0.1");
    assert!(server.stop());
}
