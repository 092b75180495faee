//! Finds the projection of an object in a mailbox.

use api::meta::metadata::text;
use api::names::DOWNSTREAM_UID;
use controller::informer::Key;
use serde_json::{Value, json};

use super::origin::{Origin, OriginError};
use super::{DEPLOYMENTS, ProjectionMetadata, SETS, annotation};
use crate::controller::Splitter;
use crate::snapshot::{ObjectRef, PlacementMarks, WatchedKind};
use crate::transform::projection::object_references::ProjectedRef;
use crate::transform::projection::replica_sets;

/// The user's object, or the projection, for an owner reference or object reference in a mailbox.
pub(super) fn seen(splitter: &Splitter, origin: &Origin, named: &Value) -> Result<ProjectedRef, OriginError> {
    let text = |field: &str| named[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let watched = splitter.caches.by_group_kind(group, text("kind")).ok_or(OriginError::NotOurs)?;
    let key = Key {
        cluster: Some(origin.mailbox),
        namespace: origin.namespace_on.clone(),
        name: text("name").to_owned(),
    };
    let there = ObjectRef { kind: watched.name.clone(), key };
    let object = watched.view.get(&there.key).ok_or_else(|| OriginError::NotYet(there.clone()))?;
    let head = ProjectionMetadata::of(&object);
    // Owner references have the uid of the mailbox object, endpoints the uid on the physical cluster.
    let is_it = |uid: &str| {
        [Some(&object.uid), head.annotations.get(DOWNSTREAM_UID)].into_iter().flatten().any(|one| one == uid)
    };
    if !text("uid").is_empty() && !is_it(text("uid")) {
        return Err(OriginError::NotYet(there));
    }
    if head.is_shown() {
        return shown(splitter, origin, &watched, &there, &head);
    }
    let locator = PlacementMarks::of(&object).locator.ok_or(OriginError::NotOurs)?;
    let key = Key { cluster: Some(origin.cluster), namespace: origin.namespace.clone(), name: locator.name };
    match watched.view.get(&key) {
        Some(found) if found.uid == locator.uid => {
            Ok(ProjectedRef { name: key.name, uid: found.uid.clone() })
        }
        _ => Err(OriginError::NotOurs),
    }
}

/// The projection of an object that is itself a projection in the mailbox.
fn shown(
    splitter: &Splitter,
    origin: &Origin,
    watched: &WatchedKind,
    there: &ObjectRef,
    head: &ProjectionMetadata,
) -> Result<ProjectedRef, OriginError> {
    let deployment = head.deployment(&there.key).filter(|_| &*watched.name == SETS);
    if let Some(deployment) = deployment {
        return set(splitter, origin, watched, there, &deployment.key.name);
    }
    let below = head.annotations.get(DOWNSTREAM_UID);
    for key in splitter.projections.shown(there) {
        let Some(found) = watched.view.get(&key) else { continue };
        if ProjectionMetadata::of(&found).annotations.get(DOWNSTREAM_UID) == below {
            return Ok(ProjectedRef { name: key.name, uid: found.uid.clone() });
        }
    }
    Err(OriginError::NotYet(there.clone()))
}

/// The merged ReplicaSet for this template.
fn set(
    splitter: &Splitter,
    origin: &Origin,
    watched: &WatchedKind,
    there: &ObjectRef,
    deployment: &str,
) -> Result<ProjectedRef, OriginError> {
    let key = Key {
        cluster: Some(origin.cluster),
        namespace: origin.namespace.clone(),
        name: deployment.to_owned(),
    };
    let deployment = ObjectRef { kind: DEPLOYMENTS.into(), key };
    let of = |key: &Key| watched.get(key);
    let template = of(&there.key).as_ref().map(replica_sets::key);
    let sets = splitter.projections.sets(&deployment);
    let found = sets.iter().filter_map(of).find(|set| Some(replica_sets::key(set)) == template);
    let found = found.ok_or(OriginError::NotYet(deployment))?;
    Ok(ProjectedRef { name: text(&found, "name").to_owned(), uid: text(&found, "uid").to_owned() })
}

/// The owner references of a projection. Owners that are not projected are left out if there are others.
pub(super) fn owners(splitter: &Splitter, origin: &Origin, there: &Value) -> Result<Vec<Value>, OriginError> {
    let mut owners = Vec::new();
    let mut unknown = OriginError::NotOurs;
    for owner in there["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        match seen(splitter, origin, owner) {
            Ok(seen) => {
                let mut here = json!({
                    "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": seen.name, "uid": seen.uid,
                });
                if owner["controller"] == true {
                    here["controller"] = true.into();
                }
                owners.push(here);
            }
            Err(OriginError::NotOurs) => {}
            Err(yet) => unknown = yet,
        }
    }
    if owners.is_empty() { Err(unknown) } else { Ok(owners) }
}

/// The uid on the physical cluster of a projected object.
pub(super) fn below_uid(object: &Value) -> &str {
    annotation(object, DOWNSTREAM_UID)
}
