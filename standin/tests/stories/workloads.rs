//! Workloads without failures.

use std::time::Duration;

use serde_json::{Value, json};
use standin::{Clock, Delays, NodeShape, Options};

use crate::common::{APPS, BATCH, CORE, TestCluster, condition, deployment, is_true, job, template};

#[tokio::test]
async fn a_deployment_creates_running_pods_and_reports_them() {
    let cluster = TestCluster::new().await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 3, json!({}))).await;
    let web = cluster
        .until(&format!("{APPS}/deployments/web"), |web| {
            condition(web, "Progressing")["reason"] == "NewReplicaSetAvailable"
        })
        .await;
    let status = &web["status"];
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[field], 3, "{field} of {status}");
    }
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert!(is_true(&web, "Available"), "{status}");
    let pods = cluster.get(&format!("{CORE}/pods")).await;
    for pod in pods["items"].as_array().unwrap() {
        assert!(is_true(pod, "Ready") && pod["status"]["phase"] == "Running", "{pod}");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");
    }
    let events = cluster.get(&format!("{CORE}/events")).await;
    let has_event =
        |reason: &str| events["items"].as_array().unwrap().iter().any(|event| event["reason"] == reason);
    for reason in ["ScalingReplicaSet", "SuccessfulCreate", "Scheduled", "Pulled", "Created", "Started"] {
        assert!(has_event(reason), "no {reason} in {events}");
    }
}

#[tokio::test]
async fn a_rollout_keeps_enough_pods_and_can_be_undone() {
    let cluster = TestCluster::new().await;
    let path = format!("{APPS}/deployments/web");
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 4, json!({}))).await;
    let is_rolled_out = |web: &Value| {
        web["status"]["observedGeneration"] == web["metadata"]["generation"]
            && web["status"]["updatedReplicas"] == 4
            && web["status"]["replicas"] == 4
            && web["status"]["availableReplicas"] == 4
    };
    cluster.until(&path, is_rolled_out).await;
    let set_image = |image: &str| json!({"spec": {"template": template("web", image, json!({}))}});
    cluster.merge(&path, set_image("nginx:2")).await;
    cluster.until(&path, is_rolled_out).await;
    let sets = cluster.get(&format!("{APPS}/replicasets")).await;
    let size = |set: &Value| set["spec"]["replicas"].as_i64().unwrap();
    let mut sizes: Vec<i64> = sets["items"].as_array().unwrap().iter().map(size).collect();
    sizes.sort();
    assert_eq!(sizes, [0, 4]);
    // A rollback: the old ReplicaSet is reused under a new revision.
    cluster.merge(&path, set_image("nginx:1")).await;
    let web = cluster
        .until(&path, |web| {
            is_rolled_out(web) && web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
        })
        .await;
    assert_eq!(cluster.names(&format!("{APPS}/replicasets")).await.len(), 2, "{web}");
}

#[tokio::test]
async fn deleting_a_deployment_leaves_nothing() {
    let cluster = TestCluster::new().await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 2, json!({}))).await;
    cluster.until(&format!("{APPS}/deployments/web"), |web| web["status"]["availableReplicas"] == 2).await;
    cluster.delete(&format!("{APPS}/deployments/web")).await;
    cluster.until_deleted(&format!("{APPS}/deployments/web")).await;
    for collection in [format!("{APPS}/replicasets"), format!("{CORE}/pods")] {
        cluster.until(&collection, |list| list["items"].as_array().is_some_and(Vec::is_empty)).await;
    }
}

