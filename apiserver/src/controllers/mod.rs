//! The controllers that make a logical cluster behave as a cluster.
//!
//! ```text
//!   the store's history ─► event handler ─┬─► garbage_collector            dependents of deleted owners
//!                                         ├─► namespaces                   empties terminating ones
//!                                         ├─► logical_clusters             empties terminating ones
//!                                         ├─► custom_resource_definitions  accepts names; empties terminating ones
//!                                         ├─► namespace_defaults           service account, CA certificate
//!                                         ├─► allocations                  of deleted Services
//!                                         ├─► role_aggregation             aggregated cluster roles
//!                                         ├─► service_account_tokens       Secrets with tokens
//!                                         └─► cluster_records              of logical clusters never created
//!                                 timer ────► event_expiry                 events older than an hour
//! ```
//!
//! One instance of each serves all logical clusters, and an idle logical cluster costs nothing: one cursor over the
//! whole history determines the keys to reconcile, and each controller reconciles its keys from the stored state.
//!
//! They do not use the API. They implement some of its promises (deleting a namespace deletes its objects, deleting an
//! owner deletes its dependents), so they work below it, on entries and revisions. Every write names the revision it
//! was decided on, so two servers that do the same work at once only waste it.

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
use tracing::{Instrument, Span, field};

use crate::authn::service_accounts::Accounts;
use crate::controllers::event_handler::EventHandler;
use crate::controllers::leader_election::LeaderElection;
use crate::controllers::owner_graph::Graph;
use crate::controllers::write::ReconcileError;
use crate::kinds::Registry;

/// Workers of one controller: enough for the store to commit many writes in one batch.
const WORKERS: usize = 32;
/// Workers for terminating namespaces and logical clusters, each of which does many writes at once.
const DELETION_WORKERS: usize = 4;

/// A namespace in a logical cluster.
type Namespace = (Id, Arc<str>);

/// The controllers and their shared state.
#[derive(Debug)]
pub struct Controllers {
    /// The store as clients see it.
    store: Arc<dyn Store>,
    /// The store without the bootstrap layer: unchanged bootstrap objects are not in it.
    inner_store: Arc<dyn Store>,
    /// The kinds of each logical cluster.
    kinds: Arc<Registry>,
    /// The certificate with which clients verify the server.
    authority_pem: String,
    garbage: Queue<Key>,
    namespaces: Queue<Namespace>,
    /// Keys of LogicalCluster objects.
    clusters: Queue<Key>,
    definitions: Queue<custom_resource_definitions::Group>,
    namespace_defaults: Queue<Namespace>,
    /// Allocations, each with the revision of the event that enqueued it.
    addresses: Queue<(Key, Revision)>,
    records: Queue<Id>,
    /// Logical clusters in which a cluster role changed.
    roles: Queue<Id>,
    /// Keys of service accounts and of their token Secrets.
    accounts: Queue<Key>,
    /// Issues the tokens. None if the server has no issuer.
    accounts_of: Option<Arc<Accounts>>,
    graph: std::sync::Mutex<Graph>,
}

