//! Physical clusters: their mailboxes, whether they are there, and their leaving.
//!
//! ```text
//!   logical cluster of the fleet                       mailbox (mailbox-east, below it)
//!   PhysicalCluster east ──makes──────────────────────► logical cluster, account and role of its syncer
//!      status ◄──────────── copied, judged ────────────  PhysicalCluster east: what the syncer reports
//!                                                        Lease holon-syncer:   its heartbeat
//!      deleted ──────────── empties ──────────────────►  everything that is placed
//! ```
//!
//! One instance looks after all physical clusters of a server. It follows three kinds over all logical clusters, and
//! works only when something happens or a heartbeat is due.

mod health;
mod mailbox;
mod removal;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::cluster::Id;
use api::fleet::{Condition, Connection, PhysicalCluster, PhysicalClusterStatus};
use api::names::{FLEET, FORGET, GROUP, HEARTBEAT, MAILBOX_OF, SPLITTER, TRUE, VERSION, owner_of_mailbox};
use controller::informer::{Key, News, Object, Scope, View, follow};
use controller::kind::Kind;
use controller::queue::{Outcome, Queue};
use controller::remote::{CallError, Patch, Place, Remote};
use controller::run::work;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::health::{Before, Health, Pulse, judge};

/// Physical clusters looked after at once.
const HANDS: usize = 8;
/// While one leaves, how often it is looked at how much is left.
const LEAVING_AGAIN: Duration = Duration::from_secs(2);
/// A syncer that is there hears within ten seconds that it may go.
const DISMISSED_WITHIN: Duration = Duration::from_secs(40);
/// What was written is seen after a moment.
const SOON: Duration = Duration::from_millis(200);
const SILENT: &str = "Silent";
const NEVER_HEARD: &str = "NeverHeard";
const CANNOT_CONNECT: &str = "CannotConnect";
const LEAVING: &str = "Leaving";
/// Condition of a physical cluster that is a logical cluster whose own work could be placed there again.
pub(crate) const CIRCULAR: &str = "Circular";

/// Looks after all physical clusters of a server.
#[derive(Debug)]
pub struct Fleet {
    /// Reaches every logical cluster by its id.
    server: Remote,
    physical: Arc<View>,
    /// Mailboxes alone: there may be a million others.
    logical: Arc<View>,
    leases: Arc<View>,
    queue: Queue<Key>,
    /// The physical cluster of each mailbox.
    owners: Mutex<HashMap<Id, Key>>,
    pulses: Mutex<HashMap<Key, Pulse>>,
    hindered: Mutex<HashMap<Key, Hindrance>>,
    /// Since when syncers are told to go.
    dismissed: Mutex<HashMap<Id, Instant>>,
}

/// A physical cluster, and where its mailbox is.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// The logical cluster its object is in.
    pub home: Id,
    pub object: PhysicalCluster,
    pub mailbox: Option<Id>,
}

/// What keeps the server from connecting to a physical cluster, said for whoever can do something about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hindrance {
    pub message: String,
    /// Whether it is connected all the same, by what it was told before.
    pub is_connected: bool,
}

fn kind_of(resource: api::fleet::Resource) -> Kind {
    Kind::new(GROUP, VERSION, resource.plural, resource.kind, resource.namespaced)
}

impl Fleet {
    /// `server` names no logical cluster.
    pub fn new(server: Remote) -> Fleet {
        let view = |kind| Arc::new(View::new(kind));
        Fleet {
            server,
            physical: view(kind_of(PhysicalCluster::RESOURCE)),
            logical: view(Kind::new(GROUP, VERSION, "logicalclusters", "LogicalCluster", false)),
            leases: view(Kind::new("coordination.k8s.io", "v1", "leases", "Lease", true)),
            queue: Queue::new(),
            owners: Mutex::default(),
            pulses: Mutex::default(),
            hindered: Mutex::default(),
            dismissed: Mutex::default(),
        }
    }

