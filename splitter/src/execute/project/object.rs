//! One source in a mailbox, and what the user sees of it.
//!
//! ```text
//!   source there             ──► shown, as the user's
//!   source gone, confirmed   ──► no longer shown
//!   source leaves            ──► what is shown leaves too, for as long
//!   what is shown is deleted ──► the source is, if that was meant for it
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use api::meta::is_being_deleted;
use api::meta::metadata::text;
use api::names::{LOCATOR_BELOW, SPLITTER};
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, Patch, Place};
use serde_json::{Value, json};

use super::lookup::{self, below_uid};
use super::origin::{self, Origin, Unknown};
use super::write::{Hung, Picture, Wall};
use super::{Head, annotation};
use crate::controller::Splitter;
use crate::snapshot::{Followed, Subject};
use crate::transform::projection::object_references;
use crate::transform::projection::pods::{self, Below, CLUSTER, Here};

/// The server has it and the view does not: it is late.
const SOON: Duration = Duration::from_millis(50);
/// How much storage a claim asks for.
const STORAGE_REQUEST: &str = "/spec/resources/requests/storage";

pub(super) async fn show(splitter: &Splitter, source: &Subject) -> Result<Outcome, CallError> {
    let Some(followed) = splitter.world.kind(&source.kind) else { return Ok(Outcome::Done) };
    splitter.tree.rest(source);
    let there = followed.view.get(&source.key).filter(|found| Head::of(found).is_shown());
    let Some(there) = there.map(|there| there.read(&followed.kind)) else {
        return vanish(splitter, source, &followed).await;
    };
    let origin = match origin::origin(&splitter.world, source) {
        Ok(origin) => origin,
        Err(unknown) => return Ok(later(splitter, source, unknown)),
    };
    let server = splitter.world.server.within(origin.cluster);
    let wall = Wall { server: &server, followed: &followed };
    let look = Look { splitter, source, there: &there, origin: &origin, wall };
    let mut kept = None;
    for key in splitter.tree.shown(source) {
        let Some(shown) = followed.get(&key) else { continue };
        let is_it = below_uid(&shown) == below_uid(&there) && key.cluster == Some(origin.cluster);
        match is_it && kept.is_none() {
            true => kept = Some((key, shown)),
            // Another has the name there, so the one this showed is gone; or it is shown twice.
            false => remove(splitter, &followed, &key, &shown).await?,
        }
    }
    match kept {
        None => look.create().await,
        Some((key, shown)) => look.update(&key, &shown).await,
    }
}

fn later(splitter: &Splitter, source: &Subject, unknown: Unknown) -> Outcome {
    if let Unknown::Yet(on) = unknown {
        splitter.tree.wait(source, on);
    }
    Outcome::Done
}

async fn remove(splitter: &Splitter, followed: &Followed, key: &Key, shown: &Value) -> Result<(), CallError> {
    let Some(cluster) = key.cluster else { return Ok(()) };
    let server = splitter.world.server.within(cluster);
    Wall { server: &server, followed }.remove(key, shown).await
}

/// The source is gone. The server is asked once more before anything is removed because of that.
async fn vanish(splitter: &Splitter, source: &Subject, followed: &Followed) -> Result<Outcome, CallError> {
    let shown = splitter.tree.shown(source);
    // What happened stays known for a while after it is over, as everywhere.
    if shown.is_empty() || followed.is("", "Event") {
        return Ok(Outcome::Done);
    }
    let place = Place::new(&followed.kind, &source.key.namespace, &source.key.name);
    let found = splitter.world.server.within(source.cluster()).get(place).await?;
    for key in shown {
        let Some(object) = followed.get(&key) else { continue };
        if found.as_ref().is_some_and(|found| below_uid(found) == below_uid(&object)) {
            return Ok(Outcome::Again(SOON));
        }
        remove(splitter, followed, &key, &object).await?;
    }
    Ok(Outcome::Done)
}

/// A source that is there, and everything known about it.
struct Look<'a> {
    splitter: &'a Splitter,
    source: &'a Subject,
    there: &'a Value,
    origin: &'a Origin,
    wall: Wall<'a>,
}