impl Controllers {
    pub fn new(store: Arc<dyn Store>, inner_store: Arc<dyn Store>, authority_pem: String) -> Controllers {
        Controllers {
            kinds: Arc::new(Registry::new(inner_store.clone())),
            store,
            inner_store,
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

    /// Uses this registry of kinds, which the API server can share.
    pub fn with_kinds(mut self, kinds: Arc<Registry>) -> Controllers {
        self.kinds = kinds;
        self
    }

    /// Also issues tokens for service account Secrets.
    pub fn with_accounts(mut self, accounts: Arc<Accounts>) -> Controllers {
        self.accounts_of = Some(accounts);
        self
    }

    /// Runs the controllers until `stop`.
    pub async fn run(self, mut stop: Stop) -> Result<(), std::convert::Infallible> {
        tokio::select! {
            () = self.work() => {}
            () = stop.requested() => {}
        }
        Ok(())
    }

    /// Runs the controllers while this server leads, for servers that share a store.
    pub async fn run_if_leading(self, mut stop: Stop) -> Result<(), std::convert::Infallible> {
        let mut election = LeaderElection::new(&*self.inner_store);
        let leading = async {
            loop {
                election.acquired().await;
                tokio::select! {
                    () = self.work() => {}
                    () = election.lost() => {}
                }
            }
        };
        tokio::select! {
            () = leading => {}
            () = stop.requested() => {}
        }
        election.release().await;
        Ok(())
    }

    /// Runs the controllers. Never returns. Starts with empty queues, because another leader may have changed anything.
    async fn work(&self) {
        [&self.garbage, &self.clusters].into_iter().for_each(Queue::clear);
        [&self.namespaces, &self.namespace_defaults].into_iter().for_each(Queue::clear);
        self.definitions.clear();
        self.addresses.clear();
        [&self.records, &self.roles].into_iter().for_each(Queue::clear);
        self.accounts.clear();
        let never = tokio::join!(
            EventHandler::new(self).run(),
            work(&self.garbage, WORKERS, |key| self
                .run_reconcile(span("garbage_collector", &key), garbage_collector::reconcile(self, key))),
            work(&self.namespaces, DELETION_WORKERS, |key| {
                self.run_reconcile(span("namespaces", &key), namespaces::reconcile(self, key))
            }),
            work(&self.clusters, DELETION_WORKERS, |key| {
                self.run_reconcile(span("logical_clusters", &key), logical_clusters::reconcile(self, key))
            }),
            work(&self.definitions, DELETION_WORKERS, |group| {
                self.run_reconcile(
                    span("custom_resource_definitions", &group),
                    custom_resource_definitions::reconcile(self, group),
                )
            }),
            work(&self.namespace_defaults, WORKERS, |key| self
                .run_reconcile(span("namespace_defaults", &key), namespace_defaults::reconcile(self, key))),
            work(&self.addresses, WORKERS, |key| self
                .run_reconcile(span("allocations", &key), allocations::reconcile(self, key))),
            work(&self.records, WORKERS, |id| self
                .run_reconcile(span("cluster_records", &id), cluster_records::reconcile(self, id))),
            work(&self.roles, DELETION_WORKERS, |id| self
                .run_reconcile(span("role_aggregation", &id), role_aggregation::reconcile(self, id))),
            work(&self.accounts, WORKERS, |key| self.run_reconcile(
                span("service_account_tokens", &key),
                service_account_tokens::reconcile(self, key)
            )),
            async {
                if let Err(error) = cluster_records::reconcile_all(self).await {
                    tracing::warn!(controller = "cluster_records", %error, "cannot check the records of logical clusters; they are checked again at the next start");
                }
            },
            event_expiry::run(self),
        );
        match never.0 {}
    }

    /// Converts the result of a reconcile. Every error requeues the key; conflicts are normal and not logged.
    async fn run_reconcile(
        &self,
        span: Span,
        reconciled: impl Future<Output = Result<Outcome, ReconcileError>>,
    ) -> Outcome {
        let outcome = async {
            match reconciled.await {
                Ok(outcome) => outcome,
                Err(ReconcileError::Conflict) => Outcome::Failed,
                Err(error) => {
                    tracing::warn!(%error, "reconcile failed; requeued");
                    Outcome::Failed
                }
            }
        };
        outcome.instrument(span).await
    }

    fn graph(&self) -> std::sync::MutexGuard<'_, Graph> {
        // Its methods do not panic, and the lock is not held across an await.
        self.graph.lock().expect("no holder of this lock panics")
    }
}

/// Returns the span of a reconcile. It has the highest level, so that warnings name the object at every log level.
fn span(controller: &str, object: &impl fmt::Debug) -> Span {
    tracing::error_span!("reconcile", controller, ?object, revision = field::Empty)
}

/// Records in the span of a reconcile which revision it has read.
fn record_revision(revision: Revision) {
    Span::current().record("revision", revision.0);
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