#[tokio::test]
async fn a_stateful_set_starts_at_its_first_ordinal_and_claims_volumes() {
    let cluster = TestCluster::new().await;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": {
            "replicas": 2, "serviceName": "db", "ordinals": { "start": 3 },
            "selector": { "matchLabels": { "app": "db" } }, "template": template("db", "pg", json!({})),
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            }],
        },
    });
    cluster.create(&format!("{APPS}/statefulsets"), set).await;
    let path = format!("{APPS}/statefulsets/db");
    let db = cluster.until(&path, |db| db["status"]["availableReplicas"] == 2).await;
    assert_eq!(db["status"]["currentRevision"], db["status"]["updateRevision"]);
    assert_eq!(cluster.names(&format!("{CORE}/pods")).await, ["db-3", "db-4"]);
    assert_eq!(cluster.names(&format!("{CORE}/persistentvolumeclaims")).await, ["data-db-3", "data-db-4"]);
    cluster.merge(&path, json!({"spec": {"template": template("db", "pg:2", json!({}))}})).await;
    let db = cluster
        .until(&path, |db| {
            db["status"]["updatedReplicas"] == 2
                && db["status"]["currentRevision"] == db["status"]["updateRevision"]
                && db["status"]["availableReplicas"] == 2
                && db["status"]["observedGeneration"] == 2
        })
        .await;
    assert_eq!(cluster.names(&format!("{APPS}/controllerrevisions")).await.len(), 2, "{db}");
    cluster.merge(&path, json!({"spec": {"replicas": 1}})).await;
    cluster.until(&path, |db| db["status"]["replicas"] == 1).await;
    assert_eq!(cluster.names(&format!("{CORE}/pods")).await, ["db-3"]);
    // The claims, with the data, stay.
    assert_eq!(cluster.names(&format!("{CORE}/persistentvolumeclaims")).await.len(), 2);
}

#[tokio::test]
async fn a_daemon_set_is_on_every_node_and_on_a_new_one() {
    let cluster = TestCluster::new().await;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" },
        "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent", "agent", json!({})) },
    });
    cluster.create(&format!("{APPS}/daemonsets"), set).await;
    let path = format!("{APPS}/daemonsets/agent");
    let ready = |number: i64| {
        move |set: &Value| {
            set["status"]["numberAvailable"] == number && set["status"]["updatedNumberScheduled"] == number
        }
    };
    cluster.until(&path, ready(2)).await;
    cluster
        .create("/api/v1/nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "east-3"}}))
        .await;
    let allocatable = json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}});
    cluster.merge("/api/v1/nodes/east-3/status", allocatable).await;
    cluster.until(&path, ready(3)).await;
    cluster.merge(&path, json!({"spec": {"template": template("agent", "agent:2", json!({}))}})).await;
    cluster.until(&path, |set| set["status"]["observedGeneration"] == 2 && ready(3)(set)).await;
}

#[tokio::test]
async fn a_job_counts_every_pod_once() {
    let cluster = TestCluster::new().await;
    cluster
        .create(&format!("{BATCH}/jobs"), job("once", json!({"completions": 3, "parallelism": 2}), json!({})))
        .await;
    let once = cluster.until(&format!("{BATCH}/jobs/once"), |job| is_true(job, "Complete")).await;
    assert_eq!(once["status"]["succeeded"], 3, "{once}");
    assert_eq!(once["status"]["active"], Value::Null, "{once}");
    assert_eq!(condition(&once, "SuccessCriteriaMet")["reason"], "CompletionsReached");
    let indexed = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"});
    cluster.create(&format!("{BATCH}/jobs"), job("idx", indexed, json!({}))).await;
    let idx = cluster.until(&format!("{BATCH}/jobs/idx"), |job| is_true(job, "Complete")).await;
    assert_eq!(idx["status"]["completedIndexes"], "0-2", "{idx}");
}

