//! Projects pods and other objects that workloads created, one to one.
//!
//! A projection has the name of its source, unless another cluster has an object of the same name: then the earlier
//! projection keeps the name, and the later one gets the name of its cluster appended. `spec.nodeName` is the physical
//! cluster, because that is the Node in the user's logical cluster; the real node is an annotation.

use std::collections::{BTreeMap, BTreeSet};

use api::meta::hash::word;
use api::names::{
    DOWNSTREAM_NAME, DOWNSTREAM_UID, LOCATOR, LOGICAL_CLUSTER, MAILBOX, PLACED, PROJECTED, SPLITTER, TRUE,
};
use serde_json::{Value, json};

use crate::transform::group_kind;

/// Label: the physical cluster something is on.
pub const CLUSTER: &str = api::names::PHYSICAL_CLUSTER;
/// Annotation: the node of a pod on the physical cluster.
pub const NODE: &str = "holon.dev/node";

/// Annotations that only make sense in the mailbox.
const NOT_PROJECTED: &[&str] = &[LOCATOR, LOGICAL_CLUSTER, "holon.dev/sent"];

/// As for any name.
const NAME_BYTES_MAX: usize = 253;

/// An object on a physical cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SourceObject<'a> {
    pub cluster: &'a str,
    pub name: &'a str,
    /// The uid on the physical cluster.
    pub uid: &'a str,
}

/// The namespace, name and owners of a projection.
#[derive(Clone, PartialEq, Debug)]
pub struct ProjectionTarget<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub owners: Vec<Value>,
    /// The mailbox it comes from.
    pub mailbox: &'a str,
}

/// The name of every projection, by cluster and uid. `projected` has the names in use, with their sources.
pub fn names<'a>(
    sources: &[SourceObject<'a>],
    projected: &BTreeMap<String, SourceObject>,
) -> BTreeMap<(&'a str, &'a str), String> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut names = BTreeMap::new();
    let is_projected_as = |one: &SourceObject, as_: &str, other: &SourceObject| {
        other.uid == one.uid && other.cluster == one.cluster && (as_ == one.name || as_ == disambiguated(one))
    };
    for one in sources {
        if let Some((name, _)) = projected.iter().find(|(name, other)| is_projected_as(one, name, other)) {
            taken.insert(name.clone());
            names.insert((one.cluster, one.uid), name.clone());
        }
    }
    let mut new: Vec<&SourceObject> =
        sources.iter().filter(|one| !names.contains_key(&(one.cluster, one.uid))).collect();
    new.sort_unstable();
    for one in new {
        let own = one.name.to_owned();
        let name = if taken.contains(&own) { disambiguated(one) } else { own };
        taken.insert(name.clone());
        names.insert((one.cluster, one.uid), name);
    }
    names
}

/// The name with that of the cluster appended. A long one is cut and gets a hash.
pub fn disambiguated(one: &SourceObject) -> String {
    let whole = format!("{}-{}", one.name, one.cluster);
    if whole.len() <= NAME_BYTES_MAX {
        return whole;
    }
    let hash = word(&[one.name, one.cluster], 8);
    let start: String = whole.chars().take(NAME_BYTES_MAX - hash.len() - 1).collect();
    format!("{start}-{hash}")
}

/// Whether deleting the projection deletes the source. Projections of other kinds are deleted with their owner.
pub fn is_deletable(group: &str, kind: &str) -> bool {
    group.is_empty() && ["Pod", "PersistentVolumeClaim"].contains(&kind)
}

