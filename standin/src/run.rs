//! Turns changes into plans and plans into writes, for as long as the stand-in lives.
//!
//! ```text
//!   the store's history ─► world ─► plan, for each namespace something happened in ─► writes ─► the store's history
//!   the clock ─────────────────────────┘ and for those something is due in
//! ```
//!
//! Before every decision the world catches up with everything written so far, its own writes included. So a controller
//! never decides twice about the same thing, and needs no memory of what it has asked for. Where nothing happens and
//! nothing is due, this waits, and costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use api::cluster::Id;
use apiserver::keys::{Collection, ObjectKey};
use apiserver::objects::stored;
use controller::tasks::Stop;
use jiff::Timestamp;
use storage::{Event, Key, Page, Range, ReadError, Revision, Store, Watch};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::control::{cronjobs, daemonsets, deployments, jobs, replicasets, statefulsets};
use crate::hands::{Hands, Outcome};
use crate::kind::Kind;
use crate::node::pace::Pace;
use crate::node::register::{self, NodeShape};
use crate::node::{kubelet, scheduler};
use crate::object::{namespace, uid};
use crate::plan::Plan;
use crate::world::World;
use crate::{budgets, network, volumes};

#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hands: Hands,
    pub(crate) clock: Clock,
    pub(crate) pace: Pace,
    pub(crate) nodes: Vec<NodeShape>,
    /// Whether everything stands still.
    pub(crate) frozen: watch::Receiver<bool>,
}

/// What is to be looked at, and when at the latest.
#[derive(Debug, Default)]
struct Agenda {
    /// Namespaces in which something has happened.
    touched: BTreeSet<String>,
    /// When something is due in a namespace; what is due for all of them is under no name.
    due: BTreeMap<String, Timestamp>,
}

impl Agenda {
    fn next(&self) -> Option<Timestamp> {
        self.due.values().min().copied()
    }

    /// Takes what is to be looked at now.
    fn take(&mut self, now: Timestamp) -> BTreeSet<String> {
        let mut taken = std::mem::take(&mut self.touched);
        let due = self.due.extract_if(.., |_, due| *due <= now).map(|(space, _)| space);
        taken.extend(due);
        taken
    }

    fn note(&mut self, space: &str, due: Option<Timestamp>, now: Timestamp) {
        match due.filter(|due| *due > now) {
            Some(due) => drop(self.due.insert(space.to_owned(), due)),
            None => drop(self.due.remove(space)),
        }
    }
}

impl Runner {
    /// Works until told to stop.
    pub(crate) async fn run(mut self, mut stop: Stop) -> Result<(), ReadError> {
        tokio::select! {
            failed = self.work() => failed.map(|never| match never {}),
            () = stop.requested() => Ok(()),
        }
    }

    async fn work(&mut self) -> Result<Infallible, ReadError> {
        let (mut world, mut are_registered) = (World::default(), false);
        loop {
            let mut agenda = Agenda::default();
            let begun = self.load(&mut world, &mut agenda).await?;
            if !are_registered {
                let mut plan = Plan::default();
                register::missing(&world, &self.nodes, &mut plan);
                self.execute(plan, &mut world).await;
                are_registered = true;
            }
            let mut watch = self.store.watch(Range::all(), begun).await?;
            match self.follow(&mut world, &mut agenda, &mut watch).await {
                // So much has happened meanwhile that it has to be read anew.
                Err(ReadError::Compacted { .. }) => {}
                Err(error) => return Err(error),
                Ok(never) => match never {},
            }
        }
    }

