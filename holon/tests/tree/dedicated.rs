//! A physical cluster that is dedicated to one logical cluster runs nothing of others.

use serde_json::{Value, json};
use testkit::until;

use crate::{APPS, SHOP, Team, deployment};

const EAST: &str = "/apis/holon.dev/v1alpha1/physicalclusters/east";
const OTHER_TEAM: &str = "/clusters/root:team-b";

#[test]
fn a_dedicated_cluster_rejects_other_logical_clusters_with_a_verdict() {
    let team = Team::on(&["east"], "*");
    let change = json!({ "spec": { "dedicatedTo": "root:team-a" } });
    assert_eq!(team.admin.ask("PATCH", EAST, &change).code, 200);
    // The logical cluster uses it like a cluster of its own: even namespaces keep their names.
    team.deploy("web", 1);
    assert_eq!(
        team.read_downstream("east", &format!("{APPS}/deployments/web"))["status"]["readyReplicas"],
        1
    );

    team.admin.create_logical_cluster("root:team-b");
    let create = |path: &str, object: &Value| {
        let created = team.admin.ask("POST", &format!("{OTHER_TEAM}{path}"), object);
        assert_eq!(created.code, 201, "{}", created.body);
    };
    create("/api/v1/namespaces", &json!({ "metadata": { "name": "shop" } }));
    create(&format!("{APPS}/deployments"), &deployment("theirs", 1));
    let records = format!("{OTHER_TEAM}/apis/holon.dev/v1alpha1/namespaces/shop/distributions");
    let verdict = || {
        let records = team.admin.get(&records).json();
        records["items"][0]["status"]["verdicts"][0].clone()
    };
    until("the verdict names the dedication", || verdict()["rule"] == "Dedicated");
    let verdict = verdict();
    assert_eq!(verdict["message"], "the physical cluster is dedicated to logical cluster root:team-a");
    assert_eq!(verdict["remedy"], "remove spec.dedicatedTo from PhysicalCluster east");
    let downstream = team.read_downstream("east", "/apis/apps/v1/deployments");
    let names: Vec<&Value> =
        downstream["items"].as_array().unwrap().iter().map(|object| &object["metadata"]["name"]).collect();
    assert_eq!(names, ["web"]);
    let pods = team.admin.get(&format!("{OTHER_TEAM}{SHOP}/pods")).json();
    assert_eq!(pods["items"], json!([]));
}
