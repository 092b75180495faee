//! The syncers that run inside the server: one for every physical cluster it connects to itself.
//!
//! ```text
//!   a physical cluster that may be another ─► queue ─► look ─► its Secret ─► start, leave alone, or end its syncer
//!                                               ▲                  └─► what keeps the server from it: in its status
//!                             every 10 s ───────┘
//! ```
//!
//! One is looked at at a time, and by itself: however many there are, what one does costs the same.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::cluster::Id;
use api::fleet::{Connection, SecretReference};
use api::names::SYNCER_ACCOUNT;
use apiserver::identity::{Identity, User};
use apiserver::request::Cluster;
use apiserver::{births, clusters, local};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::informer::Key;
use controller::kind::Kind;
use controller::queue::{Outcome, Queue};
use controller::remote::{Place, Remote};
use controller::tasks::{KeyedTasks, Tasks};
use kube::Client;
use splitter::fleet::{Fleet, Hindrance, Member, is_forgotten};
use syncer::{Settings, Syncer, SyncerError};
use tokio::time::Instant;
use tunnel::OpenTunnel;

use super::{Inside, PAUSE};
use crate::clients;

/// Secrets are looked at again after this long, whatever happens.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// As long as a syncer takes to finish what it writes.
const GRACE: Duration = Duration::from_secs(12);

/// What helps, whatever is wrong with a Secret.
const CURE: &str = "`holon join` makes one that can be used";

/// The syncers that run here, by where the object of the physical cluster is.
pub(super) struct Seats<'a> {
    inside: &'a Inside,
    server: Remote,
    running: HashMap<Key, Seat>,
    /// Why the last syncer of a physical cluster ended, until another has run for a while.
    failed: HashMap<Key, Failed>,
    tasks: KeyedTasks<Key, Result<(), SyncerError>>,
}

struct Failed {
    why: String,
    at: Instant,
}

/// One of them.
struct Seat {
    kubeconfig: String,
    mailbox: Id,
    /// Dropped, it ends when it has finished what it writes. Until then nobody takes its place.
    stays: Option<(OpenTunnel, Tasks)>,
    begun: Instant,
}

