//! One tenant against another: everything that tenant B can try to read or change something of tenant A.
//!
//! An attempt is a method, a path, a body, a credential of B and an additional header. Each is made twice: against A,
//! and against a logical cluster that does not exist. The two responses must be the same and contain nothing of A.
//! Meanwhile B watches everything it may, and A changes its objects.
//!
//! Each check was removed once, to see that tests notice (in this file, or in those named):
//!
//! ```text
//!   access to logical clusters                           1,039 of 4,866 reveal A; reach, accounts, impersonation
//!   a service account is valid in its own cluster only   182 of 4,866; accounts, regressions, revocation
//!   signatures of tokens                                 204 of 1,354 authenticate; accounts
//!   the object that a token is bound to                  272 of 1,354; accounts, revocation
//!   the validity period of a token                       136 of 1,354
//!   the audience of a token                              68 of 1,354; accounts
//!   revoked keys, for tokens in the cache                accounts
//!   revalidation of clients with open watches            revocation
//!   events are authorized as of their own revision       authz/revalidation.rs in the server
//!   ids and * are for administrators                     reach
//!   no write goes to all logical clusters                regressions
//!   anonymous requests are rejected                      reach
//!   a deleted logical cluster is not found               front_door: created again at the same path
//!   a continue token is valid for its list only          front_door: a list in pages
//!   no escalation of privileges                          escalation, audit
//!   the right to sign for a signer                       requests
//!   an update that creates needs the right to create     escalation, audit
//!   limits of objects and bytes                          quotas
//! ```
//!
//! Before the suite had attempts with tokens:
//!
//! ```text
//!   access is decided before headers are validated       30 attempts reveal A
//!   a token review is for tokens of its own cluster      tokens_and_ids_of_one_tenant… and accounts fail
//!   RBAC rules                                           reach, accounts and impersonation fail
//!   no impersonation of administrators                   impersonation fails
//!   no impersonation in requests across all clusters     impersonation fails
//! ```

mod credentials;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::{Answer, Client};

use credentials::Tenants;

/// A word in every object of A. A response that contains it is a leak.
const CANARY: &str = "c4nary";
/// Only every eleventh of the 45,360 generated attempts is made, because each costs two handshakes. The step has no
/// common factor with the length of any table, so that all combinations are mixed.
const ATTEMPT_STEP: usize = 11;
/// The steps for A's account at B, and for invalid tokens.
const OTHER_STEP: usize = 61;
const INVALID_TOKEN_STEP: usize = 67;

/// The collections that B watches meanwhile.
const WATCHED_COLLECTIONS: [&str; 5] = [
    "/api/v1/secrets",
    "/api/v1/configmaps",
    "/api/v1/namespaces",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/holon.dev/v1alpha1/logicalclusters",
];

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The forms in which B writes the path of a logical cluster.
const FORMS: &[&str] = &[
    "/clusters/root:{name}",
    "/clusters/root%3A{name}",
    "/clusters/root%3a{name}",
    "/clusters/{id}",
    "/clusters/root:b:{name}",
    "/clusters/root:{name}/clusters/root:{name}",
    "/clusters/root:b/clusters/root:{name}",
    "/clusters/root:b/../root:{name}",
    "/clusters/root:b/%2e%2e/root:{name}",
    "/clusters/root:b%2F..%2Froot:{name}",
    "/clusters/root:b//clusters/root:{name}",
    "/clusters/root:b/..;/root:{name}",
    "//clusters/root:{name}",
    "/clusters/root:{name}%00",
    "/clusters/ROOT:{name}",
    "/clusters/root:{name}:",
    "/clusters/*",
    "/clusters/root",
];

/// The paths that B requests below it.
const TARGETS: &[&str] = &[
    "",
    "/api",
    "/apis",
    "/apis/apps/v1",
    "/api/v1/secrets",
    "/api/v1/secrets?watch=1&timeoutSeconds=1",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/secrets/canary",
    "/api/v1/namespaces/default/secrets?watch=1&timeoutSeconds=1&resourceVersion=1",
    "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dcanary",
    "/api/v1/namespaces/default/secrets?labelSelector=a&limit=1",
    "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/namespaces/default/pods/web/eviction",
    "/api/v1/namespaces/default/status",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/holon.dev/v1alpha1/logicalclusters",
    "/apis/holon.dev/v1alpha1/logicalclusters/inner",
    "/apis/nothing.io/v1/things",
    "/openapi/v2",
    "/openapi/v3/api/v1",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/metrics",
    "/nothing",
];

