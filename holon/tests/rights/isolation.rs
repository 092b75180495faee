//! One tenant against another: everything B can think of to learn of A, or to touch it.
//!
//! An attempt is a method, an address, a body, a credential of B's and something B adds to it. Each is made twice: at A,
//! and at a logical cluster that does not exist. The two answers must be the same, and hold nothing of A's. All the while
//! B watches what it may, and A changes what it has.
//!
//! Each gate was taken out once, to see that somebody notices:
//!
//! ```text
//!   who reaches what                                     386 of 2,387 attempts tell of A; reach, accounts, impersonation fail
//!   reach is decided before headers are complained about 30 attempts tell of A
//!   a token review is about tokens of its own place      what_is_as_keys_elsewhere… and accounts fail
//!   what roles allow                                     reach, accounts and impersonation fail
//!   nobody acts as an administrator                      impersonation fails
//!   who acts as somebody does not look at all at once    impersonation fails
//!   signatures of tokens                                 accounts fail
//!   ids and * are for administrators                     nobody: the gate behind it holds
//! ```

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::World;
use crate::client::{Answer, Client};

/// In every object of A's. Whoever reads it has got through.
const CANARY: &str = "c4nary";
/// Of the 45,360 that are generated every so many is tried, for each costs two handshakes. It has no factor in common with
/// how many there are of anything, so that all of it is mixed.
const STEP: usize = 19;

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

struct Tenants {
    world: World,
    /// The ids of A, and one that is nobody's.
    ids: [String; 2],
    /// B's user, and B's service account; both may do everything in B.
    credentials: Vec<Client>,
}

impl Tenants {
    fn new() -> Tenants {
        let world = World::new();
        let (a, b) = (world.cluster("a"), world.cluster("b"));
        world.inner(&a, "inner");
        world.admin.bind(&a, "cluster-admin", "User lead");
        for to in ["User bob", "Group system:serviceaccounts"] {
            world.admin.bind(&b, "cluster-admin", to);
        }
        let secret = json!({
            "metadata": { "name": "canary", "labels": { "a": CANARY } }, "stringData": { "k": CANARY },
        });
        let made = world.admin.ask("POST", &format!("{a}/api/v1/namespaces/default/secrets"), &secret);
        assert_eq!(made.code, 201, "{}", made.body);
        let id = world.admin.get("/apis/holon.dev/v1alpha1/logicalclusters/a").json()["status"]["id"].clone();
        let ids = [id.as_str().unwrap().to_owned(), "~bbbbbbbbbbbbbbcc".to_owned()];
        let path = format!("{b}/api/v1/namespaces/default/serviceaccounts/default/token");
        let token = world.admin.ask("POST", &path, &json!({})).json()["status"]["token"].clone();
        let account = Client::new(&world.server, false)
            .with(&format!("Authorization: Bearer {}", token.as_str().unwrap()));
        let credentials = vec![world.user("bob"), account];
        Tenants { world, ids, credentials }
    }

    /// The address of something in A, and of the same where there is nothing.
    fn addresses(&self, form: &str, target: &str) -> [String; 2] {
        let names = ["a", "n"];
        [0, 1]
            .map(|at| format!("{}{target}", form.replace("{name}", names[at]).replace("{id}", &self.ids[at])))
    }
}

/// What B can see of an answer, with the names it used itself made alike.
fn seen(answer: &Answer, address: &str, ids: &[String; 2]) -> Vec<String> {
    let alike = |text: &str| {
        let text = text.replace(address, "ADDRESS").replace(&ids[0], "ID").replace(&ids[1], "ID");
        text.replace("root:a", "ROOT:X")
            .replace("root:n", "ROOT:X")
            .replace("root%3Aa", "R")
            .replace("root%3An", "R")
    };
    let mut told = vec![answer.code.to_string(), alike(&answer.body)];
    let headers =
        ["Content-Type", "Cache-Control", "Allow", "Warning", "Retry-After", "WWW-Authenticate", "Location"];
    told.extend(headers.iter().map(|name| alike(&answer.header(name))));
    told
}

#[test]
fn nothing_b_tries_tells_it_anything_of_a() {
    let tenants = Tenants::new();
    let (mut tried, mut codes, mut wrong) = (0, BTreeSet::new(), Vec::new());
    let mut number = 0;
    for form in FORMS {
        for target in TARGETS {
            for method in METHODS {
                for (at, added) in ADDED.iter().enumerate() {
                    number += 1;
                    if number % STEP != 0 {
                        continue;
                    }
                    tried += 1;
                    let client = tenants.credentials[(number / STEP + at) % 2].with(added);
                    let body = json!({ "metadata": { "name": "canary" } });
                    let body = if matches!(*method, "GET" | "HEAD" | "OPTIONS") { Value::Null } else { body };
                    let addresses = tenants.addresses(form, target);
                    let [there, nowhere] =
                        addresses.each_ref().map(|address| client.ask(method, address, &body));
                    codes.insert(there.code);
                    let same = seen(&there, &addresses[0], &tenants.ids)
                        == seen(&nowhere, &addresses[1], &tenants.ids);
                    if !same || there.code < 400 || there.body.contains(CANARY) {
                        wrong.push(format!(
                            "{method} {} with {added:?}: {} {}",
                            addresses[0], there.code, there.body
                        ));
                    }
                }
            }
        }
    }
    println!("{tried} attempts, answered {codes:?}, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{} got through:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried >= 2000, "only {tried} attempts");
}

/// Whoever holds something of A's (a continue token, a version, a uid, an id, a token) holds nothing at home by that.
#[test]
fn what_is_as_keys_elsewhere_opens_nothing_at_home() {
    let tenants = Tenants::new();
    let (admin, bob) = (&tenants.world.admin, &tenants.credentials[0]);
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
        json!({ "metadata": { "name": "mine" }, "status": { "id": tenants.ids[0], "phase": "Ready" } });
    let made = bob.ask("POST", "/clusters/root:b/apis/holon.dev/v1alpha1/logicalclusters", &made);
    assert_eq!(made.code, 201, "{}", made.body);
    assert_ne!(made.json()["status"]["id"].as_str(), Some(tenants.ids[0].as_str()));
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
