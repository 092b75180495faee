//! What looks after physical clusters inside the server, and the syncers of those it connects to itself.
//!
//! ```text
//!   PhysicalCluster with `push` ─► its Secret ─► a client of the physical cluster ─┐
//!                     its mailbox, as the syncer's own service account ────────────┴─► Syncer
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::cluster::{Id, Path};
use api::fleet::{Connection, SecretReference};
use api::names::SYNCER_ACCOUNT;
use apiserver::identity::{Identity, User};
use apiserver::request::Cluster;
use apiserver::stack::Stack;
use apiserver::{clusters, local};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::kind::Kind;
use controller::lease::Lease;
use controller::remote::{Place, Remote};
use controller::tasks::{Stop, Tasks};
use splitter::fleet::{Fleet, Member, is_forgotten};
use storage::Store;
use syncer::{Settings, Syncer};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::reach;
use crate::tunnel::Tunnels;

/// Secrets are looked at again after this long, whatever happens.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// What comes in a burst is looked at once.
const GATHER: Duration = Duration::from_millis(100);
/// Before a syncer that ended is started again.
const PAUSE: Duration = Duration::from_secs(5);
/// As long as a syncer takes to finish what it writes.
const GRACE: Duration = Duration::from_secs(12);

/// What it needs of the server.
pub(crate) struct Inside {
    pub(crate) stack: Arc<Stack>,
    pub(crate) store: Arc<dyn Store>,
    /// Where syncers keep what they were asked for.
    pub(crate) directory: PathBuf,
    /// Where ways to physical clusters are found.
    pub(crate) tunnels: Arc<Tunnels>,
    /// The logical clusters whose physical clusters the server connects to. Whoever writes a PhysicalCluster there
    /// decides where it connects to.
    pub(crate) push_from: Vec<Path>,
    /// Whether other servers share the store. Then one of them looks after physical clusters.
    pub(crate) is_shared: bool,
}

/// Looks after physical clusters until told to stop.
pub(crate) async fn run(inside: Inside, mut stop: Stop) -> Result<(), Infallible> {
    let client = |cluster: &Cluster| {
        let who = User {
            name: "system:holon:fleet".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..User::default()
        };
        Remote::new(local::client(inside.stack.clone(), Identity::known(who), cluster))
    };
    let (server, all) = (client(&Cluster::Bare), client(&Cluster::All));
    if !inside.is_shared {
        look_after(&inside, &server, &all, stop.requested()).await;
        return Ok(());
    }
    let holder = format!("{:016x}", rand::random::<u64>());
    let lease = Lease::new(server.within(Id::ROOT), "kube-system", "holon-fleet", &holder);
    let (leads, led) = watch::channel(false);
    let leading = async {
        let mut led = led;
        // Nobody is left to say that somebody leads only when everything ends.
        while led.wait_for(|leads| *leads).await.is_ok() {
            let lost = async { drop(led.wait_for(|leads| !*leads).await) };
            look_after(&inside, &server, &all, lost).await;
        }
    };
    tokio::select! {
        never = lease.hold(|_| _ = leads.send_replace(lease.leads())) => match never {},
        () = leading => {}
        () = stop.requested() => {}
    }
    if let Err(error) = lease.release().await {
        tracing::warn!(%error, "cannot give up the lease of the fleet");
    }
    Ok(())
}

/// Looks after physical clusters until that is over.
async fn look_after(inside: &Inside, server: &Remote, all: &Remote, over: impl Future<Output = ()>) {
    let (fleet, bell) = (Fleet::new(server.clone()), Notify::new());
    let server = server.clone();
    let mut seats = Seats { inside, server, running: HashMap::new(), count: 0, set: JoinSet::new() };
    tokio::select! {
        never = fleet.run(all.clone(), || bell.notify_one()) => match never {},
        never = seats.keep(&fleet, &bell) => match never {},
        () = over => {}
    }
    seats.close().await;
}

/// Of a physical cluster: where its object is, and its name.
type Name = (Id, String);

/// The syncers that run here.
struct Seats<'a> {
    inside: &'a Inside,
    server: Remote,
    running: HashMap<Name, Seat>,
    /// How many there have been.
    count: u64,
    set: JoinSet<(Name, u64)>,
}

