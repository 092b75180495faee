//! The same with a real Kubernetes downstream: its API server and controllers decide what is copied, kept and deleted
//! there.

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
struct Real {
    team: Team,
    cluster: Cluster,
}

impl Real {
    #[track_caller]
    fn start() -> Real {
        let cluster = Cluster::start(&[]);
        let team = Team::on(&[], "east");
        std::fs::copy(cluster.kubeconfig(), team.server.file("east.kubeconfig")).unwrap();
        team.join("east");
        Real { team, cluster }
    }

    fn below(&self, path: &str) -> Value {
        serde_json::from_str(&self.cluster.run(&["get", "--raw", path], "")).unwrap()
    }

    fn below_items(&self, path: &str) -> Vec<Value> {
        items(&self.below(path))
    }

    /// Applies objects downstream, as an administrator of that cluster would.
    fn apply_below(&self, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.cluster.run(&["apply", "-f", "-"], &list.to_string());
    }

    /// Returns the name of the namespace `shop` downstream.
    fn shop_below(&self) -> String {
        let namespaces = self.below_items(&format!("/api/v1/namespaces?{PLACED}"));
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
        let begun = Instant::now();
        while !has_condition(&self.team.physical_cluster("east"), "Synced") {
            assert!(begun.elapsed() < PATIENCE, "{:#}", self.synced());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the messages of the Events with this reason in the user's namespace.
    fn told(&self, reason: &str) -> Vec<String> {
        let events = self.team.list(&format!("{SHOP}/events"));
        let about = events.iter().filter(|event| event["reason"] == reason);
        about.map(|event| text(event, "/message").to_owned()).collect()
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
fn storage(class: &str, grows: bool) -> Vec<Value> {
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
        "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": grows,
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
fn endpoints_are_shown_and_copied_marks_place_nothing() {
    let real = Real::start();
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
    until("the user sees two ready addresses", || ready_addresses().len() == 2);
    let mut pods: Vec<String> =
        team.pods("web").iter().map(|pod| text(pod, "/status/podIP").to_owned()).collect();
    pods.sort();
    assert_eq!(ready_addresses(), pods);
    let slice = team.list(slices).remove(0);
    assert_eq!(slice["metadata"]["labels"]["holon.dev/placed"], Value::Null, "{slice:#}");
    real.until_synced();

    // Our labels and annotations, with the values of real placed objects, in every place from which controllers copy.
    let pod = team.pods("web").remove(0);
    let marks = json!({
        "holon.dev/mailbox": pod["metadata"]["annotations"]["holon.dev/mailbox"], "holon.dev/origin": "forged",
        "holon.dev/locator": "{}", "holon.dev/downstream-uid": "forged",
    });
    let labels = json!({ "app": "db", "holon.dev/placed": "true", "holon.dev/projected": "true" });
    let mut forged = stateful_set("db", &[("data", "none")]);
    forged["spec"]["template"]["metadata"] = json!({ "labels": labels, "annotations": marks });
    forged["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"] = labels.clone();
    forged["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"] = marks.clone();
    team.create(STATEFUL_SETS, forged);
    let mut job = template("once");
    job["metadata"] = json!({ "labels": labels, "annotations": marks });
    job["spec"]["restartPolicy"] = "Never".into();
    let minutely = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "minutely" },
        "spec": { "schedule": "* * * * *", "jobTemplate": {
            "metadata": { "labels": labels, "annotations": marks }, "spec": { "template": job } } },
    });
    team.create("/apis/batch/v1/namespaces/shop/cronjobs", minutely);
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    for path in [&format!("{SHOP}/pods"), CLAIMS, jobs] {
        until(&format!("{path} shows it"), || {
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
fn claims_of_a_stateful_set_are_resized_kept_and_deleted_as_their_user_says() {
    let real = Real::start();
    let team = &real.team;
    real.apply_below(&[storage("grows", true), storage("fixed", false)].concat());
    team.create(STATEFUL_SETS, stateful_set("db", &[("data", "grows"), ("log", "fixed")]));
    let data = format!("{CLAIMS}/data-db-0");
    let log = format!("{CLAIMS}/log-db-0");
    let is_bound = |path: &str| team.get(path)["status"]["phase"] == "Bound";
    until("both claims are bound", || is_bound(&data) && is_bound(&log));
    until("the pod runs", || team.pods("db").iter().any(is_running));
    let there = format!("/api/v1/namespaces/{}", real.shop_below());
    let claim_below = |name: &str| real.below(&format!("{there}/persistentvolumeclaims/{name}"));

    resizes(&real, &data, &log, &claim_below);

    // A claim that a pod uses is deleted with the pod; until then it shows a deletion timestamp.
    assert_eq!(team.ask("DELETE", &log, &Value::Null).code, 200);
    until("the real one is terminating", || {
        claim_below("log-db-0")["metadata"]["deletionTimestamp"].is_string()
    });
    assert!(team.get(&log)["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(team.ask("DELETE", &format!("{STATEFUL_SETS}/db"), &Value::Null).code, 200);
    let names_below = || -> Vec<String> {
        let claims = real.below_items(&format!("{there}/persistentvolumeclaims"));
        claims.iter().map(|claim| text(claim, "/metadata/name").to_owned()).collect()
    };
    until("it is gone on both sides", || {
        team.ask("GET", &log, &Value::Null).code == 404 && names_below() == ["data-db-0"]
    });

    // The other claim stays, as in Kubernetes, until its user deletes it.
    until("nothing of the set is left", || team.list(&format!("{SHOP}/pods")).is_empty());
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(
        (team.ask("GET", &data, &Value::Null).code, names_below()),
        (200, vec!["data-db-0".to_owned()])
    );
    assert_eq!(team.ask("DELETE", &data, &Value::Null).code, 200);
    until("it is gone on both sides", || {
        team.ask("GET", &data, &Value::Null).code == 404 && names_below().is_empty()
    });

    // The deletion of a namespace deletes its claims: those whose StatefulSet is already deleted, and those whose
    // StatefulSet is deleted with it.
    for name in ["kept", "db"] {
        team.create(STATEFUL_SETS, stateful_set(name, &[("new", "none")]));
    }
    until("their claims are seen", || team.list(CLAIMS).len() == 2);
    assert_eq!(team.ask("DELETE", &format!("{STATEFUL_SETS}/kept"), &Value::Null).code, 200);
    until("one set is gone", || team.list(&format!("{SHOP}/pods")).len() == 1);
    assert_eq!(team.ask("DELETE", SHOP, &Value::Null).code, 200);
    until("the namespace is gone", || team.ask("GET", SHOP, &Value::Null).code == 404);
    until("nothing is left downstream", || {
        real.below_items("/api/v1/persistentvolumeclaims").is_empty()
            && real.below_items(&format!("/api/v1/namespaces?{PLACED}")).is_empty()
    });
    real.until_synced();
    assert!(real.cluster.down());
}

/// A resize that the physical cluster accepts is applied; one that it rejects is reported to the user and reverted.
fn resizes(real: &Real, data: &str, log: &str, claim_below: &dyn Fn(&str) -> Value) {
    const STORAGE: &str = "/spec/resources/requests/storage";
    let team = &real.team;
    let resized = |storage: &str| json!({ "spec": { "resources": { "requests": { "storage": storage } } } });
    let answer = team.ask("PATCH", data, &resized("2Gi"));
    assert_eq!(answer.code, 200, "{}", answer.body);
    until("the real one is to be larger", || text(&claim_below("data-db-0"), STORAGE) == "2Gi");
    assert_eq!(text(&team.get(data), STORAGE), "2Gi");
    let relabelled = team.ask("PATCH", data, &json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!(relabelled.code, 403, "{}", relabelled.body);
    let before = claim_below("log-db-0")["metadata"]["uid"].take();
    let answer = team.ask("PATCH", log, &resized("3Gi"));
    assert_eq!(answer.code, 200, "{}", answer.body);
    until("the user is told that it is refused", || {
        let told = real.told("CannotResize");
        told.iter().any(|message| message.contains("east") && message.contains("must support resize"))
    });
    until("it is as it was", || text(&team.get(log), STORAGE) == "1Gi");
    // Rewriting the projection must not delete the real claim.
    std::thread::sleep(Duration::from_secs(3));
    let log_below = claim_below("log-db-0");
    assert_eq!(text(&log_below, STORAGE), "1Gi");
    assert_eq!(log_below["metadata"]["uid"], before, "it is another claim");
    assert!(log_below["metadata"]["deletionTimestamp"].is_null(), "{log_below:#}");
    assert_eq!(text(&team.get(data), STORAGE), "2Gi");
    real.until_synced();
}

/// A user deleted a Deployment with `--cascade=orphan`, and a Job without a propagation policy, which means the same:
/// kube-apiserver keeps a Job's pods by default, with a warning. Here both objects were deleted, their pods ran on
/// downstream forever, and the projected pods stayed Terminating forever.
///
/// In Kubernetes the pods would stay. Here they are deleted with their workload, as with background propagation, and an
/// Event says so. Keeping them would be a half-truth: the Distribution of a workload determines where the ConfigMaps,
/// Secrets and Services of its pods must be, and without it they would be removed while the pods still use them.
#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn a_workload_that_is_deleted_without_its_pods_takes_them_along_and_says_so() {
    let real = Real::start();
    let team = &real.team;
    team.deploy("web", 2);
    team.create(STATEFUL_SETS, stateful_set("db", &[]));
    let mut once = template("once");
    once["spec"]["restartPolicy"] = "Never".into();
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    team.create(jobs, json!({ "metadata": { "name": "once" }, "spec": { "template": once } }));
    until("the job is done", || team.get(&format!("{jobs}/once"))["status"]["succeeded"] == 1);
    until("all pods are seen", || team.list(&format!("{SHOP}/pods")).len() == 4);
    let orphan = json!({ "propagationPolicy": "Orphan" });
    for (path, options) in [
        (format!("{APPS}/deployments/web"), &orphan),
        (format!("{STATEFUL_SETS}/db"), &orphan),
        (format!("{jobs}/once"), &Value::Null),
    ] {
        let answer = team.ask("DELETE", &path, options);
        assert_eq!(answer.code, 200, "{path}: {}", answer.body);
    }
    until("nothing is left", || {
        let records = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions";
        let shown = [&format!("{SHOP}/pods"), &format!("{APPS}/replicasets"), records];
        let there = [
            "/api/v1/pods",
            "/apis/apps/v1/replicasets",
            "/apis/apps/v1/statefulsets",
            "/apis/batch/v1/jobs",
        ];
        shown.iter().all(|path| team.list(path).is_empty())
            && there.iter().all(|path| real.below_items(path).is_empty())
    });
    until("an Event of each says so", || {
        let events = team.list(&format!("{SHOP}/events"));
        let told = |name: &&str| {
            let is_it = |event: &&Value| event["reason"] == "NotOrphaned";
            events.iter().filter(is_it).any(|event| text(event, "/involvedObject/name") == *name)
        };
        ["web", "db", "once"].iter().all(told)
    });

    // The same with a new Deployment of the same name right after, as users do to change an immutable field.
    team.deploy("web", 1);
    let before = team.pods("web").remove(0)["metadata"]["uid"].clone();
    assert_eq!(team.ask("DELETE", &format!("{APPS}/deployments/web"), &orphan).code, 200);
    until("it is gone", || team.ask("GET", &format!("{APPS}/deployments/web"), &Value::Null).code == 404);
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
fn a_node_port_that_is_asked_for_is_the_real_one_or_its_user_is_told() {
    let real = Real::start();
    let team = &real.team;
    team.deploy("web", 1);
    let services = format!("{SHOP}/services");
    let node_port = |name: &str, number: Option<u32>| {
        let mut port = json!({ "port": 80 });
        port["nodePort"] = number.map_or(Value::Null, Value::from);
        service(name, json!({ "type": "NodePort", "selector": { "app": "web" }, "ports": [port] }))
    };
    let number_of = |service: &Value| service["spec"]["ports"][0]["nodePort"].clone();
    let mut theirs = node_port("theirs", Some(30090));
    theirs["metadata"]["namespace"] = "default".into();
    real.apply_below(&[theirs]);

    team.create(&services, node_port("asked", Some(30080)));
    team.create(&services, node_port("any", None));
    until("both are downstream", || real.below_items(&format!("/api/v1/services?{PLACED}")).len() == 2);
    let there = format!("/api/v1/namespaces/{}/services", real.shop_below());
    assert_eq!(number_of(&real.below(&format!("{there}/asked"))), 30080);
    assert!(number_of(&real.below(&format!("{there}/any"))).is_u64());

    team.create(&services, node_port("taken", Some(30090)));
    let names =
        |message: &str| ["east", "30090", "already allocated"].iter().all(|word| message.contains(word));
    until("an Event says that somebody else has it", || {
        real.told("Refused").iter().any(|message| names(message))
    });
    until("and so does a condition", || {
        let taken = team.get(&format!("{services}/taken"));
        let conditions = taken["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|said| said["status"] == "False" && names(text(said, "/message")))
    });
    assert!(real.below_items(&there).iter().all(|found| found["metadata"]["name"] != "taken"));
    // With another number it is accepted, and the condition is removed.
    let ports = json!({ "spec": { "ports": [{ "port": 80, "protocol": "TCP", "nodePort": 30091 }] } });
    assert_eq!(team.ask("PATCH", &format!("{services}/taken"), &ports).code, 200);
    until("it is downstream", || {
        let found = real.below_items(&there);
        found.iter().any(|found| found["metadata"]["name"] == "taken" && number_of(found) == 30091)
    });
    until("its condition is gone", || {
        let status = team.get(&format!("{services}/taken"))["status"].take();
        status["conditions"].as_array().is_none_or(Vec::is_empty)
    });
    real.until_synced();
    assert!(real.cluster.down());
}
