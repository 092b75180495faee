//! The table of kinds, with the changes of the lifecycle of an object.

use serde_json::{Value, json};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
pub(crate) const GARDENS: &str = "/apis/example.com/v1/namespaces/shop/gardens";

/// The writer of the downstream status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatusWriter {
    /// Controllers, if the physical cluster has them.
    Controllers,
    /// An operator, which the test plays.
    Operator,
}

/// The status that the mailbox must have.
#[derive(Debug)]
pub(crate) struct ExpectedStatus {
    /// The minimum, if controllers write it.
    pub(crate) by_controllers: Value,
    /// The exact status, if the test writes it. Null for kinds without a status. An `observedGeneration` is replaced by
    /// the current one.
    pub(crate) by_hand: Value,
}

/// A kind and its changes: merge patches, each of which must change something when it is applied.
#[derive(Debug)]
pub(crate) struct LifecycleRow {
    pub(crate) collection: &'static str,
    pub(crate) object: Value,
    pub(crate) status_writer: StatusWriter,
    pub(crate) expected_status: ExpectedStatus,
    /// Whether pods are created for it.
    pub(crate) pods: bool,
    pub(crate) change: Value,
    pub(crate) scale: Option<(Value, ExpectedStatus)>,
    /// A downstream change that must be reverted. It must not contain lists.
    pub(crate) drift: Value,
}

impl LifecycleRow {
    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Returns the plural of its kind.
    pub(crate) fn resource(&self) -> &'static str {
        self.collection.rsplit('/').next().unwrap_or_default()
    }
}

impl ExpectedStatus {
    fn no_status() -> ExpectedStatus {
        ExpectedStatus { by_controllers: Value::Null, by_hand: Value::Null }
    }

    fn same_status(status: Value) -> ExpectedStatus {
        ExpectedStatus { by_controllers: without_generation(status.clone()), by_hand: status }
    }
}

/// Removes the observed generation, which is compared separately.
fn without_generation(mut status: Value) -> Value {
    if let Some(fields) = status.as_object_mut() {
        fields.remove("observedGeneration");
    }
    status
}

/// Returns a Deployment that mounts objects of the table and that its Service selects. It has no replicas, whose pods
/// would keep what they mount from being deleted.
pub(crate) fn mounting_deployment() -> Value {
    let mut template = template("front");
    template["spec"]["volumes"] = json!([
        { "name": "settings", "configMap": { "name": "settings" } },
        { "name": "key", "secret": { "secretName": "key" } },
        { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
    ]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "user" },
        "spec": { "replicas": 0, "selector": selector("front"), "template": template },
    })
}

pub(crate) fn all() -> Vec<LifecycleRow> {
    vec![
        deployment(),
        stateful_set(),
        daemon_set(),
        job(),
        cron_job(),
        service(),
        ingress(),
        claim(),
        config_map(),
        secret(),
        garden(),
    ]
}

fn template(name: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "main:1" }] },
    })
}

/// Returns a template of a pod that ends by itself.
fn one_shot_template(name: &str) -> Value {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

fn selector(name: &str) -> Value {
    json!({ "matchLabels": { "app": name } })
}

/// Returns a patch of the image in the template of a workload.
fn image(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": image }] } } } })
}

fn replicas(count: u64) -> Value {
    json!({ "spec": { "replicas": count } })
}

fn label(value: &str) -> Value {
    json!({ "metadata": { "labels": { "season": value } } })
}

fn deployment() -> LifecycleRow {
    let status = |count: u64| {
        ExpectedStatus::same_status(json!({
            "observedGeneration": 0, "replicas": count, "updatedReplicas": count, "readyReplicas": count,
            "availableReplicas": count,
        }))
    };
    LifecycleRow {
        collection: DEPLOYMENTS,
        object: json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
            "spec": { "replicas": 1, "selector": selector("web"), "template": template("web") },
        }),
        status_writer: StatusWriter::Controllers,
        expected_status: status(1),
        pods: true,
        change: image("main:2"),
        scale: Some((replicas(3), status(3))),
        drift: replicas(0),
    }
}

fn stateful_set() -> LifecycleRow {
    let status = |count: u64| {
        ExpectedStatus::same_status(
            json!({ "observedGeneration": 0, "replicas": count, "readyReplicas": count }),
        )
    };
    LifecycleRow {
        collection: "/apis/apps/v1/namespaces/shop/statefulsets",
        object: json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
            "spec": { "replicas": 1, "serviceName": "db", "selector": selector("db"), "template": template("db") },
        }),
        status_writer: StatusWriter::Controllers,
        expected_status: status(1),
        pods: true,
        change: image("main:2"),
        scale: Some((replicas(2), status(2))),
        drift: replicas(1),
    }
}

fn daemon_set() -> LifecycleRow {
    LifecycleRow {
        collection: "/apis/apps/v1/namespaces/shop/daemonsets",
        object: json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" },
            "spec": { "selector": selector("agent"), "template": template("agent") },
        }),
        status_writer: StatusWriter::Controllers,
        expected_status: ExpectedStatus::same_status(json!({
            "observedGeneration": 0, "currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 1,
            "numberReady": 1,
        })),
        pods: true,
        change: image("main:2"),
        scale: None,
        drift: json!({ "spec": { "revisionHistoryLimit": 3 } }),
    }
}

