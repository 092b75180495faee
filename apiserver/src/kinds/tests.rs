//! Stories of sharing and visibility.

use std::sync::Arc;

use api::cluster::Id;
use serde_json::{Value, json};
use storage::memory::Memory;
use storage::{Change, Entry, Expect, Page, Revision, Store};

use crate::keys::Collection;
use crate::kinds::definition::DEFINITIONS;
use crate::kinds::{Kinds, Own, Registry};
use crate::objects::stored;

/// Returns a served definition of `plural` in `shop.example`.
fn served(plural: &str) -> Value {
    let names = json!({ "plural": plural, "singular": plural, "kind": plural, "listKind": plural });
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
    });
    json!({
        "metadata": { "name": format!("{plural}.shop.example"), "uid": uuid::Uuid::new_v4().to_string() },
        "spec": { "group": "shop.example", "scope": "Cluster", "names": names.clone(), "versions": [version] },
        "status": { "acceptedNames": names, "conditions": [{ "type": "Established", "status": "True" }] },
    })
}

struct TestRegistry {
    store: Arc<Memory>,
    registry: Registry,
}

impl TestRegistry {
    fn new() -> TestRegistry {
        let store = Arc::new(Memory::new());
        TestRegistry { registry: Registry::new(store.clone()), store }
    }

    /// Writes a definition, replacing an existing one.
    async fn put(&self, cluster: u64, definition: &Value) {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let key = DEFINITIONS.key(Id::new(cluster), None, name);
        let before = self.store.get(&key).await.unwrap().value;
        let expect = before.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
        self.store.commit(key, expect, Change::Put(stored::encode(definition))).await.unwrap();
    }

    async fn remove(&self, cluster: u64, name: &str) {
        let key = DEFINITIONS.key(Id::new(cluster), None, name);
        let expect = Expect::Revision(self.store.get(&key).await.unwrap().value.unwrap().revision());
        self.store.commit(key, expect, Change::Delete).await.unwrap();
    }

    async fn read(&self, cluster: u64) -> (Revision, Vec<Entry>) {
        let read = self.store.list(DEFINITIONS.range(Id::new(cluster), None), Page::default()).await.unwrap();
        (read.revision, read.value.entries)
    }

    fn of(&self, cluster: u64) -> Arc<Kinds> {
        self.registry.of(Id::new(cluster))
    }

    async fn fresh(&self, cluster: u64) -> Arc<Kinds> {
        self.registry.fresh(Id::new(cluster)).await.unwrap()
    }
}

fn serves(kinds: &Kinds, plural: &str) -> bool {
    kinds.find("shop.example", "v1", plural).is_some()
}

#[tokio::test]
async fn equal_definitions_share_one_set_of_kinds() {
    let test = TestRegistry::new();
    for cluster in 1..=1000 {
        test.put(cluster, &served("apples")).await;
        test.put(cluster, &served("pears")).await;
    }
    test.put(1001, &served("apples")).await;
    test.registry.load().await.unwrap();
    let (first, other) = (test.of(1), test.of(1001));
    assert!((2..=1000).all(|cluster| Arc::ptr_eq(&test.of(cluster), &first)), "one set of kinds");
    let resource = |kinds: &Kinds| kinds.find("shop.example", "v1", "apples").unwrap().clone();
    assert!(
        !Arc::ptr_eq(&first, &other) && Arc::ptr_eq(&resource(&first), &resource(&other)),
        "one kind in two sets"
    );
    assert!(
        Arc::ptr_eq(&test.of(2000), Kinds::built_in()),
        "a logical cluster without definitions has the built-in kinds"
    );
    // All sets share the resources of built-in kinds.
    let built_in = |kinds: &Kinds| kinds.find("", "v1", "pods").unwrap().clone();
    assert!(Arc::ptr_eq(&built_in(&first), &built_in(Kinds::built_in())));
    // The kind is dropped with the last definition of it.
    let apples = Arc::downgrade(&resource(&first));
    drop((first, other));
    for cluster in 1..=1001 {
        test.remove(cluster, "apples.shop.example").await;
    }
    test.registry.load().await.unwrap();
    assert!(apples.upgrade().is_none() && serves(&test.of(1), "pears"));
    assert!(Arc::ptr_eq(&test.of(1001), Kinds::built_in()));
}

