//! What users see of their pods, and that an idle system writes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn nodes_of(pods: &[Value]) -> Vec<&str> {
    let mut nodes: Vec<&str> = pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn a_user_sees_the_dependents_of_a_deployment_on_all_clusters() {
    let team = Team::new("*");
    let service = json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
    let service = team.create(&format!("{SHOP}/services"), service);
    let deployment = team.deploy("web", 4);

    let sets = team.list(&format!("{APPS}/replicasets"));
    assert_eq!(sets.len(), 1, "{sets:#?}");
    assert_eq!(sets[0]["metadata"]["ownerReferences"][0]["uid"], deployment["metadata"]["uid"]);
    until("the ReplicaSet has the sum of all targets", || {
        team.list(&format!("{APPS}/replicasets"))[0]["status"]["readyReplicas"] == 4
    });
    assert_eq!(
        team.get(&format!("{APPS}/deployments/web"))["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "1"
    );

    let pods = team.pods("web");
    assert_eq!(nodes_of(&pods), ["east", "east", "west", "west"]);
    for pod in &pods {
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], sets[0]["metadata"]["uid"], "{pod:#}");
        // The projected pod is identical to the real one.
        let cluster = text(pod, "/spec/nodeName");
        let downstream_name =
            text(pod, "/metadata/annotations/holon.dev~1downstream-name").split_once('/').unwrap();
        let real = team.read_downstream(
            cluster,
            &format!("/api/v1/namespaces/{}/pods/{}", downstream_name.0, downstream_name.1),
        );
        assert_eq!(real["metadata"]["uid"], pod["metadata"]["annotations"]["holon.dev/downstream-uid"]);
        assert_eq!(real["status"]["podIP"], pod["status"]["podIP"]);
        assert_eq!(real["spec"]["nodeName"], pod["metadata"]["annotations"]["holon.dev/node"]);
    }

    let nodes = team.list("/api/v1/nodes");
    let names: Vec<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
    assert_eq!(names, ["east", "west"]);
    assert!(nodes.iter().all(|node| node["status"]["conditions"][0]["status"] == "True"), "{nodes:#?}");
    assert_eq!(nodes[0]["status"]["allocatable"]["memory"], "64Gi");

    until("the Service has the projected pods as endpoints", || {
        let slices = team.list("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io/service-name=web");
        let owned =
            |slice: &Value| slice["metadata"]["ownerReferences"][0]["uid"] == service["metadata"]["uid"];
        let endpoints = slices
            .iter()
            .filter(|slice| owned(slice))
            .flat_map(|slice| slice["endpoints"].as_array().unwrap());
        let mut found: Vec<&Value> = endpoints.map(|endpoint| &endpoint["targetRef"]["uid"]).collect();
        let mut expected: Vec<&Value> = pods.iter().map(|pod| &pod["metadata"]["uid"]).collect();
        found.sort_by_key(|uid| uid.to_string());
        expected.sort_by_key(|uid| uid.to_string());
        found == expected
    });
    until("the Events of a pod are projected", || {
        let uid = text(&pods[0], "/metadata/uid");
        team.list(&format!("{SHOP}/events")).iter().any(|event| {
            text(event, "/involvedObject/uid") == uid && text(event, "/involvedObject/namespace") == "shop"
        })
    });
    check_idle(&team);
}

