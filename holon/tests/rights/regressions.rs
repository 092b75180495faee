//! Regressions: past vulnerabilities and bugs, of this project or of others, that must not return.

use std::net::TcpListener;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use testkit::Client;

use crate::TestServer;

/// Returns a definition of `plural.group`.
fn definition(plural: &str, group: &str) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "plural": plural, "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

/// Creates a pod without a node in a logical cluster.
fn pod(admin: &Client, cluster: &str, name: &str) {
    let pods = format!("{cluster}/api/v1/namespaces/default/pods");
    let body =
        json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    assert_eq!(admin.ask("POST", &pods, &body).code, 201);
}

/// A user who could create `bindings` of an invented group could bind pods to nodes: the check compared only the name
/// of the resource, not its group.
#[test]
fn a_custom_kind_named_like_a_subresource_does_not_act_as_one() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    pod(&test.admin, &a, "web");
    let definitions = format!("{a}/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    assert_eq!(test.admin.ask("POST", &definitions, &definition("bindings", "evil.io")).code, 201);
    let binding = json!({
        "apiVersion": "evil.io/v1", "kind": "Thing", "metadata": { "name": "web" },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "stolen" },
    });
    let bindings = format!("{a}/apis/evil.io/v1/namespaces/default/bindings");
    let is_served = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        test.admin.get(&bindings).code == 200
    });
    assert!(is_served);
    let created = test.admin.ask("POST", &bindings, &binding);
    assert_eq!((created.code, created.json()["kind"].as_str()), (201, Some("Thing")), "{}", created.body);
    let web = test.admin.get(&format!("{a}/api/v1/namespaces/default/pods/web")).json();
    assert_eq!(web["spec"]["nodeName"], Value::Null);
}

/// Cluster roles that aggregate each other swapped their rules forever, with two writes each time.
#[test]
fn roles_that_aggregate_each_other_are_written_once() {
    let test = TestServer::start();
    let roles = format!("/apis/{}/v1/clusterroles", crate::GROUP);
    for (name, other) in [("a", "b"), ("b", "a")] {
        let role = json!({
            "metadata": { "name": name, "labels": { "is": name } },
            "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "is": other } }] },
            "rules": [{ "verbs": [name], "apiGroups": ["x"], "resources": ["y"] }],
        });
        assert_eq!(test.admin.ask("POST", &roles, &role).code, 201);
    }
    let versions = || {
        ["a", "b"].map(|name| {
            test.admin.get(&format!("{roles}/{name}")).json()["metadata"]["resourceVersion"].clone()
        })
    };
    let is_stable = (0..100).any(|_| {
        let before = versions();
        std::thread::sleep(Duration::from_millis(200));
        before == versions()
    });
    assert!(is_stable, "the rules still change: {:?}", versions());
}

/// An aggregating server forwards requests, and the backend can redirect clients, with their tokens, to other servers.
/// Here a user can create an APIService, but it has no effect.
#[test]
fn an_api_service_does_not_redirect_requests() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let port = elsewhere.local_addr().unwrap().port();
    let service = json!({
        "metadata": { "name": "v1.evil.io" },
        "spec": {
            "group": "evil.io", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "insecureSkipTLSVerify": true,
            "service": { "namespace": "default", "name": "evil", "port": port },
        },
    });
    let endpoint = json!({
        "metadata": { "name": "evil" },
        "spec": { "type": "ExternalName", "externalName": "127.0.0.1", "ports": [{ "port": port }] },
    });
    assert_eq!(
        test.admin.ask("POST", &format!("{a}/api/v1/namespaces/default/services"), &endpoint).code,
        201
    );
    let services = format!("{a}/apis/apiregistration.k8s.io/v1/apiservices");
    let created = test.admin.ask("POST", &services, &service);
    assert!([201, 404].contains(&created.code), "{}", created.body);
    for path in [
        "/apis",
        "/apis/evil.io",
        "/apis/evil.io/v1",
        "/apis/evil.io/v1/things",
        "/openapi/v3/apis/evil.io/v1",
    ] {
        let answer = test.admin.get(&format!("{a}{path}"));
        assert!(answer.code == 200 && path == "/apis" || answer.code == 404, "{path}: {}", answer.code);
        assert_eq!(answer.header("Location"), "", "{path}");
    }
    std::thread::sleep(Duration::from_millis(300));
    let connection = elsewhere.accept();
    assert!(connection.is_err(), "the server connected to the backend: {connection:?}");
}

