//! One tenant against another: everything B can think of to learn of A, or to touch it.
//!
//! An attempt is a method, an address, a body, a credential of B's and something B adds to it. Each is made twice: at A,
//! and at a logical cluster that does not exist. The two answers must be the same, and hold nothing of A's. All the while
//! B watches what it may, and A changes what it has.
//!
//! Each gate was taken out once, to see that somebody notices (in this file, or in those named):
//!
//! ```text
//!   who reaches what                                     1,039 of 4,866 attempts tell of A; reach, accounts, impersonation
//!   a service account is somebody at home alone          182 of 4,866; accounts, mistakes, revocation
//!   signatures of tokens                                 204 of 1,354 are no longer nobody's; accounts
//!   what a token is bound to                             272 of 1,354; accounts, revocation
//!   the times a token is good for                        136 of 1,354
//!   whom a token is for                                  68 of 1,354; accounts
//!   keys that were let go, of tokens seen before         accounts
//!   who stays is still known                             revocation
//!   events are decided on as of when they happened       auth/standing.rs in the server
//!   ids and * are for administrators                     reach
//!   nobody writes to all at once                         mistakes
//!   strangers are asked who they are                     reach
//!   what leaves is no longer found                       front_door: made anew at the same path
//!   a continue token stays in its list                   front_door: a list in pages
//!   nobody hands out what they do not have               escalation, audit
//!   a right on the signer                                requests
//!   who changes what is not there must be able to create escalation, audit
//!   limits of objects and bytes                          quotas
//! ```
//!
//! And before the suite had its tokens:
//!
//! ```text
//!   reach is decided before headers are complained about 30 attempts tell of A
//!   a token review is about tokens of its own place      what_is_as_keys_elsewhere… and accounts fail
//!   what roles allow                                     reach, accounts and impersonation fail
//!   nobody acts as an administrator                      impersonation fails
//!   who acts as somebody does not look at all at once    impersonation fails
//! ```

mod credentials;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::client::{Answer, Client};
use credentials::Tenants;

/// In every object of A's. Whoever reads it has got through.
const CANARY: &str = "c4nary";
/// Of the 45,360 that are generated every so many is tried, for each costs two handshakes. It has no factor in common with
/// how many there are of anything, so that all of it is mixed.
const STEP: usize = 11;
/// The same for A's account at B, and for tokens that are nobody's.
const OTHER_STEP: usize = 61;
const NOBODYS_STEP: usize = 67;

/// What B watches all the while.
const WATCHED: [&str; 5] = [
    "/api/v1/secrets",
    "/api/v1/configmaps",
    "/api/v1/namespaces",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/holon.dev/v1alpha1/logicalclusters",
];

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// How B writes down which logical cluster it means.
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

/// What B is after there.
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

