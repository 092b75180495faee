//! Transforms a user's object into the mailbox object of one target.
//!
//! ```text
//!   user's object ─► strip server fields ─► its patch ─► API access ─► namespace ─► marks ─► overrides ─► mailbox object
//! ```
//!
//! A transformation starts from the user's object every time and keeps no state, so removing an Override restores the
//! object. No step may change the name or the origin of an object: on a shared cluster, namespaces and marks keep
//! tenants apart.

pub mod api_access;
pub mod classes;
pub mod image;
pub mod overrides;
pub mod projection;
pub mod references;
pub mod server_fields;
pub(crate) mod target_patch;

use api::fleet::{Locator, Override, PhysicalCluster};
use api::meta::hash::word;
use api::meta::pointer;
use api::names::{LOCATOR, NODE_PORTS, PLACED, PROJECTED, TEMPLATE, TRUE};
use serde_json::{Value, json};

use crate::policy::{Labels, ObjectAttributes};
use crate::transform::target_patch::TargetPatch;
use api_access::ApiAccess;
use overrides::OverrideError;

/// As for any namespace.
const NAMESPACE_BYTES_MAX: usize = 63;
const HASH_CHARS: usize = 8;

/// The physical cluster an object is sent to, and the logical cluster it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The id of the user's logical cluster.
    pub logical_cluster: &'a str,
    pub cluster: &'a PhysicalCluster,
    /// All Overrides of the logical cluster. Those that do not match are skipped.
    pub overrides: &'a [Override],
    pub namespace_labels: &'a Labels,
    /// How its pods reach the API of their logical cluster, if they do.
    pub api_access: Option<&'a ApiAccess>,
}

impl Destination<'_> {
    fn is_dedicated(&self) -> bool {
        self.cluster.spec.dedicated_to.is_some()
    }

    /// The name of a namespace on the physical cluster.
    pub fn namespace(&self, namespace: &str) -> String {
        match self.is_dedicated() {
            true => namespace.to_owned(),
            false => physical_namespace(self.logical_cluster, namespace),
        }
    }
}

/// The name of a namespace on a shared cluster: the namespace and a hash of logical cluster and namespace. A long one is
/// cut.
pub fn physical_namespace(logical_cluster: &str, namespace: &str) -> String {
    let hash = word(&[logical_cluster, namespace], HASH_CHARS);
    let length_max = NAMESPACE_BYTES_MAX - HASH_CHARS - 1;
    let name = namespace.get(..length_max).unwrap_or(namespace).trim_end_matches('-');
    format!("{name}-{hash}")
}

