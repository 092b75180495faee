//! A user's object as one target's mailbox has it.
//!
//! ```text
//!   user's object ─► strip ─► its part ─► API access ─► namespace ─► marks ─► overrides ─► mailbox object
//!                    what the           of its own       as it is     whose    last word
//!                    server set         logical cluster  called there it is
//! ```
//!
//! Lowering starts from the user's object every time and keeps nothing, so what an Override changed is as it was once the
//! Override is gone. No step may change what an object is called or whose it is: on a shared cluster, namespaces and marks
//! are what keeps users apart.

pub mod api_access;
pub mod classes;
pub mod image;
pub mod overrides;
pub mod projection;
pub mod references;
pub mod server_fields;

use api::fleet::{Locator, Override, PhysicalCluster};
use api::meta::hash::word;
use api::names::{LOCATOR, NODE_PORTS, PLACED, PROJECTED, TEMPLATE, TRUE};
use serde_json::{Value, json};

use crate::division::Part;
use crate::placement::policy::{Labels, Subject};
use api_access::Home;
use overrides::OverrideError;

/// As for any namespace.
const NAMESPACE_BYTES_MAX: usize = 63;
const HASH_CHARS: usize = 8;

/// Where an object goes, and on whose behalf.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The id of the user's logical cluster.
    pub logical_cluster: &'a str,
    pub cluster: &'a PhysicalCluster,
    /// All that may apply; which do is found out here.
    pub overrides: &'a [Override],
    pub namespace_labels: &'a Labels,
    /// How its pods reach the API, if they do.
    pub home: Option<&'a Home>,
}

impl Way<'_> {
    fn is_dedicated(&self) -> bool {
        self.cluster.spec.dedicated_to.is_some()
    }

    /// What a namespace of the logical cluster is called there.
    pub fn namespace(&self, namespace: &str) -> String {
        match self.is_dedicated() {
            true => namespace.to_owned(),
            false => physical_namespace(self.logical_cluster, namespace),
        }
    }
}

/// On a cluster that several logical clusters share: the namespace and a hash that tells them apart. One that would be too
/// long is cut, and the hash is of all of it.
pub fn physical_namespace(logical_cluster: &str, namespace: &str) -> String {
    let hash = word(&[logical_cluster, namespace], HASH_CHARS);
    let room = NAMESPACE_BYTES_MAX - HASH_CHARS - 1;
    let name = namespace.get(..room).unwrap_or(namespace).trim_end_matches('-');
    format!("{name}-{hash}")
}