/// What B adds.
const ADDED: &[&str] = &[
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

/// What B can see of an answer, with the names it used itself made alike.
fn seen(answer: &Answer, address: &str) -> Vec<String> {
    let alike = |text: &str| text.replace(address, "ADDRESS");
    let mut told = vec![answer.code.to_string(), alike(&answer.body)];
    let headers =
        ["Content-Type", "Cache-Control", "Allow", "Warning", "Retry-After", "WWW-Authenticate", "Location"];
    told.extend(headers.iter().map(|name| alike(&answer.header(name))));
    told
}

/// Everything there is to try, every so many of it.
fn attempts(step: usize) -> impl Iterator<Item = (usize, [&'static str; 4])> {
    let all = FORMS.iter().flat_map(|form| {
        TARGETS.iter().flat_map(move |target| {
            METHODS
                .iter()
                .flat_map(move |method| ADDED.iter().map(move |added| [*form, *target, *method, *added]))
        })
    });
    all.enumerate().skip(step - 1).step_by(step)
}

/// What came of trying.
#[derive(Default)]
struct Tried {
    count: usize,
    codes: BTreeMap<u16, usize>,
    wrong: Vec<String>,
}

impl Tried {
    /// Makes one attempt at a tenant, and the same where there is nothing.
    fn attempt(&mut self, tenants: &Tenants, client: &Client, tenant: &str, attempt: [&str; 4]) -> u16 {
        let [form, target, method, added] = attempt;
        let client = client.with(added);
        let body = json!({ "metadata": { "name": "canary" } });
        let body = if matches!(method, "GET" | "HEAD" | "OPTIONS") { Value::Null } else { body };
        let addresses = tenants.addresses(form, tenant, target);
        let [there, nowhere] = addresses.each_ref().map(|address| client.ask(method, address, &body));
        self.count += 1;
        *self.codes.entry(there.code).or_default() += 1;
        let same = seen(&there, &addresses[0]) == seen(&nowhere, &addresses[1]);
        if !same || there.code < 400 || there.body.contains(CANARY) {
            let told = format!("{} {}", there.code, there.body);
            self.wrong.push(format!("{method} {} with {added:?}: {told}", addresses[0]));
        }
        there.code
    }
}

/// While something goes on, A changes what it has, and B watches what it may. What B was told.
fn watched(tenants: &Tenants, during: impl FnOnce()) -> String {
    let is_over = AtomicBool::new(false);
    let bob = &tenants.own[0];
    std::thread::scope(|scope| {
        let watches = WATCHED.map(|collection| {
            let is_over = &is_over;
            let path =
                format!("/clusters/root:b{collection}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3");
            scope.spawn(move || {
                let mut told = String::new();
                while !is_over.load(Ordering::Relaxed) {
                    let answer = bob.get(&path);
                    assert_eq!(answer.code, 200, "{}", answer.body);
                    told += &answer.body;
                }
                told
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
    /// A makes something, changes it and deletes it; B makes something.
    fn change(&self, turn: usize) {
        let admin = &self.world.admin;
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
fn nothing_b_tries_tells_it_anything_of_a() {
    let tenants = Tenants::new();
    let mut tried = Tried::default();
    let told = watched(&tenants, || {
        for (number, attempt) in attempts(STEP) {
            // Each of B's credentials with everything.
            let client = &tenants.own[number % 2];
            tried.attempt(&tenants, client, "a", attempt);
        }
        // Nor does A's account get to B, whatever its path says.
        for (_, attempt) in attempts(OTHER_STEP) {
            tried.attempt(&tenants, &tenants.other, "b", attempt);
        }
    });
    println!("{} attempts, answered {:?}, {} wrong", tried.count, tried.codes, tried.wrong.len());
    assert!(tried.wrong.is_empty(), "{} got through:\n{}", tried.wrong.len(), tried.wrong.join("\n"));
    assert!(tried.count >= 2000, "only {} attempts", tried.count);
    assert!(told.contains("own-0") && !told.contains(CANARY), "B's watches were told of A");
    assert_eq!(
        tenants.world.admin.get("/clusters/root:a/api/v1/namespaces/default/secrets/canary").code,
        200
    );
}

/// Whatever a token says and however it is signed: what is not good any more, or never was, is nobody's, anywhere.
#[test]
fn what_is_no_token_is_nobodys() {
    let tenants = Tenants::new();
    // Those that are good are: it is not the server that is not well.
    for client in &tenants.own {
        assert_eq!(client.get("/clusters/root:b/api/v1/secrets").code, 200);
    }
    let mut tried = Tried::default();
    let told = watched(&tenants, || {
        for (number, attempt) in attempts(NOBODYS_STEP) {
            let (why, client) = &tenants.nobodys[number % tenants.nobodys.len()];
            for tenant in ["a", "b"] {
                let code = tried.attempt(&tenants, client, tenant, attempt);
                // A path that leads nowhere is not looked at before it is known who asks.
                if code != 401 {
                    tried.wrong.push(format!("{why}: {attempt:?} is answered {code}"));
                }
            }
        }
        for (why, client) in &tenants.nobodys {
            for path in ["/api", "/version", "/healthz", "/clusters/root:b/api/v1/secrets"] {
                let code = client.get(path).code;
                if code != 401 {
                    tried.wrong.push(format!("{why}: {path} is answered {code}"));
                }
            }
        }
    });
    println!("{} attempts, answered {:?}, {} wrong", tried.count, tried.codes, tried.wrong.len());
    assert!(tried.wrong.is_empty(), "{} wrong:\n{}", tried.wrong.len(), tried.wrong.join("\n"));
    assert!(!told.contains(CANARY), "B's watches were told of A");
}

/// Whoever holds something of A's (a continue token, a version, a uid, an id, a token) holds nothing at home by that.
#[test]
fn what_is_as_keys_elsewhere_opens_nothing_at_home() {
    let tenants = Tenants::new();
    let (admin, bob) = (&tenants.world.admin, &tenants.own[0]);
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

    // Named as an owner, A's object is nobody in B; and it does not notice.
    let uid = page["items"][0]["metadata"]["uid"].clone();
    let owner = json!([{ "apiVersion": "v1", "kind": "Secret", "name": "canary", "uid": uid }]);
    let owned = json!({ "metadata": { "name": "owned", "ownerReferences": owner } });
    assert_eq!(bob.ask("POST", &secrets("b"), &owned).code, 201);
    let made =
        json!({ "metadata": { "name": "mine" }, "status": { "id": tenants.ids["a"], "phase": "Ready" } });
    let made = bob.ask("POST", "/clusters/root:b/apis/holon.dev/v1alpha1/logicalclusters", &made);
    assert_eq!(made.code, 201, "{}", made.body);
    assert_ne!(made.json()["status"]["id"].as_str(), Some(tenants.ids["a"].as_str()));
    assert!(!bob.get("/clusters/root:b:mine/api/v1/secrets").body.contains(CANARY));

    let path = "/clusters/root:a/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = admin.ask("POST", path, &json!({})).json()["status"]["token"].clone();
    let review = json!({ "spec": { "token": token } });
    let review =
        bob.ask("POST", "/clusters/root:b/apis/authentication.k8s.io/v1/tokenreviews", &review).json();
    assert_eq!(review["status"], json!({ "user": {}, "error": "invalid bearer token" }));

    // All the while B watches, and sees its own.
    let watched = std::thread::scope(|scope| {
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
    assert!(watched.contains("\"own\"") && !watched.contains(CANARY), "{watched}");
    assert_eq!(admin.get(&format!("{}/canary", secrets("a"))).code, 200);
}
