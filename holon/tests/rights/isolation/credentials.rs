//! The credentials of tenant B: valid ones, ones that were valid once, and forged ones.
//!
//! B is assumed to be strong: it has the signing key of its own logical cluster, which only the server has. So a
//! missing signature is never the only reason why a token is invalid.

use std::collections::BTreeMap;
use std::path::Path;

use api::cluster::Id;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use storage::embedded::{Embedded, Options};
use storage::{Key, Store};
use testkit::Client;

use super::CANARY;
use crate::TestServer;

/// Two tenants, and all credentials of B.
pub(super) struct Tenants {
    pub(super) test: TestServer,
    /// The ids of their logical clusters, by name.
    pub(super) ids: BTreeMap<&'static str, String>,
    /// Clients of B's user and of B's service account; both have all rights in B.
    pub(super) own: Vec<Client>,
    /// Client of A's service account, which has all rights in A.
    pub(super) other: Client,
    /// Clients with invalid tokens, and why each is invalid.
    pub(super) invalid: Vec<(&'static str, Client)>,
}

impl Tenants {
    pub(super) fn new() -> Tenants {
        let mut test = TestServer::start();
        for name in ["a", "b", "gone"] {
            test.with_objects(name);
        }
        let a = "/clusters/root:a";
        test.admin.create_logical_cluster("root:a:inner");
        test.admin.bind(a, "cluster-admin", "User lead");
        test.admin.bind("/clusters/root:b", "cluster-admin", "User bob");
        let secret = json!({
            "metadata": { "name": "canary", "labels": { "a": CANARY } }, "stringData": { "k": CANARY },
        });
        let created = test.admin.ask("POST", &format!("{a}/api/v1/namespaces/default/secrets"), &secret);
        assert_eq!(created.code, 201, "{}", created.body);
        // Made first, because later tokens are signed with another key.
        let token_with_revoked_key = test.token_with_revoked_key();
        let tokens =
            ["a", "b"].map(|name| test.token_of(&format!("/clusters/root:{name}"), "default", json!({})));
        let mut stale = test.stale();
        stale.push(("its key was revoked", token_with_revoked_key));
        let ids = ["a", "b"].map(|name| (name, test.id(name)));
        test.restart(|dir| {
            let keys = ["a", "b"].map(|name| key(dir, &ids.iter().find(|(of, _)| *of == name).unwrap().1));
            stale.extend(forged(&tokens, &keys));
        });
        let invalid = stale.into_iter().map(|(reason, token)| (reason, test.with_token(&token))).collect();
        let [other, own] = tokens.map(|token| test.with_token(&token));
        Tenants { ids: ids.into(), own: vec![test.user("bob"), own], other, invalid, test }
    }

    /// Returns the path of a target at a tenant, and the same path in a logical cluster that does not exist.
    pub(super) fn addresses(&self, form: &str, tenant: &str, target: &str) -> [String; 2] {
        let missing = match form.contains('{') {
            true => form.replace("{name}", "n").replace("{id}", "~bbbbbbbbbbbbbbcc"),
            // The form names no tenant, so the response must look like that of a tenant that does not exist.
            false => "/clusters/root:n".to_owned(),
        };
        let existing = form.replace("{name}", tenant).replace("{id}", &self.ids[tenant]);
        [existing, missing].map(|address| format!("{address}{target}"))
    }
}

impl TestServer {
    /// Creates a logical cluster whose service accounts have all rights in it.
    fn with_objects(&self, name: &str) {
        let cluster = self.admin.create_logical_cluster(&format!("root:{name}"));
        self.admin.bind(&cluster, "cluster-admin", "Group system:serviceaccounts");
    }

    fn id(&self, name: &str) -> String {
        let object = self.admin.get(&format!("/apis/holon.dev/v1alpha1/logicalclusters/{name}")).json();
        object["status"]["id"].as_str().unwrap().to_owned()
    }