/// Projects an object of a mailbox into the user's namespace, with this name and these owners. The status is included;
/// servers take it through a subresource.
pub fn project(source: &Value, source_object: &SourceObject, target: &ProjectionTarget) -> Value {
    let mut projected = source.clone();
    let kept = |field: &str, without: &[&str]| {
        let mut table = source["metadata"][field].as_object().cloned().unwrap_or_default();
        table.retain(|key, _| !without.contains(&key.as_str()));
        Value::Object(table)
    };
    let source_text = |field: &str| source["metadata"][field].as_str().unwrap_or_default();
    let mut metadata = json!({
        "name": target.name,
        "namespace": target.namespace,
        "labels": kept("labels", &[PLACED]),
        "annotations": kept("annotations", NOT_PROJECTED),
    });
    metadata["labels"][PROJECTED] = TRUE.into();
    metadata["labels"][CLUSTER] = source_object.cluster.into();
    metadata["annotations"][DOWNSTREAM_UID] = source_object.uid.into();
    metadata["annotations"][MAILBOX] = target.mailbox.into();
    metadata["annotations"][DOWNSTREAM_NAME] =
        format!("{}/{}", source_text("namespace"), source_text("name")).into();
    if !target.owners.is_empty() {
        metadata["ownerReferences"] = Value::Array(target.owners.clone());
    }
    // The finalizer lets the splitter pass a deletion on to the source.
    let (group, kind) = group_kind(source);
    if is_deletable(group, kind) {
        metadata["finalizers"] = json!([SPLITTER]);
    }
    if projected["kind"] == "Pod"
        && let Some(node) = projected["spec"]["nodeName"].as_str()
    {
        metadata["annotations"][NODE] = node.into();
        projected["spec"]["nodeName"] = source_object.cluster.into();
    }
    projected["metadata"] = metadata;
    projected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_object<'a>(cluster: &'a str, name: &'a str, uid: &'a str) -> SourceObject<'a> {
        SourceObject { cluster, name, uid }
    }

    #[test]
    fn names_are_kept_and_collisions_are_disambiguated() {
        let check = |now: &[SourceObject], projected: &[(&str, SourceObject)], expected: &[&str]| {
            let projected: BTreeMap<String, SourceObject> =
                projected.iter().map(|(name, one)| ((*name).to_owned(), *one)).collect();
            let names = names(now, &projected);
            let found: Vec<&str> = now.iter().map(|one| names[&(one.cluster, one.uid)].as_str()).collect();
            assert_eq!(found, expected, "{now:?} {projected:?}");
        };
        let (east, west) = (source_object("east", "db-0", "1"), source_object("west", "db-0", "2"));
        check(&[east, source_object("west", "db-1", "3")], &[], &["db-0", "db-1"]);
        check(&[west, east], &[], &["db-0-west", "db-0"]);
        // The earlier projection keeps the name.
        check(&[east, west], &[("db-0", west)], &["db-0-east", "db-0"]);
        check(&[east, west], &[("db-0", west), ("db-0-east", east)], &["db-0-east", "db-0"]);
        check(&[east], &[("db-0", west), ("db-0-east", east)], &["db-0-east"]);
        // The next of the same name is another pod.
        check(&[source_object("west", "db-0", "9")], &[("db-0", west)], &["db-0"]);
        let long = "x".repeat(250);
        let names =
            names(&[source_object("east", &long, "1"), source_object("west", &long, "2")], &BTreeMap::new());
        assert_eq!(names[&("west", "2")].len(), 253);
    }

    #[test]
    fn a_pod_is_projected_onto_the_node_of_its_physical_cluster() {
        let mailbox = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "web-x1", "namespace": "shop-m41cmv47", "uid": "m", "labels": { "app": "web", PLACED: TRUE },
                          "annotations": { LOCATOR: "{}", LOGICAL_CLUSTER: "~m", "note": "n" }, "ownerReferences": [{ "uid": "m2" }] },
            "spec": { "nodeName": "n7" },
            "status": { "phase": "Running", "podIP": "10.1.2.3" },
        });
        let owner = json!({ "kind": "ReplicaSet", "name": "web-5d", "uid": "u2" });
        let target = ProjectionTarget {
            namespace: "shop",
            name: "web-x1",
            owners: vec![owner.clone()],
            mailbox: "~m",
        };
        let projected = project(&mailbox, &source_object("east", "web-x1", "b-1"), &target);
        assert_eq!(
            projected,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "web-x1", "namespace": "shop", "finalizers": [SPLITTER], "ownerReferences": [owner],
                    "labels": { "app": "web", PROJECTED: TRUE, CLUSTER: "east" },
                    "annotations": { "note": "n", DOWNSTREAM_UID: "b-1", NODE: "n7", MAILBOX: "~m",
                                     DOWNSTREAM_NAME: "shop-m41cmv47/web-x1" },
                },
                "spec": { "nodeName": "east" },
                "status": { "phase": "Running", "podIP": "10.1.2.3" },
            })
        );
    }
}
