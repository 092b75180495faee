//! Authentication.

use serde_json::json;
use testkit::{Client, Server};

use crate::common::HOLON;

const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Returns the user info that the server has for a client.
fn user_info(client: &Client) -> serde_json::Value {
    client.ask("POST", SELF_REVIEWS, &json!({})).json()["status"]["userInfo"].clone()
}

#[test]
fn a_valid_token_authenticates_and_a_wrong_one_is_rejected_on_every_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.csv");
    std::fs::write(&file, "s3cret,ann,7,\"dev,ops\"\nother,bob,8\n").unwrap();
    let file = file.to_str().unwrap().to_owned();
    let server = Server::start_in(HOLON, dir, &["--token-auth-file", &file]);
    let anonymous = Client::anonymous(&server);
    let admin = Client::admin(&server);
    admin.bind("", "holon:access", "Group system:authenticated");
    admin.bind("", "cluster-admin", "User ann");

    let ann = anonymous.with("Authorization: Bearer s3cret");
    assert_eq!(ann.get("/api/v1/namespaces").code, 200);
    let expected = json!({ "username": "ann", "uid": "7", "groups": ["dev", "ops", "system:authenticated"] });
    assert_eq!(user_info(&ann), expected);
    let bob = anonymous.with("authorization: bearer other");
    assert_eq!(user_info(&bob), json!({ "username": "bob", "uid": "8", "groups": ["system:authenticated"] }));

    // A wrong token is rejected even on paths that allow anonymous requests, because its client believes to be
    // authenticated.
    let wrong = anonymous.with("Authorization: Bearer wrong");
    for path in ["/version", "/readyz", "/api"] {
        let answer = wrong.get(path);
        assert_eq!((answer.code, &answer.json()["message"]), (401, &json!("Unauthorized")), "{path}");
    }
    assert_eq!(anonymous.with("Authorization: Basic YTpi").get("/version").code, 200);
    assert_eq!(anonymous.get("/metrics").code, 401);

    let review = |token: &str| {
        let body = json!({ "spec": { "token": token } });
        ann.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &body).json()["status"].clone()
    };
    assert_eq!(review("s3cret"), json!({ "authenticated": true, "user": expected }));
    assert_eq!(review("wrong"), json!({ "user": {}, "error": "invalid bearer token" }));
}

/// A user who could distinguish a forbidden path from one that does not exist would learn which logical clusters exist.
#[test]
fn an_inaccessible_logical_cluster_looks_like_a_missing_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.csv");
    std::fs::write(&file, "s3cret,ann,7\nr00t,eve,8,system:masters\n").unwrap();
    let file = file.to_str().unwrap().to_owned();
    let server = Server::start_in(HOLON, dir, &["--token-auth-file", &file]);
    let anonymous = Client::anonymous(&server);
    let (ann, eve) =
        ["s3cret", "r00t"].map(|token| anonymous.with(&format!("Authorization: Bearer {token}"))).into();
    let clusters = "/apis/holon.dev/v1alpha1/logicalclusters";
    let created = eve.ask("POST", clusters, &json!({ "metadata": { "name": "there" } })).json();
    let id = created["status"]["id"].as_str().unwrap();

    let unknown = ann.get("/clusters/root:nowhere/api/v1/configmaps");
    assert_eq!(unknown.code, 404);
    for cluster in ["*", id, "~bbbbbbbbbbbbbbbc", "root", "root:there"] {
        for (method, path) in [
            ("GET", "/api/v1/configmaps"),
            ("GET", "/api/v1/configmaps?watch=1"),
            ("POST", "/api/v1/namespaces"),
            ("DELETE", "/api/v1/namespaces/default/configmaps"),
            ("GET", "/api"),
        ] {
            let answer = ann.ask(method, &format!("/clusters/{cluster}{path}"), &json!({}));
            assert_eq!((answer.code, &answer.body), (404, &unknown.body), "{method} {cluster} {path}");
            for header in ["Content-Type", "Cache-Control", "Allow", "Warning"] {
                assert_eq!(answer.header(header), unknown.header(header), "{method} {cluster} {path}");
            }
        }
    }
    // Errors in the request must not reveal it either.
    for odd in
        ["Impersonate-Group: dev", "Impersonate-User: eve", "Content-Type: nonsense", "Accept: nonsense"]
    {
        let odd = ann.with(odd);
        let [existing, missing] = ["there", "nowhere"].map(|name| {
            let answer =
                odd.ask("POST", &format!("/clusters/root:{name}/api/v1/namespaces?timeout=x"), &json!([]));
            (answer.code, answer.body)
        });
        assert_eq!(existing, missing);
    }
    assert_eq!(eve.get("/clusters/*/api/v1/configmaps").code, 200);
    assert_eq!(eve.get(&format!("/clusters/{id}/api/v1/configmaps")).code, 200);
}

#[test]
fn a_client_certificate_authenticates_before_a_token() {
    let server = Server::start(HOLON);
    let admin = Client::admin(&server);
    let info = user_info(&admin);
    assert_eq!(info["username"], "holon-admin");
    assert_eq!(info["groups"], json!(["system:masters", "system:authenticated"]));
    let credential = info["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    assert!(credential.starts_with("X509SHA256="), "{credential}");
    // As in Kubernetes, a valid certificate is sufficient and is checked first.
    assert_eq!(user_info(&admin.with("Authorization: Bearer wrong")), info);
}

#[test]
fn a_token_file_that_cannot_be_read_prevents_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(HOLON)
        .args(["start", "--listen", "127.0.0.1:0", "--token-auth-file", "/nonexistent", "--data-dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("cannot read /nonexistent"), "{error}");
}
