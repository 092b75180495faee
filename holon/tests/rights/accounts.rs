//! Service accounts, their tokens, and where these authenticate.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use testkit::Client;

use crate::TestServer;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

impl TestServer {
    pub(crate) fn with_token(&self, token: &str) -> Client {
        Client::anonymous(&self.server).with(&format!("Authorization: Bearer {token}"))
    }

    /// Creates a service account in a logical cluster.
    pub(crate) fn account(&self, cluster: &str, name: &str) {
        let path = format!("{cluster}/api/v1/namespaces/default/serviceaccounts");
        assert_eq!(self.admin.ask("POST", &path, &json!({ "metadata": { "name": name } })).code, 201);
    }

    /// Creates a Secret for an account's token, and returns the token that the server puts into it.
    pub(crate) fn secret_token(&self, cluster: &str, secret: &str, account: &str) -> String {
        let body = json!({
            "metadata": { "name": secret, "annotations": { "kubernetes.io/service-account.name": account } },
            "type": "kubernetes.io/service-account-token",
        });
        let secrets = format!("{cluster}/api/v1/namespaces/default/secrets");
        assert_eq!(self.admin.ask("POST", &secrets, &body).code, 201);
        self.await_secret_token(cluster, secret)
    }

    /// Returns the token in a Secret, once the server has added it.
    fn await_secret_token(&self, cluster: &str, secret: &str) -> String {
        let path = format!("{cluster}/api/v1/namespaces/default/secrets/{secret}");
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) {
            if let Some(token) = self.admin.get(&path).json()["data"]["token"].as_str() {
                return String::from_utf8(STANDARD.decode(token).unwrap()).unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the Secret {secret} is still without a token")
    }

    pub(crate) fn token(&self, cluster: &str, name: &str, spec: Value) -> Value {
        let path = format!("{cluster}/api/v1/namespaces/default/serviceaccounts/{name}/token");
        self.admin.ask("POST", &path, &json!({ "spec": spec })).json()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[test]
fn a_token_gives_access_to_its_own_logical_cluster_only() {
    let test = TestServer::start();
    let (a, b) = (test.admin.create_logical_cluster("root:a"), test.admin.create_logical_cluster("root:b"));
    for cluster in [&a, &b] {
        test.account(cluster, "bot");
        test.admin.bind(cluster, "view", "Group system:serviceaccounts");
        let map = json!({ "metadata": { "name": format!("of{}", cluster.replace(['/', ':'], "-")) } });
        assert_eq!(test.admin.ask("POST", &format!("{cluster}{MAPS}"), &map).code, 201);
    }
    // Accounts of this name in the root and in other logical clusters have all rights there, which must not matter.
    test.admin.bind("", "cluster-admin", "User system:serviceaccount:default:bot");
    test.admin.bind(&b, "cluster-admin", "User system:serviceaccount:default:bot");
    let answer = test.token(&a, "bot", json!({ "expirationSeconds": 600 }));
    assert_eq!(answer["kind"], "TokenRequest", "{answer}");
    let token = text(&answer["status"]["token"]);
    let token_claims = claims(&token);
    assert_eq!(token_claims["sub"], "system:serviceaccount:default:bot");
    assert_eq!(token_claims["exp"].as_i64().unwrap() - token_claims["iat"].as_i64().unwrap(), 600);
    assert_eq!(token_claims["kubernetes.io"]["serviceaccount"]["name"], "bot");

    let bot = test.with_token(&token);
    let listed = bot.get(MAPS).json();
    let names: Vec<_> =
        listed["items"].as_array().unwrap().iter().map(|map| text(&map["metadata"]["name"])).collect();
    assert_eq!(names, ["kube-root-ca.crt", "of-clusters-root-a"]);
    assert_eq!(bot.get(&format!("{a}{MAPS}")).code, 200);
    assert_eq!(bot.get("/api/v1/namespaces/default/secrets").code, 403);
    let id = token_claims["iss"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    assert_eq!(bot.get(&format!("/clusters/{id}{MAPS}")).code, 200);
    let unknown = bot.get(&format!("/clusters/root:nowhere{MAPS}"));
    for elsewhere in [&b, "/clusters/root", "/clusters/*"] {
        let answer = bot.get(&format!("{elsewhere}{MAPS}"));
        assert_eq!((answer.code, &answer.body), (404, &unknown.body), "{elsewhere}");
    }
    // A token review in another logical cluster must not authenticate the token.
    let review = |cluster: &str| {
        let body = json!({ "spec": { "token": token } });
        let path = format!("{cluster}/apis/authentication.k8s.io/v1/tokenreviews");
        test.admin.ask("POST", &path, &body).json()["status"].clone()
    };
    assert_eq!(review(&a)["user"]["username"], "system:serviceaccount:default:bot");
    assert_eq!(review(&b), json!({ "user": {}, "error": "invalid bearer token" }));
}

/// A client that could change a token undetected could be any user.
#[test]
fn a_modified_token_does_not_authenticate() {
    let test = TestServer::start();
    let (a, b) = (test.admin.create_logical_cluster("root:a"), test.admin.create_logical_cluster("root:b"));
    let [token_of_b, token_of_a] =
        [&b, &a].map(|cluster| text(&test.token(cluster, "default", json!({}))["status"]["token"]));
    let [header, payload, signature] = token_of_b.split('.').collect::<Vec<_>>()[..] else {
        panic!("{token_of_b}")
    };
    let parts: Vec<&str> = token_of_a.split('.').collect();
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let mut elsewhere = claims(&token_of_b);
    elsewhere["iss"] = claims(&token_of_a)["iss"].clone();
    let mut renamed = claims(&token_of_b);
    renamed["kubernetes.io"]["serviceaccount"]["name"] = "other".into();
    let none = encode(&json!({ "alg": "none" }));
    let forged = [
        format!("{header}.{}.{signature}", encode(&elsewhere)),
        format!("{}.{}.{signature}", parts[0], encode(&elsewhere)),
        format!("{header}.{}.{signature}", encode(&renamed)),
        format!("{}.{}.{signature}", parts[0], parts[1]),
        format!("{header}.{payload}.{}", parts[2]),
        format!("{none}.{}.", parts[1]),
        format!("{header}.{payload}."),
        format!("{header}.{payload}"),
    ];
    assert_eq!(test.with_token(&token_of_b).get("/apis").code, 200);
    for token in forged {
        for path in ["/apis", "/version", &format!("{a}/apis"), &format!("{b}/apis")] {
            assert_eq!(test.with_token(&token).get(path).code, 401, "{path} {token}");
        }
    }
}

#[test]
fn a_token_is_invalid_after_its_bound_object_is_deleted() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    test.account(&a, "bot");
    let pods = format!("{a}/api/v1/namespaces/default/pods");
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": { "serviceAccountName": "bot", "containers": [{ "name": "c", "image": "i" }] },
    });
    assert_eq!(test.admin.ask("POST", &pods, &pod).code, 201);
    let free = text(&test.token(&a, "bot", json!({}))["status"]["token"]);
    let reference = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p" });
    let bound = text(&test.token(&a, "bot", json!({ "boundObjectRef": reference }))["status"]["token"]);
    let other = text(&test.token(&a, "bot", json!({ "audiences": ["vault"] }))["status"]["token"]);
    let codes = || [&free, &bound, &other].map(|token| test.with_token(token).get("/apis").code);
    assert_eq!(codes(), [200, 200, 401]);
    assert_eq!(test.admin.ask("DELETE", &format!("{pods}/p?gracePeriodSeconds=0"), &json!({})).code, 200);
    assert_eq!(codes(), [200, 401, 401]);
    let account = format!("{a}/api/v1/namespaces/default/serviceaccounts/bot");
    assert_eq!(test.admin.ask("DELETE", &account, &json!({})).code, 200);
    // A new account of the same name is another account.
    test.account(&a, "bot");
    assert_eq!(codes(), [401, 401, 401]);
}

/// The messages are those of kube-apiserver 1.36.4.
#[test]
fn a_request_for_a_token_is_refused_as_kubernetes_refuses_it() {
    let test = TestServer::start();
    test.account("", "bot");
    let check = |name: &str, spec: Value, code: u16, message: &str| {
        let answer = test.token("", name, spec);
        assert_eq!((&answer["code"], &answer["message"]), (&json!(code), &json!(message)));
    };
    let invalid = |value: i64, reason: &str| {
        format!(
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: {value}: {reason}"
        )
    };
    check(
        "bot",
        json!({ "expirationSeconds": 10 }),
        422,
        &invalid(10, "may not specify a duration less than 10 minutes"),
    );
    check(
        "bot",
        json!({ "expirationSeconds": 4_294_967_297_i64 }),
        422,
        &invalid(4_294_967_297, "may not specify a duration larger than 2^32 seconds"),
    );
    check("none", json!({}), 404, "serviceaccounts \"none\" not found");
    let bound = |kind: &str| json!({ "boundObjectRef": { "apiVersion": "v1", "kind": kind, "name": "x" } });
    check("bot", bound("Pod"), 404, "pods \"x\" not found");
    check("bot", bound("Job"), 400, "cannot bind token to object of type /v1, Kind=Job");
}

#[test]
fn a_token_can_be_verified_with_openid_and_stored_in_a_secret() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    test.account(&a, "bot");
    let token = text(&test.token(&a, "bot", json!({}))["status"]["token"]);
    let bot = test.with_token(&token);
    let found = bot.get("/.well-known/openid-configuration").json();
    assert_eq!(found["issuer"], claims(&token)["iss"]);
    let keys = text(&found["jwks_uri"]).replace(&test.server.url, "");
    let keys = bot.get(&keys);
    assert_eq!(keys.header("Content-Type"), "application/jwk-set+json");
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(keys.json()["keys"][0]["kid"], header["kid"]);