#[tokio::test]
async fn a_cron_job_creates_jobs_on_schedule() {
    let clock = Clock::held();
    let cluster = TestCluster::with(Options { clock: clock.clone(), ..Options::new("east") }).await;
    let mut spec = job("tick", json!({}), json!({}))["spec"].clone();
    spec["template"]["spec"]["restartPolicy"] = "Never".into();
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "tick" },
        "spec": { "schedule": "*/10 * * * *", "jobTemplate": { "spec": spec } },
    });
    cluster.create(&format!("{BATCH}/cronjobs"), cron).await;
    let path = format!("{BATCH}/cronjobs/tick");
    let mut last = Value::Null;
    for _ in 0..5 {
        clock.advance(Duration::from_secs(600));
        let tick = cluster
            .until(&path, |tick| {
                let status = &tick["status"];
                !status["lastScheduleTime"].is_null()
                    && status["lastScheduleTime"] != last
                    && status["active"].is_null()
                    && !status["lastSuccessfulTime"].is_null()
            })
            .await;
        last = tick["status"]["lastScheduleTime"].clone();
    }
    cluster.until(&format!("{BATCH}/jobs"), |jobs| jobs["items"].as_array().unwrap().len() == 3).await;
}

#[tokio::test]
async fn a_service_has_the_pods_that_are_ready() {
    let cluster = TestCluster::new().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "type": "LoadBalancer", "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    cluster.create(&format!("{CORE}/services"), service).await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 2, json!({}))).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=web";
    let ready = |slices: &Value, number: usize| {
        let endpoints = slices["items"][0]["endpoints"].as_array().cloned().unwrap_or_default();
        endpoints.len() == number && endpoints.iter().all(|endpoint| endpoint["conditions"]["ready"] == true)
    };
    let slice = cluster.until(slices, |slices| ready(slices, 2)).await;
    assert_eq!(slice["items"][0]["ports"][0]["port"], 8080);
    cluster
        .until(&format!("{CORE}/services/web"), |web| !web["status"]["loadBalancer"]["ingress"].is_null())
        .await;
    cluster.merge(&format!("{APPS}/deployments/web"), json!({"spec": {"replicas": 0}})).await;
    cluster.until(slices, |slices| ready(slices, 0)).await;
}

#[tokio::test]
async fn pods_become_ready_and_available_after_their_delays() {
    let clock = Clock::held();
    let delays = Delays { start: Duration::from_secs(60), ready: Duration::from_secs(600), ..Delays::NONE };
    let cluster = TestCluster::with(Options { clock: clock.clone(), delays, ..Options::new("east") }).await;
    let mut web = deployment("web", 1, json!({}));
    web["spec"]["minReadySeconds"] = 3600.into();
    web["spec"]["progressDeadlineSeconds"] = 7200.into();
    cluster.create(&format!("{APPS}/deployments"), web).await;
    let pods = format!("{CORE}/pods");
    let waiting = |pods: &Value| {
        pods["items"][0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
    };
    cluster.until(&pods, |pods| waiting(pods) == "ContainerCreating").await;
    clock.advance(Duration::from_secs(60));
    let running = cluster.until(&pods, |pods| pods["items"][0]["status"]["phase"] == "Running").await;
    assert!(!is_true(&running["items"][0], "Ready"), "{running}");
    clock.advance(Duration::from_secs(600));
    cluster.until(&pods, |pods| is_true(&pods["items"][0], "Ready")).await;
    let path = format!("{APPS}/deployments/web");
    let web = cluster.until(&path, |web| web["status"]["readyReplicas"] == 1).await;
    assert_eq!(web["status"]["availableReplicas"], Value::Null, "{web}");
    clock.advance(Duration::from_secs(3600));
    cluster.until(&path, |web| web["status"]["availableReplicas"] == 1).await;
}

#[tokio::test]
async fn pods_wait_for_free_resources() {
    let options = Options { nodes: vec![NodeShape::new("small", "1", "1Gi", 10)], ..Options::new("east") };
    let cluster = TestCluster::with(options).await;
    let mut web = deployment("web", 3, json!({}));
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "400m"}});
    cluster.create(&format!("{APPS}/deployments"), web).await;
    let path = format!("{APPS}/deployments/web");
    cluster.until(&path, |web| web["status"]["availableReplicas"] == 2).await;
    let unschedulable = |pods: &Value| {
        let items = pods["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().find(|pod| condition(pod, "PodScheduled")["reason"] == "Unschedulable")
    };
    let pods = cluster.until(&format!("{CORE}/pods"), |pods| unschedulable(pods).is_some()).await;
    let message = condition(&unschedulable(&pods).unwrap(), "PodScheduled")["message"].clone();
    assert!(
        message.as_str().unwrap().starts_with("0/1 nodes are available: 1 Insufficient cpu."),
        "{message}"
    );
    cluster.merge(&path, json!({"spec": {"replicas": 2}})).await;
    cluster.until(&path, |web| web["status"]["replicas"] == 2).await;
}

