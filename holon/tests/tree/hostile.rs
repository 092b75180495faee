//! What a tenant with cluster-admin in their own logical cluster, and without rights elsewhere, must not gain by
//! writing objects there.

use serde_json::{Value, json};
use testkit::{Client, until};

use crate::{APPS, SHOP, Team, deployment, text};

const EVIL: &str = "/clusters/root:evil";
const FLEET: &str = "/apis/holon.dev/v1alpha1";

/// Creates `root:evil` with a namespace `shop`, and returns a client of its cluster-admin.
fn tenant(team: &Team) -> Client {
    team.admin.create_logical_cluster("root:evil");
    team.admin.bind(EVIL, "cluster-admin", "User eve");
    let eve = team.admin.with("Impersonate-User: eve");
    let namespace = json!({ "metadata": { "name": "shop" } });
    assert_eq!(eve.ask("POST", &format!("{EVIL}/api/v1/namespaces"), &namespace).code, 201);
    eve
}

fn records(eve: &Client) -> Vec<Value> {
    let list = eve.get(&format!("{EVIL}{FLEET}/namespaces/shop/distributions")).json();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn ready(eve: &Client, name: &str) -> Value {
    eve.get(&format!("{EVIL}{APPS}/deployments/{name}")).json()["status"]["readyReplicas"].clone()
}

#[track_caller]
fn refused(eve: &Client, method: &str, path: &str, body: &Value, reason: &str) {
    let answer = eve.ask(method, &format!("{EVIL}{path}"), body);
    assert_eq!(answer.code, 403, "{method} {path}: {}", answer.body);
    assert!(answer.body.contains(reason), "{method} {path}: {}", answer.body);
}

/// A tenant created a LogicalCluster mailbox-fake and a PhysicalCluster fake, wrote the mailbox id of another physical
/// cluster (readable in an annotation of their own pods) into its status, and pointed a Distribution at it: their
/// privileged pod ran in `kube-system` of that cluster. With the id of the root logical cluster, placement stopped for
/// all tenants. And a Distribution that named a cluster the tenant was never granted was trusted.
#[test]
fn tenants_cannot_write_facts_that_grant_access() {
    let team = Team::new("*");
    let eve = tenant(&team);
    let created = eve.ask("POST", &format!("{EVIL}{APPS}/deployments"), &deployment("app", 1));
    assert_eq!(created.code, 201, "{}", created.body);
    until("the tenant's Deployment is ready", || ready(&eve, "app") == 1);

    let clusters = format!("{FLEET}/logicalclusters");
    let mailbox = json!({ "metadata": { "name": "mailbox-fake" } });
    refused(&eve, "POST", &clusters, &mailbox, "only the server creates those");
    let labelled = json!({ "metadata": { "name": "inner", "labels": { "holon.dev/mailbox-of": "fake" } } });
    refused(&eve, "POST", &clusters, &labelled, "only the server creates those");
    let inner = eve.ask("POST", &format!("{EVIL}{clusters}"), &json!({ "metadata": { "name": "inner" } }));
    assert_eq!(inner.code, 201, "{}", inner.body);
    let label = json!({ "metadata": { "labels": { "holon.dev/mailbox-of": "fake" } } });
    refused(&eve, "PATCH", &format!("{clusters}/inner"), &label, "only the server creates those");

    let physical = format!("{FLEET}/physicalclusters");
    let fake = json!({ "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster", "metadata": { "name": "fake" }, "spec": { "dedicatedTo": "root:evil" },
        "status": { "mailbox": "~bbbbbbbbbbbbbbbb" } });
    let created = eve.ask("POST", &format!("{EVIL}{physical}"), &fake);
    assert_eq!(created.code, 201, "{}", created.body);
    assert_ne!(created.json()["status"]["mailbox"], "~bbbbbbbbbbbbbbbb");
    let pods = eve.get(&format!("{EVIL}{SHOP}/pods")).json();
    let stolen = text(&pods["items"][0], "/metadata/annotations/holon.dev~1mailbox").to_owned();
    assert!(stolen.starts_with('~'), "{pods}");
    for id in [stolen.as_str(), "~bbbbbbbbbbbbbbbb"] {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Reachable", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let status = json!({ "status": { "mailbox": id, "conditions": [ready] } });
        refused(
            &eve,
            "PATCH",
            &format!("{physical}/fake/status"),
            &status,
            "only the server writes the status",
        );
    }

    let record = records(&eve).remove(0);
    let name = text(&record, "/metadata/name");
    let distributions = format!("{FLEET}/namespaces/shop/distributions");
    let path = format!("{distributions}/{name}");
    let targets = json!({ "spec": { "targets": [{ "cluster": "fake", "role": "Steady" }] } });
    let reason = "only the splitter writes it";
    refused(&eve, "PATCH", &path, &targets, reason);
    refused(&eve, "PATCH", &format!("{path}/status"), &json!({ "status": { "verdicts": [] } }), reason);
    refused(&eve, "DELETE", &path, &Value::Null, reason);
    refused(&eve, "DELETE", &distributions, &Value::Null, reason);
    let mut own = record.clone();
    own["metadata"] = json!({ "name": "forged" });
    refused(&eve, "POST", &distributions, &own, reason);

    // Other tenants' workloads are still placed, and no object of this tenant is in a foreign namespace.
    team.deploy("web", 2);
    for cluster in ["east", "west"] {
        let pods = team.read_downstream(cluster, "/api/v1/namespaces/kube-system/pods");
        assert_eq!(pods["items"], json!([]), "{cluster}");
    }
    // Deleting a namespace still deletes its Distributions.
    let shop = format!("{EVIL}{SHOP}");
    assert_eq!(eve.ask("DELETE", &shop, &Value::Null).code, 200);
    until("the namespace is deleted", || eve.get(&shop).code == 404);
    assert_eq!(records(&eve), Vec::<Value>::new());
}

/// Pods with the host's network and file system ran on shared physical clusters, regardless of the pod-security labels
/// of their namespace.
#[test]
fn a_shared_cluster_rejects_pods_with_host_access() {
    let team = Team::on(&["east"], "*");
    let eve = tenant(&team);
    let mut agent = deployment("agent", 1);
    agent["spec"]["template"]["spec"]["hostNetwork"] = true.into();
    agent["spec"]["template"]["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
    let created = eve.ask("POST", &format!("{EVIL}{APPS}/deployments"), &agent);
    assert_eq!(created.code, 201, "{}", created.body);
    let verdict =
        || records(&eve).first().map(|record| record["status"]["verdicts"][0].clone()).unwrap_or_default();
    until("the verdict names pod security", || verdict()["rule"] == "PodSecurity");
    assert_eq!(verdict()["remedy"], "set spec.podSecurity of PhysicalCluster east to privileged");
    let has_event = || {
        let events = eve.get(&format!("{EVIL}{SHOP}/events")).json();
        let events = events["items"].as_array().cloned().unwrap_or_default();
        events.iter().any(|event| text(event, "/message").contains("hostNetwork"))
    };
    until("an Event names the reason", has_event);
    let status = eve.get(&format!("{EVIL}{APPS}/deployments/agent")).json()["status"].clone();
    assert!(status.to_string().contains("hostNetwork"), "{status}");

    let east = format!("{FLEET}/physicalclusters/east");
    let set = |level: &str| {
        let change = json!({ "spec": { "podSecurity": level } });
        assert_eq!(team.admin.ask("PATCH", &east, &change).code, 200);
    };
    set("privileged");
    until("the Deployment runs after the admin allows it", || ready(&eve, "agent") == 1);
    // After the admin no longer allows it, running pods stay and cannot be changed.
    set("baseline");
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "app:2" }] } } } });
    let changed = eve.with("Content-Type: application/strategic-merge-patch+json");
    let changed = changed.ask("PATCH", &format!("{EVIL}{APPS}/deployments/agent"), &image);
    assert_eq!(changed.code, 200, "{}", changed.body);
    let is_held = || {
        let record = records(&eve).remove(0);
        let conditions = record["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition["type"] == "Sent" && text(condition, "/message").contains("baseline"))
    };
    until("a condition reports that the change is held", is_held);
    let downstream = team.read_downstream("east", "/apis/apps/v1/deployments");
    assert_eq!(downstream["items"][0]["spec"]["template"]["spec"]["containers"][0]["image"], "app:1");
    assert_eq!(downstream["items"][0]["status"]["readyReplicas"], 1);
}