    async fn follow(
        &mut self,
        world: &mut World,
        agenda: &mut Agenda,
        watch: &mut Watch,
    ) -> Result<Infallible, ReadError> {
        loop {
            // It fails only once the stand-in is gone, and then so is this.
            let _ = self.frozen.wait_for(|frozen| !frozen).await;
            self.settle(world, agenda, watch).await?;
            let due = async {
                match agenda.next() {
                    Some(due) => self.clock.until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                batch = watch.next() => self.apply(world, agenda, batch?.events),
                () = due => {}
            }
        }
    }

    /// Decides and writes until there is nothing more to do.
    async fn settle(
        &self,
        world: &mut World,
        agenda: &mut Agenda,
        watch: &mut Watch,
    ) -> Result<(), ReadError> {
        while !*self.frozen.borrow() {
            let head = self.store.get(&Key::from("")).await?.revision;
            while let Some(batch) = watch.until(head).await? {
                self.apply(world, agenda, batch.events);
            }
            let now = self.clock.now();
            let spaces = agenda.take(now);
            if spaces.is_empty() {
                return Ok(());
            }
            let plan = self.plan(world, agenda, &spaces, now);
            self.execute(plan, world).await;
        }
        Ok(())
    }

    fn plan(&self, world: &World, agenda: &mut Agenda, spaces: &BTreeSet<String>, now: Timestamp) -> Plan {
        let mut all = Plan::default();
        // What belongs to no namespace concerns all of them: a node that came or went, a volume.
        let everywhere = if spaces.contains("") { world.namespaces() } else { BTreeSet::new() };
        for space in spaces.union(&everywhere).filter(|space| !space.is_empty()) {
            let mut plan = Plan::default();
            deployments::step(world, space, now, &mut plan);
            replicasets::step(world, space, now, &mut plan);
            statefulsets::step(world, space, now, &mut plan);
            daemonsets::step(world, space, now, &mut plan);
            cronjobs::step(world, space, now, &mut plan);
            jobs::step(world, space, now, &mut plan);
            kubelet::step(world, space, self.pace, now, &mut plan);
            network::step(world, space, &mut plan);
            volumes::step(world, space, &mut plan);
            budgets::step(world, space, now, &mut plan);
            agenda.note(space, plan.due, now);
            all.writes.append(&mut plan.writes);
        }
        let mut plan = Plan::default();
        register::report(world, &self.nodes, now, &mut plan);
        scheduler::step(world, self.pace, now, &mut plan);
        volumes::reclaim(world, &mut plan);
        agenda.note("", plan.due, now);
        all.writes.append(&mut plan.writes);
        all
    }

    async fn execute(&self, plan: Plan, world: &mut World) {
        for write in plan.writes {
            match self.hands.perform(write).await {
                Outcome::Done => {}
                Outcome::Granted { owner } => world.grant(&owner),
                Outcome::Refused { owner, told } => world.refuse(&owner, self.clock.now(), told),
            }
        }
    }

    /// Reads everything, and says at which revision.
    async fn load(&self, world: &mut World, agenda: &mut Agenda) -> Result<Revision, ReadError> {
        world.begin_anew();
        let mut at = None;
        for kind in Kind::all() {
            let collection = Collection { group: kind.row().group, plural: kind.row().plural };
            let page = Page { at, ..Page::default() };
            let listed = self.store.list(collection.range(Id::ROOT, None), page).await?;
            at = Some(listed.revision);
            for entry in listed.value.entries {
                self.put(world, agenda, kind, &entry);
            }
        }
        world.forget_gone();
        agenda.touched.extend(world.namespaces());
        // Nodes and the scheduler are looked at in any case.
        agenda.touched.insert(String::new());
        Ok(at.unwrap_or_default())
    }

    fn apply(&self, world: &mut World, agenda: &mut Agenda, events: Vec<Event>) {
        for event in events {
            let Some(place) = ObjectKey::of(&event.key).filter(|place| place.cluster == Id::ROOT) else {
                continue;
            };
            let Some(kind) = Kind::of(place.collection.group, place.collection.plural) else { continue };
            let space = place.namespace.unwrap_or_default();
            match &event.current {
                Some(entry) => self.put(world, agenda, kind, entry),
                None => {
                    let gone = world.remove(kind, space, place.name);
                    if let Some(pod) = gone.filter(|_| kind == Kind::Pods) {
                        self.hands.forget(uid(&pod));
                    }
                }
            }
            agenda.touched.insert(space.to_owned());
        }
    }

    fn put(&self, world: &mut World, agenda: &mut Agenda, kind: Kind, entry: &storage::Entry) {
        let Ok(mut object) = stored::tree(entry) else {
            return tracing::error!(key = ?entry.key(), "an object cannot be read");
        };
        // Nobody here looks at them, and they are half of many objects.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        agenda.touched.insert(namespace(&object).to_owned());
        world.put(kind, object, self.clock.now());
    }
}