/// Another project's view of all workspaces was writable, and a write went to an arbitrary workspace.
#[test]
fn writes_across_all_logical_clusters_are_refused() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    let (maps, name) = ("/api/v1/namespaces/default/configmaps", "one");
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    assert_eq!(test.admin.ask("POST", &format!("{a}{maps}"), &map).code, 201);
    test.admin.bind("", "cluster-admin", "User ann");
    let before = test.admin.get(&format!("/clusters/*{}", "/api/v1/configmaps")).json();
    for (user, client) in [("an administrator", &test.admin), ("ann", &test.user("ann"))] {
        for (method, path) in [
            ("POST", maps.to_owned()),
            ("DELETE", maps.to_owned()),
            ("DELETE", "/api/v1/configmaps".to_owned()),
            ("GET", format!("{maps}/{name}")),
            ("PUT", format!("{maps}/{name}")),
            ("PATCH", format!("{maps}/{name}")),
            ("DELETE", format!("{maps}/{name}")),
            ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token".to_owned()),
            ("POST", format!("/apis/{}/v1/clusterrolebindings", crate::GROUP)),
            ("POST", "/openid/v1/jwks".to_owned()),
            ("DELETE", "/openid/v1/jwks".to_owned()),
        ] {
            let answer = client.ask(method, &format!("/clusters/*{path}"), &map);
            assert!([404, 405].contains(&answer.code), "{user}: {method} {path} is answered {}", answer.code);
        }
    }
    let after = test.admin.get(&format!("/clusters/*{}", "/api/v1/configmaps")).json();
    assert_eq!(before["items"], after["items"]);
}

/// A user who could get a token for an account of another namespace into a Secret would have that account's rights.
#[test]
fn a_token_in_a_secret_stays_in_its_namespace() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    for namespace in ["red", "blue"] {
        let body = json!({ "metadata": { "name": namespace } });
        assert_eq!(test.admin.ask("POST", &format!("{a}/api/v1/namespaces"), &body).code, 201);
        let binding = json!({
            "metadata": { "name": "edits" },
            "roleRef": { "apiGroup": crate::GROUP, "kind": "ClusterRole", "name": "edit" },
            "subjects": [{ "kind": "Group", "name": format!("system:serviceaccounts:{namespace}") }],
        });
        let bindings = format!("{a}/apis/{}/v1/namespaces/{namespace}/rolebindings", crate::GROUP);
        assert_eq!(test.admin.ask("POST", &bindings, &binding).code, 201);
    }
    let accounts = |namespace: &str| format!("{a}/api/v1/namespaces/{namespace}/serviceaccounts");
    let secrets = |namespace: &str| format!("{a}/api/v1/namespaces/{namespace}/secrets");
    let named = |name: &str| json!({ "metadata": { "name": name } });
    assert_eq!(test.admin.ask("POST", &accounts("blue"), &named("bot")).code, 201);
    let token_secret = |name: &str| {
        json!({
            "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": "bot" } },
            "type": "kubernetes.io/service-account-token",
        })
    };
    assert_eq!(test.admin.ask("POST", &secrets("blue"), &token_secret("key")).code, 201);
    let created = test.admin.ask("POST", &format!("{}/default/token", accounts("red")), &json!({})).json();
    let red = test.with_token(created["status"]["token"].as_str().unwrap());
    for path in [secrets("blue"), format!("{}/key", secrets("blue")), format!("{a}/api/v1/secrets")] {
        assert_eq!(red.get(&path).code, 403, "{path}");
    }
    assert_eq!(red.ask("POST", &format!("{}/bot/token", accounts("blue")), &json!({})).code, 403);
    // The namespace red has no such account: the Secret is deleted, and never gets a token.
    assert_eq!(red.ask("POST", &secrets("red"), &token_secret("stolen")).code, 201);
    let is_deleted = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        let found = red.get(&format!("{}/stolen", secrets("red")));
        assert!(!found.body.contains("\"token\""), "{}", found.body);
        found.code == 404
    });
    assert!(is_deleted);
}

/// A body that expands when it is parsed (aliases of aliases, nested brackets) must not be read before authentication.
/// The announced body is never sent: the response comes first.
#[test]
fn anonymous_clients_are_rejected_before_their_bodies_are_read() {
    let test = TestServer::start();
    test.admin.create_logical_cluster("root:a");
    let bomb =
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n";
    let anonymous = Client::anonymous(&test.server);
    let wrong = anonymous.with("Authorization: Bearer wrong");
    for kind in [
        "application/yaml",
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/apply-patch+yaml",
    ] {
        for path in [
            "/api/v1/namespaces",
            "/clusters/root:a/api/v1/namespaces/default/configmaps/x",
            "/apis",
            "/nothing",
        ] {
            for client in [&anonymous, &wrong] {
                let client = client.with(&format!("Content-Type: {kind}")).with("Content-Length: 3000000");
                for method in ["POST", "PUT", "PATCH"] {
                    let answer = client.ask(method, path, &json!(bomb));
                    assert_eq!(answer.code, 401, "{method} {path} {kind}: {}", answer.body);
                }
            }
        }
    }
    // An authenticated user gets an error for it too.
    test.admin.bind("", "cluster-admin", "User ann");
    let ann = test.user("ann").with("Content-Type: application/yaml");
    let mut text = bomb.to_owned();
    for (letter, before) in ('d'..='m').zip('c'..='l') {
        text += &format!("{letter}: &{letter} [{}]\n", vec![format!("*{before}"); 9].join(","));
    }
    let answer = ann.say("POST", "/api/v1/namespaces", &text);
    assert_eq!(answer.code, 400, "{}", answer.body);
}

