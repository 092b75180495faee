//! The controllers that make a logical cluster behave as a cluster.
//!
//! ```text
//!   the store's history ─► event handler ─┬─► garbage_collector            objects whose owners are gone
//!                                         ├─► namespaces                   empties those being deleted
//!                                         ├─► logical_clusters             the same for logical clusters
//!                                         ├─► custom_resource_definitions  accepts names; empties those being deleted
//!                                         ├─► namespace_defaults           service account, certificate
//!                                         ├─► allocations                  of Services that are gone
//!                                         ├─► role_aggregation             roles made of other roles
//!                                         ├─► service_account_tokens       Secrets with tokens
//!                                         └─► cluster_records              of logical clusters never created
//!                                 timer ────► event_expiry                 events of an hour ago
//! ```
//!
//! There is one of each for all logical clusters, and a logical cluster in which nothing happens costs them nothing:
//! one cursor over the whole history says which keys to reconcile, whatever their kind, and each controller reconciles
//! its keys from the stored state.
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
use crate::controllers::event_handler::EventHandler;
use crate::controllers::leader_election::LeaderElection;
use crate::controllers::owner_graph::Graph;
use crate::controllers::write::ReconcileError;
use crate::kinds::Registry;

/// Workers of one controller. Enough for the store to make one batch of many writes.
const WORKERS: usize = 32;
/// Namespaces and logical clusters, which are emptied with many writes at once each.
const DELETION_WORKERS: usize = 4;

/// A namespace of a logical cluster.
type Namespace = (Id, Arc<str>);

/// The controllers, and what they share.
#[derive(Debug)]
pub struct Controllers {
    /// The store as clients see it.
    seen: Arc<dyn Store>,
    /// The store itself: the same less unchanged bootstrap objects.
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
    namespace_defaults: Queue<Namespace>,
    /// Allocations, each with the revision that is a reason to look at it.
    addresses: Queue<(Key, Revision)>,
    records: Queue<Id>,
    /// Logical clusters with a cluster role that changed.
    roles: Queue<Id>,
    /// Service accounts, and Secrets with their tokens.
    accounts: Queue<Key>,
    /// Issues the tokens, if the server has a signer.
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
            namespace_defaults: Queue::new(),
            addresses: Queue::new(),
            records: Queue::new(),
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
        let mut seat = LeaderElection::new(&*self.kept);
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

    /// Runs for as long as it is polled. Starts over each time: another leader may have left anything.
    async fn work(&self) {
        [&self.garbage, &self.clusters].into_iter().for_each(Queue::clear);
        [&self.namespaces, &self.namespace_defaults].into_iter().for_each(Queue::clear);
        self.definitions.clear();
        self.addresses.clear();
        [&self.records, &self.roles].into_iter().for_each(Queue::clear);
        self.accounts.clear();
        let infinite = tokio::join!(
            EventHandler::new(self).run(),
            work(&self.garbage, WORKERS, |key| self
                .settled("garbage_collector", garbage_collector::reconcile(self, key))),
            work(&self.namespaces, DELETION_WORKERS, |key| {
                self.settled("namespaces", namespaces::reconcile(self, key))
            }),
            work(&self.clusters, DELETION_WORKERS, |key| {
                self.settled("logical_clusters", logical_clusters::reconcile(self, key))
            }),
            work(&self.definitions, DELETION_WORKERS, |group| {
                self.settled(
                    "custom_resource_definitions",
                    custom_resource_definitions::reconcile(self, group),
                )
            }),
            work(&self.namespace_defaults, WORKERS, |key| self
                .settled("namespace_defaults", namespace_defaults::reconcile(self, key))),
            work(&self.addresses, WORKERS, |key| self
                .settled("allocations", allocations::reconcile(self, key))),
            work(&self.records, WORKERS, |id| self
                .settled("cluster_records", cluster_records::reconcile(self, id))),
            work(&self.roles, DELETION_WORKERS, |id| self
                .settled("role_aggregation", role_aggregation::reconcile(self, id))),
            work(&self.accounts, WORKERS, |key| self
                .settled("service_account_tokens", service_account_tokens::reconcile(self, key))),
            async {
                if let Err(error) = cluster_records::reconcile_all(self).await {
                    tracing::warn!(controller = "cluster_records", %error, "cannot check the records of logical clusters; checked again at the next start");
                }
            },
            event_expiry::run(self),
        );
        match infinite.0 {}
    }

    /// A conflict is normal and tried again; anything else is tried again and told.
    async fn settled(
        &self,
        name: &str,
        looked: impl Future<Output = Result<Outcome, ReconcileError>>,
    ) -> Outcome {
        match looked.await {
            Ok(outcome) => outcome,
            Err(ReconcileError::Conflict) => Outcome::Failed,
            Err(error) => {
                tracing::warn!(controller = name, %error, "reconcile failed; requeued");
                Outcome::Failed
            }
        }
    }

    fn graph(&self) -> std::sync::MutexGuard<'_, Graph> {
        // Its methods do not panic, and the lock is not held across an await.
        self.graph.lock().expect("no holder of this lock panics")
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReconcileError::Conflict => write!(f, "another writer changed the object first"),
            ReconcileError::Read(error) => error.fmt(f),
            ReconcileError::Commit(error) => error.fmt(f),
            ReconcileError::Refused(status) => write!(f, "{}", status.message),
        }
    }
}
