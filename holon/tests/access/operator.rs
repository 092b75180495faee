//! An operator: it defines a kind, and creates the objects that objects of that kind request. Its pod runs on a
//! physical cluster with only what a kubelet provides; the objects it manages are in its logical cluster.

use serde_json::{Value, json};
use testkit::Client;
use testkit::objects::deployment;
use testkit::until;

use crate::common::fleet::TestFleet;
use crate::pods::{PodEnvironment, apply};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SHOPS: &str = "/apis/example.com/v1/namespaces/customers/shops";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/customers/deployments";

/// Applies the manifests of `make install` of an operator: its kind, and a role for it in all namespaces.
fn install(fleet: &TestFleet, cluster: &str) {
    let create = |path: &str, object: Value| fleet.admin.create(&format!("{cluster}{path}"), &object);
    let integer = json!({ "type": "integer" });
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": { "type": "object", "properties": { "shelves": integer } },
            "status": { "type": "object", "properties": { "ready": integer, "observedGeneration": integer } },
        },
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
        "schema": { "openAPIV3Schema": schema },
    });
    let names = json!({ "plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList" });
    let definition = json!({
        "metadata": { "name": "shops.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": names, "versions": [version] },
    });
    create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);
    let rule = |group: &str, resources: Value, verbs: Value| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let role = json!({
        "metadata": { "name": "manager-role" },
        "rules": [
            rule("example.com", json!(["shops"]), json!(["get", "list", "watch"])),
            rule("example.com", json!(["shops/status"]), json!(["get", "patch", "update"])),
            rule("example.com", json!(["shops/finalizers"]), json!(["update"])),
            rule("apps", json!(["deployments"]), json!(["create", "get", "list", "patch", "watch"])),
        ],
    });
    create(&format!("{RBAC}/clusterroles"), role);
    let binding = json!({
        "metadata": { "name": "manager-rolebinding" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "manager-role" },
        "subjects": [{ "kind": "ServiceAccount", "name": "manager", "namespace": "operators" }],
    });
    create(&format!("{RBAC}/clusterrolebindings"), binding);
}

/// Runs one pass of its reconcile loop: a Deployment for each shop, and in each shop the number of ready replicas.
/// Returns the number of writes.
fn reconcile(client: &Client) -> usize {
    let current = client.get("/apis/example.com/v1/shops");
    assert_eq!(current.code, 200, "{}", current.body);
    let shops = current.json()["items"].as_array().cloned().unwrap_or_default();
    shops.iter().map(|shop| reconcile_one(client, shop)).sum()
}

fn reconcile_one(client: &Client, shop: &Value) -> usize {
    let (name, shelves) = (shop["metadata"]["name"].as_str().unwrap(), &shop["spec"]["shelves"]);
    let write = |method: &str, path: &str, body: Value| {
        let answer = client.ask(method, path, &body);
        assert!([200, 201].contains(&answer.code), "{method} {path}: {}", answer.body);
        1
    };
    let path = format!("{DEPLOYMENTS}/{name}");
    let current = client.get(&path);
    if current.code == 404 {
        let pod = json!({ "containers": [{ "name": "shelf", "image": "shelf:1" }] });
        let mut created = deployment(name, shelves.as_u64().unwrap(), pod);
        created["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "example.com/v1", "kind": "Shop", "name": name, "uid": shop["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }]);
        return write("POST", DEPLOYMENTS, created);
    }
    let current = current.json();
    if current["spec"]["replicas"] != *shelves {
        return write("PATCH", &path, json!({ "spec": { "replicas": shelves } }));
    }
    let status = json!({
        "ready": current["status"]["readyReplicas"].as_u64().unwrap_or_default(),
        "observedGeneration": shop["metadata"]["generation"],
    });
    match shop["status"] == status {
        true => 0,
        false => write("PATCH", &format!("{SHOPS}/{name}/status"), json!({ "status": status })),
    }
}

#[test]
fn an_operator_defines_a_kind_and_reconciles_its_objects() {
    let fleet = TestFleet::start(&["east"]);
    let (team, other_team) = (
        fleet.admin.create_logical_cluster("root:team-a"),
        fleet.admin.create_logical_cluster("root:team-b"),
    );
    install(&fleet, &team);
    apply(&fleet, &team);
    fleet.admin.create(&format!("{team}/api/v1/namespaces"), &json!({ "metadata": { "name": "customers" } }));
    until("the environment of its pod is complete", || PodEnvironment::of(&fleet, "east").is_some());
    let client = PodEnvironment::of(&fleet, "east").unwrap().client();
    assert_eq!(reconcile(&client), 0, "no write is needed without shops");

    let shop = json!({
        "apiVersion": "example.com/v1", "kind": "Shop", "metadata": { "name": "corner" }, "spec": { "shelves": 2 },
    });
    fleet.admin.create(&format!("{team}{SHOPS}"), &shop);
    let corner = format!("{team}{SHOPS}/corner");
    let pods = || {
        let pods = fleet.read_downstream("east", "/api/v1/pods?labelSelector=app%3Dcorner");
        pods["items"].as_array().map_or(0, Vec::len)
    };
    let has_ready = |count: u64| {
        reconcile(&client);
        fleet.admin.get(&corner).json()["status"]["ready"] == count
    };
    until("two shelves are ready", || has_ready(2));
    assert_eq!(pods(), 2, "the pods run on the physical cluster of this logical cluster");
    let larger = json!({ "spec": { "shelves": 3 } });
    assert_eq!(fleet.admin.ask("PATCH", &corner, &larger).code, 200);
    until("three shelves are ready", || has_ready(3) && pods() == 3);
    // It reaches a steady state: no other controller changes what it wrote.
    until("no write is needed any more", || reconcile(&client) == 0);
    assert_eq!(reconcile(&client), 0);

    // It has the rights of its role only: for shops, not for definitions; in its own logical cluster, not in others.
    let kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(client.get(kinds).code, 403);
    assert_eq!(client.ask("DELETE", SHOPS, &Value::Null).code, 403);
    assert_eq!(client.get(&format!("{other_team}{SHOPS}")).code, 404);
    assert_eq!(
        fleet.admin.get(&format!("{other_team}{SHOPS}")).code,
        404,
        "the other logical cluster does not define the kind"
    );

    // The objects of a shop are deleted with the shop.
    assert_eq!(fleet.admin.ask("DELETE", &corner, &Value::Null).code, 200);
    until("its Deployment is deleted", || {
        fleet.admin.get(&format!("{team}{DEPLOYMENTS}/corner")).code == 404
    });
    until("its pods are deleted", || pods() == 0);
}