impl<'a> Look<'a> {
    fn below(&self) -> Below<'a> {
        Below { cluster: self.origin.member.name(), name: &self.source.key.name, uid: below_uid(self.there) }
    }

    /// Whether deleting what is shown is something we read: it carries our finalizer.
    fn is_held(&self, shown: &Value) -> bool {
        let finalizers = shown["metadata"]["finalizers"].as_array().into_iter().flatten();
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
        let picture = match self.picture(&name) {
            Ok(picture) => picture,
            Err(unknown) => return Ok(later(self.splitter, self.source, unknown)),
        };
        let Origin { cluster, namespace, .. } = self.origin;
        if !origin::stays(&self.splitter.world, *cluster, namespace) || is_being_deleted(self.there) {
            return Ok(Outcome::Done);
        }
        self.wall.create(&self.key(&name), &picture).await?;
        Ok(Outcome::Done)
    }

    async fn update(&self, key: &Key, shown: &Value) -> Result<Outcome, CallError> {
        let picture = self.picture(&key.name);
        if is_being_deleted(shown) && self.is_held(shown) {
            return self.part(key, shown, picture.ok().as_ref()).await;
        }
        let picture = match picture {
            Ok(picture) => picture,
            Err(unknown) => return Ok(later(self.splitter, self.source, unknown)),
        };
        let mut now = shown.clone();
        if is_being_deleted(self.there) && self.is_held(shown) {
            let seconds = self.there["metadata"]["deletionGracePeriodSeconds"].as_i64();
            self.wall.mark(key, shown, seconds).await?;
            // Nothing but its status changes from now on.
            now["metadata"]["deletionTimestamp"] = self.there["metadata"]["deletionTimestamp"].clone();
        }
        self.resize(&picture, &now).await?;
        match self.wall.update(key, &picture, &now).await? {
            Hung::Yes => Ok(Outcome::Done),
            Hung::Anew => Ok(Outcome::Failed),
        }
    }

    /// Asks for as much storage in the mailbox as the user asks for. While the mailbox shows what it did when we wrote last, a
    /// different amount is what the user asked for since; otherwise the mailbox is newer.
    async fn resize(&self, picture: &Picture, shown: &Value) -> Result<(), CallError> {
        let followed = self.wall.followed;
        let requested = shown.pointer(STORAGE_REQUEST).filter(|_| followed.is("", "PersistentVolumeClaim"));
        let is_pending = |size: &&Value| self.there.pointer(STORAGE_REQUEST) != Some(*size);
        let Some(requested) = requested.filter(is_pending).filter(|_| picture.is_shown_by(shown)) else {
            return Ok(());
        };
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": text(self.there, "uid") },
            { "op": "replace", "path": STORAGE_REQUEST, "value": requested },
        ]);
        let place = Place::new(&followed.kind, &self.source.key.namespace, &self.source.key.name);
        let mailbox = self.splitter.world.server.within(self.origin.mailbox);
        match mailbox.patch(place, Patch::Json, &change).await {
            // Another claim has its name there by now, which will be shown.
            Err(error) if error.code() == 422 => Ok(()),
            asked => asked.map(drop),
        }
    }

    /// Something held that is shown was deleted. If that was meant for it, the real one goes. If it only went with its owners, what
    /// becomes of it is decided where it is, and seen here as long as that is reported.
    async fn part(&self, key: &Key, shown: &Value, picture: Option<&Picture>) -> Result<Outcome, CallError> {
        // It went with owners that have others in their place by now: it is shown anew, as theirs.
        if picture.is_some_and(|picture| *picture.owners() != shown["metadata"]["ownerReferences"]) {
            self.wall.remove(key, shown).await?;
            return Ok(Outcome::Failed);
        }
        // A namespace that goes waits for its pods before it lets go of what makes them, which would wait for it.
        let stays = origin::stays(&self.splitter.world, self.origin.cluster, &self.origin.namespace);
        if stays && self.is_meant(shown).await? {
            if !is_being_deleted(self.there) {
                let seconds = shown["metadata"]["deletionGracePeriodSeconds"].as_i64();
                let place =
                    Place::new(&self.wall.followed.kind, &self.source.key.namespace, &self.source.key.name);
                let mailbox = self.splitter.world.server.within(self.origin.mailbox);
                mailbox.delete_within(place, text(self.there, "uid"), seconds).await?;
                tracing::info!(kind = %self.wall.followed.kind, object = %key, cluster = self.origin.member.name(), "deleted, as its user asked for");
            }
        } else if !stays || !self.origin.member.is_ready() {
            // Nobody says what becomes of it, or its user is not there to see it.
            self.wall.release(key, shown).await?;
            return Ok(Outcome::Done);
        }
        if let Some(picture) = picture {
            self.wall.update(key, picture, shown).await?;
        }
        Ok(Outcome::Done)
    }

    /// Whether somebody deleted this very pod, and not what owns it. The server is asked: a view of owners may be later than
    /// that of what was collected after them.
    async fn is_meant(&self, shown: &Value) -> Result<bool, CallError> {
        for owner in shown["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            let said = |field: &str| owner[field].as_str().unwrap_or_default();
            let group = said("apiVersion").split_once('/').map_or("", |(group, _)| group);
            let Some(followed) = self.splitter.world.named(group, said("kind")) else { return Ok(false) };
            let place = Place::new(&followed.kind, &self.origin.namespace, said("name"));
            let found = self.wall.server.get(place).await?;
            if !found.is_some_and(|found| text(&found, "uid") == said("uid") && !is_being_deleted(&found)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the user is to see.
    fn picture(&self, name: &str) -> Result<Picture, Unknown> {
        let Look { splitter, origin, there, .. } = *self;
        let followed = self.wall.followed;
        let owners = match lookup::owners(splitter, origin, there) {
            Ok(owners) => owners,
            // Events have no owners, and claims need none: they outlive what made them.
            Err(_) if followed.is("", "Event") || followed.is("", "PersistentVolumeClaim") => Vec::new(),
            Err(unknown) => return Err(unknown),
        };
        let mailbox = origin.mailbox.to_string();
        let here = Here { namespace: &origin.namespace, name, owners, mailbox: &mailbox };
        let raised = pods::raised(there, &self.below(), &here);
        let generation = there["metadata"]["generation"].as_i64();
        let seen = |named: &Value| lookup::seen(splitter, origin, named);
        let raised = if followed.is("", "Event") {
            let unknown = seen(&there["involvedObject"]).err().unwrap_or(Unknown::Nobodys);
            object_references::event(&raised, &origin.namespace, |named| seen(named).ok()).ok_or(unknown)?
        } else if followed.is("discovery.k8s.io", "EndpointSlice") {
            object_references::slice(&raised, &self.below(), &origin.namespace, |named| {
                let found = seen(named);
                if let Err(Unknown::Yet(on)) = &found {
                    splitter.tree.wait(self.source, on.clone());
                }
                found.ok()
            })
        } else {
            raised
        };
        Ok(Picture::new(raised, generation))
    }

    /// What it is called here: as there, unless something else is called so that stays.
    fn name(&self) -> String {
        let below = self.below();
        let holders: Vec<(String, Holder)> = [below.name.to_owned(), pods::apart(&below)]
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.holder(&name)?)))
            .collect();
        let shown: BTreeMap<String, Below> =
            holders.iter().map(|(name, holder)| (name.clone(), holder.below())).collect();
        let mut all = vec![below];
        all.extend(holders.iter().filter(|(_, holder)| holder.stays).map(|(_, holder)| holder.below()));
        pods::names(&all, &shown)[&(below.cluster, below.uid)].clone()
    }

    /// Who has this name here.
    fn holder(&self, name: &str) -> Option<Holder> {
        let followed = self.wall.followed;
        let object = followed.view.get(&self.key(name))?;
        let head = Head::of(&object);
        let whole = object.read(&followed.kind);
        let Some(source) = head.source(&followed.name).filter(|_| head.is_shown()) else {
            return Some(Holder {
                cluster: String::new(),
                name: name.to_owned(),
                uid: object.uid.clone(),
                stays: true,
            });
        };
        let there = followed.get(&source.key);
        let (_, below) = annotation(&whole, LOCATOR_BELOW).split_once('/').unwrap_or_default();
        Some(Holder {
            cluster: head.labels.get(CLUSTER).cloned().unwrap_or_default(),
            name: below.to_owned(),
            uid: below_uid(&whole).to_owned(),
            stays: there.is_some_and(|there| below_uid(&there) == below_uid(&whole)),
        })
    }
}

/// What has a name in the user's namespace.
struct Holder {
    /// Empty for what is the user's own.
    cluster: String,
    name: String,
    uid: String,
    /// Whether what it shows is still there.
    stays: bool,
}

impl Holder {
    fn below(&self) -> Below<'_> {
        Below { cluster: &self.cluster, name: &self.name, uid: &self.uid }
    }
}
