//! The syncers that run in the server: one for every physical cluster that the server connects to.
//!
//! ```text
//!   a PhysicalCluster that changed ─► queue ─► reconcile ─► its Secret ─► start, keep or stop its syncer
//!                                       ▲                       └─► why the server cannot connect: its status
//!                      every 10 s ──────┘
//! ```
//!
//! Physical clusters are reconciled one at a time, so the cost of one does not depend on their number.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::cluster::Id;
use api::fleet::{Connection, SecretReference};
use api::names::SYNCER_ACCOUNT;
use apiserver::authn::identity::{Identity, User};
use apiserver::clusters::{logical_cluster, records};
use apiserver::local;
use apiserver::request::path::Cluster;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::informer::Key;
use controller::kind::ResourceKind;
use controller::queue::{Outcome, Queue};
use controller::remote::{ObjectPath, Remote};
use controller::tasks::{KeyedTasks, Tasks};
use kube::Client;
use splitter::fleet::{ConnectionProblem, Fleet, FleetMember, is_forgotten};
use syncer::{Settings, Syncer, SyncerError};
use tokio::time::Instant;
use tunnel::OpenTunnel;

use super::{FleetContext, RESTART_DELAY};
use crate::clients;

/// How often a Secret is read again, because no watch reports its changes.
const RECONCILE_EVERY: Duration = Duration::from_secs(10);
/// How long a syncer may take to finish its writes.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);

/// The advice in the error about an unusable Secret.
const ADVICE: &str = "run `holon join` to write a usable one";

/// The syncers of this server, by the key of their PhysicalCluster.
pub(super) struct Syncers<'a> {
    context: &'a FleetContext,
    server: Remote,
    running: HashMap<Key, RunningSyncer>,
    /// Why the last syncer of a physical cluster ended, until another has run for a while.
    failed: HashMap<Key, SyncerFailure>,
    tasks: KeyedTasks<Key, Result<(), SyncerError>>,
}

struct SyncerFailure {
    reason: String,
    at: Instant,
}

/// A running syncer.
struct RunningSyncer {
    kubeconfig: String,
    mailbox: Id,
    /// Dropping this stops the syncer, which finishes its writes first. Until then no other one is started.
    running_until_dropped: Option<(OpenTunnel, Tasks)>,
    started: Instant,
}

