//! What users can do with projected objects, and what happens when the real object is deleted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

#[test]
fn deleting_a_pod_deletes_the_real_one_and_everything_else_is_refused_with_advice() {
    let team = Team::new("east");
    team.deploy("web", 2);
    let pod = team.pods("web").remove(0);
    let path = format!("{SHOP}/pods/{}", text(&pod, "/metadata/name"));
    let refused = |method: &str, path: &str, body: Value, advice: &str| {
        let answer = team.ask(method, path, &body);
        assert_eq!(answer.code, 403, "{method} {path}: {}", answer.body);
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(advice), "{message}");
    };
    let labelled = json!({ "metadata": { "labels": { "x": "y" } } });
    let advice = "it runs on east and cannot be changed here; change the Deployment web it belongs to";
    refused("PATCH", &path, labelled.clone(), advice);
    refused("PATCH", &format!("{path}/status"), json!({ "status": { "phase": "Failed" } }), advice);
    refused("PATCH", &path, json!({ "metadata": { "labels": { "holon.dev/projected": null } } }), advice);
    let set = team.list(&format!("{APPS}/replicasets")).remove(0);
    let set = format!("{APPS}/replicasets/{}", text(&set, "/metadata/name"));
    refused(
        "PATCH",
        &format!("{set}/scale"),
        json!({ "spec": { "replicas": 9 } }),
        "change the Deployment web",
    );
    refused("DELETE", &set, Value::Null, "change the Deployment web");
    refused("PATCH", "/api/v1/nodes/east", labelled, "kubectl edit physicalcluster east");
    let forged = json!({ "metadata": { "name": "forged", "labels": { "holon.dev/projected": "true" } }, "spec": template("x")["spec"] });
    refused("POST", &format!("{SHOP}/pods"), forged, "only the server sets the label");

    let real = pod["metadata"]["annotations"]["holon.dev/downstream-uid"].clone();
    let downstream_name =
        text(&pod, "/metadata/annotations/holon.dev~1downstream-name").split_once('/').unwrap();
    let downstream_pods = format!("/api/v1/namespaces/{}/pods", downstream_name.0);
    assert_eq!(team.ask("DELETE", &path, &Value::Null).code, 200);
    until("the downstream pod is deleted", || {
        let pods = team.read_downstream("east", &downstream_pods);
        pods["items"].as_array().unwrap().iter().all(|pod| pod["metadata"]["uid"] != real)
    });
    team.until_ready("web", 2);
    assert!(team.pods("web").iter().all(|found| found["metadata"]["uid"] != pod["metadata"]["uid"]));
}

#[test]
fn projected_objects_are_deleted_with_their_owner_and_their_namespace() {
    let team = Team::new("*");
    team.deploy("web", 4);
    team.deploy("other", 2);
    let options = json!({ "propagationPolicy": "Background" });
    assert_eq!(team.ask("DELETE", &format!("{APPS}/deployments/web"), &options).code, 200);
    until("its pods and ReplicaSets are deleted", || {
        team.pods("web").is_empty()
            && team.list(&format!("{APPS}/replicasets?labelSelector=app=web")).is_empty()
    });
    assert_eq!(team.pods("other").len(), 2);
    assert_eq!(team.ask("DELETE", SHOP, &Value::Null).code, 200);
    until("the namespace is deleted", || team.ask("GET", SHOP, &Value::Null).code == 404);
    until("no node is projected any more", || team.list("/api/v1/nodes").is_empty());
    until("no pod is left downstream", || {
        let pods =
            |cluster| team.read_downstream(cluster, "/api/v1/pods")["items"].as_array().map_or(0, Vec::len);
        pods("east") + pods("west") == 0
    });
}

