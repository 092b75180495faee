//! The object that the syncer applies downstream for a mailbox object: the same object without the fields that servers
//! set, and with our labels and annotations.

use api::names::{
    ADOPT, LOGICAL_CLUSTER, MAILBOX, NODE_PORTS, ORIGIN, PLACED, PROPAGATED_HASH, SCALED_DOWNSTREAM,
    SOURCE_GENERATION, SYNCER, TEMPLATE, TRUE,
};
use serde_json::{Map, Value, json};

use super::object::{AnyObject, fingerprint};

/// Annotation of applied objects: the fingerprint of the applied object. After a restart it shows whether the mailbox
/// object has changed since.
pub const SENT: &str = "holon.dev/sent";

/// Annotation of applied namespaces: the syncer that held the lease when it was written. The lease is in the mailbox; a
/// syncer that cannot reach the mailbox learns from the annotation that another syncer leads.
pub const LED_BY: &str = "holon.dev/led-by";

/// The metadata that is applied. The servers set the rest.
const METADATA: &[&str] = &["name", "namespace", "labels", "annotations", "finalizers"];

/// Annotations that only concern the mailbox object, or that a controller downstream writes.
const ANNOTATIONS_KEPT_HERE: &[&str] = &[
    ADOPT,
    NODE_PORTS,
    SCALED_DOWNSTREAM,
    PROPAGATED_HASH,
    SOURCE_GENERATION,
    TEMPLATE,
    LOGICAL_CLUSTER,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
];

/// Finalizers that are handled in the mailbox.
const FINALIZERS_KEPT_HERE: &[&str] =
    &[SYNCER, "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io"];

/// A field that a server sets, except where `unless` matches.
struct Filled {
    group: &'static str,
    kind: &'static str,
    /// `*` stands for every item of a list.
    path: &'static [&'static str],
    unless: Option<(&'static [&'static str], Setting)>,
}

enum Setting {
    Text(&'static str),
    True,
}

const HEADLESS: Option<(&[&str], Setting)> = Some((&["spec", "clusterIP"], Setting::Text("None")));
const BY_HAND: Option<(&[&str], Setting)> = Some((&["spec", "manualSelector"], Setting::True));

const fn filled(group: &'static str, kind: &'static str, path: &'static [&'static str]) -> Filled {
    Filled { group, kind, path, unless: None }
}

const fn job(path: &'static [&'static str]) -> Filled {
    Filled { group: "batch", kind: "Job", path, unless: BY_HAND }
}

const fn service(path: &'static [&'static str]) -> Filled {
    Filled { group: "", kind: "Service", path, unless: HEADLESS }
}

/// The physical cluster would reject these fields, or they would overwrite what a controller there sets.
const FILLED: &[Filled] = &[
    filled("", "Namespace", &["spec"]),
    filled("", "Namespace", &["metadata", "labels", "kubernetes.io/metadata.name"]),
    filled("", "ServiceAccount", &["secrets"]),
    service(&["spec", "clusterIPs"]),
    service(&["spec", "ipFamilies"]),
    service(&["spec", "ipFamilyPolicy"]),
    service(&["spec", "clusterIP"]),
    filled("", "Service", &["spec", "healthCheckNodePort"]),
    job(&["spec", "selector"]),
    job(&["spec", "template", "metadata", "labels", "controller-uid"]),
    job(&["spec", "template", "metadata", "labels", "job-name"]),
    job(&["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"]),
    job(&["spec", "template", "metadata", "labels", "batch.kubernetes.io/job-name"]),
    // A TTL would delete the Job downstream, and the syncer would create it again, which would run it again.
    filled("batch", "Job", &["spec", "ttlSecondsAfterFinished"]),
];

/// The object that the syncer applies downstream for a mailbox object.
#[derive(Clone, PartialEq, Debug)]
pub struct DesiredObject {
    pub object: Value,
    pub fingerprint: u64,
}

impl DesiredObject {
    /// Returns the desired object. `mailbox` is the id of the mailbox.
    pub fn of(object: &Value, mailbox: &str) -> DesiredObject {
        let mut desired = object.clone();
        if let Some(fields) = desired.as_object_mut() {
            fields.remove("status");
        }
        strip_filled(&mut desired);
        strip_given_node_ports(&mut desired);
        let labels = json!({ PLACED: TRUE });
        let annotations = json!({ MAILBOX: mailbox, ORIGIN: AnyObject(object).uid() });
        let metadata = desired["metadata"].take();
        desired["metadata"] = stripped(metadata, labels, annotations);
        let scaled_below = AnyObject(object).annotation(SCALED_DOWNSTREAM) == Some(TRUE);
        let replicas = match desired.pointer_mut("/spec/replicas") {
            Some(replicas) if scaled_below => Some(replicas.take()),
            _ => None,
        };
        let fingerprint = fingerprint(&desired);
        if let Some(replicas) = replicas {
            desired["spec"]["replicas"] = replicas;
        }
        desired["metadata"]["annotations"][SENT] = format!("{fingerprint:016x}").into();
        DesiredObject { object: desired, fingerprint }
    }