impl<'a> Syncers<'a> {
    pub(super) fn new(context: &'a FleetContext, server: Remote) -> Syncers<'a> {
        let (running, failed) = (HashMap::new(), HashMap::new());
        Syncers { context, server, running, failed, tasks: KeyedTasks::default() }
    }

    /// Reconciles physical clusters while it is polled.
    pub(super) async fn run(&mut self, fleet: &Fleet, changed: &Queue<Key>) -> Infallible {
        let mut cleanup = tokio::time::interval(RECONCILE_EVERY);
        loop {
            tokio::select! {
                key = changed.next() => {
                    let outcome = self.reconcile(fleet, &key).await;
                    changed.done(key, outcome);
                }
                Some((key, ended)) = self.tasks.next_ended() => {
                    let reason = match ended {
                        Ok(ended) => ended.err().map(|error| error.to_string()),
                        Err(panic) => Some(panic),
                    };
                    self.ended(&key, reason);
                    changed.add(key);
                }
                _ = cleanup.tick() => self.remove_stale_state().await,
            }
        }
    }

    fn ended(&mut self, key: &Key, reason: Option<String>) {
        self.running.remove(key);
        if let Some(reason) = reason {
            tracing::error!(physical_cluster = %key, error = reason, "a syncer ended; restarting it");
            self.failed.insert(key.clone(), SyncerFailure { reason, at: Instant::now() });
        }
    }

    /// Returns why the last syncer failed, unless the current one has run for a while.
    fn failure(&mut self, key: &Key) -> Option<&SyncerFailure> {
        let is_stable = |syncer: &RunningSyncer| {
            syncer.running_until_dropped.is_some() && syncer.started.elapsed() >= RESTART_DELAY
        };
        if self.running.get(key).is_some_and(is_stable) {
            self.failed.remove(key);
        }
        self.failed.get(key)
    }

    /// Starts or stops the syncer of a physical cluster. If it cannot start, reports the reason.
    async fn reconcile(&mut self, fleet: &Fleet, key: &Key) -> Outcome {
        let member = fleet.member(key);
        let Some((member, mailbox, secret)) = member.as_ref().and_then(push_target) else {
            self.stop(key);
            self.failed.remove(key);
            fleet.report_problem(key, None);
            return Outcome::Done;
        };
        let ensured = self.ensure_running(key, member.owner, mailbox, secret).await;
        let ensured = ensured.and_then(|()| match self.failure(key) {
            Some(SyncerFailure { reason, .. }) => bail!("its syncer cannot run: {reason}"),
            None => Ok(()),
        });
        let problem = ensured.as_ref().err().map(|error| ConnectionProblem {
            message: error.to_string(),
            is_connected: self.is_connected(key),
        });
        let is_new = fleet.report_problem(key, problem);
        if let Some(error) = ensured.err().filter(|_| is_new) {
            let (physical_cluster, error) = (&key.name, format!("{error:#}"));
            tracing::warn!(physical_cluster, error, "cannot connect to a physical cluster");
        }
        Outcome::RequeueAfter(RECONCILE_EVERY)
    }

    /// Stops a syncer, which finishes its writes first.
    fn stop(&mut self, key: &Key) {
        if let Some(syncer) = self.running.get_mut(key) {
            syncer.running_until_dropped = None;
        }
    }

    fn is_connected(&self, key: &Key) -> bool {
        self.is_running(key) && !self.failed.contains_key(key)
    }

    fn is_running(&self, key: &Key) -> bool {
        self.running.get(key).is_some_and(|syncer| syncer.running_until_dropped.is_some())
    }

    async fn ensure_running(
        &mut self,
        key: &Key,
        home: Id,
        mailbox: Id,
        secret: &SecretReference,
    ) -> Result<()> {
        // The end of a stopping syncer requeues its physical cluster.
        if self.running.contains_key(key) && !self.is_running(key) {
            return Ok(());
        }
        if !self.may_push(home).await? {
            bail!(
                "the server does not connect to physical clusters of this logical cluster; to \
                 allow it, add the path of this logical cluster to --push-from"
            );
        }
        let kubeconfig = self.kubeconfig(home, secret).await?;
        if self
            .running
            .get(key)
            .is_some_and(|syncer| syncer.kubeconfig == kubeconfig && syncer.mailbox == mailbox)
        {
            return Ok(());
        }
        // Checks the kubeconfig before it stops a working syncer.
        let clients = clients(&kubeconfig).await.map_err(|error| {
            let SecretReference { namespace, name, key } = secret;
            let message = format!("{key} of Secret {namespace}/{name} cannot be used: {error}; {ADVICE}");
            error.context(message)
        })?;
        let in_backoff = self.failed.get(key).is_some_and(|failed| failed.at.elapsed() < RESTART_DELAY);
        match self.running.contains_key(key) {
            true => self.stop(key),
            // The old syncer still stops; the next requeue starts the new one.
            false if in_backoff => {}
            false => self.start(key, mailbox, kubeconfig, clients),
        }
        Ok(())
    }

    fn start(&mut self, key: &Key, mailbox: Id, kubeconfig: String, (downstream, streams): (Client, Client)) {
        let settings = Settings {
            name: key.name.clone(),
            mailbox: mailbox.to_string(),
            directory: Some(self.context.directory.join(mailbox.to_string())),
            encryption_key: self.context.encryption_key,
        };
        let tunnel = self.context.streams.open_push(mailbox, streams);
        let mailbox_client =
            local::client(self.context.stack.clone(), account(mailbox), &Cluster::Id(mailbox));
        let (syncer, stop) = (Syncer::new(mailbox_client, downstream, settings), Tasks::new());
        self.tasks.spawn(key.clone(), syncer.run(stop.stop()));
        let (running_until_dropped, started) = (Some((tunnel, stop)), Instant::now());
        self.running
            .insert(key.clone(), RunningSyncer { kubeconfig, mailbox, running_until_dropped, started });
    }

    async fn may_push(&self, home: Id) -> Result<bool> {
        for path in &self.context.push_from {
            if logical_cluster::find(&*self.context.store, path).await? == Some(home) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn kubeconfig(&self, home: Id, secret: &SecretReference) -> Result<String> {
        let kind = ResourceKind::new("", "v1", "secrets", "Secret", true);
        let SecretReference { namespace, name, key } = secret;
        let object = self.server.within(home).get(ObjectPath::new(&kind, namespace, name)).await;
        let object = object.with_context(|| format!("cannot read Secret {namespace}/{name}"))?;
        let object = object.with_context(|| format!("there is no Secret {namespace}/{name}; {ADVICE}"))?;
        let data = object["data"][key].as_str();
        let data = data.with_context(|| format!("Secret {namespace}/{name} has no {key}; {ADVICE}"))?;
        let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        text.with_context(|| format!("{key} of Secret {namespace}/{name} is not valid UTF-8; {ADVICE}"))
    }

    /// Removes the state of deleted mailboxes. A mailbox whose record cannot be read counts as existing.
    async fn remove_stale_state(&self) {
        // A stopping syncer may still write.
        let used: HashSet<Id> = self.running.values().map(|syncer| syncer.mailbox).collect();
        let Ok(entries) = std::fs::read_dir(&self.context.directory) else { return };
        for entry in entries.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<Id>().ok()) else {
                continue;
            };
            if used.contains(&id) || !matches!(records::find(&*self.context.store, id).await, Ok(None)) {
                continue;
            }
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, mailbox = %id, "cannot remove the state of a deleted mailbox");
            }
        }
    }

    pub(super) async fn close(mut self) {
        self.running.clear();
        let ended = async { while self.tasks.next_ended().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::warn!("some syncers did not stop within {STOP_TIMEOUT:?}");
        }
    }
}

/// Returns the mailbox and the Secret of a physical cluster that the server connects to.
fn push_target(member: &FleetMember) -> Option<(&FleetMember, Id, &SecretReference)> {
    let Connection::Push(push) = &member.object.spec.connection else { return None };
    let mailbox = member.mailbox.filter(|_| !is_forgotten(&member.object))?;
    // The status names the mailbox once it has a service account and a role for the syncer; earlier requests would be
    // denied.
    let reported = member.object.status.as_ref()?.mailbox.as_deref()?;
    (reported == mailbox.to_string()).then_some((member, mailbox, &push.secret_ref))
}

/// Returns the clients of a physical cluster: for its syncer, and for streams to pods.
async fn clients(kubeconfig: &str) -> Result<(Client, Client)> {
    let config = clients::config(kubeconfig).await?;
    Ok((clients::multiplexed(config.clone())?, clients::single_use(config)?))
}

/// Returns the service account of the syncer of a mailbox.
fn account(mailbox: Id) -> Identity {
    Identity::known(User {
        name: format!("system:serviceaccount:kube-system:{SYNCER_ACCOUNT}"),
        groups: vec!["system:serviceaccounts".to_owned(), "system:serviceaccounts:kube-system".to_owned()],
        home: Some(mailbox),
        ..User::default()
    })
}
