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
const MAILBOX_ONLY_ANNOTATIONS: &[&str] = &[
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
const MAILBOX_ONLY_FINALIZERS: &[&str] =
    &[SYNCER, "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io"];

/// A field that a server sets, except where `unless` matches.
struct ServerSetField {
    group: &'static str,
    kind: &'static str,
    /// `*` stands for every item of a list.
    path: &'static [&'static str],
    unless: Option<(&'static [&'static str], UserSetting)>,
}

/// A value with which the user sets the field.
enum UserSetting {
    Text(&'static str),
    True,
}

const HEADLESS: Option<(&[&str], UserSetting)> = Some((&["spec", "clusterIP"], UserSetting::Text("None")));
const MANUAL_SELECTOR: Option<(&[&str], UserSetting)> =
    Some((&["spec", "manualSelector"], UserSetting::True));

const fn server_set(
    group: &'static str,
    kind: &'static str,
    path: &'static [&'static str],
) -> ServerSetField {
    ServerSetField { group, kind, path, unless: None }
}

const fn job(path: &'static [&'static str]) -> ServerSetField {
    ServerSetField { group: "batch", kind: "Job", path, unless: MANUAL_SELECTOR }
}

const fn service(path: &'static [&'static str]) -> ServerSetField {
    ServerSetField { group: "", kind: "Service", path, unless: HEADLESS }
}

/// The physical cluster would reject these fields, or they would overwrite what a controller there sets.
const SERVER_SET_FIELDS: &[ServerSetField] = &[
    server_set("", "Namespace", &["spec"]),
    server_set("", "Namespace", &["metadata", "labels", "kubernetes.io/metadata.name"]),
    server_set("", "ServiceAccount", &["secrets"]),
    service(&["spec", "clusterIPs"]),
    service(&["spec", "ipFamilies"]),
    service(&["spec", "ipFamilyPolicy"]),
    service(&["spec", "clusterIP"]),
    server_set("", "Service", &["spec", "healthCheckNodePort"]),
    job(&["spec", "selector"]),
    job(&["spec", "template", "metadata", "labels", "controller-uid"]),
    job(&["spec", "template", "metadata", "labels", "job-name"]),
    job(&["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"]),
    job(&["spec", "template", "metadata", "labels", "batch.kubernetes.io/job-name"]),
    // A TTL would delete the Job downstream, and the syncer would create it again, which would run it again.
    server_set("batch", "Job", &["spec", "ttlSecondsAfterFinished"]),
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
        strip_server_set_fields(&mut desired);
        strip_allocated_node_ports(&mut desired);
        let labels = json!({ PLACED: TRUE });
        let annotations = json!({ MAILBOX: mailbox, ORIGIN: AnyObject(object).uid() });
        let metadata = desired["metadata"].take();
        desired["metadata"] = applied_metadata(metadata, labels, annotations);
        let is_scaled_downstream = AnyObject(object).annotation(SCALED_DOWNSTREAM) == Some(TRUE);
        let replicas = match desired.pointer_mut("/spec/replicas") {
            Some(replicas) if is_scaled_downstream => Some(replicas.take()),
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
        let is_scaled_downstream = AnyObject(object).annotation(SCALED_DOWNSTREAM) == Some(TRUE);
        let replicas = downstream.and_then(|downstream| downstream.pointer("/spec/replicas"));
        if let Some(replicas) = replicas.filter(|_| is_scaled_downstream) {
            self.object["spec"]["replicas"] = replicas.clone();
        }
        self
    }

    /// Returns the same; a Namespace also names the leader. Without a leader the annotation stays as it is downstream.
    pub fn with_leader(mut self, leader: Option<&str>, downstream: Option<&Value>) -> DesiredObject {
        let leader_name = leader.or_else(|| AnyObject(downstream?).annotation(LED_BY));
        if let Some(leader_name) = leader_name.filter(|_| self.object["kind"] == "Namespace") {
            self.object["metadata"]["annotations"][LED_BY] = leader_name.into();
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

fn applied_metadata(metadata: Value, labels: Value, annotations: Value) -> Value {
    let Value::Object(fields) = metadata else {
        return json!({ "labels": labels, "annotations": annotations });
    };
    let mut stored: Map<_, _> = fields.into_iter().filter(|(name, _)| METADATA.contains(&&**name)).collect();
    if let Some(Value::Object(annotations)) = stored.get_mut("annotations") {
        annotations
            .retain(|name, _| !MAILBOX_ONLY_ANNOTATIONS.contains(&&**name) && name != SENT && name != LED_BY);
    }
    if let Some(Value::Array(finalizers)) = stored.get_mut("finalizers") {
        finalizers.retain(|name| name.as_str().is_some_and(|name| !MAILBOX_ONLY_FINALIZERS.contains(&name)));
        if finalizers.is_empty() {
            stored.remove("finalizers");
        }
    }
    for (field, ours) in [("labels", labels), ("annotations", annotations)] {
        let existing = stored.entry(field).or_insert_with(|| json!({}));
        let (Value::Object(ours), Some(existing)) = (ours, existing.as_object_mut()) else { continue };
        existing.extend(ours);
    }
    Value::Object(stored)
}

fn strip_server_set_fields(object: &mut Value) {
    let group = object["apiVersion"].as_str().unwrap_or_default();
    let group = group.split_once('/').map_or("", |(group, _)| group).to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    for field in SERVER_SET_FIELDS.iter().filter(|field| field.group == group && field.kind == kind) {
        let is_set_by_user = field.unless.as_ref().is_some_and(|(path, setting)| {
            let current = path.iter().fold(&*object, |value, name| &value[*name]);
            match setting {
                UserSetting::Text(text) => current == text,
                UserSetting::True => *current == Value::Bool(true),
            }
        });
        if !is_set_by_user {
            remove(object, field.path);
        }
    }
}

/// Removes the node ports that the mailbox allocated for a Service. Node ports that the user requested are applied.
fn strip_allocated_node_ports(object: &mut Value) {
    let requested = AnyObject(object).annotation(NODE_PORTS).unwrap_or_default().to_owned();
    let is_service = object["kind"] == "Service" && object["apiVersion"] == "v1";
    let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).filter(|_| is_service);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        let number = port.get("nodePort").and_then(Value::as_i64);
        let is_requested =
            |number: i64| requested.split(',').any(|requested| requested.parse() == Ok(number));
        if !number.is_some_and(is_requested) {
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
        let mut requested = service(
            json!({ "ports": [{ "port": 80, "nodePort": 30001 }, { "port": 81, "nodePort": 30010 }] }),
        );
        requested["metadata"]["annotations"] = json!({ NODE_PORTS: "30001,30002" });
        check(requested, service(json!({ "ports": [{ "port": 80, "nodePort": 30001 }, { "port": 81 }] })));
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
        let manual = json!({ "manualSelector": true, "selector": { "matchLabels": { "a": "b" } } });
        check(job(manual.clone()), job(manual));
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