    /// Returns the same with the replicas that an autoscaler downstream has set.
    pub fn with_downstream_scale(mut self, object: &Value, downstream: Option<&Value>) -> DesiredObject {
        let scaled_below = AnyObject(object).annotation(SCALED_DOWNSTREAM) == Some(TRUE);
        let replicas = downstream.and_then(|downstream| downstream.pointer("/spec/replicas"));
        if let Some(replicas) = replicas.filter(|_| scaled_below) {
            self.object["spec"]["replicas"] = replicas.clone();
        }
        self
    }

    /// Returns the same; a Namespace also names the leader. Without a leader the annotation stays as it is downstream.
    pub fn with_leader(mut self, leader: Option<&str>, downstream: Option<&Value>) -> DesiredObject {
        let said = leader.or_else(|| AnyObject(downstream?).annotation(LED_BY));
        if let Some(said) = said.filter(|_| self.object["kind"] == "Namespace") {
            self.object["metadata"]["annotations"][LED_BY] = said.into();
        }
        self
    }

    /// Returns whether the downstream object names the same leader.
    pub(super) fn names_leader_of(&self, downstream: &Value) -> bool {
        let desired = AnyObject(&self.object).annotation(LED_BY);
        desired.is_none() || desired == AnyObject(downstream).annotation(LED_BY)
    }

    /// Returns whether this object was applied last, according to the annotation of the downstream object.
    pub fn was_sent(&self, downstream: &Value) -> bool {
        AnyObject(downstream)
            .annotation(SENT)
            .is_some_and(|sent| sent == format!("{:016x}", self.fingerprint))
    }
}

fn stripped(metadata: Value, labels: Value, annotations: Value) -> Value {
    let Value::Object(fields) = metadata else {
        return json!({ "labels": labels, "annotations": annotations });
    };
    let mut stored: Map<_, _> = fields.into_iter().filter(|(name, _)| METADATA.contains(&&**name)).collect();
    if let Some(Value::Object(found)) = stored.get_mut("annotations") {
        found.retain(|name, _| !ANNOTATIONS_KEPT_HERE.contains(&&**name) && name != SENT && name != LED_BY);
    }
    if let Some(Value::Array(found)) = stored.get_mut("finalizers") {
        found.retain(|name| name.as_str().is_some_and(|name| !FINALIZERS_KEPT_HERE.contains(&name)));
        if found.is_empty() {
            stored.remove("finalizers");
        }
    }
    for (field, ours) in [("labels", labels), ("annotations", annotations)] {
        let found = stored.entry(field).or_insert_with(|| json!({}));
        let (Value::Object(ours), Some(found)) = (ours, found.as_object_mut()) else { continue };
        found.extend(ours);
    }
    Value::Object(stored)
}

fn strip_filled(object: &mut Value) {
    let group = object["apiVersion"].as_str().unwrap_or_default();
    let group = group.split_once('/').map_or("", |(group, _)| group).to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    for row in FILLED.iter().filter(|row| row.group == group && row.kind == kind) {
        let is_set_by_user = row.unless.as_ref().is_some_and(|(path, setting)| {
            let found = path.iter().fold(&*object, |value, name| &value[*name]);
            match setting {
                Setting::Text(text) => found == text,
                Setting::True => *found == Value::Bool(true),
            }
        });
        if !is_set_by_user {
            remove(object, row.path);
        }
    }
}

