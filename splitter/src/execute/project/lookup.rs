//! What a user sees of something in a mailbox.

use api::meta::metadata::text;
use api::names::BELOW_UID;
use controller::informer::Key;
use serde_json::{Value, json};

use super::origin::{Origin, Unknown};
use super::{DEPLOYMENTS, Head, SETS, annotation};
use crate::controller::Splitter;
use crate::snapshot::{Followed, Marks, Subject};
use crate::transform::projection::object_references::Seen;
use crate::transform::projection::replica_sets;

/// What the user sees of what is named here by kind, name and uid, as in a reference to an owner.
pub(super) fn seen(splitter: &Splitter, origin: &Origin, named: &Value) -> Result<Seen, Unknown> {
    let text = |field: &str| named[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let followed = splitter.world.named(group, text("kind")).ok_or(Unknown::Nobodys)?;
    let key = Key {
        cluster: Some(origin.mailbox),
        namespace: origin.namespace_there.clone(),
        name: text("name").to_owned(),
    };
    let there = Subject { kind: followed.name.clone(), key };
    let object = followed.view.get(&there.key).ok_or_else(|| Unknown::Yet(there.clone()))?;
    let head = Head::of(&object);
    // Owners are named by their uids in the mailbox, pods of a Service by those below.
    let is_it = |uid: &str| {
        [Some(&object.uid), head.annotations.get(BELOW_UID)].into_iter().flatten().any(|one| one == uid)
    };
    if !text("uid").is_empty() && !is_it(text("uid")) {
        return Err(Unknown::Yet(there));
    }
    if head.is_shown() {
        return shown(splitter, origin, &followed, &there, &head);
    }
    let locator = Marks::of(&object).locator.ok_or(Unknown::Nobodys)?;
    let key = Key { cluster: Some(origin.cluster), namespace: origin.namespace.clone(), name: locator.name };
    match followed.view.get(&key) {
        Some(found) if found.uid == locator.uid => Ok(Seen { name: key.name, uid: found.uid.clone() }),
        _ => Err(Unknown::Nobodys),
    }
}

/// Of something that is itself shown.
fn shown(
    splitter: &Splitter,
    origin: &Origin,
    followed: &Followed,
    there: &Subject,
    head: &Head,
) -> Result<Seen, Unknown> {
    let deployment = head.deployment(&there.key).filter(|_| &*followed.name == SETS);
    if let Some(deployment) = deployment {
        return set(splitter, origin, followed, there, &deployment.key.name);
    }
    let below = head.annotations.get(BELOW_UID);
    for key in splitter.tree.shown(there) {
        let Some(found) = followed.view.get(&key) else { continue };
        if Head::of(&found).annotations.get(BELOW_UID) == below {
            return Ok(Seen { name: key.name, uid: found.uid.clone() });
        }
    }
    Err(Unknown::Yet(there.clone()))
}

/// The ReplicaSet the user sees for this template.
fn set(
    splitter: &Splitter,
    origin: &Origin,
    followed: &Followed,
    there: &Subject,
    deployment: &str,
) -> Result<Seen, Unknown> {
    let key = Key {
        cluster: Some(origin.cluster),
        namespace: origin.namespace.clone(),
        name: deployment.to_owned(),
    };
    let deployment = Subject { kind: DEPLOYMENTS.into(), key };
    let of = |key: &Key| followed.get(key);
    let template = of(&there.key).as_ref().map(replica_sets::key);
    let sets = splitter.tree.sets(&deployment);
    let found = sets.iter().filter_map(of).find(|set| Some(replica_sets::key(set)) == template);
    let found = found.ok_or(Unknown::Yet(deployment))?;
    Ok(Seen { name: text(&found, "name").to_owned(), uid: text(&found, "uid").to_owned() })
}

/// The owners of something, as the user sees them. Those he does not see are left out, as long as there are others.
pub(super) fn owners(splitter: &Splitter, origin: &Origin, there: &Value) -> Result<Vec<Value>, Unknown> {
    let mut owners = Vec::new();
    let mut unknown = Unknown::Nobodys;
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
            Err(Unknown::Nobodys) => {}
            Err(yet) => unknown = yet,
        }
    }
    if owners.is_empty() { Err(unknown) } else { Ok(owners) }
}

/// The uid on the physical cluster of something that is shown.
pub(super) fn below_uid(object: &Value) -> &str {
    annotation(object, BELOW_UID)
}