    /// Goes on for as long as it is polled. `all` reads from all logical clusters at once; `changed` hears which
    /// [member](Fleet::member) may be another than before. Heartbeats and reports make none another.
    pub async fn run(&self, all: Remote, changed: impl Fn(Key)) -> Infallible {
        let across = || Scope { across: true, ..Scope::default() };
        let heartbeats = Scope {
            keep: Some(Box::new(|key: &Key| key.name == HEARTBEAT && key.namespace == "kube-system")),
            ..across()
        };
        let mailboxes = Scope { labels: MAILBOX_OF.to_owned(), ..across() };
        let told = |view: &View, news: News<'_>| self.hear(view, &news, &changed);
        tokio::select! {
            never = follow(all.clone(), self.physical.clone(), across(), told) => never,
            never = follow(all.clone(), self.logical.clone(), mailboxes, told) => never,
            never = follow(all, self.leases.clone(), heartbeats, told) => never,
            never = work(&self.queue, HANDS, |key| self.looked(key)) => never,
        }
    }

    /// Something happened to a physical cluster, a mailbox, a report or a heartbeat.
    fn hear(&self, view: &View, news: &News<'_>, changed: impl Fn(Key)) {
        let (object, gone) = match news {
            News::Put { now, .. } => (now, false),
            News::Gone { last, .. } => (last, true),
            // What came before it is known is looked at now.
            News::Synced => {
                return self.physical.keys().into_iter().for_each(|key| {
                    self.queue.add(key.clone());
                    changed(key);
                });
            }
            News::Lost => return,
        };
        if view.kind == self.logical.kind {
            let Some(owner) = owner_of_mailbox(&object.key.name) else { return };
            let owner = Key { name: owner.to_owned(), ..object.key.clone() };
            if let Some(id) = mailbox_id(&object.read(&view.kind)) {
                match gone {
                    true => self.owners().remove(&id),
                    false => self.owners().insert(id, owner.clone()),
                };
            }
            self.queue.add(owner.clone());
            changed(owner);
        } else if let Some(reported) = object.key.cluster.and_then(|id| self.whose_mailbox(id)) {
            self.queue.add(reported);
        } else if view.kind == self.physical.kind {
            self.queue.add(object.key.clone());
            changed(object.key.clone());
        }
    }

    /// A physical cluster that is known.
    pub fn member(&self, key: &Key) -> Option<Member> {
        let home = key.cluster.filter(|home| self.whose_mailbox(*home).is_none())?;
        let object = self.physical.get(key)?.read(&self.physical.kind);
        let object: PhysicalCluster = serde_json::from_value(object).ok()?;
        let mailbox = self.mailbox_of(home, &object.metadata.name);
        Some(Member { home, object, mailbox })
    }

    /// Says what keeps the server from connecting to it, or that nothing does. Whether that is news.
    pub fn say(&self, key: &Key, hindrance: Option<Hindrance>) -> bool {
        let mut hindered = self.hindered();
        let before = match hindrance.clone() {
            Some(hindrance) => hindered.insert(key.clone(), hindrance),
            None => hindered.remove(key),
        };
        let is_news = before != hindrance;
        if is_news {
            self.queue.add(key.clone());
        }
        is_news
    }

    fn hindered(&self) -> MutexGuard<'_, HashMap<Key, Hindrance>> {
        self.hindered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the mailbox of a physical cluster.
    fn mailbox_of(&self, home: Id, name: &str) -> Option<Id> {
        let key = Key { cluster: Some(home), namespace: String::new(), name: api::names::mailbox(name) };
        mailbox_id(&self.logical.get(&key)?.read(&self.logical.kind))
    }