/// A server with built-in kinds of its own, and a million logical clusters.
#[tokio::test]
async fn logical_clusters_share_the_built_in_kinds_of_a_server() {
    let mut theirs = served("gears");
    theirs["metadata"]["name"] = "gears.holon.dev".into();
    theirs["spec"]["group"] = "holon.dev".into();
    let mut definition = theirs.clone();
    definition["spec"]["names"] = json!({ "plural": "gears", "kind": "Gear" });
    definition.as_object_mut().unwrap().remove("status");
    let mut test = TestRegistry::new();
    let own = Own::read(&[&definition.to_string()]).unwrap();
    test.registry = Registry::new(test.store.clone()).with_own(own);
    test.put(1, &served("apples")).await;
    let (with_more, others) = (test.fresh(1).await, [test.fresh(2).await, test.of(3)]);
    assert!(others.iter().all(|kinds| Arc::ptr_eq(kinds, test.registry.common())));
    let gears = |kinds: &Kinds| kinds.find("holon.dev", "v1", "gears").unwrap().clone();
    assert!(Arc::ptr_eq(&gears(&with_more), &gears(test.registry.common())));
    assert!(serves(&with_more, "apples") && !serves(test.registry.common(), "apples"));
    let groups: Vec<_> = with_more.discoverable().iter().map(|resource| resource.group.to_string()).collect();
    let mut runs = groups.clone();
    runs.dedup();
    assert_eq!(runs.iter().filter(|group| *group == "holon.dev").count(), 1, "one group: {runs:?}");
    // A definition in the group of the built-in kinds, written to the store directly.
    test.put(2, &theirs).await;
    assert!(Arc::ptr_eq(&gears(&*test.fresh(2).await), &gears(test.registry.common())));
}

#[tokio::test]
async fn a_kind_is_served_while_its_definition_is_established() {
    let test = TestRegistry::new();
    let mut definition = served("apples");
    definition["status"]["conditions"] = json!([{ "type": "Established", "status": "False" }]);
    test.put(1, &definition).await;
    assert!(!serves(&*test.fresh(1).await, "apples"));
    test.put(1, &served("apples")).await;
    assert!(!serves(&test.of(1), "apples") && serves(&*test.fresh(1).await, "apples"));
    let mut definition = served("apples");
    definition["metadata"]["deletionTimestamp"] = "2026-11-16T06:00:00Z".into();
    let resource = test.of(1).find("shop.example", "v1", "apples").unwrap().clone();
    assert!(!test.of(1).is_being_deleted(&resource));
    test.put(1, &definition).await;
    let kinds = test.fresh(1).await;
    assert!(kinds.has(&resource) && kinds.is_being_deleted(&resource), "the same kind, terminating");
    let discoverable =
        kinds.discoverable().into_iter().find(|discoverable| discoverable.plural == resource.plural).unwrap();
    assert_eq!(discoverable.verbs, crate::kinds::LEAVING);
}

/// A list of the definitions that arrives late.
#[tokio::test]
async fn an_older_list_never_replaces_a_newer_one() {
    let test = TestRegistry::new();
    let set =
        |cluster, (at, entries): (Revision, Vec<Entry>)| test.registry.set(Id::new(cluster), at, &entries);
    test.put(1, &served("apples")).await;
    let apples = test.read(1).await;
    test.put(1, &served("pears")).await;
    test.fresh(1).await;
    set(1, apples.clone());
    assert!(serves(&test.of(1), "pears"));
    for name in ["apples.shop.example", "pears.shop.example"] {
        test.remove(1, name).await;
    }
    test.fresh(1).await;
    set(1, apples);
    assert!(Arc::ptr_eq(&test.of(1), Kinds::built_in()), "forgotten kinds are not restored");
}

#[tokio::test]
async fn a_request_across_logical_clusters_uses_the_first_definition_of_a_kind() {
    let test = TestRegistry::new();
    for (cluster, kind) in [(7, "Apfel"), (3, "Apple")] {
        let mut definition = served("apples");
        definition["spec"]["names"]["kind"] = kind.into();
        definition["status"]["acceptedNames"]["kind"] = kind.into();
        test.put(cluster, &definition).await;
    }
    test.registry.load().await.unwrap();
    let found = |version: &str| test.registry.anywhere("shop.example", version, "apples");
    assert_eq!(found("v1").map(|resource| resource.kind.to_string()).as_deref(), Some("Apple"));
    assert!(found("v2").is_none());
    let collection = Collection { group: "shop.example", plural: "apples" };
    assert!(
        test.of(7).find_collection(collection).is_some() && test.of(8).find_collection(collection).is_none()
    );
}
