//! The splitter at work: what happens is heard, and what it concerns is looked after.
//!
//! ```text
//!   watches ─► views ─► hear: whom does it concern? ─► queue ─► look: decide ─► spread ─► gather
//!                                                                 └─ show: what is below, in the user's cluster
//! ```
//!
//! An object is looked after whole: where it runs is decided and recorded, its copies are written, their reports are summed
//! up. Each step does nothing if there is nothing to do, so a look may come at any time and any number of times. An object
//! is never in two hands.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::cluster::Id;
use api::fleet::{Distribution, StatusRule};
use api::names::PLACEMENT;
use controller::informer::{Key, News, Object, Scope, View, follow, follow_while_served};
use controller::queue::{Outcome, Queue};
use controller::remote::{CallError, Remote};
use controller::run::work;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::execute::api_access::{self, Account, Door};
use crate::execute::namespaces;
use crate::execute::project;
use crate::placement::estimate;
use crate::placement::grants::{self, Grants};
use crate::placement::reservations::Ledger;
use crate::reconcile;
use crate::snapshot::cache_transform;
use crate::snapshot::freshness;
use crate::snapshot::placement_index::Book;
use crate::snapshot::{
    Became, Changed, Class, Clusters, Definitions, Followed, Marks, Subject, Tables, World,
};
use crate::status::policies::{self, Policy, Tally};
use crate::transform::references::CLAIM;

/// Objects looked after at once, by each of the tasks that do. Most of the time each waits for its writes to be on disk, and
/// those that wait together are written together.
const HANDS: usize = 64;
const TASKS: usize = 2;
/// What is to be known first is known after a moment.
const SOON: Duration = Duration::from_millis(50);
const MOMENT: Duration = Duration::from_millis(2);

/// Until what came of many is added up, or looked at by those who waited for it.
const COUNTED: Duration = Duration::from_millis(200);

/// The uid and generation of a policy.
type Version = (String, Option<i64>);

/// Something that wants attention.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// A user's object.
    Object(Subject),
    /// What is shown to a user because it is below: something in a mailbox, or what is shown of it.
    Shown(Subject),
    /// A physical cluster: whether anything runs there because of a record.
    Member(Id, String),
    /// All physical clusters a logical cluster uses, which are its nodes.
    Nodes(Id),
    /// The Secrets by which pods of a service account reach their logical cluster.
    Access(Account),
    /// Who may use the physical clusters of a logical cluster.
    Grants(Id),
    /// A namespace of a user: where what is in it runs, as a sentence; and its copies that hold nothing any more.
    Namespace(Id, String),
    /// A policy of a user: whether it was understood, and what came of it.
    Policy(Policy, Id, String),
}