/// All kinds of all tenants are read through one cursor. A kind in a group that the splitter may not read, or one that
/// changes its versions all the time, must not keep it from reading the others.
#[test]
fn the_kinds_of_a_tenant_do_not_stop_placement() {
    let team = Team::new("*");
    let eve = tenant(&team);
    let definitions = format!("{EVIL}/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let define = |plural: &str, group: &str, versions: &[&str]| {
        let version = |name: &&str| {
            let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
            json!({ "name": name, "served": true, "storage": Some(name) == versions.first(), "schema": { "openAPIV3Schema": schema } })
        };
        let (singular, kind) =
            if plural == "evils" { ("evil", "Evil") } else { ("deployment", "Deployment") };
        let names = json!({ "plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List") });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"), "annotations": { "api-approved.kubernetes.io": "unapproved, a test" },
            },
            "spec": { "group": group, "scope": "Namespaced", "names": names, "versions": versions.iter().map(version).collect::<Vec<_>>() },
        })
    };
    let mut accepted = 0;
    for (plural, group) in [
        ("evils", "apps"),
        ("evils", "batch"),
        ("evils", "coordination.k8s.io"),
        ("evils", "rbac.authorization.k8s.io"),
        ("evils", "evil.example"),
        ("deployments", "evil.example"),
    ] {
        let answer = eve.ask("POST", &definitions, &define(plural, group, &["v1"]));
        accepted += usize::from(answer.code == 201);
        let kind = if plural == "evils" { "Evil" } else { "Deployment" };
        let object =
            json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": { "name": "one" } });
        let path = format!("{EVIL}/apis/{group}/v1/namespaces/shop/{plural}");
        if answer.code == 201 {
            until("the kind is served", || eve.ask("POST", &path, &object).code == 201);
        }
    }
    // It is stored, and never served.
    let same = define("customresourcedefinitions", "apiextensions.k8s.io", &["v1"]);
    eve.ask("POST", &definitions, &same);
    assert!(accepted >= 4, "a tenant may define kinds in {accepted} of these groups");
    let path = format!("{definitions}/evils.evil.example");
    for versions in [&["v1", "v2"][..], &["v2", "v1"], &["v1", "v2"]] {
        let mut changed = eve.get(&path).json();
        changed["spec"]["versions"] = define("evils", "evil.example", versions)["spec"]["versions"].clone();
        let answer = eve.ask("PUT", &path, &changed);
        assert_eq!(answer.code, 200, "{}", answer.body);
    }
    // The team's Deployment is placed, and its later changes arrive too.
    team.deploy("web", 2);
    team.deploy("other", 3);
}