/// The headers that B adds.
const ADDED_HEADERS: &[&str] = &[
    "X-Nothing: nothing",
    "Impersonate-User: lead",
    "Impersonate-User: holon-admin\r\nImpersonate-Group: system:masters",
    "Impersonate-User: system:serviceaccount:default:default",
    "Impersonate-Group: system:masters",
    "X-Remote-User: holon-admin\r\nX-Remote-Group: system:masters",
    "X-Forwarded-User: lead\r\nX-Forwarded-For: 127.0.0.1",
    "X-Original-URL: /clusters/root:a/api/v1/secrets\r\nX-Rewrite-URL: /clusters/root:a/api/v1/secrets",
    "X-HTTP-Method-Override: GET",
    "X-Kubernetes-Cluster: root:a\r\nX-Holon-Cluster: root:a",
    "Accept: application/json;as=Table;g=meta.k8s.io;v=v1",
    "Accept: application/vnd.kubernetes.protobuf",
];

/// Returns the parts of a response that B can see, in which names that B itself used are replaced.
fn visible_parts(answer: &Answer, address: &str) -> Vec<String> {
    let without_address = |text: &str| text.replace(address, "ADDRESS");
    let mut parts = vec![answer.code.to_string(), without_address(&answer.body)];
    let headers =
        ["Content-Type", "Cache-Control", "Allow", "Warning", "Retry-After", "WWW-Authenticate", "Location"];
    parts.extend(headers.iter().map(|name| without_address(&answer.header(name))));
    parts
}

/// Returns every n-th combination of the tables.
fn attempts(step: usize) -> impl Iterator<Item = (usize, [&'static str; 4])> {
    let all = FORMS.iter().flat_map(|form| {
        TARGETS.iter().flat_map(move |target| {
            METHODS.iter().flat_map(move |method| {
                ADDED_HEADERS.iter().map(move |added| [*form, *target, *method, *added])
            })
        })
    });
    all.enumerate().skip(step - 1).step_by(step)
}

/// The results of the attempts.
#[derive(Default)]
struct AttemptResults {
    count: usize,
    codes: BTreeMap<u16, usize>,
    wrong: Vec<String>,
}

impl AttemptResults {
    /// Makes one attempt at a tenant, and the same attempt at a logical cluster that does not exist.
    fn attempt(&mut self, tenants: &Tenants, client: &Client, tenant: &str, attempt: [&str; 4]) -> u16 {
        let [form, target, method, added] = attempt;
        let client = client.with(added);
        let body = json!({ "metadata": { "name": "canary" } });
        let body = if matches!(method, "GET" | "HEAD" | "OPTIONS") { Value::Null } else { body };
        let addresses = tenants.addresses(form, tenant, target);
        let [response, expected] = addresses.each_ref().map(|address| client.ask(method, address, &body));
        self.count += 1;
        *self.codes.entry(response.code).or_default() += 1;
        let same = visible_parts(&response, &addresses[0]) == visible_parts(&expected, &addresses[1]);
        if !same || response.code < 400 || response.body.contains(CANARY) {
            let text = format!("{} {}", response.code, response.body);
            self.wrong.push(format!("{method} {} with {added:?}: {text}", addresses[0]));
        }
        response.code
    }
}

/// Runs `during` while A changes its objects and B watches. Returns what B's watches received.
fn while_watched(tenants: &Tenants, during: impl FnOnce()) -> String {
    let is_over = AtomicBool::new(false);
    let bob = &tenants.own[0];
    std::thread::scope(|scope| {
        let watches = WATCHED_COLLECTIONS.map(|collection| {
            let is_over = &is_over;
            let path =
                format!("/clusters/root:b{collection}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3");
            scope.spawn(move || {
                let mut received = String::new();
                while !is_over.load(Ordering::Relaxed) {
                    let answer = bob.get(&path);
                    assert_eq!(answer.code, 200, "{}", answer.body);
                    received += &answer.body;
                }
                received
            })
        });
        let changes = scope.spawn(|| {
            for turn in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                tenants.change(turn);
            }
        });
        during();
        is_over.store(true, Ordering::Relaxed);
        changes.join().unwrap();
        watches.into_iter().map(|watch| watch.join().unwrap()).collect()
    })
}

