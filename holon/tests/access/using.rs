//! Which logical cluster may use which physical cluster: every one, until an administrator restricts that.

use serde_json::{Value, json};

use crate::{World, deployment};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Lets a subject use one physical cluster.
fn grant(world: &World, cluster: &str, kind: &str, to: &str) {
    let name = format!("use-{cluster}");
    let rules = json!([{ "verbs": ["use"], "apiGroups": ["holon.dev"], "resources": ["physicalclusters"], "resourceNames": [cluster] }]);
    world.make(ROLES, &json!({ "metadata": { "name": name }, "rules": rules }));
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": kind, "name": to }],
    });
    world.make(BINDINGS, &binding);
}

/// Creates a Deployment with a placement on one physical cluster.
fn wants(world: &World, home: &str, name: &str, cluster: &str) {
    let mut web = deployment(name, 2, json!({ "containers": [{ "name": "a", "image": "nginx" }] }));
    web["metadata"]["annotations"] = json!({ "holon.dev/placement": cluster });
    world.make(&format!("{home}/apis/apps/v1/namespaces/default/deployments"), &web);
}

fn ready(world: &World, home: &str, name: &str) -> Value {
    let path = format!("{home}/apis/apps/v1/namespaces/default/deployments/{name}");
    world.read(&path)["status"]["readyReplicas"].clone()
}

/// Returns the verdict on a physical cluster in the Distribution of an object.
fn verdict(world: &World, home: &str, name: &str, cluster: &str) -> Value {
    let list = world.read(&format!("{home}/apis/holon.dev/v1alpha1/namespaces/default/distributions"));
    let records = list["items"].as_array().cloned().unwrap_or_default();
    let record =
        records.into_iter().find(|record| record["spec"]["object"]["name"] == name).unwrap_or_default();
    let verdicts = record["status"]["verdicts"].as_array().cloned().unwrap_or_default();
    verdicts.into_iter().find(|verdict| verdict["cluster"] == cluster).unwrap_or_default()
}

#[test]
fn a_grant_that_is_taken_away_keeps_new_work_out_and_evicts_nothing() {
    let world = World::new(&["east", "west"]);
    let (ours, theirs) = (world.cluster("team-a"), world.cluster("team-b"));
    // Without any grant it runs: the bootstrap binding allows it.
    wants(&world, &ours, "web", "east");
    wants(&world, &theirs, "web", "east");
    for home in [&ours, &theirs] {
        world.until("it runs", || ready(&world, home, "web") == 2);
    }
    // An administrator restricts it: west is for all logical clusters below team-a, and east for none.
    let path = format!("{BINDINGS}/holon:use-physical-clusters");
    assert_eq!(world.admin.ask("DELETE", &path, &Value::Null).code, 200);
    grant(&world, "west", "Group", "system:holon:logicalclusters:root:team-a");
    world.until("it is known", || verdict(&world, &ours, "web", "east")["rule"] == "UseNotGranted");
    wants(&world, &ours, "late", "east");
    let rule = || verdict(&world, &ours, "late", "east");
    world.until("it is said why", || rule()["rule"] == "UseNotGranted");
    assert_eq!(rule()["message"], "this logical cluster may not use the physical cluster");
    assert_eq!(rule()["remedy"], "grant the verb use on physicalclusters east to this logical cluster");
    // Only logical clusters with a grant use a physical cluster.
    wants(&world, &ours, "beside", "west");
    world.until("it runs", || ready(&world, &ours, "beside") == 2);
    wants(&world, &theirs, "beside", "west");
    world.until("it is said why", || verdict(&world, &theirs, "beside", "west")["rule"] == "UseNotGranted");
    // Workloads that already run there stay.
    for home in [&ours, &theirs] {
        assert_eq!(ready(&world, home, "web"), 2);
    }
    let names = |cluster: &str| {
        let placed = world.placed(cluster, "/apis/apps/v1/deployments");
        let mut names: Vec<String> =
            placed.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!((names("east"), names("west")), (vec!["web".to_owned(); 2], vec!["beside".to_owned()]));
    // The administrator follows the advice in the verdict.
    grant(&world, "east", "User", "system:holon:logicalcluster:root:team-a");
    world.until("it runs", || ready(&world, &ours, "late") == 2);
}
