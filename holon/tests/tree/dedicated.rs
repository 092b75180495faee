//! A physical cluster that is dedicated to one logical cluster runs nothing of others.

use serde_json::{Value, json};
use testkit::until;

use crate::{APPS, SHOP, Team, deployment};

const EAST: &str = "/apis/holon.dev/v1alpha1/physicalclusters/east";
const OTHERS: &str = "/clusters/root:team-b";

#[test]
fn a_cluster_that_is_dedicated_to_one_keeps_others_out_and_says_so() {
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
    let make = |path: &str, object: &Value| {
        let made = team.admin.ask("POST", &format!("{OTHERS}{path}"), object);
        assert_eq!(made.code, 201, "{}", made.body);
    };
    make("/api/v1/namespaces", &json!({ "metadata": { "name": "shop" } }));
    make(&format!("{APPS}/deployments"), &deployment("theirs", 1));
    let records = format!("{OTHERS}/apis/holon.dev/v1alpha1/namespaces/shop/distributions");
    let verdict = || {
        let records = team.admin.get(&records).json();
        records["items"][0]["status"]["verdicts"][0].clone()
    };
    until("it is said why", || verdict()["rule"] == "Dedicated");
    let verdict = verdict();
    assert_eq!(verdict["message"], "the physical cluster is dedicated to logical cluster root:team-a");
    assert_eq!(verdict["remedy"], "remove spec.dedicatedTo from PhysicalCluster east");
    let below = team.read_downstream("east", "/apis/apps/v1/deployments");
    let names: Vec<&Value> =
        below["items"].as_array().unwrap().iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["web"]);
    let pods = team.admin.get(&format!("{OTHERS}{SHOP}/pods")).json();
    assert_eq!(pods["items"], json!([]));
}