/// A continue token names the position in a list. A changed one must not lead to another list.
#[test]
fn a_continue_token_is_valid_for_its_own_list_only() {
    let test = TestServer::start();
    let [a, b] = ["a", "b"].map(|name| test.admin.create_logical_cluster(&format!("root:{name}")));
    test.admin.bind(&b, "cluster-admin", "User bob");
    let bob = test.user("bob");
    let maps = "/api/v1/namespaces/default/configmaps";
    for cluster in [&a, &b] {
        for name in ["one", "two", "three"] {
            let map = json!({ "metadata": { "name": name }, "data": { "k": format!("of {cluster}") } });
            assert_eq!(test.admin.ask("POST", &format!("{cluster}{maps}"), &map).code, 201);
        }
    }
    let token = |cluster: &str| {
        let page = test.admin.get(&format!("{cluster}{maps}?limit=1")).json();
        page["metadata"]["continue"].as_str().unwrap().to_owned()
    };
    let (token_of_b, token_of_a) = (token(&b), token(&a));
    let read = |token: &str| -> Value {
        let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    };
    let id = test.admin.get("/apis/holon.dev/v1alpha1/logicalclusters/a").json()["status"]["id"].clone();
    let id = id.as_str().unwrap();
    let mut starts: Vec<String> = [
        "",
        "/",
        "..",
        "../",
        "../../",
        "\0",
        "\u{ff}",
        "zzzz",
        "default/../../",
        "kube-system/x",
        "../../../core/configmaps/",
        "~births/",
        "~keys/",
        "core/secrets/",
        "%2e%2e%2f",
    ]
    .map(str::to_owned)
    .into();
    starts.extend(["", "core/configmaps/", "/", "../"].map(|before| format!("{before}{id}/default/")));
    starts.push(read(&token_of_a)["start"].as_str().unwrap().to_owned());
    let mut forged = vec![token_of_a];
    for start in starts {
        let mut token = read(&token_of_b);
        token["start"] = start.into();
        forged.push(URL_SAFE_NO_PAD.encode(token.to_string()));
    }
    for token in forged {
        for path in [maps, "/api/v1/configmaps", "/api/v1/namespaces/default/secrets"] {
            let answer = bob.get(&format!("{b}{path}?limit=100&continue={token}"));
            assert!([200, 400, 410].contains(&answer.code), "{}", answer.body);
            assert!(!answer.body.contains("of /clusters/root:a"), "{path} {token}: {}", answer.body);
            // Text that the client itself sent may be in the response.
            assert!(answer.code == 400 || !answer.body.contains(id), "{}", answer.body);
        }
    }
}

/// In other projects, headers meant for a front proxy let any client impersonate any user.
#[test]
fn headers_of_a_proxy_do_not_authenticate() {
    let test = TestServer::start();
    test.admin.bind("", "holon:access", "User bob");
    let headers = [
        "X-Remote-User: holon-admin\r\nX-Remote-Group: system:masters\r\nX-Remote-Extra-Scopes: all",
        "X-Forwarded-User: holon-admin\r\nX-Forwarded-Groups: system:masters\r\nX-Forwarded-Email: a@b",
        "X-Auth-Request-User: holon-admin\r\nX-Auth-Request-Groups: system:masters",
        "X-SSL-Client-S-DN: O=system:masters,CN=holon-admin\r\nX-Forwarded-Client-Cert: Subject=\"O=system:masters\"",
        "Remote-User: holon-admin\r\nRemote-Groups: system:masters",
        "X-Kubernetes-User: holon-admin\r\nX-Kubernetes-Groups: system:masters",
        "Forwarded: for=127.0.0.1;by=127.0.0.1\r\nX-Real-IP: 127.0.0.1",
    ];
    let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    for header in headers {
        let answer = test.user("bob").with(header).ask("POST", review, &json!({})).json();
        let user = &answer["status"]["userInfo"];
        assert_eq!(user["username"], "bob", "{header}: {answer}");
        assert_eq!(user["groups"], json!(["system:authenticated"]), "{header}");
        assert_eq!(Client::anonymous(&test.server).with(header).ask("POST", review, &json!({})).code, 401);
    }
}