    fn token_of(&self, cluster: &str, account: &str, spec: Value) -> String {
        self.token(cluster, account, spec)["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Returns a token of B whose signing key is revoked.
    fn token_with_revoked_key(&self) -> String {
        let b = "/clusters/root:b";
        let token = self.token_of(b, "default", json!({}));
        for method in ["POST", "DELETE"] {
            assert_eq!(self.admin.ask(method, &format!("{b}/openid/v1/jwks"), &Value::Null).code, 200);
        }
        token
    }

    /// Returns tokens of B that were valid once, and one of a deleted tenant.
    fn stale(&self) -> Vec<(&'static str, String)> {
        let b = "/clusters/root:b";
        for account in ["left", "podded", "held"] {
            self.account(b, account);
        }
        let pod = json!({
            "metadata": { "name": "p" },
            "spec": { "serviceAccountName": "podded", "containers": [{ "name": "c", "image": "i" }] },
        });
        assert_eq!(self.admin.ask("POST", &format!("{b}/api/v1/namespaces/default/pods"), &pod).code, 201);
        let bound = json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": "p" } });
        let stale = vec![
            ("its account was deleted", self.token_of(b, "left", json!({}))),
            ("its pod was deleted", self.token_of(b, "podded", bound)),
            ("its Secret was deleted", self.secret_token(b, "key", "held")),
            ("its logical cluster was deleted", self.token_of("/clusters/root:gone", "default", json!({}))),
            ("it is for another audience", self.token_of(b, "default", json!({ "audiences": ["vault"] }))),
        ];
        for path in [
            &format!("{b}/api/v1/namespaces/default/serviceaccounts/left"),
            &format!("{b}/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0"),
            &format!("{b}/api/v1/namespaces/default/secrets/key"),
            "/apis/holon.dev/v1alpha1/logicalclusters/gone",
        ] {
            assert_eq!(self.admin.ask("DELETE", path, &json!({})).code, 200, "{path}");
        }
        stale
    }

    /// Restarts the server, and calls `between` with its data directory while it is stopped.
    fn restart(&mut self, between: impl FnOnce(&Path)) {
        let tokens = self.server.file("tokens.csv");
        self.server.restart_with(&["--token-auth-file", tokens.to_str().unwrap()], between);
        self.admin = Client::admin(&self.server);
    }
}

/// A signing key and its id.
struct SigningKey {
    kid: String,
    pair: EcdsaKeyPair,
}

/// Reads the signing key of a logical cluster from the store.
fn key(dir: &Path, id: &str) -> SigningKey {
    let id: Id = id.parse().unwrap();
    let store = Embedded::open(&dir.join("store"), Options::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entry = runtime.block_on(store.get(&Key::from(format!("~keys/{id}")))).unwrap().value.unwrap();
    let stored: Value = serde_json::from_slice(entry.value()).unwrap();
    let key = STANDARD.decode(stored["keys"][0].as_str().unwrap()).unwrap();
    let pair =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, &SystemRandom::new()).unwrap();
    let kid = {
        use ring::signature::KeyPair;
        let digest = ring::digest::digest(&ring::digest::SHA256, pair.public_key().as_ref());
        URL_SAFE_NO_PAD.encode(digest)
    };
    SigningKey { kid, pair }
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Returns tokens that B forges from a token of A, a token of its own, and its own key.
fn forged([of_a, of_b]: &[String; 2], [key_of_a, key_of_b]: &[SigningKey; 2]) -> Vec<(&'static str, String)> {
    let claims = |token: &str| -> Value {
        let part = token.split('.').nth(1).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    let signed = |kid: &str, claims: &Value| {
        let signed = format!("{}.{}", encode(&json!({ "alg": "ES256", "kid": kid })), encode(claims));
        let signature = key_of_b.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    };
    let (a, b) = (claims(of_a), claims(of_b));
    let with = |claims: &Value, field: &str, value: Value| {
        let mut claims = claims.clone();
        claims[field] = value;
        claims
    };
    let part = |token: &str, number: usize| token.split('.').nth(number).unwrap().to_owned();
    let now = b["iat"].as_i64().unwrap();
    let mut renamed = b.clone();
    renamed["kubernetes.io"]["serviceaccount"]["name"] = "another".into();
    vec![
        ("it has expired", signed(&key_of_b.kid, &with(&b, "exp", (now - 1).into()))),
        ("it is not valid yet", signed(&key_of_b.kid, &with(&b, "nbf", (now + 3600).into()))),
        ("it claims to be a token of A", signed(&key_of_b.kid, &a)),
        ("it claims to be a token of A, signed by A", signed(&key_of_a.kid, &a)),
        ("it claims to be signed by A", signed(&key_of_a.kid, &b)),
        ("it names no signing key", signed("", &a)),
        ("its issuer is A", signed(&key_of_b.kid, &with(&b, "iss", a["iss"].clone()))),
        ("its issuer is unknown", signed(&key_of_b.kid, &with(&b, "iss", "https://elsewhere".into()))),
        ("its account is not the one it names", signed(&key_of_b.kid, &renamed)),
        ("its algorithm is none", format!("{}.{}.", encode(&json!({ "alg": "none" })), part(of_a, 1))),
        ("it is signed in another way", {
            let header = encode(&json!({ "alg": "HS256", "kid": key_of_a.kid }));
            format!("{header}.{}.{}", part(of_a, 1), part(of_a, 2))
        }),
        ("it has A's signature", format!("{}.{}.{}", part(of_b, 0), part(of_b, 1), part(of_a, 2))),
        ("it has B's signature", format!("{}.{}.{}", part(of_a, 0), part(of_a, 1), part(of_b, 2))),
        ("it is no token", "nothing".to_owned()),
    ]
}