impl Tenants {
    /// A creates, changes and deletes an object; B creates one.
    fn change(&self, turn: usize) {
        let admin = &self.test.admin;
        let maps = |tenant: &str| format!("/clusters/root:{tenant}/api/v1/namespaces/default/configmaps");
        let secrets = "/clusters/root:a/api/v1/namespaces/default/secrets";
        let name = format!("turn-{turn}");
        let map = json!({ "metadata": { "name": name, "labels": { "a": CANARY } }, "data": { "k": CANARY } });
        let secret = json!({ "metadata": { "name": name }, "stringData": { "k": CANARY } });
        for (path, body) in [(&*maps("a"), &map), (secrets, &secret)] {
            assert_eq!(admin.ask("POST", path, body).code, 201);
            let change = json!({ "metadata": { "labels": { "b": CANARY } } });
            assert_eq!(admin.ask("PATCH", &format!("{path}/{name}"), &change).code, 200);
            assert_eq!(admin.ask("DELETE", &format!("{path}/{name}"), &json!({})).code, 200);
        }
        let namespace = json!({ "metadata": { "name": format!("{CANARY}-{turn}") } });
        assert_eq!(admin.ask("POST", "/clusters/root:a/api/v1/namespaces", &namespace).code, 201);
        let own = json!({ "metadata": { "name": format!("own-{turn}") } });
        assert_eq!(self.own[0].ask("POST", &maps("b"), &own).code, 201);
    }
}

#[test]
fn no_attempt_of_b_reveals_anything_of_a() {
    let tenants = Tenants::new();
    let mut results = AttemptResults::default();
    let received = while_watched(&tenants, || {
        for (number, attempt) in attempts(ATTEMPT_STEP) {
            // B's credentials are used in turn.
            let client = &tenants.own[number % 2];
            results.attempt(&tenants, client, "a", attempt);
        }
        // A's account must not get into B either, whatever path it uses.
        for (_, attempt) in attempts(OTHER_STEP) {
            results.attempt(&tenants, &tenants.other, "b", attempt);
        }
    });
    println!("{} attempts, answered {:?}, {} wrong", results.count, results.codes, results.wrong.len());
    assert!(
        results.wrong.is_empty(),
        "{} attempts succeeded:\n{}",
        results.wrong.len(),
        results.wrong.join("\n")
    );
    assert!(results.count >= 2000, "only {} attempts", results.count);
    assert!(received.contains("own-0") && !received.contains(CANARY), "B's watches received objects of A");
    assert_eq!(tenants.test.admin.get("/clusters/root:a/api/v1/namespaces/default/secrets/canary").code, 200);
}

/// A token that is invalid, for whatever reason, must not authenticate anywhere.
#[test]
fn an_invalid_token_is_unauthorized() {
    let tenants = Tenants::new();
    // The valid credentials work, so the server is fine.
    for client in &tenants.own {
        assert_eq!(client.get("/clusters/root:b/api/v1/secrets").code, 200);
    }
    let mut results = AttemptResults::default();
    let received = while_watched(&tenants, || {
        for (number, attempt) in attempts(INVALID_TOKEN_STEP) {
            let (reason, client) = &tenants.invalid[number % tenants.invalid.len()];
            for tenant in ["a", "b"] {
                let code = results.attempt(&tenants, client, tenant, attempt);
                // Authentication comes before the path is resolved.
                if code != 401 {
                    results.wrong.push(format!("{reason}: {attempt:?} is answered {code}"));
                }
            }
        }
        for (reason, client) in &tenants.invalid {
            for path in ["/api", "/version", "/healthz", "/clusters/root:b/api/v1/secrets"] {
                let code = client.get(path).code;
                if code != 401 {
                    results.wrong.push(format!("{reason}: {path} is answered {code}"));
                }
            }
        }
    });
    println!("{} attempts, answered {:?}, {} wrong", results.count, results.codes, results.wrong.len());
    assert!(results.wrong.is_empty(), "{} wrong:\n{}", results.wrong.len(), results.wrong.join("\n"));
    assert!(!received.contains(CANARY), "B's watches received objects of A");
}

