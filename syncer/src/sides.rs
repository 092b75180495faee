//! Both sides of one syncer, and what it knows about them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use api::names::HEARTBEAT;
use controller::informer::{Key, View};
use controller::kind::Kind;
use controller::lease::Lease;
use controller::queue::Queue;
use controller::remote::{Place, Remote};
use serde_json::Value;
use tokio::sync::Notify;

use crate::below::Below;
use crate::kinds::{KindName, Row};
use crate::mirror::{Cluster, Facts, Object, Sent, is_projection};
use crate::state::{About, Disk, Kept};
use crate::troubles::Troubles;
use crate::waiting::Waiting;

/// What a syncer has to be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of the PhysicalCluster.
    pub name: String,
    /// The id of the mailbox's logical cluster.
    pub mailbox: String,
    /// Where to keep what the mailbox asked for. None: a restart needs Holon.
    pub directory: Option<PathBuf>,
    /// Seals what is kept there.
    pub seal: Option<[u8; 32]>,
}

/// An object, on both sides.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Subject {
    pub(crate) kind: Arc<KindName>,
    pub(crate) key: Key,
}

impl Subject {
    pub(crate) fn new(kind: &KindName, key: Key) -> Subject {
        Subject { kind: Arc::new(kind.clone()), key }
    }
}

/// A kind that is followed.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) name: Arc<KindName>,
    pub(crate) row: Row,
    pub(crate) mailbox: Arc<View>,
    /// None while nothing of it is of interest there.
    pub(crate) below: Option<Arc<Below>>,
}

/// What is remembered of an object between two looks.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Memory {
    pub(crate) sent: Option<Sent>,
    /// Fingerprints of the status that was last written into the mailbox, and of what the mailbox made of it.
    pub(crate) status: Option<(u64, u64)>,
    /// Fingerprint of what is on disk.
    pub(crate) saved: Option<u64>,
    /// Fingerprint of the uid below that was deleted: it is going or gone, whatever a late view shows.
    pub(crate) deleted: Option<u64>,
}

/// An object as both sides have it.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) followed: Arc<Followed>,
    pub(crate) mailbox: Option<Value>,
    pub(crate) below: Option<Value>,
}

impl Pair {
    /// Whether it is here because it is, or was, to be sent down.
    pub(crate) fn is_placed(&self, mailbox_id: &str) -> bool {
        let ours = |below: &Value| Object(below).mailbox() == Some(mailbox_id);
        match &self.mailbox {
            Some(object) if is_projection(object) => false,
            Some(object) if Object(object).is_placed() => true,
            _ => self.below.as_ref().is_some_and(ours),
        }
    }
}

/// Everything the parts of a syncer share.
#[derive(Debug)]
pub(crate) struct Sides {
    pub(crate) settings: Settings,
    pub(crate) mailbox: Remote,
    pub(crate) below: Remote,
    pub(crate) lease: Lease,
    pub(crate) queue: Queue<Subject>,
    pub(crate) troubles: Troubles,
    pub(crate) disk: Option<Disk>,
    /// Rung when other kinds may have to be followed.
    pub(crate) bell: Notify,
    /// Rung when there is something to report.
    pub(crate) beat: Notify,
    /// Namespaces in which something is placed. Only what is in them is of interest below.
    namespaces: RwLock<BTreeSet<String>>,
    /// The mailbox did not answer when it was last asked for the lease.
    cut_off: AtomicBool,
    /// What we are known by below. Empty without a disk to keep it on: then nobody is told.
    identity: String,
    /// Somebody else has begun to lead, as was seen below.
    superseded: AtomicBool,
    /// What we might do when we looked last.
    may: AtomicU8,
    redefined: AtomicBool,
    missed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    followed: BTreeMap<KindName, Arc<Followed>>,
    memory: HashMap<Subject, Memory>,
    waiting: Waiting,
    cluster: Cluster,
    /// How often there was reason to ask which cluster this is.
    doubts: u64,
    about: About,
    /// From disk, until the mailbox is known.
    kept: HashMap<Subject, Kept>,
    /// On disk, and not in the mailbox any more.
    strays: BTreeSet<Subject>,
}

