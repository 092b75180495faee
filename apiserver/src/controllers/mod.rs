//! What makes a logical cluster behave as a cluster when nobody asks it anything.
//!
//! ```text
//!   the store's one history ─► feed ─┬─► garbage:      objects whose owners are gone
//!                                    ├─► namespaces:   emptying what is leaving
//!                                    ├─► clusters:     the same for logical clusters
//!                                    ├─► definitions:  names of custom kinds, and emptying those that leave
//!                                    ├─► furnishings:  what every namespace has
//!                                    ├─► addresses:    claims of Services that are gone
//!                                    ├─► roles:        those made of other roles
//!                                    ├─► accounts:     Secrets with tokens
//!                                    └─► births:       of logical clusters that were never made
//!                              clock ───► expiry:       events of an hour ago
//! ```
//!
//! There is one of each for all logical clusters, and a logical cluster in which nothing happens costs them nothing:
//! one cursor over the whole history says which keys want attention, whatever their kind, and each controller looks
//! after its keys from what is stored now.
//!
//! They do not go through the API. They are part of what makes its promises come true (that a namespace goes with
//! what it holds, that an owner's dependents follow it), so they work below it, on entries and revisions: every write
//! names the revision it was decided on, so two servers that do the same work at once only waste it.

mod allocations;
mod cluster_records;
mod collections;
mod custom_resource_definitions;
mod definition_names;
mod delete_collection;
mod event_expiry;
mod event_handler;
mod garbage_collector;
mod leader_election;
mod logical_clusters;
mod namespace_defaults;
mod namespaces;
mod object_head;
mod owner_graph;
mod role_aggregation;
mod service_account_tokens;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::sync::Arc;

use api::cluster::Id;
use controller::queue::{Outcome, Queue};
use controller::run::work;
use controller::tasks::Stop;
use storage::{Key, Revision, Store};

use crate::authn::service_accounts::Accounts;
use crate::controllers::event_handler::Feed;
use crate::controllers::leader_election::Seat;
use crate::controllers::owner_graph::Graph;
use crate::controllers::write::Trouble;
use crate::kinds::Registry;

/// Keys of one controller looked after at once. Enough for the store to make one batch of many writes.
const HANDS: usize = 32;
/// Namespaces and logical clusters, which are emptied with many writes at once each.
const HANDS_OF_HOLDERS: usize = 4;

/// A namespace of a logical cluster.
type Namespace = (Id, Arc<str>);

/// The controllers, and what they share.
#[derive(Debug)]
pub struct Controllers {
    /// What clients see.
    seen: Arc<dyn Store>,
    /// What is kept: the same less what is only seen because every newborn has it.
    kept: Arc<dyn Store>,
    /// What each logical cluster serves.
    kinds: Arc<Registry>,
    /// The certificate of the authority that clients check the server by.
    authority_pem: String,
    garbage: Queue<Key>,
    namespaces: Queue<Namespace>,
    /// By the key of the object that stands for it.
    clusters: Queue<Key>,
    definitions: Queue<custom_resource_definitions::Group>,
    furnishings: Queue<Namespace>,
    /// Claims, each with the revision that is a reason to look at it.
    addresses: Queue<(Key, Revision)>,
    births: Queue<Id>,
    /// Logical clusters with a cluster role that changed.
    roles: Queue<Id>,
    /// Service accounts, and Secrets with their tokens.
    accounts: Queue<Key>,
    /// Who makes the tokens. None: nobody does.
    accounts_of: Option<Arc<Accounts>>,
    graph: std::sync::Mutex<Graph>,
}

impl Controllers {
    pub fn new(seen: Arc<dyn Store>, kept: Arc<dyn Store>, authority_pem: String) -> Controllers {
        Controllers {
            kinds: Arc::new(Registry::new(kept.clone())),
            seen,
            kept,
            authority_pem,
            garbage: Queue::new(),
            namespaces: Queue::new(),
            clusters: Queue::new(),
            definitions: Queue::new(),
            furnishings: Queue::new(),
            addresses: Queue::new(),
            births: Queue::new(),
            roles: Queue::new(),
            accounts: Queue::new(),
            accounts_of: None,
            graph: std::sync::Mutex::default(),
        }
    }