/// Values of A (a continue token, a resource version, a uid, an id, a token) are of no use in B.
#[test]
fn tokens_and_ids_of_one_tenant_are_useless_in_another() {
    let tenants = Tenants::new();
    let (admin, bob) = (&tenants.test.admin, &tenants.own[0]);
    let secrets = |name: &str| format!("/clusters/root:{name}/api/v1/namespaces/default/secrets");
    for name in ["one", "two"] {
        let secret = json!({ "metadata": { "name": name }, "stringData": { "k": CANARY } });
        assert_eq!(admin.ask("POST", &secrets("a"), &secret).code, 201);
    }
    let page = admin.get(&format!("{}?limit=1", secrets("a"))).json();
    let (token, version) = (&page["metadata"]["continue"], &page["metadata"]["resourceVersion"]);
    let token: String = token.as_str().unwrap().replace('=', "%3D");
    for query in
        [format!("limit=1&continue={token}"), format!("resourceVersion={}", version.as_str().unwrap())]
    {
        let listed = bob.get(&format!("{}?{query}", secrets("b")));
        assert!(!listed.body.contains(CANARY), "{}", listed.body);
    }

    // An object of A that an object of B names as its owner counts as missing, and is not affected.
    let uid = page["items"][0]["metadata"]["uid"].clone();
    let owner = json!([{ "apiVersion": "v1", "kind": "Secret", "name": "canary", "uid": uid }]);
    let owned = json!({ "metadata": { "name": "owned", "ownerReferences": owner } });
    assert_eq!(bob.ask("POST", &secrets("b"), &owned).code, 201);
    let created =
        json!({ "metadata": { "name": "mine" }, "status": { "id": tenants.ids["a"], "phase": "Ready" } });
    let created = bob.ask("POST", "/clusters/root:b/apis/holon.dev/v1alpha1/logicalclusters", &created);
    assert_eq!(created.code, 201, "{}", created.body);
    assert_ne!(created.json()["status"]["id"].as_str(), Some(tenants.ids["a"].as_str()));
    assert!(!bob.get("/clusters/root:b:mine/api/v1/secrets").body.contains(CANARY));

    let path = "/clusters/root:a/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = admin.ask("POST", path, &json!({})).json()["status"]["token"].clone();
    let review = json!({ "spec": { "token": token } });
    let review =
        bob.ask("POST", "/clusters/root:b/apis/authentication.k8s.io/v1/tokenreviews", &review).json();
    assert_eq!(review["status"], json!({ "user": {}, "error": "invalid bearer token" }));

    // Meanwhile B watches, and sees only its own objects.
    let received = std::thread::scope(|scope| {
        let path = format!(
            "/clusters/root:b/api/v1/secrets?watch=1&timeoutSeconds=3&resourceVersion={}",
            version.as_str().unwrap()
        );
        let watching = scope.spawn(move || bob.get(&path).body);
        for turn in 0..20 {
            let secret =
                json!({ "metadata": { "name": format!("s-{turn}") }, "stringData": { "k": CANARY } });
            assert_eq!(admin.ask("POST", &secrets("a"), &secret).code, 201);
        }
        let own = json!({ "metadata": { "name": "own" } });
        assert_eq!(bob.ask("POST", &secrets("b"), &own).code, 201);
        watching.join().unwrap()
    });
    assert!(received.contains("\"own\"") && !received.contains(CANARY), "{received}");
    assert_eq!(admin.get(&format!("{}/canary", secrets("a"))).code, 200);
}
