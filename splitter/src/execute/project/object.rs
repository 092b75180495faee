//! The projection of one object in a mailbox.
//!
//! ```text
//!   source exists             ──► projected
//!   source gone               ──► projection removed
//!   source is being deleted   ──► projection too, with the same grace period
//!   projection is deleted     ──► source too, if the user deleted it
//! ```

use std::collections::BTreeMap;

use api::meta::is_being_deleted;
use api::meta::metadata::text;
use api::names::{DOWNSTREAM_NAME, SPLITTER};
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::{Value, json};

use super::lookup::{self, downstream_uid};
use super::origin::{self, Origin, OriginError};
use super::write::{ProjectedObject, ProjectionWriter, UpdateOutcome};
use super::{ProjectionMetadata, annotation};
use crate::context::Splitter;
use crate::snapshot::{ObjectRef, WatchedKind};
use crate::transform::projection::object_references;
use crate::transform::projection::pods::{self, CLUSTER, ProjectionTarget, SourceObject};

/// The storage request of a claim.
const STORAGE_REQUEST: &str = "/spec/resources/requests/storage";

pub(super) async fn reconcile(splitter: &Splitter, source: &ObjectRef) -> Result<Outcome, CallError> {
    let Some(watched) = splitter.caches.by_resource(&source.kind) else { return Ok(Outcome::Done) };
    splitter.projections.stop_waiting(source);
    let mailbox_object =
        watched.view.get(&source.key).filter(|found| ProjectionMetadata::of(found).is_projection());
    let Some(mailbox_object) = mailbox_object.map(|mailbox_object| mailbox_object.read(&watched.kind)) else {
        return remove_projections(splitter, source, &watched).await;
    };
    let origin = match origin::origin(&splitter.caches, source) {
        Ok(origin) => origin,
        Err(unknown) => return Ok(wait_for(splitter, source, unknown)),
    };
    let server = splitter.caches.server.within(origin.cluster);
    let writer = ProjectionWriter { server: &server, watched: &watched };
    let projection =
        Projection { splitter, source, mailbox_object: &mailbox_object, origin: &origin, writer };
    let mut kept = None;
    for key in splitter.projections.projected(source) {
        let Some(projected) = watched.get(&key) else { continue };
        let is_it = downstream_uid(&projected) == downstream_uid(&mailbox_object)
            && key.cluster == Some(origin.cluster);
        match is_it && kept.is_none() {
            true => kept = Some((key, projected)),
            // The source was replaced by another object of its name, or is projected twice.
            false => remove(splitter, &watched, &key, &projected).await?,
        }
    }
    match kept {
        None => projection.create().await,
        Some((key, projected)) => projection.update(&key, &projected).await,
    }
}

fn wait_for(splitter: &Splitter, source: &ObjectRef, unknown: OriginError) -> Outcome {
    if let OriginError::NotYet(on) = unknown {
        splitter.projections.wait(source, on);
    }
    Outcome::Done
}

async fn remove(
    splitter: &Splitter,
    watched: &WatchedKind,
    key: &Key,
    projected: &Value,
) -> Result<(), CallError> {
    let Some(cluster) = key.cluster else { return Ok(()) };
    let server = splitter.caches.server.within(cluster);
    ProjectionWriter { server: &server, watched }.remove(key, projected).await
}

/// The source was deleted.
async fn remove_projections(
    splitter: &Splitter,
    source: &ObjectRef,
    watched: &WatchedKind,
) -> Result<Outcome, CallError> {
    let projected = splitter.projections.projected(source);
    // Events outlive their object, as in Kubernetes.
    if projected.is_empty() || watched.is("", "Event") {
        return Ok(Outcome::Done);
    }
    for key in projected {
        let Some(object) = watched.get(&key) else { continue };
        remove(splitter, watched, &key, &object).await?;
    }
    Ok(Outcome::Done)
}

/// A source in a mailbox, and where it is projected to.
struct Projection<'a> {
    splitter: &'a Splitter,
    source: &'a ObjectRef,
    mailbox_object: &'a Value,
    origin: &'a Origin,
    writer: ProjectionWriter<'a>,
}