fn job() -> LifecycleRow {
    LifecycleRow {
        collection: "/apis/batch/v1/namespaces/shop/jobs",
        object: json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "once" },
            "spec": { "completions": 2, "parallelism": 1, "template": one_shot_template("once") },
        }),
        status_writer: StatusWriter::Controllers,
        expected_status: ExpectedStatus {
            by_controllers: json!({ "succeeded": 2 }),
            by_hand: json!({ "active": 1, "failed": 1 }),
        },
        pods: true,
        change: label("spring"),
        scale: Some((
            json!({ "spec": { "parallelism": 2 } }),
            ExpectedStatus {
                by_controllers: json!({ "succeeded": 2 }),
                by_hand: json!({ "active": 2, "failed": 1 }),
            },
        )),
        drift: json!({ "spec": { "parallelism": 5 } }),
    }
}

fn cron_job() -> LifecycleRow {
    LifecycleRow {
        collection: "/apis/batch/v1/namespaces/shop/cronjobs",
        object: json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "yearly" },
            "spec": { "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": one_shot_template("yearly") } } },
        }),
        status_writer: StatusWriter::Operator,
        expected_status: ExpectedStatus::same_status(json!({ "lastSuccessfulTime": "2026-01-01T00:00:03Z" })),
        pods: false,
        change: json!({ "spec": { "schedule": "0 0 2 1 *" } }),
        scale: Some((
            json!({ "spec": { "successfulJobsHistoryLimit": 1 } }),
            ExpectedStatus::same_status(json!({ "lastSuccessfulTime": "2026-01-02T00:00:03Z" })),
        )),
        drift: json!({ "spec": { "suspend": true } }),
    }
}

fn service() -> LifecycleRow {
    LifecycleRow {
        collection: "/api/v1/namespaces/shop/services",
        object: json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "front" },
            "spec": { "type": "LoadBalancer", "selector": { "app": "front" }, "ports": [{ "port": 80 }] },
        }),
        status_writer: StatusWriter::Operator,
        expected_status: ExpectedStatus::same_status(
            json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } }),
        ),
        pods: false,
        change: json!({ "spec": { "ports": [{ "port": 81 }] } }),
        scale: None,
        drift: json!({ "spec": { "selector": { "app": "back" } } }),
    }
}

fn ingress() -> LifecycleRow {
    let rule = |host: &str| {
        let backend = json!({ "service": { "name": "front", "port": { "number": 80 } } });
        json!([{ "host": host, "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } }])
    };
    LifecycleRow {
        collection: "/apis/networking.k8s.io/v1/namespaces/shop/ingresses",
        object: json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "front" },
            "spec": { "ingressClassName": "plain", "rules": rule("a.example.com") },
        }),
        status_writer: StatusWriter::Operator,
        expected_status: ExpectedStatus::same_status(
            json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.8" }] } }),
        ),
        pods: false,
        change: json!({ "spec": { "rules": rule("b.example.com") } }),
        scale: None,
        drift: json!({ "spec": { "ingressClassName": "other" } }),
    }
}

/// A claim cannot be scaled, and few of its fields can change.
fn claim() -> LifecycleRow {
    LifecycleRow {
        collection: "/api/v1/namespaces/shop/persistentvolumeclaims",
        object: json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        }),
        status_writer: StatusWriter::Controllers,
        // A stand-in binds it; in a cluster without this storage class it stays Pending.
        expected_status: ExpectedStatus {
            by_controllers: json!({}),
            by_hand: json!({ "phase": "Bound", "accessModes": ["ReadWriteOnce"] }),
        },
        pods: false,
        change: label("spring"),
        scale: None,
        drift: label("autumn"),
    }
}

fn config_map() -> LifecycleRow {
    LifecycleRow {
        collection: "/api/v1/namespaces/shop/configmaps",
        object: json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": { "a": "1" } }),
        status_writer: StatusWriter::Operator,
        expected_status: ExpectedStatus::no_status(),
        pods: false,
        change: json!({ "data": { "a": "2", "b": "new" } }),
        scale: None,
        drift: json!({ "data": { "a": "3" } }),
    }
}

fn secret() -> LifecycleRow {
    LifecycleRow {
        collection: "/api/v1/namespaces/shop/secrets",
        object: json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "key" }, "data": { "a": "MQ==" } }),
        status_writer: StatusWriter::Operator,
        expected_status: ExpectedStatus::no_status(),
        pods: false,
        change: json!({ "data": { "a": "Mg==" } }),
        scale: None,
        drift: json!({ "data": { "a": "Mw==" } }),
    }
}

pub(crate) fn definition() -> Value {
    let number = json!({ "type": "integer" });
    let spec =
        json!({ "type": "object", "properties": { "plant": { "type": "string" }, "replicas": number } });
    let status =
        json!({ "type": "object", "properties": { "blooms": number, "observedGeneration": number } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "gardens.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "gardens", "singular": "garden", "kind": "Garden" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec, "status": status } } },
            }],
        },
    })
}

fn garden() -> LifecycleRow {
    let status =
        |blooms: u64| ExpectedStatus::same_status(json!({ "observedGeneration": 0, "blooms": blooms }));
    LifecycleRow {
        collection: GARDENS,
        object: json!({
            "apiVersion": "example.com/v1", "kind": "Garden", "metadata": { "name": "front" },
            "spec": { "plant": "rose", "replicas": 1 },
        }),
        status_writer: StatusWriter::Operator,
        expected_status: status(3),
        pods: false,
        change: json!({ "spec": { "plant": "tulip" } }),
        scale: Some((replicas(4), status(12))),
        drift: json!({ "spec": { "plant": "weed" } }),
    }
}