impl<'a> Seats<'a> {
    pub(super) fn new(inside: &'a Inside, server: Remote) -> Seats<'a> {
        let (running, failed) = (HashMap::new(), HashMap::new());
        Seats { inside, server, running, failed, tasks: KeyedTasks::default() }
    }

    /// Starts and ends what should be, for as long as it is polled.
    pub(super) async fn keep(&mut self, fleet: &Fleet, changed: &Queue<Key>) -> Infallible {
        let mut sweeping = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                key = changed.next() => {
                    let outcome = self.look(fleet, &key).await;
                    changed.done(key, outcome);
                }
                Some((key, ended)) = self.tasks.next_ended() => {
                    let why = match ended {
                        Ok(ended) => ended.err().map(|error| error.to_string()),
                        Err(panic) => Some(panic),
                    };
                    self.ended(&key, why);
                    changed.add(key);
                }
                _ = sweeping.tick() => self.sweep().await,
            }
        }
    }

    fn ended(&mut self, key: &Key, why: Option<String>) {
        self.running.remove(key);
        if let Some(why) = why {
            tracing::error!(physical_cluster = key.name, error = why, "a syncer ended; it is started again");
            self.failed.insert(key.clone(), Failed { why, at: Instant::now() });
        }
    }

    /// Why there is no syncer, or was none a moment ago. One that fails does so at once.
    fn failure(&mut self, key: &Key) -> Option<&Failed> {
        let lives = |seat: &Seat| seat.stays.is_some() && seat.begun.elapsed() >= PAUSE;
        if self.running.get(key).is_some_and(lives) {
            self.failed.remove(key);
        }
        self.failed.get(key)
    }

    /// Makes one as it should be, and says what is in the way of that.
    async fn look(&mut self, fleet: &Fleet, key: &Key) -> Outcome {
        let member = fleet.member(key);
        let Some((member, mailbox, secret)) = member.as_ref().and_then(connected_from_here) else {
            self.end(key);
            self.failed.remove(key);
            fleet.say(key, None);
            return Outcome::Done;
        };
        let settled = self.settle(key, member.home, mailbox, secret).await;
        let settled = settled.and_then(|()| match self.failure(key) {
            Some(Failed { why, .. }) => bail!("its syncer cannot run: {why}"),
            None => Ok(()),
        });
        let hindrance = settled
            .as_ref()
            .err()
            .map(|error| Hindrance { message: error.to_string(), is_connected: self.is_connected(key) });
        let is_news = fleet.say(key, hindrance);
        if let Some(error) = settled.err().filter(|_| is_news) {
            let (physical_cluster, error) = (&key.name, format!("{error:#}"));
            tracing::warn!(physical_cluster, error, "cannot connect to a physical cluster");
        }
        Outcome::Again(LOOK_EVERY)
    }

    /// Has it finish what it writes, and go.
    fn end(&mut self, key: &Key) {
        if let Some(seat) = self.running.get_mut(key) {
            seat.stays = None;
        }
    }

    fn is_connected(&self, key: &Key) -> bool {
        self.is_staying(key) && !self.failed.contains_key(key)
    }

    fn is_staying(&self, key: &Key) -> bool {
        self.running.get(key).is_some_and(|seat| seat.stays.is_some())
    }

    async fn settle(&mut self, key: &Key, home: Id, mailbox: Id, secret: &SecretReference) -> Result<()> {
        // When one that ends has ended, it is looked at again.
        if self.running.contains_key(key) && !self.is_staying(key) {
            return Ok(());
        }
        if !self.may_push(home).await? {
            bail!(
                "the server does not connect to physical clusters of this logical cluster; to have it do so, \
                 start it with this one's path in --push-from"
            );
        }
        let kubeconfig = self.kubeconfig(home, secret).await?;
        if self.running.get(key).is_some_and(|seat| seat.kubeconfig == kubeconfig && seat.mailbox == mailbox)
        {
            return Ok(());
        }
        // Before anything ends that works.
        let clients = clients(&kubeconfig).await.map_err(|error| {
            let SecretReference { namespace, name, key } = secret;
            let message = format!("{key} of Secret {namespace}/{name} cannot be used: {error}; {CURE}");
            error.context(message)
        })?;
        let waits = self.failed.get(key).is_some_and(|failed| failed.at.elapsed() < PAUSE);
        match self.running.contains_key(key) {
            true => self.end(key),
            // It is looked at again soon enough.
            false if waits => {}
            false => self.start(key, mailbox, kubeconfig, clients),
        }
        Ok(())
    }

    fn start(&mut self, key: &Key, mailbox: Id, kubeconfig: String, (below, led): (Client, Client)) {
        let settings = Settings {
            name: key.name.clone(),
            mailbox: mailbox.to_string(),
            directory: Some(self.inside.directory.join(mailbox.to_string())),
            encryption_key: self.inside.seal,
        };
        let tunnel = self.inside.streams.open_push(mailbox, led);
        let above = local::client(self.inside.stack.clone(), account(mailbox), &Cluster::Id(mailbox));
        let (syncer, stop) = (Syncer::new(above, below, settings), Tasks::new());
        self.tasks.spawn(key.clone(), syncer.run(stop.stop()));
        let (stays, begun) = (Some((tunnel, stop)), Instant::now());
        self.running.insert(key.clone(), Seat { kubeconfig, mailbox, stays, begun });
    }

    async fn may_push(&self, home: Id) -> Result<bool> {
        for path in &self.inside.push_from {
            if clusters::find(&*self.inside.store, path).await? == Some(home) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn kubeconfig(&self, home: Id, secret: &SecretReference) -> Result<String> {
        let kind = Kind::new("", "v1", "secrets", "Secret", true);
        let SecretReference { namespace, name, key } = secret;
        let found = self.server.within(home).get(Place::new(&kind, namespace, name)).await;
        let found = found.with_context(|| format!("cannot read Secret {namespace}/{name}"))?;
        let found = found.with_context(|| format!("there is no Secret {namespace}/{name}; {CURE}"))?;
        let data = found["data"][key].as_str();
        let data = data.with_context(|| format!("Secret {namespace}/{name} has no {key}; {CURE}"))?;
        let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        text.with_context(|| format!("{key} of Secret {namespace}/{name} is no text; {CURE}"))
    }

    /// Forgets on disk what mailboxes asked for that are gone. A mailbox that cannot be asked about is not gone.
    async fn sweep(&self) {
        // Whoever is about to end may still write there.
        let used: HashSet<Id> = self.running.values().map(|seat| seat.mailbox).collect();
        let Ok(entries) = std::fs::read_dir(&self.inside.directory) else { return };
        for entry in entries.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<Id>().ok()) else {
                continue;
            };
            if used.contains(&id) || !matches!(births::find(&*self.inside.store, id).await, Ok(None)) {
                continue;
            }
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, mailbox = %id, "cannot forget on disk what a mailbox asked for");
            }
        }
    }

    pub(super) async fn close(mut self) {
        self.running.clear();
        let ended = async { while self.tasks.next_ended().await.is_some() {} };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            tracing::warn!("some syncers did not finish within {GRACE:?}");
        }
    }
}

/// A physical cluster the server connects to itself, as far as that goes: its mailbox, and where it is said how.
fn connected_from_here(member: &Member) -> Option<(&Member, Id, &SecretReference)> {
    let Connection::Push(push) = &member.object.spec.connection else { return None };
    let mailbox = member.mailbox.filter(|_| !is_forgotten(&member.object))?;
    // It is said when the mailbox has an account and a role for its syncer; one that came before would be refused everything.
    let said = member.object.status.as_ref()?.mailbox.as_deref()?;
    (said == mailbox.to_string()).then_some((member, mailbox, &push.secret_ref))
}

/// What the physical cluster is asked with, by its syncer and by those who are led there.
async fn clients(kubeconfig: &str) -> Result<(Client, Client)> {
    let config = clients::config(kubeconfig).await?;
    Ok((clients::multiplexed(config.clone())?, clients::once(config)?))
}

/// The service account a syncer is in its mailbox.
fn account(mailbox: Id) -> Identity {
    Identity::known(User {
        name: format!("system:serviceaccount:kube-system:{SYNCER_ACCOUNT}"),
        groups: vec!["system:serviceaccounts".to_owned(), "system:serviceaccounts:kube-system".to_owned()],
        home: Some(mailbox),
        ..User::default()
    })
}