    /// Knows the kinds of each logical cluster from this registry, which others may know too.
    pub fn with_kinds(mut self, kinds: Arc<Registry>) -> Controllers {
        self.kinds = kinds;
        self
    }

    /// Also fills Secrets with tokens, which these make.
    pub fn with_accounts(mut self, accounts: Arc<Accounts>) -> Controllers {
        self.accounts_of = Some(accounts);
        self
    }

    /// Works until told to stop.
    pub async fn run(self, mut stop: Stop) -> Result<(), std::convert::Infallible> {
        tokio::select! {
            () = self.work() => {}
            () = stop.requested() => {}
        }
        Ok(())
    }

    /// The same where several servers share a store: works while this one leads.
    pub async fn run_if_leading(self, mut stop: Stop) -> Result<(), std::convert::Infallible> {
        let mut seat = Seat::new(&*self.kept);
        let leading = async {
            loop {
                seat.won().await;
                tokio::select! {
                    () = self.work() => {}
                    () = seat.lost() => {}
                }
            }
        };
        tokio::select! {
            () = leading => {}
            () = stop.requested() => {}
        }
        seat.leave().await;
        Ok(())
    }

    /// Goes on for as long as it is polled. Begins anew each time: whoever led meanwhile may have left anything.
    async fn work(&self) {
        [&self.garbage, &self.clusters].into_iter().for_each(Queue::clear);
        [&self.namespaces, &self.furnishings].into_iter().for_each(Queue::clear);
        self.definitions.clear();
        self.addresses.clear();
        [&self.births, &self.roles].into_iter().for_each(Queue::clear);
        self.accounts.clear();
        let infinite = tokio::join!(
            Feed::new(self).run(),
            work(&self.garbage, HANDS, |key| self.settled("garbage", garbage_collector::look(self, key))),
            work(&self.namespaces, HANDS_OF_HOLDERS, |key| {
                self.settled("namespaces", namespaces::look(self, key))
            }),
            work(&self.clusters, HANDS_OF_HOLDERS, |key| {
                self.settled("logical clusters", logical_clusters::look(self, key))
            }),
            work(&self.definitions, HANDS_OF_HOLDERS, |group| {
                self.settled("definitions", custom_resource_definitions::look(self, group))
            }),
            work(&self.furnishings, HANDS, |key| self
                .settled("furnishings", namespace_defaults::look(self, key))),
            work(&self.addresses, HANDS, |key| self.settled("addresses", allocations::look(self, key))),
            work(&self.births, HANDS, |id| self.settled("births", cluster_records::look(self, id))),
            work(&self.roles, HANDS_OF_HOLDERS, |id| self.settled("roles", role_aggregation::look(self, id))),
            work(&self.accounts, HANDS, |key| self
                .settled("accounts", service_account_tokens::look(self, key))),
            async {
                if let Err(trouble) = cluster_records::look_at_all(self).await {
                    tracing::warn!(controller = "births", %trouble, "will look again after the next start");
                }
            },
            event_expiry::run(self),
        );
        match infinite.0 {}
    }

    /// A conflict is normal and tried again; anything else is tried again and told.
    async fn settled(&self, name: &str, looked: impl Future<Output = Result<Outcome, Trouble>>) -> Outcome {
        match looked.await {
            Ok(outcome) => outcome,
            Err(Trouble::Conflict) => Outcome::Failed,
            Err(trouble) => {
                tracing::warn!(controller = name, %trouble, "will try again");
                Outcome::Failed
            }
        }
    }

    fn graph(&self) -> std::sync::MutexGuard<'_, Graph> {
        // Its methods do not panic, and nobody awaits while holding it.
        self.graph.lock().expect("no holder of this lock panics")
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Conflict => write!(f, "somebody else was faster"),
            Trouble::Read(error) => error.fmt(f),
            Trouble::Commit(error) => error.fmt(f),
            Trouble::Refused(status) => write!(f, "{}", status.message),
        }
    }
}
