//! The same requests to Holon and to a real kube-apiserver, from a user without rights and from a user with few rights:
//! both servers must derive the same attributes from a request.
//!
//! The message of a 403 contains all attributes: verb, group, resource and subresource, namespace and name. So the
//! responses are compared unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::Server;
use testkit::peers::{Cluster, Proxy, Request};

use crate::GROUP;
use crate::common::HOLON;

const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Every form of path that exists. For other paths, Kubernetes reports a missing right, and Holon that the path does
/// not exist.
const PATHS: &[&str] = &[
    "/",
    "/metrics",
    "/api/v1/pods",
    "/api/v1/pods?watch=true",
    "/api/v1/pods?watch=0",
    "/api/v1/pods?fieldSelector=metadata.name%3Dx",
    "/api/v1/pods?fieldSelector=metadata.name%3D",
    "/api/v1/pods?fieldSelector=metadata.name!%3Dx",
    "/api/v1/namespaces",
    "/api/v1/namespaces?fieldSelector=metadata.name%3Dshop",
    "/api/v1/namespaces/shop",
    "/api/v1/namespaces/shop?watch=1",
    "/api/v1/namespaces/shop/status",
    "/api/v1/namespaces/shop/finalize",
    "/api/v1/namespaces/shop/pods",
    "/api/v1/namespaces/shop/pods?watch=1",
    "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dx",
    "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dx,status.phase%3DRunning",
    "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dx&watch=1",
    "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3D..",
    "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da%2Fb",
    "/api/v1/namespaces/shop/pods/x",
    "/api/v1/namespaces/shop/pods/x?watch=1",
    "/api/v1/namespaces/shop/pods/x?fieldSelector=metadata.name%3Dy",
    "/api/v1/namespaces/shop/pods/x/",
    "/api/v1/namespaces/shop/pods/x/log",
    "/api/v1/namespaces/shop/pods/x/exec?command=sh",
    "/api/v1/namespaces/shop/pods/x/attach",
    "/api/v1/namespaces/shop/pods/x/portforward",
    "/api/v1/namespaces/shop/pods/x/eviction",
    "/api/v1/namespaces/shop/pods/x/binding",
    "/api/v1/namespaces/shop/pods/x/ephemeralcontainers",
    "/api/v1/namespaces/shop/pods/x/proxy/some/where",
    "/api/v1/namespaces/shop/bindings",
    "/api/v1/namespaces/shop/services/https:web:443/proxy/",
    "/api/v1/namespaces/shop/serviceaccounts/bot/token",
    "/api/v1/namespaces/shop/nothings/x",
    "/api/v1/nodes/n/proxy/stats",
    "/api/v1/persistentvolumes/v/status",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/namespaces/shop/deployments/web/scale",
    "/apis/apps/v1/namespaces/shop/deployments/web/status",
    "/apis/nothing.io/v1/namespaces/shop/things/x/part",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews",
];

/// The rights of the user with few rights.
fn few_rights() -> Value {
    json!([
        {
            "verbs": ["*"], "apiGroups": [""],
            "resources": ["configmaps", "pods/log", "pods/eviction"], "resourceNames": ["mine"],
        },
        { "verbs": ["get", "update", "patch"], "apiGroups": ["apps"], "resources": ["*/scale"] },
        {
            "verbs": ["update", "patch"], "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests/approval", "certificatesigningrequests/status"],
        },
        {
            "verbs": ["approve"], "apiGroups": ["certificates.k8s.io"],
            "resources": ["signers"], "resourceNames": ["acme.io/*"],
        },
        {
            "verbs": ["sign"], "apiGroups": ["certificates.k8s.io"],
            "resources": ["signers"], "resourceNames": ["acme.io/one"],
        },
        { "verbs": ["create"], "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"] },
    ])
}

/// One of the two servers, and its proxies.
struct ComparedServer {
    admin: Proxy,
    no_rights: Proxy,
    few_rights: Proxy,
}

impl ComparedServer {
    fn start(kubectl: &Path, kubeconfig: &Path, dir: &Path) -> ComparedServer {
        let impersonating = |name: &str| Proxy::start(kubectl, &acting_as(kubectl, kubeconfig, dir, name));
        ComparedServer {
            admin: Proxy::start(kubectl, kubeconfig),
            no_rights: impersonating("nobody"),
            few_rights: impersonating("little"),
        }
    }