/// Removes the node ports that the mailbox allocated for a Service. Node ports that the user requested are applied.
fn strip_given_node_ports(object: &mut Value) {
    let asked = AnyObject(object).annotation(NODE_PORTS).unwrap_or_default().to_owned();
    let is_service = object["kind"] == "Service" && object["apiVersion"] == "v1";
    let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).filter(|_| is_service);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        let number = port.get("nodePort").and_then(Value::as_i64);
        let is_asked = |number: i64| asked.split(',').any(|asked| asked.parse() == Ok(number));
        if !number.is_some_and(is_asked) {
            port.remove("nodePort");
        }
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    match (path, value) {
        (["*", rest @ ..], Value::Array(items)) => items.iter_mut().for_each(|item| remove(item, rest)),
        ([name], Value::Object(fields)) => drop(fields.remove(*name)),
        ([name, rest @ ..], Value::Object(fields)) => {
            if let Some(inner) = fields.get_mut(*name) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAILBOX_ID: &str = "~bcdf";

    /// Returns the applied object without the labels and annotations that every object gets.
    fn sent(object: Value) -> Value {
        let mut desired = DesiredObject::of(&object, MAILBOX_ID).object;
        let annotations = desired["metadata"]["annotations"].as_object_mut().unwrap();
        for name in [MAILBOX, ORIGIN, SENT] {
            assert!(annotations.remove(name).is_some(), "{name}");
        }
        assert_eq!(desired["metadata"]["labels"].as_object_mut().unwrap().remove(PLACED), Some(TRUE.into()));
        for field in ["labels", "annotations"] {
            if desired["metadata"][field] == json!({}) {
                desired["metadata"].as_object_mut().unwrap().remove(field);
            }
        }
        desired
    }

    fn check(object: Value, expected: Value) {
        assert_eq!(sent(object), expected);
    }

    #[test]
    fn fields_that_servers_set_are_not_applied() {
        check(
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" }, "status": { "x": 1 },
                "metadata": {
                    "name": "settings", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                    "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}], "selfLink": "/x",
                    "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
                    "ownerReferences": [{ "uid": "o" }], "generateName": "set",
                    "labels": { "app": "shop" },
                    "annotations": { "note": "stored", ADOPT: "true", "deployment.kubernetes.io/revision": "4" },
                    "finalizers": [SYNCER, "example.com/theirs", "orphan"],
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" },
                "metadata": {
                    "name": "settings", "namespace": "shop", "labels": { "app": "shop" },
                    "annotations": { "note": "stored" }, "finalizers": ["example.com/theirs"],
                },
            }),
        );
    }

    #[test]
    fn fields_allocated_by_the_mailbox_are_allocated_anew_downstream() {
        let service = |spec: Value| json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": spec });
        check(
            service(json!({
                "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "ports": [{ "port": 80, "nodePort": 30001 }, { "port": 81 }],
            })),
            service(json!({ "ports": [{ "port": 80 }, { "port": 81 }] })),
        );
        let mut asked = service(
            json!({ "ports": [{ "port": 80, "nodePort": 30001 }, { "port": 81, "nodePort": 30010 }] }),
        );
        asked["metadata"]["annotations"] = json!({ NODE_PORTS: "30001,30002" });
        check(asked, service(json!({ "ports": [{ "port": 80, "nodePort": 30001 }, { "port": 81 }] })));
        let headless = service(json!({ "clusterIP": "None", "clusterIPs": ["None"] }));
        check(headless.clone(), headless);
        let job = |spec: Value| json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "once" }, "spec": spec });
        let template = |labels: Value| json!({ "metadata": { "labels": labels } });
        check(
            job(json!({
                "selector": { "matchLabels": { "batch.kubernetes.io/controller-uid": "u" } },
                "ttlSecondsAfterFinished": 5,
                "template": template(json!({ "controller-uid": "u", "job-name": "once", "app": "shop" })),
            })),
            job(json!({ "template": template(json!({ "app": "shop" })) })),
        );
        let by_hand = json!({ "manualSelector": true, "selector": { "matchLabels": { "a": "b" } } });
        check(job(by_hand.clone()), job(by_hand));
        check(
            json!({
                "apiVersion": "v1", "kind": "Namespace", "spec": { "finalizers": ["kubernetes"] },
                "metadata": { "name": "shop", "labels": { "kubernetes.io/metadata.name": "shop" } },
            }),
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
        );
    }

    #[test]
    fn the_fingerprint_changes_only_with_applied_fields() {
        let map = |data: &str, version: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": data },
                "metadata": { "name": "m", "uid": "u", "resourceVersion": version },
            })
        };
        let (first, later) =
            (DesiredObject::of(&map("b", "1"), MAILBOX_ID), DesiredObject::of(&map("b", "2"), MAILBOX_ID));
        assert_eq!(first, later);
        assert!(later.was_sent(&first.object));
        assert!(!DesiredObject::of(&map("c", "2"), MAILBOX_ID).was_sent(&first.object));
    }

    #[test]
    fn an_object_that_is_scaled_downstream_keeps_its_replicas() {
        let deployment = |replicas: u32, annotations: Value| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "replicas": replicas },
                "metadata": { "name": "web", "uid": "u", "annotations": annotations },
            })
        };
        let downstream = deployment(7, json!({}));
        let replicas = |object: &Value| {
            let desired =
                DesiredObject::of(object, MAILBOX_ID).with_downstream_scale(object, Some(&downstream));
            desired.object["spec"]["replicas"].clone()
        };
        assert_eq!(replicas(&deployment(3, json!({}))), 3);
        let scaled = json!({ SCALED_DOWNSTREAM: TRUE });
        assert_eq!(replicas(&deployment(3, scaled.clone())), 7);
        // Only the first apply sends the number of replicas; a later change does not change the applied object.
        let [first, later] =
            [3, 4].map(|number| DesiredObject::of(&deployment(number, scaled.clone()), MAILBOX_ID));
        assert_eq!((&first.object["spec"]["replicas"], first.fingerprint), (&json!(3), later.fingerprint));
    }
}
