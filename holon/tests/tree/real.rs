//! The same with a real Kubernetes downstream: its API server and controllers decide what is copied, kept and deleted
//! downstream.

use std::time::Instant;

use serde_json::{Value, json};
use testkit::objects::condition;
use testkit::peers::Cluster;
use testkit::wait::PATIENCE;

use super::*;

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const PLACED: &str = "labelSelector=holon.dev%2Fplaced%3Dtrue";

/// A user in `root:team-a` whose namespace `shop` runs on a real cluster, `east`.
struct RealCluster {
    team: Team,
    cluster: Cluster,
}

impl RealCluster {
    #[track_caller]
    fn start() -> RealCluster {
        let cluster = Cluster::start(&[]);
        let team = Team::on(&[], "east");
        std::fs::copy(cluster.kubeconfig(), team.server.file("east.kubeconfig")).unwrap();
        team.join("east");
        RealCluster { team, cluster }
    }

    fn read_downstream(&self, path: &str) -> Value {
        serde_json::from_str(&self.cluster.run(&["get", "--raw", path], "")).unwrap()
    }

    fn list_downstream(&self, path: &str) -> Vec<Value> {
        items(&self.read_downstream(path))
    }

    /// Applies objects downstream, as an administrator of that cluster would.
    fn apply_downstream(&self, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.cluster.run(&["apply", "-f", "-"], &list.to_string());
    }

    /// Returns the name of the namespace `shop` downstream.
    fn downstream_shop(&self) -> String {
        let namespaces = self.list_downstream(&format!("/api/v1/namespaces?{PLACED}"));
        let is_shop = |namespace: &&Value| text(namespace, "/metadata/name").starts_with("shop-");
        let shop = namespaces.iter().find(is_shop).expect("the namespace is downstream");
        text(shop, "/metadata/name").to_owned()
    }

    /// Returns the condition Synced of the PhysicalCluster.
    fn synced(&self) -> Value {
        condition(&self.team.physical_cluster("east"), "Synced")
    }

    #[track_caller]
    fn until_synced(&self) {
        let started = Instant::now();
        while !has_condition(&self.team.physical_cluster("east"), "Synced") {
            assert!(started.elapsed() < PATIENCE, "{:#}", self.synced());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the messages of the Events with this reason in the user's namespace.
    fn event_messages(&self, reason: &str) -> Vec<String> {
        let events = self.team.list(&format!("{SHOP}/events"));
        let matching = events.iter().filter(|event| event["reason"] == reason);
        matching.map(|event| text(event, "/message").to_owned()).collect()
    }
}

fn service(name: &str, spec: Value) -> Value {
    let labels = json!({ "app": name });
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": labels }, "spec": spec })
}

/// Returns a StatefulSet with a claim template for each name and storage class.
fn stateful_set(name: &str, templates: &[(&str, &str)]) -> Value {
    let claim = |(name, class): &(&str, &str)| {
        json!({
            "metadata": { "name": name },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        })
    };
    let spec = json!({
        "replicas": 1, "serviceName": name, "selector": { "matchLabels": { "app": name } },
        "template": template(name), "volumeClaimTemplates": templates.iter().map(claim).collect::<Vec<_>>(),
    });
    json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name }, "spec": spec })
}

/// Returns a storage class and two volumes of it.
fn storage(class: &str, is_expandable: bool) -> Vec<Value> {
    let volume = |number: u32| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("{class}-{number}") },
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": format!("/tmp/{class}-{number}") },
            },
        })
    };
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": class },
        "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": is_expandable,
    });
    vec![class, volume(0), volume(1)]
}

