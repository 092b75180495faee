//! Finds the projection of an object in a mailbox.

use api::meta::metadata::text;
use api::names::DOWNSTREAM_UID;
use controller::informer::Key;
use serde_json::{Value, json};

use super::origin::{Origin, OriginError};
use super::{DEPLOYMENTS, ProjectionMetadata, SETS, annotation};
use crate::context::Splitter;
use crate::snapshot::{ObjectRef, PlacementMarks, WatchedKind};
use crate::transform::projection::object_references::ProjectedRef;
use crate::transform::projection::replica_sets;

/// The user's object, or the projection, for an owner reference or object reference in a mailbox.
pub(super) fn find_user_object(
    splitter: &Splitter,
    origin: &Origin,
    named: &Value,
) -> Result<ProjectedRef, OriginError> {
    let text = |field: &str| named[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let watched = splitter.caches.by_group_kind(group, text("kind")).ok_or(OriginError::NotOurs)?;
    let key = Key {
        cluster: Some(origin.mailbox),
        namespace: origin.namespace_on.clone(),
        name: text("name").to_owned(),
    };
    let mailbox_ref = ObjectRef { kind: watched.name.clone(), key };
    let object =
        watched.view.get(&mailbox_ref.key).ok_or_else(|| OriginError::NotYet(mailbox_ref.clone()))?;
    let metadata = ProjectionMetadata::of(&object);
    // Owner references have the uid of the mailbox object, endpoints the uid on the physical cluster.
    let is_it = |uid: &str| {
        [Some(&object.uid), metadata.annotations.get(DOWNSTREAM_UID)]
            .into_iter()
            .flatten()
            .any(|one| one == uid)
    };
    if !text("uid").is_empty() && !is_it(text("uid")) {
        return Err(OriginError::NotYet(mailbox_ref));
    }
    if metadata.is_projection() {
        return find_projection(splitter, origin, &watched, &mailbox_ref, &metadata);
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
fn find_projection(
    splitter: &Splitter,
    origin: &Origin,
    watched: &WatchedKind,
    mailbox_ref: &ObjectRef,
    metadata: &ProjectionMetadata,
) -> Result<ProjectedRef, OriginError> {
    let deployment = metadata.deployment(&mailbox_ref.key).filter(|_| &*watched.name == SETS);
    if let Some(deployment) = deployment {
        return find_replica_set(splitter, origin, watched, mailbox_ref, &deployment.key.name);
    }
    let downstream_uid = metadata.annotations.get(DOWNSTREAM_UID);
    for key in splitter.projections.projected(mailbox_ref) {
        let Some(found) = watched.view.get(&key) else { continue };
        if ProjectionMetadata::of(&found).annotations.get(DOWNSTREAM_UID) == downstream_uid {
            return Ok(ProjectedRef { name: key.name, uid: found.uid.clone() });
        }
    }
    Err(OriginError::NotYet(mailbox_ref.clone()))
}

/// The merged ReplicaSet for this template.
fn find_replica_set(
    splitter: &Splitter,
    origin: &Origin,
    watched: &WatchedKind,
    mailbox_ref: &ObjectRef,
    deployment: &str,
) -> Result<ProjectedRef, OriginError> {
    let key = Key {
        cluster: Some(origin.cluster),
        namespace: origin.namespace.clone(),
        name: deployment.to_owned(),
    };
    let deployment = ObjectRef { kind: DEPLOYMENTS.into(), key };
    let of = |key: &Key| watched.get(key);
    let template = of(&mailbox_ref.key).as_ref().map(replica_sets::key);
    let sets = splitter.projections.sets(&deployment);
    let found = sets.iter().filter_map(of).find(|set| Some(replica_sets::key(set)) == template);
    let found = found.ok_or(OriginError::NotYet(deployment))?;
    Ok(ProjectedRef { name: text(&found, "name").to_owned(), uid: text(&found, "uid").to_owned() })
}

/// The owner references of a projection. Owners that are not projected are left out if there are others.
pub(super) fn owners(
    splitter: &Splitter,
    origin: &Origin,
    mailbox_object: &Value,
) -> Result<Vec<Value>, OriginError> {
    let mut owners = Vec::new();
    let mut unknown = OriginError::NotOurs;
    for owner in mailbox_object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        match find_user_object(splitter, origin, owner) {
            Ok(reference) => {
                let mut here = json!({
                    "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": reference.name, "uid": reference.uid,
                });
                if owner["controller"] == true {
                    here["controller"] = true.into();
                }
                owners.push(here);
            }
            Err(OriginError::NotOurs) => {}
            Err(not_yet) => unknown = not_yet,
        }
    }
    if owners.is_empty() { Err(unknown) } else { Ok(owners) }
}

/// The uid on the physical cluster of a projected object.
pub(super) fn downstream_uid(object: &Value) -> &str {
    annotation(object, DOWNSTREAM_UID)
}