#[tokio::test]
async fn an_eviction_waits_for_the_disruption_budget() {
    let cluster = TestCluster::new().await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    cluster.create(budgets, budget).await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 1, json!({}))).await;
    let allowed = |number: i64| {
        move |budget: &Value| {
            budget["status"]["disruptionsAllowed"].as_i64().unwrap_or_default() == number
                && budget["status"]["currentHealthy"] == number + 1
        }
    };
    cluster.until(&format!("{budgets}/web"), allowed(0)).await;
    let pod = cluster.names(&format!("{CORE}/pods")).await.remove(0);
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } });
    let path = format!("{CORE}/pods/{pod}/eviction");
    assert!(cluster.request("POST", &path, eviction.clone()).await.is_err());
    cluster.merge(&format!("{APPS}/deployments/web"), json!({"spec": {"replicas": 2}})).await;
    cluster.until(&format!("{budgets}/web"), allowed(1)).await;
    cluster.create(&path, eviction).await;
    cluster.until_deleted(&format!("{CORE}/pods/{pod}")).await;
    cluster.until(&format!("{budgets}/web"), allowed(1)).await;
}

/// A chart from 2016 has a ReplicationController, and its pods request ephemeral storage. Stand-ins had no controller
/// for the former, and their nodes reported none of the latter: no pod ever ran.
#[tokio::test]
async fn a_replication_controller_runs_pods_that_request_ephemeral_storage() {
    let cluster = TestCluster::new().await;
    let node = cluster.get("/api/v1/nodes/east-1").await;
    for field in ["capacity", "allocatable"] {
        assert_eq!(node["status"][field]["ephemeral-storage"], "100Gi", "{node}");
    }
    let requests = |amount: &str| json!({ "requests": { "ephemeral-storage": amount } });
    let replication_controller = |name: &str, amount: &str| {
        let container = json!({ "name": "web", "image": "nginx", "resources": requests(amount) });
        json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": 2, "selector": { "app": name },
                "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [container] } },
            },
        })
    };
    let path = format!("{CORE}/replicationcontrollers");
    cluster.create(&path, replication_controller("web", "1Gi")).await;
    let web = cluster.until(&format!("{path}/web"), |web| web["status"]["availableReplicas"] == 2).await;
    assert_eq!(web["status"]["observedGeneration"], 1, "{web}");
    let pods = cluster.get(&format!("{CORE}/pods")).await;
    let owner = &pods["items"][0]["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("ReplicationController"), &json!("web")));
    cluster.merge(&format!("{path}/web"), json!({ "spec": { "replicas": 1 } })).await;
    cluster.until(&format!("{path}/web"), |web| web["status"]["replicas"] == 1).await;
    // A pod that requests more than any node has stays Pending, with a message.
    cluster.create(&path, replication_controller("huge", "1Ti")).await;
    let both_are_unschedulable = |pods: &Value| {
        let texts = pods["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|pod| condition(pod, "PodScheduled").to_string());
        texts.filter(|text| text.contains("Insufficient ephemeral-storage")).count() == 2
    };
    cluster.until(&format!("{CORE}/pods"), both_are_unschedulable).await;
}