/// A user created a Deployment and a Service. kube-controller-manager copied the Service's labels, including
/// `holon.dev/placed`, to its EndpointSlice. The mailbox rejected the projection of a slice with that label ("what has
/// the label holon.dev/placed in a mailbox is chosen by the server alone"): the user saw no endpoints, and the physical
/// cluster reported `Synced=False`. The stand-in copies no labels, so no test with stand-ins noticed.
///
/// A second user wrote our labels and annotations into templates. The claims created from one have no owner and looked
/// placed: they were held for lack of a tombstone, and again the whole physical cluster reported `Synced=False`.
#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn endpoints_are_projected_and_copied_labels_place_nothing() {
    let real = RealCluster::start();
    let team = &real.team;
    team.deploy("web", 2);
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] });
    team.create(&format!("{SHOP}/services"), service("web", spec));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    let ready_addresses = || -> Vec<String> {
        let found = team.list(&format!("{slices}?labelSelector=kubernetes.io%2Fservice-name%3Dweb"));
        let endpoints = found.iter().filter_map(|slice| slice["endpoints"].as_array()).flatten();
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
        let mut addresses: Vec<String> =
            ready.map(|endpoint| text(endpoint, "/addresses/0").to_owned()).collect();
        addresses.sort();
        addresses
    };
    until("two ready addresses are projected", || ready_addresses().len() == 2);
    let mut pods: Vec<String> =
        team.pods("web").iter().map(|pod| text(pod, "/status/podIP").to_owned()).collect();
    pods.sort();
    assert_eq!(ready_addresses(), pods);
    let slice = team.list(slices).remove(0);
    assert_eq!(slice["metadata"]["labels"]["holon.dev/placed"], Value::Null, "{slice:#}");
    real.until_synced();

    // Our labels and annotations, with the values of real placed objects, in every place from which controllers copy.
    let pod = team.pods("web").remove(0);
    let forged_annotations = json!({
        "holon.dev/mailbox": pod["metadata"]["annotations"]["holon.dev/mailbox"], "holon.dev/origin": "forged",
        "holon.dev/locator": "{}", "holon.dev/downstream-uid": "forged",
    });
    let labels = json!({ "app": "db", "holon.dev/placed": "true", "holon.dev/projected": "true" });
    let mut forged = stateful_set("db", &[("data", "none")]);
    forged["spec"]["template"]["metadata"] = json!({ "labels": labels, "annotations": forged_annotations });
    forged["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"] = labels.clone();
    forged["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"] = forged_annotations.clone();
    team.create(STATEFUL_SETS, forged);
    let mut job = template("once");
    job["metadata"] = json!({ "labels": labels, "annotations": forged_annotations });
    job["spec"]["restartPolicy"] = "Never".into();
    let minutely = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "minutely" },
        "spec": { "schedule": "* * * * *", "jobTemplate": {
            "metadata": { "labels": labels, "annotations": forged_annotations }, "spec": { "template": job } } },
    });
    team.create("/apis/batch/v1/namespaces/shop/cronjobs", minutely);
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    for path in [&format!("{SHOP}/pods"), CLAIMS, jobs] {
        until(&format!("{path} has a projection of it"), || {
            let found = team.list(&format!("{path}?labelSelector=app%3Ddb"));
            found.iter().any(|object| object["metadata"]["labels"]["holon.dev/placed"].is_null())
        });
    }
    std::thread::sleep(Duration::from_secs(3));
    real.until_synced();
    assert!(real.cluster.down());
}