/// `kubectl top`: users see the usage of their own pods, under their own names and over all clusters, and nothing of
/// other users.
#[test]
fn a_user_sees_the_usage_of_pods_on_all_clusters() {
    let team = Team::new("*");
    team.deploy("web", 4);
    let own =
        json!({ "metadata": { "name": "own", "labels": { "app": "own" } }, "spec": template("own")["spec"] });
    team.create(&format!("{SHOP}/pods"), own);
    const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
    let names = |path: &str| -> Vec<String> {
        let found = team.list(&format!("{METRICS}{path}"));
        let mut names: Vec<String> = found.iter().map(|one| text(one, "/metadata/name").to_owned()).collect();
        names.sort_unstable();
        names
    };
    until("the logical cluster serves metrics", || team.ask("GET", METRICS, &Value::Null).code == 200);
    until("all running pods have metrics", || names("/namespaces/shop/pods").len() == 5);
    let mut pods: Vec<String> =
        team.pods("web").iter().map(|pod| text(pod, "/metadata/name").to_owned()).collect();
    pods.sort_unstable();
    assert_eq!(names("/namespaces/shop/pods?labelSelector=app%3Dweb"), pods);
    assert_eq!(names("/pods?labelSelector=app%3Down"), ["own"]);
    let one = team.get(&format!("{METRICS}/namespaces/shop/pods/{}", pods[0]));
    assert_eq!((&one["kind"], &one["metadata"]["namespace"]), (&json!("PodMetrics"), &json!("shop")));
    assert!(one["containers"][0]["usage"]["cpu"].is_string(), "{one:#}");
    // A node stands for a physical cluster; its usage is the sum over the nodes there.
    assert_eq!(names("/nodes"), ["east", "west"]);
    assert!(team.get(&format!("{METRICS}/nodes/east"))["usage"]["memory"].is_string());
    assert_eq!(team.ask("GET", &format!("{METRICS}/namespaces/shop/pods/none"), &Value::Null).code, 404);
    assert_eq!(team.ask("POST", &format!("{METRICS}/namespaces/shop/pods"), &json!({})).code, 405);
    // A user without pods sees no metrics.
    assert_eq!(names("/namespaces/default/pods"), [] as [&str; 0]);
    check_idle(&team);
}

/// Returns the resource version of every projected object.
fn versions(team: &Team) -> BTreeMap<String, String> {
    let paths = [
        format!("{SHOP}/pods"),
        format!("{APPS}/replicasets"),
        format!("{APPS}/deployments"),
        format!("{SHOP}/events"),
        "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices".to_owned(),
        "/api/v1/nodes".to_owned(),
    ];
    let all = paths.iter().flat_map(|path| team.list(path));
    all.map(|object| {
        (text(&object, "/metadata/uid").to_owned(), text(&object, "/metadata/resourceVersion").to_owned())
    })
    .collect()
}

/// Checks that nothing is written while nothing changes.
fn check_idle(team: &Team) {
    until("nothing is written for a while", || {
        let before = versions(team);
        std::thread::sleep(Duration::from_secs(3));
        versions(team) == before
    });
}

#[test]
fn stateful_set_pods_their_claims_and_cron_jobs_are_projected() {
    let team = Team::new("*");
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let set = json!({
        "metadata": { "name": "db" },
        "spec": { "serviceName": "db", "replicas": 3, "selector": { "matchLabels": { "app": "db" } }, "template": template("db"), "volumeClaimTemplates": [claim] },
    });
    let set = team.create(&format!("{APPS}/statefulsets"), set);
    until("three ordinals run", || {
        let pods = team.pods("db");
        let names: Vec<&str> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
        names == ["db-0", "db-1", "db-2"] && pods.iter().all(is_running)
    });
    assert_eq!(team.pods("db")[0]["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    until("their claims are bound", || {
        let claims = team.list(&format!("{SHOP}/persistentvolumeclaims"));
        claims.len() == 3 && claims.iter().all(|claim| claim["status"]["phase"] == "Bound")
    });

    // A deleted pod of a StatefulSet is created again under the same name, with another uid.
    let uid = team.get(&format!("{SHOP}/pods/db-0"))["metadata"]["uid"].clone();
    assert_eq!(team.ask("DELETE", &format!("{SHOP}/pods/db-0"), &Value::Null).code, 200);
    until("db-0 is created again", || {
        let pod = team.get(&format!("{SHOP}/pods/db-0"));
        is_running(&pod) && pod["metadata"]["uid"] != uid
    });

    let jobs = json!({ "spec": { "template": template("tick") } });
    let mut cron =
        json!({ "metadata": { "name": "tick" }, "spec": { "schedule": "* * * * *", "jobTemplate": jobs } });
    cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    let cron = team.create("/apis/batch/v1/namespaces/shop/cronjobs", cron);
    until("a Job of the CronJob and its pod are projected", || {
        let jobs = team.list("/apis/batch/v1/namespaces/shop/jobs");
        let Some(job) = jobs.iter().find(|job| job["status"]["succeeded"] == 1) else { return false };
        let pods = team.pods("tick");
        job["metadata"]["ownerReferences"][0]["uid"] == cron["metadata"]["uid"]
            && pods.iter().any(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"])
    });
}