/// The result of a transformation.
#[derive(Clone, PartialEq, Debug)]
pub enum Transformed {
    Object(Value),
    /// The object is not propagated, for this reason.
    NotPropagated(&'static str),
}

/// Kinds that describe their own cluster, or are created by it.
const NOT_PROPAGATED: &[(&str, &str, &str)] = &[
    ("", "Event", "Events are projected, not propagated"),
    ("events.k8s.io", "Event", "Events are projected, not propagated"),
    ("", "Endpoints", "endpoints are created on the physical cluster"),
    ("discovery.k8s.io", "EndpointSlice", "endpoints are created on the physical cluster"),
    ("", "Node", "Nodes are projected, not propagated"),
    ("coordination.k8s.io", "Lease", "a Lease belongs to one cluster"),
    ("apps", "ControllerRevision", "revisions are created on the physical cluster"),
    ("holon.dev", "Distribution", "a Distribution is a record of the splitter"),
];

/// Transforms a user's object into a mailbox object.
pub fn transform(
    object: &Value,
    patch: Option<&TargetPatch>,
    destination: &Destination,
) -> Result<Transformed, OverrideError> {
    if let Some(why) = not_propagated_reason(object, destination) {
        return Ok(Transformed::NotPropagated(why));
    }
    let mut transformed = object.clone();
    server_fields::strip_server_fields(&mut transformed);
    if let Some(patch) = patch {
        patch.apply(&mut transformed);
    }
    if let Some(api_access) = destination.api_access {
        api_access::rewrite(&mut transformed, api_access);
    }
    annotate_template(object, &mut transformed);
    rename(&mut transformed, destination);
    let marks = OriginMarks::of(object, destination);
    marks.put(&mut transformed);
    let (labels, subject) = (labels(object), identity(object));
    let subject =
        ObjectAttributes { labels: &labels, namespace_labels: destination.namespace_labels, ..subject };
    let mut changed = overrides::apply(transformed, &subject, destination.cluster, destination.overrides)?;
    // Overrides cannot change these.
    marks.put(&mut changed);
    classes::map_names(&mut changed, &destination.cluster.spec.class_mappings);
    mark_node_ports(&mut changed);
    Ok(Transformed::Object(changed))
}

/// Annotates the node ports that the user requested. Those that the server allocated have been removed.
fn mark_node_ports(transformed: &mut Value) {
    let ports = transformed.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let requested: Vec<String> =
        ports.filter_map(|port| Some(port["nodePort"].as_i64()?.to_string())).collect();
    if group_kind(transformed) == ("", "Service") && !requested.is_empty() {
        transformed["metadata"]["annotations"][NODE_PORTS] = requested.join(",").into();
    }
}

/// The hash of the pod template as transformed for one target. It changes also when only an Override changes. None if
/// the object has no template, or is not propagated.
pub fn template_hash_on(object: &Value, destination: &Destination) -> Result<Option<String>, OverrideError> {
    let Transformed::Object(transformed) = transform(object, None, destination)? else { return Ok(None) };
    Ok(transformed.pointer("/spec/template").map(|_| template_hash(&transformed)))
}

/// The hash of the user's pod template.
pub fn template_hash(deployment: &Value) -> String {
    let text = deployment.pointer("/spec/template").map(Value::to_string).unwrap_or_default();
    word(&[&text], 10)
}

fn annotate_template(object: &Value, transformed: &mut Value) {
    if group_kind(object) == ("apps", "Deployment")
        && transformed.pointer("/spec/template").is_some_and(Value::is_object)
    {
        let at = format!("/spec/template/metadata/annotations/{}", pointer::escape(TEMPLATE));
        // A template whose metadata is not an object is invalid.
        let _ = api::meta::pointer::set(transformed, &at, template_hash(object).into());
    }
}

fn not_propagated_reason(object: &Value, destination: &Destination) -> Option<&'static str> {
    let (group, kind) = group_kind(object);
    let is_namespace = group.is_empty() && kind == "Namespace";
    let is_cluster_wide = object["metadata"]["namespace"].as_str().is_none_or(str::is_empty) && !is_namespace;
    let row =
        NOT_PROPAGATED.iter().find(|(of, name, _)| *of == group && *name == kind).map(|(_, _, why)| *why);
    let named = |name: &str| object.pointer("/metadata/name").is_some_and(|found| found == name);
    match kind {
        _ if row.is_some() => row,
        _ if object["metadata"]["labels"][PROJECTED] == TRUE => {
            Some("the object is projected from a physical cluster")
        }
        "Secret" if object["type"] == "kubernetes.io/service-account-token" => {
            Some("a service account token is valid only in its own cluster")
        }
        "ConfigMap" if named("kube-root-ca.crt") => Some("every cluster has its own kube-root-ca.crt"),
        "ServiceAccount" if named("default") => Some("every namespace has its own ServiceAccount default"),
        // A ClusterRoleBinding would give one user rights over all namespaces of the cluster, a CustomResourceDefinition
        // would apply to all tenants.
        _ if is_cluster_wide && !destination.is_dedicated() => Some(
            "the object is cluster-scoped, and the physical cluster is not dedicated to its logical cluster",
        ),
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

fn identity(object: &Value) -> ObjectAttributes<'_> {
    let (group, kind) = group_kind(object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    ObjectAttributes { group, kind, name, labels: &NO_LABELS, namespace_labels: &NO_LABELS }
}

/// The label and the annotation that identify the user's object of a mailbox object.
struct OriginMarks {
    locator: String,
}

impl OriginMarks {
    fn of(object: &Value, destination: &Destination) -> OriginMarks {
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let locator = Locator {
            logical_cluster: destination.logical_cluster.to_owned(),
            namespace: text("namespace"),
            name: text("name").unwrap_or_default(),
            uid: text("uid").unwrap_or_default(),
        };
        OriginMarks { locator: serde_json::to_string(&locator).expect("texts can be written as JSON") }
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

fn rename(object: &mut Value, destination: &Destination) {
    let (group, kind) = group_kind(object);
    let fields: Vec<&[&str]> = NAMESPACES
        .iter()
        .filter(|(of, name, _)| *of == group && *name == kind)
        .map(|(_, _, path)| *path)
        .collect();
    let is_namespace = group.is_empty() && kind == "Namespace";
    for path in fields {
        server_fields::at_each(object, path, &mut |namespace| rename_namespace(namespace, destination));
    }
    let field = if is_namespace { "name" } else { "namespace" };
    server_fields::at_each(object, &["metadata", field], &mut |namespace| {
        rename_namespace(namespace, destination)
    });
}

fn rename_namespace(namespace: &mut Value, destination: &Destination) {
    if let Some(name) = namespace.as_str().filter(|name| !name.is_empty()) {
        *namespace = destination.namespace(name).into();
    }
}

#[cfg(test)]
mod tests;