    /// The physical cluster whose mailbox a logical cluster is, if it is one.
    fn whose_mailbox(&self, id: Id) -> Option<Key> {
        self.owners().get(&id).cloned()
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<Id, Key>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn looked(&self, key: Key) -> Outcome {
        if !(self.physical.synced() && self.logical.synced() && self.leases.synced()) {
            return Outcome::Again(SOON);
        }
        match self.look(&key).await {
            Ok(outcome) => outcome,
            Err(error) if error.is_conflict() => Outcome::Failed,
            Err(error) => {
                tracing::warn!(physical_cluster = %key, %error, "cannot look after a physical cluster; will try again");
                Outcome::Failed
            }
        }
    }

    async fn look(&self, key: &Key) -> Result<Outcome, CallError> {
        let Some(Member { home, object, mailbox }) = self.member(key) else {
            self.pulses().remove(key);
            self.hindered().remove(key);
            return Ok(Outcome::Done);
        };
        let (name, here) = (&object.metadata.name, self.server.within(home));
        if object.metadata.is_being_deleted() {
            return self.leaving(&here, &object, mailbox).await;
        }
        let place = Place::new(&self.physical.kind, "", name);
        if !object.metadata.finalizers.iter().any(|finalizer| finalizer == FLEET) {
            let mut finalizers = object.metadata.finalizers.clone();
            finalizers.push(FLEET.to_owned());
            let change = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": object.metadata.resource_version } });
            here.patch(place, Patch::Merge, &change).await?;
            return Ok(Outcome::Done);
        }
        let Some(mailbox) = mailbox else { return self.make(&here, &object).await };
        if object.status.as_ref().and_then(|status| status.mailbox.as_deref()) != Some(&*mailbox.to_string())
        {
            furnish(&self.server.within(mailbox)).await?;
        }
        let before = object.status.clone().unwrap_or_default();
        let health = self.health(key, mailbox, &before);
        let hindrance = self.hindered().get(key).cloned();
        let status = self.status(mailbox, &object, &before, health, hindrance);
        self.write(&here, &object, status).await?;
        Ok(match health {
            // A little later, so that it is over then.
            Health::Alive(left) => Outcome::Again(left + Duration::from_millis(100)),
            Health::NeverHeard | Health::Silent => Outcome::Done,
        })
    }

    /// The lease the syncer of a mailbox renews.
    fn lease(&self, mailbox: Id) -> Option<Arc<Object>> {
        self.leases.get(&Key {
            cluster: Some(mailbox),
            namespace: "kube-system".to_owned(),
            name: HEARTBEAT.to_owned(),
        })
    }

    fn health(&self, key: &Key, mailbox: Id, before: &PhysicalClusterStatus) -> Health {
        let beat = self.lease(mailbox).map(|lease| lease.version.clone());
        let said = before.conditions.iter().find(|condition| condition.r#type == "Ready");
        let before = match said.map(|ready| &*ready.reason) {
            None | Some(NEVER_HEARD) => Before::Nothing,
            Some(CANNOT_CONNECT) if beat.is_none() => Before::Nothing,
            // Whether it can be connected to now is not known yet. Two beats say so.
            Some(SILENT | CANNOT_CONNECT) => Before::Silent,
            Some(_) => Before::Alive,
        };
        let mut pulses = self.pulses();
        let mut pulse = pulses.remove(key);
        let health = judge(&mut pulse, beat.as_deref(), before, Instant::now());
        pulses.extend(pulse.map(|pulse| (key.clone(), pulse)));
        health
    }

    /// What the syncer of a physical cluster said last, in its mailbox.
    fn report(&self, mailbox: Id, name: &str) -> Option<PhysicalCluster> {
        let key = Key { cluster: Some(mailbox), namespace: String::new(), name: name.to_owned() };
        let report = self.physical.get(&key)?.read(&self.physical.kind);
        serde_json::from_value(report).ok()
    }

    fn pulses(&self) -> MutexGuard<'_, HashMap<Key, Pulse>> {
        self.pulses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the syncer reports, and what is made of its heartbeat.
    fn status(
        &self,
        mailbox: Id,
        object: &PhysicalCluster,
        before: &PhysicalClusterStatus,
        health: Health,
        hindrance: Option<Hindrance>,
    ) -> PhysicalClusterStatus {
        let report = self.report(mailbox, &object.metadata.name).and_then(|report| report.status);
        let reported = report.as_ref().map_or(&[][..], |report| &report.conditions).to_vec();
        let mut status = report.unwrap_or_else(|| before.clone());
        let said = |kind: &str| reported.iter().find(|said| said.r#type == kind).cloned();
        let other = said("ClusterIdentity").filter(|said| said.status == "False");
        let circular = before.conditions.iter().find(|said| said.r#type == CIRCULAR && said.status == "True");
        let ready = match circular {
            Some(circular) => ("False", CIRCULAR.to_owned(), circular.message.clone()),
            None => ready(health, other.or_else(|| said("Ready")), hindrance),
        };
        let (was, is) = (before.conditions.iter().find(|said| said.r#type == "Ready"), ready.0);
        let beat = self.lease(mailbox).map(|lease| lease.read(&self.leases.kind));
        let beat = beat.as_ref().and_then(|lease| lease["spec"]["renewTime"].as_str());
        let is_news = was.is_none_or(|was| was.status != is);
        status.last_heartbeat_time = health::told(before.last_heartbeat_time.as_deref(), beat, is_news);
        status.conditions.retain(|said| said.r#type != "Ready");
        status.conditions.insert(0, condition(&before.conditions, "Ready", ready));
        // The splitter's: it knows which physical clusters are logical clusters of this server.
        status.conditions.retain(|said| said.r#type != CIRCULAR);
        status.conditions.extend(before.conditions.iter().find(|said| said.r#type == CIRCULAR).cloned());
        status.mailbox = Some(mailbox.to_string());
        status.observed_generation = object.metadata.generation;
        status
    }

    async fn write(
        &self,
        home: &Remote,
        object: &PhysicalCluster,
        status: PhysicalClusterStatus,
    ) -> Result<(), CallError> {
        if object.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let place = Place::new(&self.physical.kind, "", &object.metadata.name).part("status");
        let status = serde_json::to_value(status).unwrap_or(Value::Null);
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": object.metadata.uid },
            { "op": "add", "path": "/status", "value": status },
        ]);
        home.patch(place, Patch::Json, &change).await.map(drop)
    }

    /// Makes the mailbox.
    async fn make(&self, home: &Remote, object: &PhysicalCluster) -> Result<Outcome, CallError> {
        let (name, kind) = (&object.metadata.name, &self.logical.kind);
        match home.create(kind, "", &mailbox::logical_cluster(name)).await {
            Ok(_) => return Ok(Outcome::Done),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        let taken = api::names::mailbox(name);
        let found = home.get(Place::new(kind, "", &taken)).await?;
        if found.as_ref().is_none_or(|found| mailbox_id(found).is_some()) {
            return Ok(Outcome::Again(SOON));
        }
        let why = format!(
            "there is a logical cluster {taken} that is not its mailbox; delete it, or name the physical cluster otherwise"
        );
        self.write(home, object, refused(object, &why)).await?;
        Ok(Outcome::Again(LEAVING_AGAIN))
    }

    /// What one that leaves still waits for: a reason, and what is said about it.
    async fn left(
        &self,
        object: &PhysicalCluster,
        mailbox: Id,
    ) -> Result<Option<(&'static str, String)>, CallError> {
        const FORGETTING: &str = "Forgetting";
        let is_used = object.metadata.finalizers.iter().any(|finalizer| finalizer == SPLITTER);
        if is_used && !is_forgotten(object) {
            let message = "what runs there is moved first, and the data of claims is kept until they are deleted; \
                 `kubectl get distributions,pvc -A` shows what that is";
            return Ok(Some(("Moving", message.to_owned())));
        }
        if is_forgotten(object) {
            // Its syncer stops first: it must not take the end of the mailbox for the wish to delete what it holds.
            let conditions = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let told = conditions.iter().any(|said| said.r#type == LEAVING && said.reason == FORGETTING);
            return Ok((!told).then(|| (FORGETTING, "what was sent there stays there".to_owned())));
        }
        let left = removal::empty(&self.server.within(mailbox)).await?;
        if left > 0 {
            let message =
                format!("{left} objects are still there; to leave them there, annotate it {FORGET}={TRUE}");
            return Ok(Some(("Emptying", message)));
        }
        let has_seat = matches!(object.spec.connection, Connection::Pull(_));
        let waits = has_seat && !self.has_gone(&object.metadata.name, mailbox).await?;
        Ok(waits.then(|| ("Dismissing", "its syncer is told to take itself away".to_owned())))
    }

    /// Tells the syncer that dialled in that it may go. Whether it has, or is not there to be told, or takes too long.
    async fn has_gone(&self, name: &str, mailbox: Id) -> Result<bool, CallError> {
        let lease = self.lease(mailbox).map(|lease| lease.read(&self.leases.kind));
        let holder = lease.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let report = self.report(mailbox, name);
        let told =
            removal::dismiss(&self.server.within(mailbox), &self.physical.kind, report.as_ref()).await?;
        let since = {
            let mut dismissed = self.dismissed.lock().unwrap_or_else(PoisonError::into_inner);
            *dismissed.entry(mailbox).or_insert_with(Instant::now)
        };
        let has_gone = holder.is_none_or(str::is_empty)
            || told != removal::Told::Yes
            || since.elapsed() > DISMISSED_WITHIN;
        if has_gone {
            self.dismissed.lock().unwrap_or_else(PoisonError::into_inner).remove(&mailbox);
        }
        Ok(has_gone)
    }

    /// Takes away what was sent there, then the mailbox, then the object.
    async fn leaving(
        &self,
        home: &Remote,
        object: &PhysicalCluster,
        mailbox: Option<Id>,
    ) -> Result<Outcome, CallError> {
        if !object.metadata.finalizers.iter().any(|finalizer| finalizer == FLEET) {
            return Ok(Outcome::Done);
        }
        if let Some(mailbox) = mailbox {
            if let Some((reason, message)) = self.left(object, mailbox).await? {
                let mut status = object.status.clone().unwrap_or_default();
                let leaving = condition(&status.conditions, LEAVING, ("True", reason.to_owned(), message));
                status.conditions.retain(|said| said.r#type != LEAVING);
                status.conditions.push(leaving);
                self.write(home, object, status).await?;
                return Ok(Outcome::Again(LEAVING_AGAIN));
            }
            removal::close(home, &self.logical.kind, &api::names::mailbox(&object.metadata.name)).await?;
        }
        let finalizers: Vec<&String> =
            object.metadata.finalizers.iter().filter(|one| *one != FLEET).collect();
        let change = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": object.metadata.resource_version } });
        let place = Place::new(&self.physical.kind, "", &object.metadata.name);
        home.patch(place, Patch::Merge, &change).await?;
        Ok(Outcome::Done)
    }
}

/// Whether one that leaves is to be left as it is.
pub fn is_forgotten(object: &PhysicalCluster) -> bool {
    object.metadata.is_being_deleted()
        && object.metadata.annotations.get(FORGET).is_some_and(|said| said == TRUE)
}

/// Whether a physical cluster is there: by its heartbeat, by what its syncer says about it, and by what the server could do.
fn ready(
    health: Health,
    said: Option<Condition>,
    hindrance: Option<Hindrance>,
) -> (&'static str, String, String) {
    let of = |status, reason: &str, message: &str| (status, reason.to_owned(), message.to_owned());
    match (hindrance, health, said) {
        (Some(why), _, _) if !why.is_connected => of("False", CANNOT_CONNECT, &why.message),
        (_, Health::NeverHeard, _) => of("Unknown", NEVER_HEARD, "its syncer has not reported yet"),
        // A syncer is alive before its cluster has ever answered. Nothing is sent to a cluster that may not be there.
        (_, Health::Alive(_), None) => of("Unknown", NEVER_HEARD, "its syncer has not reached it yet"),
        (_, Health::Silent, _) => of("Unknown", SILENT, "its syncer has not been heard for 40 s"),
        (_, Health::Alive(_), Some(said)) if said.status == "False" => {
            of("False", &said.reason, &said.message)
        }
        // What works goes on. Who reads this can do something before it does not.
        (Some(why), Health::Alive(_), _) => {
            let message =
                format!("its syncer reports, but the server could not connect anew: {}", why.message);
            of("True", "Reachable", &message)
        }
        (None, Health::Alive(_), _) => of("True", "Reachable", "its syncer reports"),
    }
}

/// The id of a mailbox, if this is one.
fn mailbox_id(object: &Value) -> Option<Id> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let of = text(&object["metadata"]["labels"][MAILBOX_OF])?;
    let name = text(&object["metadata"]["name"])?;
    (owner_of_mailbox(&name) == Some(&of)).then(|| text(&object["status"]["id"])?.parse().ok())?
}

async fn furnish(mailbox: &Remote) -> Result<(), CallError> {
    for (kind, namespace, object) in mailbox::furnishings() {
        let mut object = object;
        object["kind"] = kind.name.clone().into();
        object["apiVersion"] = kind.api_version().into();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let place = Place::new(&kind, namespace, &name);
        mailbox.patch(place, Patch::Apply { manager: "holon-fleet" }, &object).await?;
    }
    Ok(())
}

fn refused(object: &PhysicalCluster, why: &str) -> PhysicalClusterStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let ready = condition(&status.conditions, "Ready", ("False", "NoMailbox".to_owned(), why.to_owned()));
    status.conditions.retain(|said| said.r#type != "Ready");
    status.conditions.insert(0, ready);
    status
}

/// A condition, with the time at which it began to be so.
fn condition(
    before: &[Condition],
    kind: &str,
    (status, reason, message): (&str, String, String),
) -> Condition {
    Condition::since(before, (kind, status, &reason, &message), &api::meta::time::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_a_physical_cluster() {
        let (alive, hindered) = (Health::Alive(Duration::from_secs(1)), |is_connected| {
            Some(Hindrance { message: "there is no Secret".to_owned(), is_connected })
        });
        let said = |status: &str| {
            Some(Condition::since(&[], ("Ready", status, "Unreachable", "no answer"), "2026-01-01T00:00:00Z"))
        };
        #[track_caller]
        fn check(found: (&str, String, String), expected: (&str, &str, &str)) {
            assert_eq!((found.0, &*found.1, &*found.2), expected);
        }
        let reports = "its syncer reports";
        check(
            ready(Health::NeverHeard, None, None),
            ("Unknown", NEVER_HEARD, "its syncer has not reported yet"),
        );
        check(
            ready(Health::Silent, None, None),
            ("Unknown", SILENT, "its syncer has not been heard for 40 s"),
        );
        check(ready(alive, said("True"), None), ("True", "Reachable", reports));
        // An address where nobody answered: the cluster was ready before it had ever been reached, and got work.
        check(ready(alive, None, None), ("Unknown", NEVER_HEARD, "its syncer has not reached it yet"));
        check(ready(alive, said("False"), None), ("False", "Unreachable", "no answer"));
        for health in [Health::NeverHeard, Health::Silent, alive] {
            check(
                ready(health, said("True"), hindered(false)),
                ("False", CANNOT_CONNECT, "there is no Secret"),
            );
        }
        // Nothing is moved away from where things still run.
        let but = "its syncer reports, but the server could not connect anew: there is no Secret";
        check(ready(alive, said("True"), hindered(true)), ("True", "Reachable", but));
        check(ready(alive, said("False"), hindered(true)), ("False", "Unreachable", "no answer"));
    }
}
