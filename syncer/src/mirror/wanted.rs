//! What an object in the mailbox asks for below: itself, without what servers set and with our marks.

use api::names::{
    ADOPT, LOGICAL_CLUSTER, MAILBOX, NODE_PORTS, ORIGIN, PLACED, SCALED_BELOW, SPREAD, STANDS_FOR, SYNCER,
    TEMPLATE, TRUE,
};
use serde_json::{Map, Value, json};

use super::object::{Object, fingerprint};

/// Annotation on what we made below: the fingerprint of what was sent. It says, also after a restart, whether the mailbox
/// has changed since.
pub const SENT: &str = "holon.dev/sent";

/// Annotation on namespaces we made below: which syncer led when it was written. Whoever led before, and is cut off from the
/// mailbox where the lease is, sees there that another does by now.
pub const LED_BY: &str = "holon.dev/led-by";

/// All of an object's metadata that goes down. The rest is each server's own.
const METADATA: &[&str] = &["name", "namespace", "labels", "annotations", "finalizers"];

/// Annotations that are about the object in the mailbox, or that a controller below writes.
const ANNOTATIONS_KEPT_HERE: &[&str] = &[
    ADOPT,
    NODE_PORTS,
    SCALED_BELOW,
    SPREAD,
    STANDS_FOR,
    TEMPLATE,
    LOGICAL_CLUSTER,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
];

/// Finalizers for which this side does the work.
const FINALIZERS_KEPT_HERE: &[&str] =
    &[SYNCER, "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io"];

/// A field a server fills in by itself, where `unless` does not say that somebody else did.
struct Filled {
    group: &'static str,
    kind: &'static str,
    /// `*` is every item of a list.
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

/// Sent down, these would be refused or would take from a controller below what is its own.
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
    // A job that removes itself below would be made, and run, again.
    filled("batch", "Job", &["spec", "ttlSecondsAfterFinished"]),
];

/// What is applied below for an object in the mailbox.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted {
    pub object: Value,
    pub fingerprint: u64,
}

impl Wanted {
    /// `mailbox` is the id of the logical cluster the object lives in.
    pub fn of(object: &Value, mailbox: &str) -> Wanted {
        let mut wanted = object.clone();
        if let Some(fields) = wanted.as_object_mut() {
            fields.remove("status");
        }
        strip_filled(&mut wanted);
        strip_given_node_ports(&mut wanted);
        let labels = json!({ PLACED: TRUE });
        let annotations = json!({ MAILBOX: mailbox, ORIGIN: Object(object).uid() });
        let metadata = wanted["metadata"].take();
        wanted["metadata"] = stripped(metadata, labels, annotations);
        let scaled_below = Object(object).annotation(SCALED_BELOW) == Some(TRUE);
        let replicas = match wanted.pointer_mut("/spec/replicas") {
            Some(replicas) if scaled_below => Some(replicas.take()),
            _ => None,
        };
        let fingerprint = fingerprint(&wanted);
        if let Some(replicas) = replicas {
            wanted["spec"]["replicas"] = replicas;
        }
        wanted["metadata"]["annotations"][SENT] = format!("{fingerprint:016x}").into();
        Wanted { object: wanted, fingerprint }
    }

    /// The same, with what is decided below as it is there.
    pub fn beside(mut self, object: &Value, below: Option<&Value>) -> Wanted {
        let scaled_below = Object(object).annotation(SCALED_BELOW) == Some(TRUE);
        let replicas = below.and_then(|below| below.pointer("/spec/replicas"));
        if let Some(replicas) = replicas.filter(|_| scaled_below) {
            self.object["spec"]["replicas"] = replicas.clone();
        }
        self
    }

    /// The same, and a namespace says who leads. Whoever does not leaves that as it is.
    pub fn led_by(mut self, leader: Option<&str>, below: Option<&Value>) -> Wanted {
        let said = leader.or_else(|| Object(below?).annotation(LED_BY));
        if let Some(said) = said.filter(|_| self.object["kind"] == "Namespace") {
            self.object["metadata"]["annotations"][LED_BY] = said.into();
        }
        self
    }

    /// Whether the object below says that they lead who should.
    pub(super) fn leads(&self, below: &Value) -> bool {
        let wanted = Object(&self.object).annotation(LED_BY);
        wanted.is_none() || wanted == Object(below).annotation(LED_BY)
    }

    /// Whether this is what was sent last, as the object below says.
    pub fn was_sent(&self, below: &Value) -> bool {
        Object(below).annotation(SENT).is_some_and(|sent| sent == format!("{:016x}", self.fingerprint))
    }
}

