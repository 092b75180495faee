//! Random operations on the overlay and on a model that simply stores everything: every response must be the same.
//!
//! The model keeps the whole visible state of every revision, and every event, in plain maps and lists. It shares no
//! code with the overlay except the encoding of records.

mod common;
mod model;

use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use apiserver::clusters::bootstrap::{BootstrapStore, Template};
use apiserver::clusters::records;
use apiserver::keys;
use apiserver::keys::Collection;
use common::{CLASSES, MAPS};
use model::Model;
use proptest::prelude::*;
use storage::embedded::{Embedded, Options};
use storage::memory::Memory;
use storage::{Change, Event, Expect, Key, Page, Range, ReadError, Revision, Store, Watch};

const CLUSTERS: u8 = 3;
/// A collection without objects in the template.
const PODS: Collection<'static> = Collection { group: "", plural: "pods" };

fn cluster(nth: u8) -> Id {
    Id::new(u64::from(nth % CLUSTERS) * 1000)
}

/// Returns keys in the template, their neighbours, and keys of a collection that is not in the template.
fn key(of: u8, nth: u8) -> Key {
    let id = cluster(of);
    match nth % 8 {
        0 => MAPS.key(id, Some("default"), "a"),
        1 => MAPS.key(id, Some("default"), "b"),
        2 => MAPS.key(id, Some("default"), "c"),
        3 => MAPS.key(id, Some("default"), "d"),
        4 => MAPS.key(id, Some("kube-system"), "b"),
        5 => MAPS.key(id, Some("shop"), "b"),
        6 => CLASSES.key(id, None, "system"),
        _ => PODS.key(id, Some("default"), "b"),
    }
}

#[derive(Clone, Copy, Debug)]
enum Belief {
    Right,
    Absent,
    /// At a revision so many earlier.
    Earlier(u8),
}

#[derive(Clone, Copy, Debug)]
enum Covers {
    All,
    Records,
    Maps,
    Classes,
    Pods,
    MapsOf(u8),
    DefaultOf(u8),
    ShopOf(u8),
    Key(u8, u8),
    Between(u8, u8, u8, u8),
}