    fn create(&self, path: &str, body: &Value) {
        let answer = self.admin.send(Request::json("POST", path, body.to_string().as_bytes()));
        assert_eq!(answer.code, 201, "{path}: {}", answer.text());
    }

    fn bind(&self, role: &str, user: &str) {
        let body = json!({
            "metadata": { "generateName": "made-for-a-test-" },
            "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": user }],
        });
        self.create(&format!("/apis/{GROUP}/v1/clusterrolebindings"), &body);
    }

    /// Creates the role and the objects that both servers need.
    fn prepare(&self) {
        self.create("/api/v1/namespaces", &json!({ "metadata": { "name": "shop" } }));
        let role = json!({ "metadata": { "name": "little" }, "rules": few_rights() });
        self.create(&format!("/apis/{GROUP}/v1/clusterroles"), &role);
        self.bind("little", "little");
        for signer in ["acme.io/one", "acme.io/two", "other.io/one", "kubernetes.io/kube-apiserver-client"] {
            self.create(
                "/apis/certificates.k8s.io/v1/certificatesigningrequests",
                &signing_request(&signer.replace(['/', '.'], "-"), signer, PLAIN),
            );
        }
    }
}

/// Writes a copy of the administrator's kubeconfig that impersonates a user.
fn acting_as(kubectl: &Path, kubeconfig: &Path, dir: &Path, name: &str) -> PathBuf {
    let mut view = Command::new(kubectl);
    view.arg("--kubeconfig").arg(kubeconfig).args(["config", "view", "--raw", "--output=json"]);
    let mut config: Value = serde_json::from_slice(&view.output().unwrap().stdout).unwrap();
    config["users"].as_array_mut().unwrap().iter_mut().for_each(|user| user["user"]["as"] = name.into());
    let number = std::fs::read_dir(dir).unwrap().count();
    let file = dir.join(format!("{name}-{number}.kubeconfig"));
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

/// Certificate signing requests: `CN=x`, and `O=system:masters, CN=x`, each with a key that was thrown away.
const PLAIN: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QmVEQlpNQk1HQnlx\
    R1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCR1N3NGdhV29HaFYxd1VlT1F4Nk8wSEZCWERvSVV2bEcybmdiV2taQXRkY3lRdlpM\
    aGVJZzVveExKZmgrQTJqCitjZmFxd3RDMmthQkg0TkFRRjMxTElpZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpRUErNnBkUWNI\
    c3ljQXoKcmpYNFV3Wk5jUno2NDBiM204aU5Ec0hOL09wVGhkWUNJQ2RPc0E1ajQ3UldNWSswMVZTV2FkOC9uUzR1dG11ZwppeVky\
    QytpbXk4TWMKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
const MASTERS: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIaE1JR0hBZ0VBTUNVeEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRw\
    dFlYTjBaWEp6TVFvd0NBWURWUVFEREFGNApNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUU4ekJpaDA4VHplK2RE\
    aU9uTFhrWmlZTlkvemlDCk5nbmZDQVRCSTlDRWhCMmwyVWQyekIrNVpQc3VLWU43NXBaRDhjMWFTUjlMK3gwT3VkN1lDOW9rNmFB\
    QU1Bb0cKQ0NxR1NNNDlCQU1DQTBrQU1FWUNJUURRT2NjYVlhZW9CUC9qQTU5MWhsdnFUbmFQUUMyc3RXNFN4ZzNBenZxcQpmZ0lo\
    QUtqc3FPWm9QRVIwb2poajlKZ2kvN3RYOFJYNHN5bHZacGk4dDhoT3A2aXgKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0t\
    LS0tCg==";

fn signing_request(name: &str, signer: &str, request: &str) -> Value {
    let spec = json!({ "signerName": signer, "request": request, "usages": ["client auth"] });
    json!({ "metadata": { "name": name }, "spec": spec })
}

#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn a_request_needs_the_same_rights_as_in_a_kube_apiserver() {
    let kubectl = testkit::peers::program("kubectl");
    let cluster = Cluster::start_bare(&[]);
    let (holon, dir) = (Server::start(HOLON), tempfile::tempdir().unwrap());
    let theirs = ComparedServer::start(&kubectl, &cluster.kubeconfig(), dir.path());
    let ours = ComparedServer::start(&kubectl, &holon.file("admin.kubeconfig"), dir.path());
    for server in [&theirs, &ours] {
        server.prepare();
    }
    for user in ["nobody", "little"] {
        ours.bind("holon:access", user);
    }
    // In kube-apiserver, new bindings take effect with a delay.
    let is_effective = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        theirs.few_rights.send(Request::get("/api/v1/namespaces/shop/configmaps/mine")).code == 404
    });
    assert!(is_effective, "a binding is not effective after ten seconds");

    let (mut requested, mut wrong) = (0, Vec::new());
    for path in PATHS {
        for method in METHODS {
            let body = if matches!(*method, "GET" | "DELETE") { "" } else { "{}" };
            let [theirs, ours] = [&theirs.no_rights, &ours.no_rights]
                .map(|proxy| proxy.send(Request::json(method, path, body.as_bytes())));
            requested += 1;
            if (theirs.code, theirs.json()) != (ours.code, ours.json()) {
                wrong.push(format!("{method} {path}\n  theirs {}\n  ours   {}", theirs.text(), ours.text()));
            }
        }
    }
    for (method, path, body) in attempts() {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let [theirs, ours] = [&theirs.few_rights, &ours.few_rights].map(|proxy| {
            let request = Request { content_type: kind, ..Request::json(method, &path, body.as_bytes()) };
            proxy.send(request)
        });
        requested += 1;
        // The form of a 404 for a pod's log does not matter in this test.
        let comparable = |answer: &testkit::peers::Answer| {
            let message = answer.json()["message"].clone();
            (answer.code, if answer.code == 404 { Value::Null } else { message })
        };
        if comparable(&theirs) != comparable(&ours) {
            wrong.push(format!(
                "{method} {path} {body}\n  theirs {}\n  ours   {}",
                theirs.text(),
                ours.text()
            ));
        }
    }
    println!("{requested} requests, {} different", wrong.len());
    assert!(wrong.is_empty(), "{} different:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the requests of the user with few rights.
fn attempts() -> Vec<(&'static str, String, Value)> {
    let maps = "/api/v1/namespaces/shop/configmaps";
    let map = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let mine = "fieldSelector=metadata.name%3Dmine";
    let mut all = vec![
        // A resource name in a rule does not cover creates, and a field selector does not change that.
        ("POST", maps.to_owned(), map("mine")),
        ("POST", format!("{maps}?{mine}"), map("mine")),
        ("POST", format!("{maps}?{mine}"), map("other")),
        ("DELETE", maps.to_owned(), Value::Null),
        ("DELETE", format!("{maps}?{mine}"), Value::Null),
        ("GET", maps.to_owned(), Value::Null),
        ("GET", format!("{maps}/mine"), Value::Null),
        ("GET", format!("{maps}/other"), Value::Null),
        ("GET", format!("{maps}/other?{mine}"), Value::Null),
        ("GET", format!("{maps}?{mine}&watch=1&timeoutSeconds=1"), Value::Null),
        ("GET", "/api/v1/namespaces/shop/pods/mine/log".to_owned(), Value::Null),
        ("GET", "/api/v1/namespaces/shop/pods/other/log".to_owned(), Value::Null),
        ("GET", format!("/api/v1/namespaces/shop/pods/other/log?{mine}"), Value::Null),
        ("GET", "/apis/apps/v1/namespaces/shop/deployments/web/scale".to_owned(), Value::Null),
        ("GET", "/apis/apps/v1/namespaces/shop/deployments/web".to_owned(), Value::Null),
    ];
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "r", "message": "m" });
    for name in ["acme-io-one", "acme-io-two", "other-io-one", "kubernetes-io-kube-apiserver-client"] {
        let failed = json!({ "status": { "conditions": [condition("Failed")] } });
        all.push(("PATCH", format!("{requests}/{name}/status"), failed));
        let approved = json!({ "status": { "conditions": [condition("Approved")] } });
        all.push(("PATCH", format!("{requests}/{name}/approval"), approved));
    }
    let client = "kubernetes.io/kube-apiserver-client";
    all.push(("POST", requests.to_owned(), signing_request("one", client, PLAIN)));
    all.push(("POST", requests.to_owned(), signing_request("two", client, MASTERS)));
    all.push(("POST", requests.to_owned(), signing_request("three", "acme.io/one", MASTERS)));
    all
}