/// A user ran a database. The claims that its StatefulSet created were projected, and the user could neither delete nor
/// resize one (403). The projections vanished with the StatefulSet, and the claims stayed on the physical cluster
/// forever, even when the namespace was deleted: 212 were found there.
#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn claims_of_a_stateful_set_are_resized_kept_and_deleted_as_requested() {
    let real = RealCluster::start();
    let team = &real.team;
    real.apply_downstream(&[storage("grows", true), storage("fixed", false)].concat());
    team.create(STATEFUL_SETS, stateful_set("db", &[("data", "grows"), ("log", "fixed")]));
    let data = format!("{CLAIMS}/data-db-0");
    let log = format!("{CLAIMS}/log-db-0");
    let is_bound = |path: &str| team.get(path)["status"]["phase"] == "Bound";
    until("both claims are bound", || is_bound(&data) && is_bound(&log));
    until("the pod runs", || team.pods("db").iter().any(is_running));
    let namespace = format!("/api/v1/namespaces/{}", real.downstream_shop());
    let downstream_claim =
        |name: &str| real.read_downstream(&format!("{namespace}/persistentvolumeclaims/{name}"));

    check_resizes(&real, &data, &log, &downstream_claim);

    // A claim that a pod uses is deleted with the pod; until then it shows a deletion timestamp.
    assert_eq!(team.ask("DELETE", &log, &Value::Null).code, 200);
    until("the downstream claim is terminating", || {
        downstream_claim("log-db-0")["metadata"]["deletionTimestamp"].is_string()
    });
    assert!(team.get(&log)["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(team.ask("DELETE", &format!("{STATEFUL_SETS}/db"), &Value::Null).code, 200);
    let downstream_claim_names = || -> Vec<String> {
        let claims = real.list_downstream(&format!("{namespace}/persistentvolumeclaims"));
        claims.iter().map(|claim| text(claim, "/metadata/name").to_owned()).collect()
    };
    until("the claim is deleted on both sides", || {
        team.ask("GET", &log, &Value::Null).code == 404 && downstream_claim_names() == ["data-db-0"]
    });

    // The other claim stays, as in Kubernetes, until its user deletes it.
    until("the pods of the StatefulSet are deleted", || team.list(&format!("{SHOP}/pods")).is_empty());
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(
        (team.ask("GET", &data, &Value::Null).code, downstream_claim_names()),
        (200, vec!["data-db-0".to_owned()])
    );
    assert_eq!(team.ask("DELETE", &data, &Value::Null).code, 200);
    until("the claim is deleted on both sides", || {
        team.ask("GET", &data, &Value::Null).code == 404 && downstream_claim_names().is_empty()
    });

    // The deletion of a namespace deletes its claims: those whose StatefulSet is already deleted, and those whose
    // StatefulSet is deleted with it.
    for name in ["kept", "db"] {
        team.create(STATEFUL_SETS, stateful_set(name, &[("new", "none")]));
    }
    until("the claims of both are projected", || team.list(CLAIMS).len() == 2);
    assert_eq!(team.ask("DELETE", &format!("{STATEFUL_SETS}/kept"), &Value::Null).code, 200);
    until("one StatefulSet is deleted", || team.list(&format!("{SHOP}/pods")).len() == 1);
    assert_eq!(team.ask("DELETE", SHOP, &Value::Null).code, 200);
    until("the namespace is deleted", || team.ask("GET", SHOP, &Value::Null).code == 404);
    until("nothing is left downstream", || {
        real.list_downstream("/api/v1/persistentvolumeclaims").is_empty()
            && real.list_downstream(&format!("/api/v1/namespaces?{PLACED}")).is_empty()
    });
    real.until_synced();
    assert!(real.cluster.down());
}

/// A resize that the physical cluster accepts is applied; one that it rejects is reported to the user and reverted.
fn check_resizes(real: &RealCluster, data: &str, log: &str, downstream_claim: &dyn Fn(&str) -> Value) {
    const STORAGE: &str = "/spec/resources/requests/storage";
    let team = &real.team;
    let resized = |storage: &str| json!({ "spec": { "resources": { "requests": { "storage": storage } } } });
    let answer = team.ask("PATCH", data, &resized("2Gi"));
    assert_eq!(answer.code, 200, "{}", answer.body);
    until("the downstream claim requests more storage", || {
        text(&downstream_claim("data-db-0"), STORAGE) == "2Gi"
    });
    assert_eq!(text(&team.get(data), STORAGE), "2Gi");
    let relabelled = team.ask("PATCH", data, &json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!(relabelled.code, 403, "{}", relabelled.body);
    let before = downstream_claim("log-db-0")["metadata"]["uid"].take();
    let answer = team.ask("PATCH", log, &resized("3Gi"));
    assert_eq!(answer.code, 200, "{}", answer.body);
    until("an Event reports that the resize is refused", || {
        let messages = real.event_messages("CannotResize");
        messages.iter().any(|message| message.contains("east") && message.contains("must support resize"))
    });
    until("the projection is restored", || text(&team.get(log), STORAGE) == "1Gi");
    // Rewriting the projection must not delete the real claim.
    std::thread::sleep(Duration::from_secs(3));
    let downstream_log = downstream_claim("log-db-0");
    assert_eq!(text(&downstream_log, STORAGE), "1Gi");
    assert_eq!(downstream_log["metadata"]["uid"], before, "the claim was replaced");
    assert!(downstream_log["metadata"]["deletionTimestamp"].is_null(), "{downstream_log:#}");
    assert_eq!(text(&team.get(data), STORAGE), "2Gi");
    real.until_synced();
}

/// A user deleted a Deployment with `--cascade=orphan`, and a Job without a propagation policy, which means the same:
/// kube-apiserver keeps a Job's pods by default, with a warning. Here both objects were deleted, their pods ran on
/// downstream forever, and the projected pods stayed Terminating forever.
///
/// In Kubernetes the pods would stay. Here they are deleted with their workload, as with background propagation, and an
/// Event reports it. Keeping them would be a half-truth: the Distribution of a workload determines where the ConfigMaps,
/// Secrets and Services of its pods must be, and without it they would be removed while the pods still use them.
#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn an_orphaning_delete_also_deletes_the_pods_and_records_an_event() {
    let real = RealCluster::start();
    let team = &real.team;
    team.deploy("web", 2);
    team.create(STATEFUL_SETS, stateful_set("db", &[]));
    let mut once = template("once");
    once["spec"]["restartPolicy"] = "Never".into();
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    team.create(jobs, json!({ "metadata": { "name": "once" }, "spec": { "template": once } }));
    until("the Job has succeeded", || team.get(&format!("{jobs}/once"))["status"]["succeeded"] == 1);
    until("all pods are projected", || team.list(&format!("{SHOP}/pods")).len() == 4);
    let orphan = json!({ "propagationPolicy": "Orphan" });
    for (path, options) in [
        (format!("{APPS}/deployments/web"), &orphan),
        (format!("{STATEFUL_SETS}/db"), &orphan),
        (format!("{jobs}/once"), &Value::Null),
    ] {
        let answer = team.ask("DELETE", &path, options);
        assert_eq!(answer.code, 200, "{path}: {}", answer.body);
    }
    until("no dependents are left", || {
        let records = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions";
        let projected = [&format!("{SHOP}/pods"), &format!("{APPS}/replicasets"), records];
        let downstream = [
            "/api/v1/pods",
            "/apis/apps/v1/replicasets",
            "/apis/apps/v1/statefulsets",
            "/apis/batch/v1/jobs",
        ];
        projected.iter().all(|path| team.list(path).is_empty())
            && downstream.iter().all(|path| real.list_downstream(path).is_empty())
    });
    until("each workload has an Event", || {
        let events = team.list(&format!("{SHOP}/events"));
        let has_event = |name: &&str| {
            let is_orphan_event = |event: &&Value| event["reason"] == "NotOrphaned";
            events.iter().filter(is_orphan_event).any(|event| text(event, "/involvedObject/name") == *name)
        };
        ["web", "db", "once"].iter().all(has_event)
    });

    // The same with a new Deployment of the same name right after, as users do to change an immutable field.
    team.deploy("web", 1);
    let before = team.pods("web").remove(0)["metadata"]["uid"].clone();
    assert_eq!(team.ask("DELETE", &format!("{APPS}/deployments/web"), &orphan).code, 200);
    until("the Deployment is deleted", || {
        team.ask("GET", &format!("{APPS}/deployments/web"), &Value::Null).code == 404
    });
    team.deploy("web", 2);
    until("only pods of the new one are left", || {
        let pods = team.pods("web");
        pods.len() == 2 && pods.iter().all(|pod| pod["metadata"]["uid"] != before && is_running(pod))
    });
    real.until_synced();
    assert!(real.cluster.down());
}

/// A user requested node port 30080, because an external load balancer leads there. Downstream the Service got another
/// one, and nothing reported it.
#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn a_requested_node_port_is_used_downstream_or_its_conflict_is_reported() {
    let real = RealCluster::start();
    let team = &real.team;
    team.deploy("web", 1);
    let services = format!("{SHOP}/services");
    let node_port = |name: &str, number: Option<u32>| {
        let mut port = json!({ "port": 80 });
        port["nodePort"] = number.map_or(Value::Null, Value::from);
        service(name, json!({ "type": "NodePort", "selector": { "app": "web" }, "ports": [port] }))
    };
    let number_of = |service: &Value| service["spec"]["ports"][0]["nodePort"].clone();
    let mut other_service = node_port("theirs", Some(30090));
    other_service["metadata"]["namespace"] = "default".into();
    real.apply_downstream(&[other_service]);

    team.create(&services, node_port("requested", Some(30080)));
    team.create(&services, node_port("any", None));
    until("both are downstream", || real.list_downstream(&format!("/api/v1/services?{PLACED}")).len() == 2);
    let services_downstream = format!("/api/v1/namespaces/{}/services", real.downstream_shop());
    assert_eq!(number_of(&real.read_downstream(&format!("{services_downstream}/requested"))), 30080);
    assert!(number_of(&real.read_downstream(&format!("{services_downstream}/any"))).is_u64());

    team.create(&services, node_port("taken", Some(30090)));
    let names =
        |message: &str| ["east", "30090", "already allocated"].iter().all(|word| message.contains(word));
    until("an Event reports that the port is taken", || {
        real.event_messages("Refused").iter().any(|message| names(message))
    });
    until("a condition reports that the port is taken", || {
        let taken = team.get(&format!("{services}/taken"));
        let conditions = taken["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition["status"] == "False" && names(text(condition, "/message")))
    });
    assert!(
        real.list_downstream(&services_downstream).iter().all(|found| found["metadata"]["name"] != "taken")
    );
    // With another number it is accepted, and the condition is removed.
    let ports = json!({ "spec": { "ports": [{ "port": 80, "protocol": "TCP", "nodePort": 30091 }] } });
    assert_eq!(team.ask("PATCH", &format!("{services}/taken"), &ports).code, 200);
    until("the Service is downstream", || {
        let found = real.list_downstream(&services_downstream);
        found.iter().any(|found| found["metadata"]["name"] == "taken" && number_of(found) == 30091)
    });
    until("its condition is removed", || {
        let status = team.get(&format!("{services}/taken"))["status"].take();
        status["conditions"].as_array().is_none_or(Vec::is_empty)
    });
    real.until_synced();
    assert!(real.cluster.down());
}