impl Covers {
    fn range(self) -> Range {
        match self {
            Covers::All => Range::all(),
            Covers::Records => keys::cluster_records(),
            Covers::Maps => MAPS.everywhere(),
            Covers::Classes => CLASSES.everywhere(),
            Covers::Pods => PODS.everywhere(),
            Covers::MapsOf(of) => MAPS.range(cluster(of), None),
            Covers::DefaultOf(of) => MAPS.range(cluster(of), Some("default")),
            Covers::ShopOf(of) => MAPS.range(cluster(of), Some("shop")),
            Covers::Key(of, nth) => Range::key(key(of, nth)),
            Covers::Between(of, nth, to, end) => Range::between(key(of, nth), key(to, end)),
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    CreateCluster(u8),
    End(u8),
    Put {
        of: u8,
        key: u8,
        belief: Belief,
    },
    Delete {
        of: u8,
        key: u8,
        belief: Belief,
    },
    Get {
        of: u8,
        key: u8,
    },
    List {
        covers: Covers,
        after: Option<(u8, u8)>,
        limit: Option<usize>,
        count: bool,
        back: Option<u8>,
    },
    /// A whole list in pages, without changes between the pages.
    Pages {
        covers: Covers,
        limit: usize,
        back: u8,
    },
    Watch {
        covers: Covers,
        back: u8,
    },
    /// Reads a watch up to the newest revision, with `next` or with `until`.
    Read {
        watch: u8,
        by_next: bool,
    },
    Compact {
        back: u8,
    },
}

fn covers() -> impl Strategy<Value = Covers> {
    prop_oneof![
        2 => Just(Covers::All),
        1 => Just(Covers::Records),
        4 => Just(Covers::Maps),
        2 => Just(Covers::Classes),
        1 => Just(Covers::Pods),
        4 => (0..CLUSTERS).prop_map(Covers::MapsOf),
        2 => (0..CLUSTERS).prop_map(Covers::DefaultOf),
        1 => (0..CLUSTERS).prop_map(Covers::ShopOf),
        3 => (0..CLUSTERS, 0..8u8).prop_map(|(of, nth)| Covers::Key(of, nth)),
        2 => (0..CLUSTERS, 0..8u8, 0..CLUSTERS, 0..8u8).prop_map(|(a, b, c, d)| Covers::Between(a, b, c, d)),
    ]
}

fn belief() -> impl Strategy<Value = Belief> {
    prop_oneof![
        6 => Just(Belief::Right),
        1 => Just(Belief::Absent),
        1 => (0..12u8).prop_map(Belief::Earlier),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let (of, key) = (0..CLUSTERS, 0..8u8);
    let place = (of.clone(), key.clone());
    prop_oneof![
        8 => of.clone().prop_map(Op::CreateCluster),
        3 => of.prop_map(Op::End),
        14 => (place.clone(), belief()).prop_map(|((of, key), belief)| Op::Put { of, key, belief }),
        10 => (place.clone(), belief()).prop_map(|((of, key), belief)| Op::Delete { of, key, belief }),
        6 => place.clone().prop_map(|(of, key)| Op::Get { of, key }),
        14 => (
            covers(),
            proptest::option::of(place),
            proptest::option::of(0..5usize),
            any::<bool>(),
            proptest::option::of(0..20u8),
        )
            .prop_map(|(covers, after, limit, count, back)| Op::List { covers, after, limit, count, back }),
        5 => (covers(), 1..4usize, 0..20u8).prop_map(|(covers, limit, back)| Op::Pages { covers, limit, back }),
        8 => (covers(), 0..30u8).prop_map(|(covers, back)| Op::Watch { covers, back }),
        12 => (0..4u8, any::<bool>()).prop_map(|(watch, by_next)| Op::Read { watch, by_next }),
        1 => (0..30u8).prop_map(|back| Op::Compact { back }),
    ]
}

/// A watch of the overlay, and how far it was read.
struct OpenWatch {
    range: Range,
    seen: Revision,
    watch: Watch,
}

struct Pair {
    store: BootstrapStore,
    model: Model,
    watches: Vec<OpenWatch>,
    written: u32,
}

impl Pair {
    fn new(inner: Arc<dyn Store>) -> Pair {
        let store = BootstrapStore::new(inner, Template::new(common::objects()));
        Pair { store, model: Model::new(common::objects()), watches: Vec::new(), written: 0 }
    }

    async fn run(mut self, ops: &[Op]) {
        for op in ops {
            self.step(op).await;
        }
        for watch in (0..self.watches.len()).rev() {
            self.read(watch, false).await;
        }
    }

    fn expect(&self, key: &Key, belief: Belief) -> Expect {
        match belief {
            Belief::Right => self.model.expect(key),
            Belief::Absent => Expect::Absent,
            Belief::Earlier(back) => Expect::Revision(self.model.back(back)),
        }
    }

    async fn step(&mut self, op: &Op) {
        match op {
            Op::CreateCluster(of) => self.create_cluster(cluster(*of)).await,
            Op::End(of) => {
                records::end(&self.store, cluster(*of)).await.unwrap();
                self.model.end(cluster(*of));
            }
            Op::Put { of, key: nth, belief } => {
                let key = key(*of, *nth);
                self.written += 1;
                let value = format!("value {}", self.written).into();
                self.commit(cluster(*of), key.clone(), self.expect(&key, *belief), Change::Put(value)).await;
            }
            Op::Delete { of, key: nth, belief } => {
                let key = key(*of, *nth);
                self.commit(cluster(*of), key.clone(), self.expect(&key, *belief), Change::Delete).await;
            }
            Op::Get { of, key: nth } => {
                let key = key(*of, *nth);
                assert_eq!(self.store.get(&key).await, Ok(self.model.get(&key)), "{op:?}");
            }
            Op::List { covers, after, limit, count, back } => {
                let page = Page {
                    after: after.map(|(of, nth)| key(of, nth)),
                    limit: *limit,
                    count: *count,
                    at: back.map(|back| self.model.back(back)),
                };
                let listed = self.store.list(covers.range(), page.clone()).await;
                assert_eq!(listed, self.model.list(&covers.range(), &page), "{op:?}");
            }
            Op::Pages { covers, limit, back } => self.pages(covers.range(), *limit, *back).await,
            Op::Watch { covers, back } => self.watch(covers.range(), self.model.back(*back)).await,
            Op::Read { watch, by_next } if !self.watches.is_empty() => {
                self.read(usize::from(*watch) % self.watches.len(), *by_next).await;
            }
            Op::Read { .. } => {}
            Op::Compact { back } => {
                let through = self.model.back(*back);
                self.store.compact(through).await.unwrap();
                self.model.compact(through);
            }
        }
    }

    /// Creates a logical cluster, at most once per id, as in reality.
    async fn create_cluster(&mut self, id: Id) {
        if self.model.was_created(id) {
            return;
        }
        let record = records::LogicalClusterRecord::new(Id::ROOT, "one");
        records::write(&self.store, id, &record).await.unwrap();
        let entry = self.store.get(&keys::cluster_record(id)).await.unwrap().value.unwrap();
        self.model.create_cluster(id, &record, entry);
    }

    async fn commit(&mut self, id: Id, key: Key, expect: Expect, change: Change) {
        let description = format!("{change:?} of {key:?} expecting {expect:?}");
        let committed = self.store.commit(key.clone(), expect, change.clone()).await;
        assert_eq!(committed, self.model.commit(id, key, expect, change), "{description}");
    }

    async fn pages(&self, range: Range, limit: usize, back: u8) {
        let at = self.model.back(back);
        let mut page = Page { limit: Some(limit), count: true, at: Some(at), ..Page::default() };
        let whole = self.model.list(&range, &Page { at: Some(at), ..Page::default() });
        let mut entries = Vec::new();
        loop {
            let listed = match self.store.list(range.clone(), page.clone()).await {
                Ok(listed) => listed,
                Err(error) => return assert_eq!(whole, Err(error)),
            };
            page.after = listed.value.entries.last().map(|entry| entry.key().clone());
            entries.extend(listed.value.entries);
            let whole = &whole.as_ref().unwrap().value.entries;
            assert_eq!(listed.value.remaining, Some(whole.len() - entries.len()));
            if !listed.value.more {
                assert_eq!(&entries, whole);
                return;
            }
        }
    }

    async fn watch(&mut self, range: Range, after: Revision) {
        match self.store.watch(range.clone(), after).await {
            Ok(watch) => self.watches.push(OpenWatch { range, seen: after, watch }),
            Err(error) => assert_eq!(self.model.check(after), Err(error)),
        }
        self.watches.drain(..self.watches.len().saturating_sub(4));
    }

    async fn read(&mut self, nth: usize, by_next: bool) {
        let (head, model) = (self.model.head(), &self.model);
        let open_watch = &mut self.watches[nth];
        let expected = model.events(&open_watch.range, open_watch.seen);
        let claimed = open_watch.watch.through();
        assert!(expected.iter().all(|event| event.revision > claimed), "{claimed:?} outruns {expected:?}");
        let seen = match by_next {
            true => by_count(&mut open_watch.watch, expected.len()).await,
            false => until(&mut open_watch.watch, head).await,
        };
        match seen {
            Err(ReadError::Compacted { .. }) if model.check(open_watch.seen).is_err() => {
                self.watches.remove(nth);
            }
            seen => {
                assert_eq!(
                    seen,
                    Ok(expected),
                    "a watch of {:?} after {:?}",
                    open_watch.range,
                    open_watch.seen
                );
                open_watch.seen = open_watch.watch.through();
                assert!(open_watch.seen <= head);
                // The watch has delivered all events that it reported, and the others are outside of its range.
                assert_eq!(model.events(&open_watch.range, open_watch.seen), []);
            }
        }
    }
}

async fn until(watch: &mut Watch, goal: Revision) -> Result<Vec<Event>, ReadError> {
    let mut events = Vec::new();
    while let Some(batch) = watch.until(goal).await? {
        assert!(batch.events.last().unwrap().revision <= batch.through);
        assert!(batch.through <= watch.through());
        events.extend(batch.events);
    }
    assert!(watch.through() >= goal);
    Ok(events)
}

async fn by_count(watch: &mut Watch, count: usize) -> Result<Vec<Event>, ReadError> {
    let mut events = Vec::new();
    while events.len() < count {
        let batch = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
        events.extend(batch.unwrap_or_else(|_| panic!("{} of {count}: {events:?}", events.len()))?.events);
    }
    Ok(events)
}

fn block_on(run: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run);
}

/// Returns this number of cases, or `PROPTEST_CASES` if that is set.
fn few(cases: u32) -> ProptestConfig {
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        cases: requested.unwrap_or(cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(few(400))]
    #[test]
    fn over_memory_it_behaves_as_if_every_object_were_stored(ops in proptest::collection::vec(op(), 1..120)) {
        block_on(Pair::new(Arc::new(Memory::new())).run(&ops));
    }
}

proptest! {
    #![proptest_config(few(12))]
    /// With a tail so short that most of the past is read from disk.
    #[test]
    fn over_the_embedded_store_it_behaves_as_if_every_object_were_stored(ops in proptest::collection::vec(op(), 80..160)) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { tail_events: Some(4), ..Options::default() };
        let inner = Embedded::open(dir.path(), options).unwrap();
        block_on(Pair::new(Arc::new(inner)).run(&ops));
    }
}