fn stripped(metadata: Value, labels: Value, annotations: Value) -> Value {
    let Value::Object(fields) = metadata else {
        return json!({ "labels": labels, "annotations": annotations });
    };
    let mut kept: Map<_, _> = fields.into_iter().filter(|(name, _)| METADATA.contains(&&**name)).collect();
    if let Some(Value::Object(found)) = kept.get_mut("annotations") {
        found.retain(|name, _| !ANNOTATIONS_KEPT_HERE.contains(&&**name) && name != SENT && name != LED_BY);
    }
    if let Some(Value::Array(found)) = kept.get_mut("finalizers") {
        found.retain(|name| name.as_str().is_some_and(|name| !FINALIZERS_KEPT_HERE.contains(&name)));
        if found.is_empty() {
            kept.remove("finalizers");
        }
    }
    for (field, ours) in [("labels", labels), ("annotations", annotations)] {
        let found = kept.entry(field).or_insert_with(|| json!({}));
        let (Value::Object(ours), Some(found)) = (ours, found.as_object_mut()) else { continue };
        found.extend(ours);
    }
    Value::Object(kept)
}

fn strip_filled(object: &mut Value) {
    let group = object["apiVersion"].as_str().unwrap_or_default();
    let group = group.split_once('/').map_or("", |(group, _)| group).to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    for row in FILLED.iter().filter(|row| row.group == group && row.kind == kind) {
        let by_somebody = row.unless.as_ref().is_some_and(|(path, setting)| {
            let found = path.iter().fold(&*object, |value, name| &value[*name]);
            match setting {
                Setting::Text(text) => found == text,
                Setting::True => *found == Value::Bool(true),
            }
        });
        if !by_somebody {
            remove(object, row.path);
        }
    }
}

/// Takes away the node ports that the mailbox gave a Service. Those its user asked for are sent.
fn strip_given_node_ports(object: &mut Value) {
    let asked = Object(object).annotation(NODE_PORTS).unwrap_or_default().to_owned();
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

    /// Without our marks, which every object gets.
    fn sent(object: Value) -> Value {
        let mut wanted = Wanted::of(&object, MAILBOX_ID).object;
        let annotations = wanted["metadata"]["annotations"].as_object_mut().unwrap();
        for name in [MAILBOX, ORIGIN, SENT] {
            assert!(annotations.remove(name).is_some(), "{name}");
        }
        assert_eq!(wanted["metadata"]["labels"].as_object_mut().unwrap().remove(PLACED), Some(TRUE.into()));
        for field in ["labels", "annotations"] {
            if wanted["metadata"][field] == json!({}) {
                wanted["metadata"].as_object_mut().unwrap().remove(field);
            }
        }
        wanted
    }

    fn check(object: Value, expected: Value) {
        assert_eq!(sent(object), expected);
    }

    #[test]
    fn an_object_goes_down_without_what_servers_set() {
        check(
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" }, "status": { "x": 1 },
                "metadata": {
                    "name": "settings", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                    "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}], "selfLink": "/x",
                    "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
                    "ownerReferences": [{ "uid": "o" }], "generateName": "set",
                    "labels": { "app": "shop" },
                    "annotations": { "note": "kept", ADOPT: "true", "deployment.kubernetes.io/revision": "4" },
                    "finalizers": [SYNCER, "example.com/theirs", "orphan"],
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" },
                "metadata": {
                    "name": "settings", "namespace": "shop", "labels": { "app": "shop" },
                    "annotations": { "note": "kept" }, "finalizers": ["example.com/theirs"],
                },
            }),
        );
    }

    #[test]
    fn what_the_mailbox_filled_in_by_itself_is_filled_in_anew_below() {
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
    fn the_fingerprint_changes_with_what_is_sent_and_with_nothing_else() {
        let map = |data: &str, version: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": data },
                "metadata": { "name": "m", "uid": "u", "resourceVersion": version },
            })
        };
        let (first, later) = (Wanted::of(&map("b", "1"), MAILBOX_ID), Wanted::of(&map("b", "2"), MAILBOX_ID));
        assert_eq!(first, later);
        assert!(later.was_sent(&first.object));
        assert!(!Wanted::of(&map("c", "2"), MAILBOX_ID).was_sent(&first.object));
    }

    #[test]
    fn what_is_scaled_below_has_as_many_as_there_are() {
        let deployment = |replicas: u32, annotations: Value| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "replicas": replicas },
                "metadata": { "name": "web", "uid": "u", "annotations": annotations },
            })
        };
        let below = deployment(7, json!({}));
        let replicas = |object: &Value| {
            let wanted = Wanted::of(object, MAILBOX_ID).beside(object, Some(&below));
            wanted.object["spec"]["replicas"].clone()
        };
        assert_eq!(replicas(&deployment(3, json!({}))), 3);
        let scaled = json!({ SCALED_BELOW: TRUE });
        assert_eq!(replicas(&deployment(3, scaled.clone())), 7);
        // It begins with as many as were wanted, and what is wanted later is no change.
        let [first, later] = [3, 4].map(|number| Wanted::of(&deployment(number, scaled.clone()), MAILBOX_ID));
        assert_eq!((&first.object["spec"]["replicas"], first.fingerprint), (&json!(3), later.fingerprint));
    }
}
