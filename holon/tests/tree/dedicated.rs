//! A physical cluster that is dedicated to one logical cluster runs nothing of others.

use serde_json::{Value, json};

use crate::{APPS, SHOP, World, deployment};

const EAST: &str = "/apis/holon.dev/v1alpha1/physicalclusters/east";
const OTHERS: &str = "/clusters/root:team-b";

#[test]
fn a_cluster_that_is_dedicated_to_one_keeps_others_out_and_says_so() {
    let world = World::of(&["east"], "*");
    let change = json!({ "spec": { "dedicatedTo": "root:team-a" } });
    assert_eq!(world.admin.ask("PATCH", EAST, &change).code, 200);
    // The logical cluster uses it like a cluster of its own: even namespaces keep their names.
    world.deploy("web", 1);
    assert_eq!(world.below("east", &format!("{APPS}/deployments/web"))["status"]["readyReplicas"], 1);

    world.holon(&["lc", "create", "team-b"]);
    let make = |path: &str, object: &Value| {
        let made = world.admin.ask("POST", &format!("{OTHERS}{path}"), object);
        assert_eq!(made.code, 201, "{}", made.body);
    };
    make("/api/v1/namespaces", &json!({ "metadata": { "name": "shop" } }));
    make(&format!("{APPS}/deployments"), &deployment("theirs", 1));
    let records = format!("{OTHERS}/apis/holon.dev/v1alpha1/namespaces/shop/distributions");
    let verdict = || {
        let records = world.admin.get(&records).json();
        records["items"][0]["status"]["verdicts"][0].clone()
    };
    world.until("it is said why", || verdict()["rule"] == "Dedicated");
    let verdict = verdict();
    assert_eq!(verdict["message"], "the physical cluster is dedicated to logical cluster root:team-a");
    assert_eq!(verdict["remedy"], "remove spec.dedicatedTo from PhysicalCluster east");
    let below = world.below("east", "/apis/apps/v1/deployments");
    let names: Vec<&Value> =
        below["items"].as_array().unwrap().iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["web"]);
    let pods = world.admin.get(&format!("{OTHERS}{SHOP}/pods")).json();
    assert_eq!(pods["items"], json!([]));
}