impl Sides {
    pub(crate) fn new(
        mailbox: Remote,
        below: Remote,
        settings: Settings,
        about: About,
        kept: Vec<Kept>,
    ) -> Sides {
        // Another after every start: the one before it may still be writing.
        let holder = format!("{}-{:016x}", settings.name, rand::random::<u64>());
        let lease = Lease::new(mailbox.clone(), "kube-system", HEARTBEAT, &holder);
        let disk = settings.directory.clone().map(|directory| Disk::new(directory, settings.seal));
        Sides {
            settings,
            mailbox,
            below,
            lease,
            queue: Queue::new(),
            troubles: Troubles::default(),
            disk,
            bell: Notify::new(),
            beat: Notify::new(),
            namespaces: RwLock::new(kept.iter().map(|kept| kept.key().namespace).collect()),
            cut_off: AtomicBool::new(false),
            identity: about.identity.clone(),
            superseded: AtomicBool::new(false),
            may: AtomicU8::new(0),
            redefined: AtomicBool::new(false),
            missed: AtomicBool::new(false),
            state: Mutex::new(State {
                followed: BTreeMap::new(),
                memory: HashMap::new(),
                waiting: Waiting::default(),
                cluster: Cluster::Unknown,
                doubts: 0,
                about,
                kept: kept.into_iter().map(|kept| (subject(&kept), kept)).collect(),
                strays: BTreeSet::new(),
            }),
        }
    }

    /// Whether we may write below: we hold the lease, or held it last and the mailbox, where it is, is away.
    pub(crate) fn leads(&self) -> bool {
        let away = self.cut_off.load(Ordering::Relaxed) && self.lease.other().is_none();
        self.lease.leads() || (away && !self.is_superseded() && self.state().about.led)
    }

    /// What those who hold the lease are known by below.
    pub(crate) fn leader(&self) -> Option<&str> {
        Some(&*self.identity).filter(|identity| !identity.is_empty() && self.lease.leads())
    }