/// One of them. It stops when this is dropped.
struct Seat {
    /// Tells it from others of its name.
    number: u64,
    kubeconfig: String,
    mailbox: Id,
    tunnels: Arc<Tunnels>,
    _stop: Tasks,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.tunnels.close(self.mailbox);
    }
}

impl Seats<'_> {
    async fn keep(&mut self, fleet: &Fleet, bell: &Notify) -> Infallible {
        loop {
            tokio::select! {
                () = bell.notified() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(LOOK_EVERY) => {}
                Some(ended) = self.set.join_next() => {
                    // It was stopped, or it failed and has said so. What it should be is looked at below.
                    if let Ok((name, number)) = ended
                        && self.running.get(&name).is_some_and(|seat| seat.number == number)
                    {
                        self.running.remove(&name);
                    }
                }
            }
            self.settle(fleet.members()).await;
        }
    }

    /// Starts and stops what should be.
    async fn settle(&mut self, members: Vec<Member>) {
        let members: HashMap<Name, Member> = members
            .into_iter()
            .map(|member| ((member.home, member.object.metadata.name.clone()), member))
            .collect();
        self.running.retain(|name, _| members.contains_key(name));
        for (name, member) in members {
            let (Connection::Push(push), Some(mailbox), false) =
                (&member.object.spec.connection, member.mailbox, is_forgotten(&member.object))
            else {
                self.running.remove(&name);
                continue;
            };
            if let Err(error) = self.start(&name, mailbox, &push.secret_ref).await {
                tracing::warn!(
                    physical_cluster = name.1,
                    error = format!("{error:#}"),
                    "cannot connect to a physical cluster"
                );
            }
        }
    }

    async fn start(&mut self, name: &Name, mailbox: Id, secret: &SecretReference) -> Result<()> {
        if !self.may_push(name.0).await? {
            anyhow::bail!(
                "the server does not connect to physical clusters of this logical cluster; see --push-from"
            );
        }
        let kubeconfig = self.kubeconfig(name.0, secret).await?;
        let same = |seat: &Seat| seat.kubeconfig == kubeconfig && seat.mailbox == mailbox;
        match self.running.get(name) {
            Some(seat) if same(seat) => return Ok(()),
            // The next look starts it anew, when it has ended.
            Some(_) => {
                self.running.remove(name);
                return Ok(());
            }
            None => {}
        }
        let below = reach::client(&kubeconfig).await.context("its kubeconfig cannot be used")?;
        let stop = Tasks::new();
        let settings = Settings {
            name: name.1.clone(),
            mailbox: mailbox.to_string(),
            directory: Some(self.inside.directory.join(mailbox.to_string())),
            seal: None,
        };
        let tunnels = self.inside.tunnels.clone();
        tunnels.open(mailbox, below.clone());
        let above = local::client(self.inside.stack.clone(), account(mailbox), &Cluster::Id(mailbox));
        self.count += 1;
        let number = self.count;
        let (syncer, stopped, named) = (Syncer::new(above, below, settings), stop.stop(), name.clone());
        self.set.spawn(async move {
            if let Err(error) = syncer.run(stopped).await {
                tracing::error!(physical_cluster = named.1, %error, "a syncer ended; it is started again");
                tokio::time::sleep(PAUSE).await;
            }
            (named, number)
        });
        self.running.insert(name.clone(), Seat { number, kubeconfig, mailbox, tunnels, _stop: stop });
        Ok(())
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
        let found = self.server.within(home).get(Place::new(&kind, namespace, name)).await?;
        let found = found.with_context(|| format!("there is no Secret {namespace}/{name}"))?;
        let data =
            found["data"][key].as_str().with_context(|| format!("Secret {namespace}/{name} has no {key}"))?;
        let bytes = STANDARD.decode(data).context("reading the Secret")?;
        String::from_utf8(bytes).with_context(|| format!("{key} of Secret {namespace}/{name} is no text"))
    }

    async fn close(mut self) {
        self.running.clear();
        let ended = async { while self.set.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            tracing::warn!("some syncers did not finish within {GRACE:?}");
        }
    }
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