/// What becomes of an object on its way.
#[derive(Clone, PartialEq, Debug)]
pub enum Lowered {
    Sent(Value),
    /// It is nothing for a physical cluster.
    Stays(&'static str),
}

/// Kinds that say something about the cluster they are in, or are made there by themselves.
const STAYS: &[(&str, &str, &str)] = &[
    ("", "Event", "events are reported, not sent"),
    ("events.k8s.io", "Event", "events are reported, not sent"),
    ("", "Endpoints", "endpoints are made where the pods are"),
    ("discovery.k8s.io", "EndpointSlice", "endpoints are made where the pods are"),
    ("", "Node", "nodes are reported, not sent"),
    ("coordination.k8s.io", "Lease", "a lease is about one cluster"),
    ("apps", "ControllerRevision", "revisions are made where the workload runs"),
    ("holon.dev", "Distribution", "our own records are about physical clusters, not for them"),
];

/// The object of a mailbox.
pub fn lower(object: &Value, part: Option<&Part>, way: &Way) -> Result<Lowered, OverrideError> {
    if let Some(why) = stays(object, way) {
        return Ok(Lowered::Stays(why));
    }
    let mut lowered = object.clone();
    server_fields::strip(&mut lowered);
    if let Some(part) = part {
        part.apply(&mut lowered);
    }
    if let Some(home) = way.home {
        api_access::rewrite(&mut lowered, home);
    }
    stamp(object, &mut lowered);
    rename(&mut lowered, way);
    let marks = Marks::of(object, way);
    marks.put(&mut lowered);
    let (labels, subject) = (labels(object), identity(object));
    let subject = Subject { labels: &labels, namespace_labels: way.namespace_labels, ..subject };
    let mut changed = overrides::apply(lowered, &subject, way.cluster, way.overrides)?;
    // Whatever an Override did to them, they are ours.
    marks.put(&mut changed);
    classes::map_names(&mut changed, &way.cluster.spec.class_mappings);
    mark_node_ports(&mut changed);
    Ok(Lowered::Sent(changed))
}

/// Says which node ports of a Service are asked for: those that are left here.
fn mark_node_ports(lowered: &mut Value) {
    let ports = lowered.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let asked: Vec<String> = ports.filter_map(|port| Some(port["nodePort"].as_i64()?.to_string())).collect();
    if group_kind(lowered) == ("", "Service") && !asked.is_empty() {
        lowered["metadata"]["annotations"][NODE_PORTS] = asked.join(",").into();
    }
}

/// What tells the template an object has at one target from its others: also when only what is rewritten for that target is
/// another. None if it has no template there, or is not sent at all.
pub fn template_there(object: &Value, way: &Way) -> Result<Option<String>, OverrideError> {
    let Lowered::Sent(lowered) = lower(object, None, way)? else { return Ok(None) };
    Ok(lowered.pointer("/spec/template").map(|_| template_word(&lowered)))
}

/// What tells the template of a Deployment from its others.
pub fn template_word(deployment: &Value) -> String {
    let text = deployment.pointer("/spec/template").map(Value::to_string).unwrap_or_default();
    word(&[&text], 10)
}

fn stamp(object: &Value, lowered: &mut Value) {
    if group_kind(object) == ("apps", "Deployment")
        && lowered.pointer("/spec/template").is_some_and(Value::is_object)
    {
        let at = format!("/spec/template/metadata/annotations/{}", TEMPLATE.replace('/', "~1"));
        // A template whose metadata is no object was never valid.
        let _ = api::meta::pointer::set(lowered, &at, template_word(object).into());
    }
}

fn stays(object: &Value, way: &Way) -> Option<&'static str> {
    let (group, kind) = group_kind(object);
    let is_namespace = group.is_empty() && kind == "Namespace";
    let is_cluster_wide = object["metadata"]["namespace"].as_str().is_none_or(str::is_empty) && !is_namespace;
    let row = STAYS.iter().find(|(of, name, _)| *of == group && *name == kind).map(|(_, _, why)| *why);
    let named = |name: &str| object.pointer("/metadata/name").is_some_and(|found| found == name);
    match kind {
        _ if row.is_some() => row,
        _ if object["metadata"]["labels"][PROJECTED] == TRUE => Some("it is shown here because it is there"),
        "Secret" if object["type"] == "kubernetes.io/service-account-token" => {
            Some("a token is of use only where it was issued")
        }
        "ConfigMap" if named("kube-root-ca.crt") => Some("every cluster has its own"),
        "ServiceAccount" if named("default") => Some("every namespace has its own"),
        // A ClusterRoleBinding there would give one user rights over all, a definition would be everybody's.
        _ if is_cluster_wide && !way.is_dedicated() => {
            Some("it is cluster-wide, and would be everybody's on a cluster that is not dedicated")
        }
        _ => None,
    }
}

/// Group and kind of an object.
pub fn group_kind(object: &Value) -> (&str, &str) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    (group, object["kind"].as_str().unwrap_or_default())
}

fn labels(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(text).collect()
}

static NO_LABELS: Labels = Labels::new();

fn identity(object: &Value) -> Subject<'_> {
    let (group, kind) = group_kind(object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Subject { group, kind, name, labels: &NO_LABELS, namespace_labels: &NO_LABELS }
}

/// What tells an object in a mailbox from others, and whose it is.
struct Marks {
    locator: String,
}

impl Marks {
    fn of(object: &Value, way: &Way) -> Marks {
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let locator = Locator {
            logical_cluster: way.logical_cluster.to_owned(),
            namespace: text("namespace"),
            name: text("name").unwrap_or_default(),
            uid: text("uid").unwrap_or_default(),
        };
        Marks { locator: serde_json::to_string(&locator).expect("texts can be written as JSON") }
    }

    fn put(&self, object: &mut Value) {
        let metadata = &mut object["metadata"];
        for field in ["labels", "annotations"] {
            if !metadata[field].is_object() {
                metadata[field] = json!({});
            }
        }
        metadata["labels"][PLACED] = TRUE.into();
        metadata["annotations"][LOCATOR] = self.locator.as_str().into();
    }
}

/// Fields that name a namespace, besides the one an object is in. `*` is every item of a list.
const NAMESPACES: &[(&str, &str, &[&str])] =
    &[("rbac.authorization.k8s.io", "RoleBinding", &["subjects", "*", "namespace"])];

fn rename(object: &mut Value, way: &Way) {
    let (group, kind) = group_kind(object);
    let fields: Vec<&[&str]> = NAMESPACES
        .iter()
        .filter(|(of, name, _)| *of == group && *name == kind)
        .map(|(_, _, path)| *path)
        .collect();
    let is_namespace = group.is_empty() && kind == "Namespace";
    for path in fields {
        server_fields::at_each(object, path, &mut |namespace| there(namespace, way));
    }
    let field = if is_namespace { "name" } else { "namespace" };
    server_fields::at_each(object, &["metadata", field], &mut |namespace| there(namespace, way));
}

fn there(namespace: &mut Value, way: &Way) {
    if let Some(name) = namespace.as_str().filter(|name| !name.is_empty()) {
        *namespace = way.namespace(name).into();
    }
}

#[cfg(test)]
mod tests;