    /// A namespace of ours below says who leads. Whoever cannot reach the mailbox learns it there.
    pub(crate) fn hear_leader(&self, said: Option<&str>) {
        let another = said.is_some_and(|said| said != self.identity);
        if another && !self.lease.leads() && !self.superseded.swap(true, Ordering::Relaxed) {
            self.beat.notify_one();
        }
    }

    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Relaxed)
    }

    /// We hold the lease, whatever was seen before.
    pub(crate) fn succeed(&self) {
        self.superseded.store(false, Ordering::Relaxed);
    }

    pub(crate) fn set_cut_off(&self, cut_off: bool) {
        self.cut_off.store(cut_off, Ordering::Relaxed);
    }

    pub(crate) fn cluster(&self) -> Cluster {
        self.state().cluster
    }

    /// How often it was doubted, before somebody asks which cluster this is.
    pub(crate) fn doubts(&self) -> u64 {
        self.state().doubts
    }

    /// There may be another cluster behind the address from now on. Until that is found out, which is now, nothing is written.
    pub(crate) fn doubt_cluster(&self) {
        let mut state = self.state();
        state.doubts += 1;
        if state.cluster == Cluster::Same {
            state.cluster = Cluster::Unknown;
        }
        drop(state);
        self.beat.notify_one();
    }

    /// What was found out by somebody who asked after so many doubts. An answer that may be older than the last of them says
    /// nothing. Whether that is news.
    pub(crate) fn set_cluster(&self, cluster: Cluster, doubts: u64) -> bool {
        let mut state = self.state();
        state.doubts == doubts && std::mem::replace(&mut state.cluster, cluster) != cluster
    }

    pub(crate) fn about(&self) -> About {
        self.state().about.clone()
    }

    /// Keeps it on disk too, if it is news.
    pub(crate) async fn change_about(&self, change: impl FnOnce(&mut About)) {
        let (before, after) = {
            let about = &mut self.state().about;
            let before = about.clone();
            change(about);
            (before, about.clone())
        };
        if let Some(disk) = &self.disk
            && before != after
            && let Err(error) = disk.save_about(after).await
        {
            tracing::warn!(%error, "cannot keep on disk which cluster this is");
        }
    }

    pub(crate) fn followed(&self, name: &KindName) -> Option<Arc<Followed>> {
        self.state().followed.get(name).cloned()
    }

    pub(crate) fn all_followed(&self) -> Vec<Arc<Followed>> {
        self.state().followed.values().cloned().collect()
    }

    pub(crate) fn set_followed(&self, followed: Followed) {
        self.state().followed.insert((*followed.name).clone(), Arc::new(followed));
    }

    pub(crate) fn unfollow(&self, name: &KindName) {
        self.state().followed.remove(name);
    }

    /// The kind that objects call so.
    pub(crate) fn named(&self, group: &str, kind: &str) -> Option<Arc<Followed>> {
        let state = self.state();
        let mut all = state.followed.values();
        all.find(|followed| followed.name.group == group && followed.row.kind.name == kind).cloned()
    }

    /// Whether everything that is followed is known, so that what is not known is not there.
    pub(crate) fn is_all_synced(&self) -> bool {
        let is_synced = |kind: &Followed| match &kind.below {
            Some(below) => kind.mailbox.synced() && below.all_synced(),
            // About to be followed, if anything of it is placed. The views of projected kinds have more than that.
            None => {
                kind.mailbox.synced()
                    && (kind.mailbox.is_empty() || kind.name.is_projected() || !kind.row.below)
            }
        };
        self.all_followed().iter().all(|kind| is_synced(kind))
    }

    /// What both sides say about an object. As long as the mailbox was never read, it is what it asked for last.
    pub(crate) fn pair(&self, subject: &Subject) -> Option<Pair> {
        let followed = self.followed(&subject.kind)?;
        let kind = &followed.row.kind;
        let mailbox = match followed.mailbox.known() {
            true => followed.mailbox.get(&subject.key).map(|object| object.read(kind)),
            false => self.state().kept.get(subject).map(|kept| kept.object.clone()),
        };
        let below = followed.below.as_ref().and_then(|below| Some(below.get(&subject.key)?.read(kind)));
        Some(Pair { followed, mailbox, below })
    }

    pub(crate) fn facts<'a>(&'a self, subject: &Subject, pair: &'a Pair) -> Facts<'a> {
        let leaving = pair.mailbox.as_ref().is_some_and(|object| Object(object).is_being_deleted());
        Facts {
            mailbox_id: &self.settings.mailbox,
            mailbox: pair.mailbox.as_ref(),
            below: pair.below.as_ref(),
            sent: self.memory(subject).sent,
            mailbox_synced: pair.followed.mailbox.synced(),
            // A kind that is not served there has no objects there. Whoever relies on that asks once more.
            below_synced: !pair.followed.row.below
                || pair.followed.below.as_ref().is_some_and(|view| view.synced(&subject.key.namespace)),
            // To enforce, having led last is enough. To delete it is not.
            leads: if leaving { self.lease.leads() } else { self.leads() },
            leader: self.leader(),
            cluster: self.cluster(),
        }
    }

    pub(crate) fn memory(&self, subject: &Subject) -> Memory {
        self.state().memory.get(subject).copied().unwrap_or_default()
    }

    pub(crate) fn remember(&self, subject: &Subject, change: impl FnOnce(&mut Memory)) {
        change(self.state().memory.entry(subject.clone()).or_default());
    }

    pub(crate) fn forget(&self, subject: &Subject) {
        self.state().memory.remove(subject);
        self.troubles.clear(subject);
    }

    /// Something is placed, or shown, in this namespace. Whether that is news.
    pub(crate) fn note_namespace(&self, namespace: &str) -> bool {
        let is_news = !namespace.is_empty() && !self.has_noted(namespace);
        if is_news {
            self.namespaces.write().expect("no holder of this lock panics").insert(namespace.to_owned());
        }
        is_news
    }

    pub(crate) fn has_noted(&self, namespace: &str) -> bool {
        self.namespaces.read().expect("no holder of this lock panics").contains(namespace)
    }

    /// All of them.
    pub(crate) fn noted(&self) -> Vec<String> {
        self.namespaces.read().expect("no holder of this lock panics").iter().cloned().collect()
    }

    /// Looks at this again once somebody of this uid is known.
    pub(crate) fn wait(&self, uid: &str, subject: &Subject) {
        self.state().waiting.wait(uid, subject);
    }

    pub(crate) fn wake(&self, uid: &str) {
        let woken = self.state().waiting.wake(uid);
        woken.into_iter().for_each(|subject| self.queue.add(subject));
    }

    /// It is gone, and waits for nobody.
    pub(crate) fn wait_no_more(&self, subject: &Subject) {
        self.state().waiting.leave(subject);
    }

    /// One of the sides may serve other kinds from now on.
    pub(crate) fn redefined(&self) {
        self.redefined.store(true, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// Something of ours may have brought about others that nobody cared for when they were read.
    pub(crate) fn missed(&self) {
        self.missed.store(true, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// Whether that was said since it was asked last.
    pub(crate) fn has_missed(&self) -> bool {
        self.missed.swap(false, Ordering::Relaxed)
    }

    /// Whether that was said since it was asked last.
    pub(crate) fn is_redefined(&self) -> bool {
        self.redefined.swap(false, Ordering::Relaxed)
    }

    /// Whoever may do more than before looks at everything. While the mailbox is away who led last may write below, and delete
    /// nothing; who holds the lease may do both.
    pub(crate) fn look_again_if_led(&self) {
        let may = u8::from(self.leads()) + u8::from(self.lease.leads());
        if may > self.may.swap(may, Ordering::Relaxed) {
            self.look_at_all();
        }
    }

    /// Looks at everything again.
    pub(crate) fn look_at_all(&self) {
        for followed in self.all_followed() {
            self.look_at(&followed);
        }
    }

    /// Looks at everything of a kind again.
    pub(crate) fn look_at(&self, followed: &Followed) {
        let below = followed.below.as_ref().map(|below| below.keys()).unwrap_or_default();
        for key in followed.mailbox.keys().into_iter().chain(below) {
            self.queue.add(Subject { kind: followed.name.clone(), key });
        }
        let strays = self.state().strays.clone();
        let kept = self.kept().into_iter().chain(strays).filter(|subject| subject.kind == followed.name);
        kept.for_each(|subject| self.queue.add(subject));
    }

    /// Looks at everything that is to be in a namespace again.
    pub(crate) fn look_into(&self, namespace: &str) {
        for followed in self.all_followed() {
            let keys = followed.mailbox.keys_in(namespace).into_iter();
            keys.for_each(|key| self.queue.add(Subject { kind: followed.name.clone(), key }));
        }
    }

    /// What the mailbox asked for last, as far as it is not known better.
    pub(crate) fn kept(&self) -> Vec<Subject> {
        self.state().kept.keys().cloned().collect()
    }

    pub(crate) fn kept_kinds(&self) -> Vec<Kind> {
        self.state().kept.values().map(Kept::kind).collect()
    }

    /// The mailbox is known. What it asked for last and does not have any more is looked at.
    pub(crate) fn drop_kept(&self, name: &KindName) {
        let Some(followed) = self.followed(name) else { return };
        let mut state = self.state();
        let kept = std::mem::take(&mut state.kept).into_iter();
        let (of_kind, others) = kept.partition(|(subject, _)| *subject.kind == *name);
        state.kept = others;
        let of_kind: HashMap<Subject, Kept> = of_kind;
        let strays = of_kind.into_keys().filter(|subject| followed.mailbox.get(&subject.key).is_none());
        for stray in strays {
            self.queue.add(stray.clone());
            state.strays.insert(stray);
        }
    }

    pub(crate) fn is_stray(&self, subject: &Subject) -> bool {
        self.state().strays.contains(subject)
    }

    pub(crate) fn forget_stray(&self, subject: &Subject) {
        self.state().strays.remove(subject);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

fn subject(kept: &Kept) -> Subject {
    let kind = kept.kind();
    Subject::new(&KindName::new(&kind.group, &kind.plural), kept.key())
}

/// Where an object is.
pub(crate) fn place<'a>(pair: &'a Followed, key: &'a Key) -> Place<'a> {
    Place::new(&pair.row.kind, &key.namespace, &key.name)
}