    let secret_token = test.secret_token(&a, "key", "bot");
    let secrets = format!("{a}/api/v1/namespaces/default/secrets");
    let data = test.admin.get(&format!("{secrets}/key")).json()["data"].clone();
    assert!(data["ca.crt"].is_string() && data["namespace"] == STANDARD.encode("default"), "{data}");
    assert_eq!(test.with_token(&secret_token).get("/apis").code, 200);
    // If the token is cleared, the Secret gets another one, and the first is invalid.
    let cleared = json!({ "data": { "token": null } });
    assert_eq!(test.admin.ask("PATCH", &format!("{secrets}/key"), &cleared).code, 200);
    assert_eq!(test.with_token(&secret_token).get("/apis").code, 401);
    let secret_token = test.await_secret_token(&a, "key");
    assert_eq!(test.with_token(&secret_token).get("/apis").code, 200);
    assert_eq!(test.admin.ask("DELETE", &format!("{secrets}/key"), &json!({})).code, 200);
    assert_eq!(test.with_token(&secret_token).get("/apis").code, 401);
}

#[test]
fn signing_keys_can_be_rotated_and_the_old_ones_revoked() {
    let test = TestServer::start();
    let (a, b) = (test.admin.create_logical_cluster("root:a"), test.admin.create_logical_cluster("root:b"));
    let keys = format!("{a}/openid/v1/jwks");
    let token = |cluster: &str| text(&test.token(cluster, "default", json!({}))["status"]["token"]);
    let code = |token: &str| test.with_token(token).get("/apis").code;
    let (first, elsewhere) = (token(&a), token(&b));
    assert_eq!(code(&first), 200);
    let renewed = test.admin.ask("POST", &keys, &Value::Null);
    assert_eq!((renewed.code, renewed.json()["keys"].as_array().map(Vec::len)), (200, Some(2)));
    let second = token(&a);
    assert_eq!([&first, &second].map(|token| code(token)), [200, 200]);
    // A user without rights may not do this either.
    test.admin.bind(&a, "holon:access", "User ann");
    for method in ["POST", "DELETE"] {
        assert_eq!(test.user("ann").ask(method, &keys, &Value::Null).code, 403);
        assert_eq!(test.user("bob").ask(method, &keys, &Value::Null).code, 404);
    }
    assert_eq!(test.admin.ask("DELETE", &keys, &Value::Null).code, 200);
    assert_eq!([&first, &second, &elsewhere].map(|token| code(token)), [401, 200, 200]);
    assert_eq!(test.admin.get(&keys).json()["keys"].as_array().map(Vec::len), Some(1));
    let renewals = (0..10).map(|_| test.admin.ask("POST", &keys, &Value::Null).code);
    assert_eq!(renewals.filter(|code| *code == 200).count(), 7, "the number of keys is limited");
    assert_eq!(code(&second), 200);
}