impl<'a> Projection<'a> {
    fn source_object(&self) -> SourceObject<'a> {
        SourceObject {
            cluster: self.origin.member.name(),
            name: &self.source.key.name,
            uid: downstream_uid(self.mailbox_object),
        }
    }

    /// Whether the splitter's finalizer holds the projection, so that its deletion is read here.
    fn has_finalizer(&self, projected: &Value) -> bool {
        let finalizers = projected["metadata"]["finalizers"].as_array().into_iter().flatten();
        finalizers.into_iter().any(|finalizer| finalizer == SPLITTER)
    }

    fn key(&self, name: &str) -> Key {
        Key {
            cluster: Some(self.origin.cluster),
            namespace: self.origin.namespace.clone(),
            name: name.to_owned(),
        }
    }

    async fn create(&self) -> Result<Outcome, CallError> {
        let name = self.name();
        let desired = match self.desired(&name) {
            Ok(desired) => desired,
            Err(unknown) => return Ok(wait_for(self.splitter, self.source, unknown)),
        };
        let Origin { cluster, namespace, .. } = self.origin;
        if !origin::is_namespace_active(&self.splitter.caches, *cluster, namespace)
            || is_being_deleted(self.mailbox_object)
        {
            return Ok(Outcome::Done);
        }
        self.writer.create(&self.key(&name), &desired).await?;
        Ok(Outcome::Done)
    }

    async fn update(&self, key: &Key, projected: &Value) -> Result<Outcome, CallError> {
        let desired = self.desired(&key.name);
        if is_being_deleted(projected) && self.has_finalizer(projected) {
            return self.handle_user_deletion(key, projected, desired.ok().as_ref()).await;
        }
        let desired = match desired {
            Ok(desired) => desired,
            Err(unknown) => return Ok(wait_for(self.splitter, self.source, unknown)),
        };
        let mut now = projected.clone();
        if is_being_deleted(self.mailbox_object) && self.has_finalizer(projected) {
            let seconds = self.mailbox_object["metadata"]["deletionGracePeriodSeconds"].as_i64();
            self.writer.mark(key, projected, seconds).await?;
            // An object that is being deleted only changes its status.
            now["metadata"]["deletionTimestamp"] =
                self.mailbox_object["metadata"]["deletionTimestamp"].clone();
        }
        self.resize(&desired, &now).await?;
        match self.writer.update(key, &desired, &now).await? {
            UpdateOutcome::Updated => Ok(Outcome::Done),
            UpdateOutcome::Deleted => Ok(Outcome::Failed),
        }
    }

    /// Copies a larger storage request from the user's claim to the mailbox. While the mailbox matches what was last
    /// projected, a different request is the user's; otherwise the mailbox is newer.
    async fn resize(&self, desired: &ProjectedObject, projected: &Value) -> Result<(), CallError> {
        let watched = self.writer.watched;
        let requested =
            projected.pointer(STORAGE_REQUEST).filter(|_| watched.is("", "PersistentVolumeClaim"));
        let is_pending = |size: &&Value| self.mailbox_object.pointer(STORAGE_REQUEST) != Some(*size);
        let Some(requested) = requested.filter(is_pending).filter(|_| desired.matches(projected)) else {
            return Ok(());
        };
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": text(self.mailbox_object, "uid") },
            { "op": "replace", "path": STORAGE_REQUEST, "value": requested },
        ]);
        let place = ObjectPath::new(&watched.kind, &self.source.key.namespace, &self.source.key.name);
        let mailbox = self.splitter.caches.server.within(self.origin.mailbox);
        match mailbox.patch(place, Patch::Json, &change).await {
            // Another claim has the name in the mailbox now, and is projected next.
            Err(error) if error.code() == 422 => Ok(()),
            patched => patched.map(drop),
        }
    }

    /// A projection with our finalizer was deleted. If the user deleted it, the source is deleted too. If it was deleted
    /// with its owners, the physical cluster decides about the source, and the projection follows as long as it reports.
    async fn handle_user_deletion(
        &self,
        key: &Key,
        projected: &Value,
        desired: Option<&ProjectedObject>,
    ) -> Result<Outcome, CallError> {
        // Its owners were recreated: it is projected again, with the new owners.
        if desired.is_some_and(|desired| *desired.owners() != projected["metadata"]["ownerReferences"]) {
            self.writer.remove(key, projected).await?;
            return Ok(Outcome::Failed);
        }
        // A terminating namespace waits for its pods before it deletes their owners, so the pods must not wait for the
        // owners.
        let is_active =
            origin::is_namespace_active(&self.splitter.caches, self.origin.cluster, &self.origin.namespace);
        if is_active && self.is_user_deletion(projected) {
            if !is_being_deleted(self.mailbox_object) {
                let seconds = projected["metadata"]["deletionGracePeriodSeconds"].as_i64();
                let place = ObjectPath::new(
                    &self.writer.watched.kind,
                    &self.source.key.namespace,
                    &self.source.key.name,
                );
                let mailbox = self.splitter.caches.server.within(self.origin.mailbox);
                mailbox.delete_within(place, text(self.mailbox_object, "uid"), seconds).await?;
                tracing::info!(
                    object = %self.source,
                    logical_cluster = %self.origin.cluster,
                    revision = text(projected, "resourceVersion"),
                    from = self.origin.member.name(),
                    reason = "the user deleted its projection",
                    "deleted from the mailbox"
                );
            }
        } else if !is_active || !self.origin.member.is_ready() {
            // The physical cluster does not report, or the user's namespace is terminating.
            self.writer.release(key, projected).await?;
            return Ok(Outcome::Done);
        }
        if let Some(desired) = desired {
            self.writer.update(key, desired, projected).await?;
        }
        Ok(Outcome::Done)
    }

    /// Whether the user deleted this projection, and not its owner. An owner is deleted before what it owns, and the
    /// caches observe deletions in their order.
    fn is_user_deletion(&self, projected: &Value) -> bool {
        for owner in projected["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            let owner_text = |field: &str| owner[field].as_str().unwrap_or_default();
            let group = owner_text("apiVersion").split_once('/').map_or("", |(group, _)| group);
            let Some(watched) = self.splitter.caches.by_group_kind(group, owner_text("kind")) else {
                return false;
            };
            let found = watched.get(&self.key(owner_text("name")));
            if !found
                .is_some_and(|found| text(&found, "uid") == owner_text("uid") && !is_being_deleted(&found))
            {
                return false;
            }
        }
        true
    }

    /// The projection as it should be.
    fn desired(&self, name: &str) -> Result<ProjectedObject, OriginError> {
        let Projection { splitter, origin, mailbox_object, .. } = *self;
        let watched = self.writer.watched;
        let owners = match lookup::owners(splitter, origin, mailbox_object) {
            Ok(owners) => owners,
            // Events have no owners, and claims outlive theirs.
            Err(_) if watched.is("", "Event") || watched.is("", "PersistentVolumeClaim") => Vec::new(),
            Err(unknown) => return Err(unknown),
        };
        let mailbox = origin.mailbox.to_string();
        let target = ProjectionTarget { namespace: &origin.namespace, name, owners, mailbox: &mailbox };
        let projected = pods::project(mailbox_object, &self.source_object(), &target);
        let generation = mailbox_object["metadata"]["generation"].as_i64();
        let find_user_object = |named: &Value| lookup::find_user_object(splitter, origin, named);
        let projected = if watched.is("", "Event") {
            let unknown =
                find_user_object(&mailbox_object["involvedObject"]).err().unwrap_or(OriginError::NotOurs);
            object_references::event(&projected, &origin.namespace, |named| find_user_object(named).ok())
                .ok_or(unknown)?
        } else if watched.is("discovery.k8s.io", "EndpointSlice") {
            object_references::slice(&projected, &self.source_object(), &origin.namespace, |named| {
                let found = find_user_object(named);
                if let Err(OriginError::NotYet(on)) = &found {
                    splitter.projections.wait(self.source, on.clone());
                }
                found.ok()
            })
        } else {
            projected
        };
        Ok(ProjectedObject::new(projected, generation))
    }

    /// The name of the projection: that of the source, unless another object keeps it.
    fn name(&self) -> String {
        let source = self.source_object();
        let holders: Vec<(String, NameHolder)> = [source.name.to_owned(), pods::disambiguated(&source)]
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.holder(&name)?)))
            .collect();
        let projected: BTreeMap<String, SourceObject> =
            holders.iter().map(|(name, holder)| (name.clone(), holder.source_object())).collect();
        let mut all = vec![source];
        all.extend(
            holders.iter().filter(|(_, holder)| holder.keeps_name).map(|(_, holder)| holder.source_object()),
        );
        pods::names(&all, &projected)[&(source.cluster, source.uid)].clone()
    }

    /// The object that has this name in the user's namespace.
    fn holder(&self, name: &str) -> Option<NameHolder> {
        let watched = self.writer.watched;
        let object = watched.view.get(&self.key(name))?;
        let metadata = ProjectionMetadata::of(&object);
        let whole = object.read(&watched.kind);
        let Some(source) = metadata.source(&watched.name).filter(|_| metadata.is_projection()) else {
            return Some(NameHolder {
                cluster: String::new(),
                name: name.to_owned(),
                uid: object.uid.clone(),
                keeps_name: true,
            });
        };
        let mailbox_object = watched.get(&source.key);
        let (_, downstream) = annotation(&whole, DOWNSTREAM_NAME).split_once('/').unwrap_or_default();
        Some(NameHolder {
            cluster: metadata.labels.get(CLUSTER).cloned().unwrap_or_default(),
            name: downstream.to_owned(),
            uid: downstream_uid(&whole).to_owned(),
            keeps_name: mailbox_object
                .is_some_and(|mailbox_object| downstream_uid(&mailbox_object) == downstream_uid(&whole)),
        })
    }
}

/// An object with a name in the user's namespace.
struct NameHolder {
    /// Empty for an object of the user.
    cluster: String,
    name: String,
    uid: String,
    /// Whether its source still exists.
    keeps_name: bool,
}

impl NameHolder {
    fn source_object(&self) -> SourceObject<'_> {
        SourceObject { cluster: &self.cluster, name: &self.name, uid: &self.uid }
    }
}