/// Keeps mailboxes as users' logical clusters want them, and tells users what came of it.
#[derive(Debug)]
pub struct Splitter {
    pub world: World,
    pub queue: Queue<Item>,
    /// Where pods find Holon, if anybody said so.
    pub(crate) door: Option<Door>,
    /// Who may use what.
    pub(crate) grants: Grants,
    pub(crate) book: Mutex<Book>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) tally: Mutex<Tally>,
    /// What waits for room somewhere.
    pub(crate) short: Mutex<HashSet<Subject>>,
    /// What is shown of what is below.
    pub(crate) tree: project::Index,
    /// What is asked before something is decided for the first time.
    pub(crate) questions: freshness::Questions,
    /// What we wrote and have not seen yet.
    pub(crate) unseen: reconcile::Unseen,
    /// Namespaces of mailboxes that are being taken away.
    pub(crate) emptied: namespaces::Emptied,
    /// What was known of namespaces that matters to what is in them.
    namespaces: Mutex<HashMap<Key, u64>>,
    /// Which policies are known, and in which generation.
    policies: Mutex<HashMap<(Policy, Id, String), Version>>,
    /// Who defines custom kinds.
    definitions: Mutex<Definitions>,
    /// Custom kinds that are to be followed from now on.
    found: mpsc::UnboundedSender<Arc<Followed>>,
    finds: Mutex<Option<mpsc::UnboundedReceiver<Arc<Followed>>>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Splitter {
    /// `server` names no logical cluster.
    pub fn new(server: Remote) -> Splitter {
        let (found, finds) = mpsc::unbounded_channel();
        Splitter {
            world: World::new(server),
            queue: Queue::new(),
            door: None,
            grants: Grants::default(),
            book: Mutex::default(),
            ledger: Mutex::default(),
            tally: Mutex::default(),
            short: Mutex::default(),
            tree: project::Index::default(),
            questions: freshness::Questions::default(),
            unseen: reconcile::Unseen::default(),
            emptied: namespaces::Emptied::default(),
            namespaces: Mutex::default(),
            policies: Mutex::default(),
            definitions: Mutex::default(),
            found,
            finds: Mutex::new(Some(finds)),
        }
    }

    /// Lets pods reach their logical cluster, by this door.
    pub fn with_door(self, door: Door) -> Splitter {
        Splitter { door: Some(door), ..self }
    }

    /// Goes on for as long as it is polled; `all` reads from all logical clusters at once. Ends only if a part of it
    /// failed in a way nobody thought of: then another one is to begin anew.
    pub async fn run(self: Arc<Self>, all: Remote) -> JoinError {
        // What ends of itself is a custom kind that nobody serves any more.
        let mut tasks: JoinSet<Arc<str>> = JoinSet::new();
        let follow_view = |splitter: &Arc<Splitter>, view: &Arc<View>, scope: Scope| {
            let (this, view, all) = (splitter.clone(), view.clone(), all.clone());
            async move { match follow(all, view, scope, move |view, news| this.hear(view, &news)).await {} }
        };
        // Whose an object is has to be known before it is heard of.
        let own = &self.world.own;
        let first = [&own.logical, &own.physical];
        for view in first {
            tasks.spawn(follow_view(&self, view, cache_transform::scope(&view.kind)));
        }
        while !first.iter().all(|view| view.synced()) {
            tokio::time::sleep(MOMENT).await;
        }
        for view in own.all().into_iter().filter(|view| !first.iter().any(|one| Arc::ptr_eq(one, view))) {
            tasks.spawn(follow_view(&self, view, cache_transform::scope(&view.kind)));
        }
        for followed in self.world.kinds() {
            tasks.spawn(follow_view(&self, &followed.view, cache_transform::scope(&followed.kind)));
        }
        for _ in 0..TASKS {
            let this = self.clone();
            tasks.spawn(async move { match work(&this.queue, HANDS, |item| this.looked(item)).await {} });
        }
        let finds = lock(&self.finds).take();
        let mut finds = finds.expect("a splitter runs once");
        let mut customs: HashMap<Arc<str>, AbortHandle> = HashMap::new();
        loop {
            let (followed, wait) = tokio::select! {
                Some(followed) = finds.recv() => (followed, Duration::ZERO),
                Some(ended) = tasks.join_next() => match ended {
                    // Somebody defines it, and whoever serves it has yet to hear of that.
                    Ok(name) if lock(&self.definitions).has(&name) => match self.world.kind(&name) {
                        Some(followed) => (followed, SOON),
                        None => continue,
                    },
                    Ok(_) => continue,
                    Err(error) if error.is_cancelled() => continue,
                    Err(error) => return error,
                }
            };
            let name = followed.name.clone();
            let task = tasks.spawn(self.clone().follow_custom(all.clone(), followed, wait));
            customs.insert(name, task).into_iter().for_each(|before| before.abort());
        }
    }

    /// Follows a custom kind for as long as anybody serves it.
    async fn follow_custom(
        self: Arc<Self>,
        all: Remote,
        followed: Arc<Followed>,
        wait: Duration,
    ) -> Arc<str> {
        tokio::time::sleep(wait).await;
        let (view, scope) = (followed.view.clone(), cache_transform::scope(&followed.kind));
        follow_while_served(all, view, scope, move |view, news| self.hear(view, &news)).await;
        followed.name.clone()
    }

    async fn looked(&self, item: Item) -> Outcome {
        // Whoever has something in hand keeps it until everything is known: giving it back would only make it come again.
        while !self.world.is_known() {
            tokio::time::sleep(SOON).await;
        }
        let done = match &item {
            Item::Object(subject) => reconcile::look(self, subject).await,
            Item::Shown(subject) => project::show(self, subject).await,
            Item::Member(home, name) => crate::execute::physical_clusters::look(self, *home, name).await,
            Item::Nodes(cluster) => project::nodes(self, *cluster).await,
            Item::Grants(home) => grants::look(self, *home).await,
            Item::Access(account) => api_access::look(self, account).await,
            Item::Namespace(cluster, name) => namespaces::look(self, *cluster, name).await,
            Item::Policy(policy, cluster, name) => policies::look(self, *policy, *cluster, name).await,
        };
        done.unwrap_or_else(|error| self.failed(&item, &error))
    }

    fn failed(&self, item: &Item, error: &CallError) -> Outcome {
        // Somebody was faster, or what was to be written to is going: the next look sees that. A server in this process that
        // does not answer at all is being stopped, and so are we.
        if error.is_answer() && !(error.is_conflict() || error.is_not_found()) {
            tracing::warn!(?item, %error, "cannot do what is to be done; will try again");
        }
        Outcome::Failed
    }

    /// Something happened.
    fn hear(&self, view: &View, news: &News<'_>) {
        let (object, gone) = match news {
            News::Put { now, .. } => (*now, false),
            News::Gone { last, .. } => (*last, true),
            News::Synced | News::Lost => return,
        };
        let own = &self.world.own;
        let is = |other: &Arc<View>| std::ptr::eq(&raw const **other, view);
        let Some(cluster) = object.key.cluster else { return };
        if is(&own.logical) {
            let mut clusters = self.world.clusters_mut();
            let changed = if gone { clusters.remove(object) } else { clusters.put(object) };
            let owner = Clusters::mailbox_owner(&object.key);
            let owner = owner.map(|(home, name)| (home, name, clusters.mailbox_of(home, name)));
            drop(clusters);
            changed.into_iter().for_each(|cluster| self.add_all(Some(cluster), None));
            if let Some((home, name, mailbox)) = owner {
                let changed = self.world.members_mut().set_mailbox(home, name, mailbox);
                self.reconsider_member(home, name, changed);
            }
        } else if is(&own.physical) && !self.world.is_mailbox(cluster) {
            self.hear_of_member(object, gone);
        } else if self.world.is_mailbox(cluster) {
            self.hear_from_mailbox(view, object, gone);
        } else if is(&own.namespaces) {
            self.hear_of_namespace(object, gone);
        } else if is(&own.distributions) {
            self.hear_of_record(object, gone);
        } else if let Some(policy) = Policy::of(own, view) {
            self.hear_of_policy(policy, cluster, object, gone);
        } else if is(&own.definitions) && project::is_measured(&object.key.name) {
            self.queue.add(Item::Nodes(cluster));
        } else if is(&own.definitions) {
            self.hear_of_definition(view, cluster, object, gone);
        } else {
            if view.kind.name == "ServiceAccount" && view.kind.group.is_empty() {
                api_access::hear_of_account(self, object);
            }
            let subject = Subject { kind: view.kind.to_string().into(), key: object.key.clone() };
            if Marks::of(object).is_projected {
                return project::hear_of_shown(self, &subject.kind, object, gone);
            }
            if view.kind.name == "Deployment" {
                self.queue.add(Item::Shown(subject.clone()));
            }
            self.queue.add(Item::Object(subject));
        }
    }

    fn hear_of_member(&self, object: &Arc<Object>, gone: bool) {
        let changed = match gone {
            true => {
                self.world.members_mut().remove(&object.key);
                Changed::Nature
            }
            false => {
                let clusters = self.world.clusters();
                self.world.members_mut().put(object, &clusters)
            }
        };
        if let Some(home) = object.key.cluster {
            self.reconsider_member(home, &object.key.name, changed);
        }
    }

    /// Queues everything that a change of a physical cluster concerns.
    fn reconsider_member(&self, home: Id, name: &str, changed: Changed) {
        let users = || lock(&self.book).clusters();
        match changed {
            Changed::Nothing => {}
            Changed::Room => {
                self.add_short();
                users().into_iter().for_each(|cluster| self.queue.add(Item::Nodes(cluster)));
            }
            Changed::Nature => {
                let mailbox = self.world.clusters().mailbox_of(home, name);
                mailbox.into_iter().for_each(|mailbox| project::look_again(self, mailbox));
                self.queue.add(Item::Member(home, name.to_owned()));
                self.reconsider_circles();
                // Only those below its home see it. Nobody makes others' objects be looked at.
                let concerned = self.world.clusters().subtree(home);
                for cluster in &concerned {
                    self.add_all(Some(*cluster), None);
                }
                let concerned: HashSet<Id> = concerned.into_iter().collect();
                let book = lock(&self.book);
                let namespaces = book.namespaces().filter(|(cluster, _)| concerned.contains(cluster));
                namespaces
                    .for_each(|(cluster, name)| self.queue.add(Item::Namespace(cluster, name.to_owned())));
                drop(book);
                let users = users().into_iter().filter(|cluster| concerned.contains(cluster));
                users.for_each(|cluster| self.queue.add(Item::Nodes(cluster)));
            }
        }
    }

    /// Whether a join closes a circle may be another question once some other join is made or undone.
    fn reconsider_circles(&self) {
        let clusters = self.world.clusters();
        let members = self.world.members().all(&clusters);
        let concerned = members.iter().filter(|member| member.may_be_circular(&clusters));
        concerned.for_each(|member| self.queue.add(Item::Member(member.home, member.name().to_owned())));
    }

    /// There is room somewhere: whoever waits for that looks whether it is enough. Many make room at a time.
    pub(crate) fn add_short(&self) {
        let short: Vec<Subject> = lock(&self.short).drain().collect();
        short.into_iter().for_each(|subject| self.queue.add_after(Item::Object(subject), COUNTED));
    }

    /// A copy changed, so the object it is of is concerned; or something it brought about did.
    fn hear_from_mailbox(&self, view: &View, object: &Arc<Object>, gone: bool) {
        if view.kind == self.world.own.definitions.kind && project::is_measured(&object.key.name) {
            let users = lock(&self.book).clusters();
            return users.into_iter().for_each(|user| self.queue.add(Item::Nodes(user)));
        }
        let marks = Marks::of(object);
        let kind: Arc<str> = view.kind.to_string().into();
        project::hear_from_mailbox(self, &kind, object, gone);
        if view.kind.name == "Pod" {
            if gone { estimate::hear_gone(self, object) } else { estimate::hear(self, object) }
        }
        if let Some(mailbox) = object.key.cluster.filter(|_| view.kind.name == CLAIM) {
            self.hear_of_claim(mailbox);
        }
        if let Some(account) = api_access::whose(object).filter(|_| marks.is_placed) {
            return self.queue.add(Item::Access(account));
        }
        let Some(locator) = marks.locator.filter(|_| marks.is_placed) else { return };
        let Ok(cluster) = locator.logical_cluster.parse::<Id>() else { return };
        let namespace = locator.namespace.unwrap_or_default();
        if view.kind == self.world.own.namespaces.kind {
            if gone {
                self.add_waiting(cluster, &locator.name);
            }
            return self.queue.add(Item::Namespace(cluster, locator.name));
        }
        let key = Key { cluster: Some(cluster), namespace, name: locator.name };
        self.queue.add(Item::Object(Subject { kind, key }));
    }

    /// A kind that somebody defines is followed, and no longer than that.
    fn hear_of_definition(&self, view: &View, cluster: Id, object: &Arc<Object>, gone: bool) {
        let name = &object.key.name;
        let now = self.world.kind(name).map(|followed| followed.shape());
        let mut definitions = lock(&self.definitions);
        let became = match gone {
            true => definitions.remove(name, cluster, now.as_ref()),
            false => definitions.put(name, cluster, &object.read(&view.kind), now.as_ref()),
        };
        drop(definitions);
        match became {
            Became::Shaped(shape) => self.world.add_kind(shape),
            // Whether anybody still serves it, such as a mailbox that has copies, is seen by asking once more.
            Became::Undefined => {}
            Became::Same => return,
        }
        self.follow_again(name);
    }

    /// Reads a custom kind anew, and follows it from there.
    pub(crate) fn follow_again(&self, name: &str) {
        let custom = self.world.kind(name).filter(|followed| followed.class == Class::Custom);
        // Nobody listens only when everything ends.
        custom.into_iter().for_each(|followed| drop(self.found.send(followed)));
    }

    /// What a policy is about is looked at if it says something else than it did. What we say about it is no news.
    fn hear_of_policy(&self, policy: Policy, cluster: Id, object: &Arc<Object>, gone: bool) {
        #[derive(serde::Deserialize)]
        struct Whole {
            metadata: api::fleet::Metadata,
        }
        let name = (policy, cluster, object.key.name.clone());
        self.queue.add(Item::Policy(policy, cluster, object.key.name.clone()));
        let generation = object.parse::<Whole>().and_then(|whole| whole.metadata.generation);
        let said = (!gone).then(|| (object.uid.clone(), generation));
        let before = match said.clone() {
            Some(said) => lock(&self.policies).insert(name, said),
            None => lock(&self.policies).remove(&name),
        };
        if before == said {
            return;
        }
        if policy != Policy::StatusRule {
            return self.add_all(Some(cluster), None);
        }
        let rule = object.parse::<StatusRule>();
        let of = rule.and_then(|rule| self.world.named(&rule.spec.target.group, &rule.spec.target.kind));
        of.into_iter().for_each(|followed| self.add_of(&followed, Some(cluster), None));
    }

    fn hear_of_namespace(&self, object: &Arc<Object>, gone: bool) {
        if let Some(cluster) = object.key.cluster.filter(|_| object.key.name == "kube-system") {
            self.world.clusters_mut().set_identity(&object.uid, (!gone).then_some(cluster));
        }
        let tables = Tables::of(object).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (&tables.labels, tables.annotations.get(PLACEMENT)).hash(&mut hasher);
        let now = hasher.finish();
        if gone {
            lock(&self.namespaces).remove(&object.key);
        } else if lock(&self.namespaces).insert(object.key.clone(), now) != Some(now) {
            self.add_all(object.key.cluster, Some(&object.key.name));
        }
        if let Some(cluster) = object.key.cluster {
            self.queue.add(Item::Namespace(cluster, object.key.name.clone()));
        }
    }

    fn hear_of_record(&self, object: &Arc<Object>, gone: bool) {
        let Some(record) = object.parse::<Distribution>() else { return };
        let counted = lock(&self.tally).put(&object.key, (!gone).then_some(&record));
        let cluster = object.key.cluster.unwrap_or(Id::ROOT);
        // Many records change at a time, and their sum is wanted once.
        counted
            .into_iter()
            .for_each(|name| self.queue.add_after(Item::Policy(Policy::Placement, cluster, name), COUNTED));
        project::hear_of_record(self, &object.key, (!gone).then_some(&record));
        let of = &record.spec.object;
        let group = of.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let Some(followed) = self.world.named(group, &of.kind) else { return };
        let key = Key { name: of.name.clone(), ..object.key.clone() };
        self.queue.add(Item::Object(Subject { kind: followed.name.clone(), key }));
    }

    /// Everything that may be placed, of all logical clusters, or of one, or of one of its namespaces.
    pub(crate) fn add_all(&self, cluster: Option<Id>, namespace: Option<&str>) {
        let placed = |followed: &&Arc<Followed>| followed.class != Class::Shown;
        self.world
            .kinds()
            .iter()
            .filter(placed)
            .for_each(|followed| self.add_of(followed, cluster, namespace));
    }

    fn add_of(&self, followed: &Followed, cluster: Option<Id>, namespace: Option<&str>) {
        let keys = match cluster {
            Some(cluster) => followed.view.keys_within(cluster, namespace),
            None => followed.view.keys(),
        };
        let clusters = self.world.clusters();
        for key in keys.into_iter().filter(|key| key.cluster.is_some_and(|id| !clusters.is_mailbox(id))) {
            self.queue.add(Item::Object(Subject { kind: followed.name.clone(), key }));
        }
    }
}
