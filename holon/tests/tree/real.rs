//! The same with a real Kubernetes downstream: its API server and controllers decide what is copied, kept and deleted there.

use peers::Cluster;
use serde_json::{Value, json};

use super::*;

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const PLACED: &str = "labelSelector=holon.dev%2Fplaced%3Dtrue";

/// A user in `root:team-a` whose namespace `shop` runs on a real cluster, `east`.
struct Real {
    world: World,
    cluster: Cluster,
}

impl Real {
    fn start(test: &str) -> Option<Real> {
        let cluster = Cluster::start(test, &[])?;
        let world = World::of(&[], "east");
        let file = world.server.file("east");
        std::fs::copy(cluster.kubeconfig(), &file).unwrap();
        world.holon(&["join", "east", "--kubeconfig", file.to_str().unwrap()]);
        Some(Real { world, cluster })
    }

    fn below(&self, path: &str) -> Value {
        serde_json::from_str(&self.cluster.run(&["get", "--raw", path], "")).unwrap()
    }

    fn below_items(&self, path: &str) -> Vec<Value> {
        self.below(path)["items"].as_array().cloned().unwrap_or_default()
    }

    /// What the PhysicalCluster says about whether everything is as its mailbox wants it.
    fn synced(&self) -> Value {
        let east = self.world.admin.get("/apis/holon.dev/v1alpha1/physicalclusters/east").json();
        let conditions = east["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|said| said["type"] == "Synced").unwrap_or_default()
    }

    #[track_caller]
    fn until_synced(&self) {
        let mut said = Value::Null;
        let begun = Instant::now();
        while said["status"] != "True" {
            assert!(begun.elapsed() < PATIENCE, "{said:#}");
            std::thread::sleep(Duration::from_millis(100));
            said = self.synced();
        }
    }
}

fn service(name: &str, spec: Value) -> Value {
    let labels = json!({ "app": name });
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": labels }, "spec": spec })
}

/// With a claim of each of these templates, a name and a storage class, for each pod.
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

/// A user made a Deployment and a Service. kube-controller-manager copied the Service's labels, `holon.dev/placed` among
/// them, to its EndpointSlice. The mailbox refused to show a slice with that label ("what has the label holon.dev/placed in a
/// mailbox is chosen by the server alone"): the user saw no endpoints, and the physical cluster said `Synced=False`. The
/// stand-in copies no labels, so no test with stand-ins saw it.
///
/// A second user wrote our marks into templates. The claims made from one have no owner and looked placed: they were held for
/// want of a tombstone, and again everybody's physical cluster said `Synced=False`.
#[test]
fn endpoints_are_shown_and_copied_marks_place_nothing() {
    let Some(real) = Real::start("endpoints_are_shown_and_copied_marks_place_nothing") else { return };
    let world = &real.world;
    world.deploy("web", 2);
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] });
    world.make(&format!("{SHOP}/services"), service("web", spec));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    let ready_addresses = || -> Vec<String> {
        let found = world.list(&format!("{slices}?labelSelector=kubernetes.io%2Fservice-name%3Dweb"));
        let endpoints = found.iter().filter_map(|slice| slice["endpoints"].as_array()).flatten();
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
        let mut addresses: Vec<String> =
            ready.map(|endpoint| text(endpoint, "/addresses/0").to_owned()).collect();
        addresses.sort();
        addresses
    };
    world.until("the user sees two ready addresses", || ready_addresses().len() == 2);
    let mut pods: Vec<String> =
        world.pods("web").iter().map(|pod| text(pod, "/status/podIP").to_owned()).collect();
    pods.sort();
    assert_eq!(ready_addresses(), pods);
    let slice = world.list(slices).remove(0);
    assert_eq!(slice["metadata"]["labels"]["holon.dev/placed"], Value::Null, "{slice:#}");
    real.until_synced();

    // Our marks, with the very values the placed objects have, in every place from which controllers copy.
    let pod = world.pods("web").remove(0);
    let marks = json!({
        "holon.dev/mailbox": pod["metadata"]["annotations"]["holon.dev/mailbox"], "holon.dev/origin": "forged",
        "holon.dev/locator": "{}", "holon.dev/below-uid": "forged",
    });
    let labels = json!({ "app": "db", "holon.dev/placed": "true", "holon.dev/projected": "true" });
    let mut forged = stateful_set("db", &[("data", "none")]);
    forged["spec"]["template"]["metadata"] = json!({ "labels": labels, "annotations": marks });
    forged["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"] = labels.clone();
    forged["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"] = marks.clone();
    world.make(STATEFUL_SETS, forged);
    let mut job = template("once");
    job["metadata"] = json!({ "labels": labels, "annotations": marks });
    job["spec"]["restartPolicy"] = "Never".into();
    let minutely = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "minutely" },
        "spec": { "schedule": "* * * * *", "jobTemplate": {
            "metadata": { "labels": labels, "annotations": marks }, "spec": { "template": job } } },
    });
    world.make("/apis/batch/v1/namespaces/shop/cronjobs", minutely);
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    for path in [&format!("{SHOP}/pods"), CLAIMS, jobs] {
        world.until(&format!("{path} shows it"), || {
            let found = world.list(&format!("{path}?labelSelector=app%3Ddb"));
            found.iter().any(|object| object["metadata"]["labels"]["holon.dev/placed"].is_null())
        });
    }
    std::thread::sleep(Duration::from_secs(3));
    real.until_synced();
    assert!(real.cluster.down());
}
