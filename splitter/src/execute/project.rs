//! What is below, in the user's cluster.
//!
//! ```text
//!   mailbox                                     user's logical cluster
//!   Pod, Job, claim, slice, Event ──► one ────► the same, as the user knows it
//!   ReplicaSets of a Deployment ────► sets ───► one per template, of all mailboxes
//!   PhysicalClusters ───────────────► nodes ──► a Node each that is used
//!   that use is measured ───────────► usage ──► the same, of what is used
//!      a Pod or claim is deleted ◄──── one ◄── a Pod or claim is deleted
//!           a claim asks for more ◄──── one ◄── a claim asks for more
//! ```
//!
//! What is shown names its source, so news of either is a wish to look at the source; only the ReplicaSets of a Deployment
//! are looked at together, from the Deployment. What cannot be shown yet, because what owns it is not, waits until that is
//! seen. What is shown goes when its source is gone and the mailbox's server says so too: never on doubt.

mod index;
mod lookup;
mod metrics;
mod nodes;
mod object;
mod origin;
mod replica_sets;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::Distribution;
use api::meta::metadata;
use api::names::{LOCATOR_BELOW, MAILBOX, PROJECTED, TRUE};
use controller::informer::{Key, Object};
use controller::queue::Outcome;
use controller::remote::CallError;
use serde::Deserialize;
use serde_json::Value;

use crate::controller::{Item, Splitter};
use crate::snapshot::Subject;

pub(crate) use index::Index;
pub(crate) use metrics::is_measured;
pub(crate) use nodes::nodes;

const DEPLOYMENTS: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";
const NAMESPACES: &str = "namespaces";

/// A source in a mailbox; a Deployment whose ReplicaSets are to be shown; or a set that was shown and has no Deployment.
pub(crate) async fn show(splitter: &Splitter, subject: &Subject) -> Result<Outcome, CallError> {
    match &*subject.kind {
        DEPLOYMENTS => replica_sets::show(splitter, subject).await,
        SETS if is_stray(splitter, subject) => replica_sets::remove_stray(splitter, subject).await,
        _ => object::show(splitter, subject).await,
    }
}

/// Whether it is shown to a user and nobody's any more.
fn is_stray(splitter: &Splitter, subject: &Subject) -> bool {
    let found = splitter.world.kind(&subject.kind).and_then(|followed| followed.view.get(&subject.key));
    found.is_some_and(|found| Head::of(&found).is_shown()) && !splitter.world.is_mailbox(subject.cluster())
}

/// As much of an object as says what it shows and whose it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Head {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

impl Head {
    fn of(object: &Object) -> Head {
        #[derive(Deserialize)]
        struct Whole {
            metadata: Head,
        }
        object.parse::<Whole>().map(|whole| whole.metadata).unwrap_or_default()
    }

    /// Whether it is shown, in a mailbox or to a user.
    fn is_shown(&self) -> bool {
        self.labels.get(PROJECTED).is_some_and(|value| value == TRUE)
    }

    /// What something shown to a user shows.
    fn source(&self, kind: &Arc<str>) -> Option<Subject> {
        let mailbox: Id = self.annotations.get(MAILBOX)?.parse().ok()?;
        let (namespace, name) = self.annotations.get(LOCATOR_BELOW)?.split_once('/')?;
        let key = Key { cluster: Some(mailbox), namespace: namespace.to_owned(), name: name.to_owned() };
        Some(Subject { kind: kind.clone(), key })
    }

    /// The Deployment a ReplicaSet is of, beside it.
    fn deployment(&self, set: &Key) -> Option<Subject> {
        let owner = self.owner_references.iter().find(|owner| owner.controller)?;
        let key = Key { name: owner.name.clone(), ..set.clone() };
        (owner.kind == "Deployment").then(|| Subject { kind: DEPLOYMENTS.into(), key })
    }
}

/// Something happened to what a mailbox shows, or to what may own it.
pub(crate) fn hear_from_mailbox(splitter: &Splitter, kind: &Arc<str>, object: &Object, gone: bool) {
    let subject = Subject { kind: kind.clone(), key: object.key.clone() };
    splitter.tree.wake(&splitter.queue, &subject);
    if &**kind == NAMESPACES {
        return look_into(splitter, &subject.key, gone);
    }
    let head = Head::of(object);
    if !head.is_shown() {
        return;
    }
    match head.deployment(&object.key).filter(|_| &**kind == SETS) {
        None => splitter.queue.add(Item::Shown(subject)),
        Some(below) => {
            splitter.tree.set(&below, &object.key.name, gone);
            let here = origin::home(&splitter.world, subject.cluster(), &subject.key.namespace);
            if let Some((cluster, namespace)) = here {
                let key = Key { cluster: Some(cluster), namespace, name: below.key.name.clone() };
                splitter.queue.add(Item::Shown(Subject { kind: below.kind.clone(), key }));
            }
        }
    }
}

/// Whose a namespace of a mailbox is was said, or it is gone with all that was in it.
fn look_into(splitter: &Splitter, namespace: &Key, gone: bool) {
    let Some(cluster) = namespace.cluster else { return };
    let sources = splitter.tree.sources(cluster, Some(&namespace.name));
    sources.into_iter().filter(|_| gone).for_each(|source| splitter.queue.add(Item::Shown(source)));
    let Some((user, here)) = origin::home(&splitter.world, cluster, &namespace.name) else { return };
    let deployments = splitter.world.kind(DEPLOYMENTS);
    for key in deployments.iter().flat_map(|followed| followed.view.keys_within(user, Some(&here))) {
        splitter.queue.add(Item::Shown(Subject { kind: DEPLOYMENTS.into(), key }));
    }
}

/// Something happened to what is shown to a user.
pub(crate) fn hear_of_shown(splitter: &Splitter, kind: &Arc<str>, object: &Object, gone: bool) {
    let head = Head::of(object);
    let subject = Subject { kind: kind.clone(), key: object.key.clone() };
    if &**kind == "nodes" {
        return splitter.queue.add(Item::Nodes(subject.cluster()));
    }
    if let Some(source) = head.source(kind) {
        splitter.tree.show(&source, &object.key, gone);
        splitter.tree.wake(&splitter.queue, &source);
        return splitter.queue.add(Item::Shown(source));
    }
    match head.deployment(&object.key).filter(|_| &**kind == SETS) {
        Some(deployment) => {
            splitter.tree.set(&deployment, &object.key.name, gone);
            splitter.tree.wake(&splitter.queue, &deployment);
            splitter.queue.add(Item::Shown(deployment));
        }
        // Left alone when its Deployment was deleted without what it owns.
        None if &**kind == SETS && !gone => splitter.queue.add(Item::Shown(subject)),
        None => {}
    }
}

/// What is recorded about an object was said, and by that which physical clusters are used. None: it is gone.
pub(crate) fn hear_of_record(splitter: &Splitter, key: &Key, record: Option<&Distribution>) {
    let targets = record.iter().flat_map(|record| &record.spec.targets);
    let names = targets.map(|target| target.cluster.clone()).collect();
    if let Some(cluster) = key.cluster.filter(|_| splitter.tree.record(key, names)) {
        splitter.queue.add(Item::Nodes(cluster));
    }
}

/// Whether a physical cluster reports has changed, so what is to go because of its owners need not wait, or has to.
pub(crate) fn look_again(splitter: &Splitter, mailbox: Id) {
    let sources = splitter.tree.sources(mailbox, None);
    sources.into_iter().for_each(|source| splitter.queue.add(Item::Shown(source)));
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    metadata::annotation(object, name).unwrap_or_default()
}
