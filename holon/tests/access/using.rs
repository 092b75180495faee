//! Which logical cluster may use which physical cluster: every one, until an administrator restricts that.

use serde_json::{Value, json};
use testkit::objects::deployment;
use testkit::until;

use crate::common::fleet::TestFleet;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Lets a subject use one physical cluster.
fn grant(fleet: &TestFleet, cluster: &str, kind: &str, to: &str) {
    let name = format!("use-{cluster}");
    let rules = json!([{ "verbs": ["use"], "apiGroups": ["holon.dev"], "resources": ["physicalclusters"], "resourceNames": [cluster] }]);
    fleet.admin.create(ROLES, &json!({ "metadata": { "name": name }, "rules": rules }));
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": kind, "name": to }],
    });
    fleet.admin.create(BINDINGS, &binding);
}

/// Creates a Deployment with a placement on one physical cluster.
fn deploy_to(fleet: &TestFleet, home: &str, name: &str, cluster: &str) {
    let mut web = deployment(name, 2, json!({ "containers": [{ "name": "a", "image": "nginx" }] }));
    web["metadata"]["annotations"] = json!({ "holon.dev/placement": cluster });
    fleet.admin.create(&format!("{home}/apis/apps/v1/namespaces/default/deployments"), &web);
}

fn ready(fleet: &TestFleet, home: &str, name: &str) -> Value {
    let path = format!("{home}/apis/apps/v1/namespaces/default/deployments/{name}");
    fleet.admin.get(&path).json()["status"]["readyReplicas"].clone()
}

/// Returns the verdict on a physical cluster in the Distribution of an object.
fn verdict(fleet: &TestFleet, home: &str, name: &str, cluster: &str) -> Value {
    let list =
        fleet.admin.get(&format!("{home}/apis/holon.dev/v1alpha1/namespaces/default/distributions")).json();
    let records = list["items"].as_array().cloned().unwrap_or_default();
    let record =
        records.into_iter().find(|record| record["spec"]["object"]["name"] == name).unwrap_or_default();
    let verdicts = record["status"]["verdicts"].as_array().cloned().unwrap_or_default();
    verdicts.into_iter().find(|verdict| verdict["cluster"] == cluster).unwrap_or_default()
}

#[test]
fn a_revoked_grant_keeps_new_workloads_out_and_evicts_none() {
    let fleet = TestFleet::start(&["east", "west"]);
    let (team, other_team) = (
        fleet.admin.create_logical_cluster("root:team-a"),
        fleet.admin.create_logical_cluster("root:team-b"),
    );
    // Without any grant it runs: the bootstrap binding allows it.
    deploy_to(&fleet, &team, "web", "east");
    deploy_to(&fleet, &other_team, "web", "east");
    for home in [&team, &other_team] {
        until("the Deployment is ready", || ready(&fleet, home, "web") == 2);
    }
    // An administrator restricts it: west is for all logical clusters below team-a, and east for none.
    let path = format!("{BINDINGS}/holon:use-physical-clusters");
    assert_eq!(fleet.admin.ask("DELETE", &path, &Value::Null).code, 200);
    grant(&fleet, "west", "Group", "system:holon:logicalclusters:root:team-a");
    until("the revocation is in the verdict", || {
        verdict(&fleet, &team, "web", "east")["rule"] == "UseNotGranted"
    });
    deploy_to(&fleet, &team, "late", "east");
    let rule = || verdict(&fleet, &team, "late", "east");
    until("the verdict names the missing grant", || rule()["rule"] == "UseNotGranted");
    assert_eq!(rule()["message"], "this logical cluster may not use the physical cluster");
    assert_eq!(rule()["remedy"], "grant the verb use on physicalclusters east to this logical cluster");
    // Only logical clusters with a grant use a physical cluster.
    deploy_to(&fleet, &team, "granted", "west");
    until("the Deployment is ready", || ready(&fleet, &team, "granted") == 2);
    deploy_to(&fleet, &other_team, "granted", "west");
    until("the verdict names the missing grant", || {
        verdict(&fleet, &other_team, "granted", "west")["rule"] == "UseNotGranted"
    });
    // Workloads that already run there stay.
    for home in [&team, &other_team] {
        assert_eq!(ready(&fleet, home, "web"), 2);
    }
    let names = |cluster: &str| {
        let placed = fleet.placed(cluster, "/apis/apps/v1/deployments");
        let mut names: Vec<String> =
            placed.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!((names("east"), names("west")), (vec!["web".to_owned(); 2], vec!["granted".to_owned()]));
    // The administrator follows the advice in the verdict.
    grant(&fleet, "east", "User", "system:holon:logicalcluster:root:team-a");
    until("the Deployment is ready", || ready(&fleet, &team, "late") == 2);
}