#[test]
fn a_moved_deployment_has_new_pods_and_keeps_its_rollout_history() {
    let team = Team::new("east");
    team.deploy("web", 2);
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "app:2" }] } } } });
    assert_eq!(team.ask("PATCH", &format!("{APPS}/deployments/web"), &image).code, 200);
    team.until_ready("web", 2);
    let west = json!({ "metadata": { "annotations": { "holon.dev/placement": "west" } } });
    assert_eq!(team.ask("PATCH", SHOP, &west).code, 200);
    until("it runs on west only", || {
        let nodes: BTreeSet<String> =
            team.pods("web").iter().map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
        let nodes_projected = team.list("/api/v1/nodes");
        nodes == ["west".to_owned()].into()
            && nodes_projected.len() == 1
            && nodes_projected[0]["metadata"]["name"] == "west"
    });
    team.until_ready("web", 2);
    let sets = team.list(&format!("{APPS}/replicasets"));
    let images: Vec<&str> =
        sets.iter().map(|set| text(set, "/spec/template/spec/containers/0/image")).collect();
    assert!(images.contains(&"app:1") && images.contains(&"app:2"), "{images:?}");
}

/// Deleting workloads on a cluster that does not answer must not block the user.
#[test]
fn a_silent_cluster_keeps_its_pods_and_blocks_no_deletion() {
    let mut team = Team::new("east");
    team.deploy("web", 2);
    team.kill_cluster("east");
    until("the node is not ready", || {
        let ready = &team.get("/api/v1/nodes/east")["status"]["conditions"][0]["status"];
        ready != "True"
    });
    assert_eq!(team.pods("web").len(), 2, "the pods are not known to be deleted");
    assert_eq!(team.ask("DELETE", SHOP, &Value::Null).code, 200);
    until("the namespace is deleted without an answer of the cluster", || {
        team.ask("GET", SHOP, &Value::Null).code == 404
    });
}

/// A pod that a user creates is not a projection, so it carries no location; requests for its log were rejected.
#[test]
fn requests_for_a_pod_that_a_user_created_reach_its_physical_cluster() {
    let team = Team::new("west");
    let pods = format!("{SHOP}/pods");
    let pod = |name: &str| json!({ "metadata": { "name": name }, "spec": template(name)["spec"] });
    team.create(&pods, pod("one"));
    until("the pod runs", || is_running(&team.get(&format!("{pods}/one"))));
    let log = team.ask("GET", &format!("{pods}/one/log"), &Value::Null);
    assert_eq!(log.code, 200, "{}", log.body);
    assert!(!log.body.trim().is_empty(), "the log is empty");
    let missing = team.ask("GET", &format!("{pods}/other/log"), &Value::Null);
    assert_eq!(missing.code, 404, "{}", missing.body);

    // A pod that runs nowhere has no log, even if another logical cluster has a pod of that name.
    team.create(
        "/api/v1/namespaces",
        json!({ "metadata": { "name": "idle", "annotations": { "holon.dev/placement": "nowhere" } } }),
    );
    team.create("/api/v1/namespaces/idle/pods", pod("one"));
    let refused = team.ask("GET", "/api/v1/namespaces/idle/pods/one/log", &Value::Null);
    assert_eq!(refused.code, 400, "{}", refused.body);
    assert!(refused.body.contains("does not run on a physical cluster"), "{}", refused.body);
}

/// `kubectl drain` of a node that stands for a physical cluster evicted every pod. Each started again on the same
/// cluster, and kubectl reported "drained".
#[test]
fn an_eviction_of_a_projected_pod_is_refused_with_a_remedy() {
    let team = Team::on(&["east"], "*");
    team.deploy("web", 2);
    let before: Vec<String> =
        team.pods("web").iter().map(|pod| text(pod, "/metadata/uid").to_owned()).collect();
    for pod in team.pods("web") {
        let name = text(&pod, "/metadata/name");
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
        let refused = team.ask("POST", &format!("{SHOP}/pods/{name}/eviction"), &eviction);
        assert_eq!(refused.code, 403, "{}", refused.body);
        assert!(
            refused.body.contains("set the annotation holon.dev/placement of its namespace"),
            "{}",
            refused.body
        );
    }
    let after: Vec<String> =
        team.pods("web").iter().map(|pod| text(pod, "/metadata/uid").to_owned()).collect();
    assert_eq!(before, after);
}
