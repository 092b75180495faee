//! Stories of deletion and order, with the real controllers on the in-memory store.

use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use controller::tasks::Tasks;
use openapi::catalog::resource_info::ResourceInfo;
use serde_json::{Value, json};
use storage::memory::Memory;
use storage::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Key, Listing, Page, Range, ReadError, Revision,
    Store, Watch,
};

use crate::clusters::logical_cluster;
use crate::clusters::records;
use crate::clusters::records::LogicalClusterRecord;
use crate::controllers::Controllers;
use crate::keys::{Collection, ObjectKey};
use crate::kinds::Kinds;
use crate::objects::stored;
use crate::registry::allocation;
use crate::registry::deletion;
use crate::registry::deletion::{DeleteOptions, Deleted, Propagation};

/// Long enough for a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// The in-memory store, which yields before each answer, as a store on a disk or a network does.
#[derive(Debug, Default)]
struct Patient(Memory);

impl Store for Patient {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.get(key).await
        })
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.list(range, page).await
        })
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.commit(key, expect, change).await
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        self.0.watch(range, after)
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        self.0.compact(through)
    }
}

struct TestCluster {
    store: Arc<dyn Store>,
    tasks: Tasks,
    cluster: Id,
}

impl TestCluster {
    async fn new() -> TestCluster {
        let mut test = TestCluster::asleep().await;
        test.wake();
        test
    }

    /// The same with controllers that do not run yet.
    async fn asleep() -> TestCluster {
        let test =
            TestCluster { store: Arc::new(Patient::default()), tasks: Tasks::new(), cluster: Id::new(7) };
        records::write(&*test.store, test.cluster, &LogicalClusterRecord::new(Id::ROOT, "seven"))
            .await
            .unwrap();
        test.put("namespaces", "-", "shop", json!({})).await;
        test
    }

    fn wake(&mut self) {
        let controllers =
            Controllers::new(self.store.clone(), self.store.clone(), "the authority".to_owned());
        self.tasks.spawn("controllers", controllers.run(self.tasks.stop()));
    }

    fn resource(&self, plural: &str) -> &'static ResourceInfo {
        match plural {
            "logicalclusters" => logical_cluster::resource(),
            _ => Kinds::built_in().resources().iter().find(|resource| &*resource.plural == plural).unwrap(),
        }
    }

    fn key(&self, plural: &str, namespace: &str, name: &str) -> Key {
        let resource = self.resource(plural);
        let namespace = Some(namespace).filter(|namespace| *namespace != "-");
        Collection { group: &resource.group, plural }.key(self.cluster, namespace, name)
    }

    /// Creates an object whose uid is its name.
    async fn put(&self, plural: &str, namespace: &str, name: &str, metadata: Value) -> Entry {
        let resource = self.resource(plural);
        let mut object = json!({
            "apiVersion": resource.api_version(), "kind": &*resource.kind,
            "metadata": { "name": name, "uid": name, "creationTimestamp": "2026-11-16T06:00:00Z" },
        });
        for (field, value) in metadata.as_object().unwrap() {
            object["metadata"][field] = value.clone();
        }
        if plural == "namespaces" {
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
        }
        let value = Change::Put(stored::encode(&object));
        let event =
            self.store.commit(self.key(plural, namespace, name), Expect::Absent, value).await.unwrap();
        event.current.unwrap()
    }

    async fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.store.get(&self.key(plural, namespace, name)).await.unwrap();
        found.value.map(|entry| stored::tree(&entry).unwrap())
    }

    async fn delete(&self, plural: &str, namespace: &str, name: &str, propagation: Propagation) -> Deleted {
        let key = self.key(plural, namespace, name);
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        for _ in 0..100 {
            let entry = self.store.get(&key).await.unwrap().value.unwrap();
            if let Ok(deleted) =
                deletion::delete(&*self.store, self.resource(plural), key.clone(), &entry, &options).await
            {
                return deleted;
            }
        }
        panic!("another writer keeps changing {key:?}")
    }

    /// Waits until `holds`.
    async fn until(&self, condition: &str, holds: impl AsyncFn() -> bool) {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            let all = self.store.list(Range::all(), Page::default()).await.unwrap();
            panic!("not within {PATIENCE:?}: {condition}; there is {:#?}", all.value.entries);
        }
    }

    async fn wait_until_deleted(&self, plural: &str, namespace: &str, name: &str) {
        self.until(&format!("{plural} {name} is gone"), async || {
            self.get(plural, namespace, name).await.is_none()
        })
        .await;
    }

    /// Waits until the controllers have handled all events so far.
    async fn settled(&self) {
        let marker = format!("marker-{}", uuid::Uuid::new_v4());
        let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent" }]);
        self.put("configmaps", "shop", &marker, json!({ "ownerReferences": owner })).await;
        self.wait_until_deleted("configmaps", "shop", &marker).await;
        // A worker may still be reconciling an earlier key.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    async fn end(self) {
        self.tasks.run_until(std::future::ready(()), Duration::from_secs(5)).await.unwrap();
    }
}

fn owned_by(owners: &[(&str, &str, &str)]) -> Value {
    let owners = owners.iter().map(|(api_version, kind, name)| {
        json!({
            "apiVersion": api_version, "kind": kind, "name": name, "uid": name,
            "controller": false, "blockOwnerDeletion": true,
        })
    });
    json!({ "ownerReferences": owners.collect::<Vec<_>>() })
}

const DEPLOYMENT: (&str, &str, &str) = ("apps/v1", "Deployment", "web");
const REPLICA_SET: (&str, &str, &str) = ("apps/v1", "ReplicaSet", "web-1");

async fn a_deployment(test: &TestCluster) {
    test.put("deployments", "shop", "web", json!({})).await;
    test.put("replicasets", "shop", "web-1", owned_by(&[DEPLOYMENT])).await;
    test.put("pods", "shop", "web-1-a", owned_by(&[REPLICA_SET])).await;
}

#[tokio::test]
async fn dependents_of_a_deployment_are_deleted_after_it() {
    let test = TestCluster::new().await;
    a_deployment(&test).await;
    test.settled().await;
    assert!(test.get("pods", "shop", "web-1-a").await.is_some());
    test.delete("deployments", "shop", "web", Propagation::Background).await;
    test.wait_until_deleted("replicasets", "shop", "web-1").await;
    test.wait_until_deleted("pods", "shop", "web-1-a").await;
    test.end().await;
}

#[tokio::test]
async fn foreground_deletion_removes_the_last_dependent_before_the_owner() {
    let test = TestCluster::new().await;
    a_deployment(&test).await;
    let begun = test.store.get(&Key::from("-")).await.unwrap().revision;
    let mut watch = test.store.watch(Range::all(), begun).await.unwrap();
    test.delete("deployments", "shop", "web", Propagation::Foreground).await;
    test.wait_until_deleted("deployments", "shop", "web").await;
    let mut wait_until_deleted = Vec::new();
    while wait_until_deleted.len() < 3 {
        let events = watch.next().await.unwrap().events.into_iter();
        let deleted = events.filter(|event| event.current.is_none());
        wait_until_deleted.extend(deleted.map(|event| ObjectKey::of(&event.key).unwrap().name.to_owned()));
    }
    assert_eq!(wait_until_deleted, ["web-1-a", "web-1", "web"]);
    test.end().await;
}

/// Regression: a client deleted the first object of a cycle in the foreground. The collector deleted the others in the
/// foreground too, and each waited for the next. All stayed forever, and so did their namespace.
#[tokio::test]
async fn an_owner_cycle_deleted_in_the_foreground_is_removed() {
    for length in [1, 2, 3, 7] {
        let mut test = TestCluster::asleep().await;
        let names = circle(&test, length).await;
        test.wake();
        test.settled().await;
        test.delete("configmaps", "shop", &names[0], Propagation::Foreground).await;
        for name in &names {
            test.wait_until_deleted("configmaps", "shop", name).await;
        }
        test.end().await;
    }
}

/// The same, if the client deleted every object of the cycle before any controller ran.
#[tokio::test]
async fn an_owner_cycle_whose_members_are_all_deleted_is_removed() {
    for length in [1, 2, 3, 7] {
        let mut test = TestCluster::asleep().await;
        let names = circle(&test, length).await;
        for name in &names {
            test.delete("configmaps", "shop", name, Propagation::Foreground).await;
        }
        test.wake();
        for name in &names {
            test.wait_until_deleted("configmaps", "shop", name).await;
        }
        test.end().await;
    }
}

/// Only the reference that closes the cycle stops blocking: other dependents are still deleted before their owner.
#[tokio::test]
async fn dependents_of_an_owner_cycle_are_deleted_before_it() {
    let mut test = TestCluster::asleep().await;
    let names = circle(&test, 2).await;
    let held = json!({ "finalizers": ["a.b/c"], "ownerReferences": owner(&names[1]) });
    test.put("secrets", "shop", "held", held).await;
    test.wake();
    test.settled().await;
    test.delete("configmaps", "shop", &names[0], Propagation::Foreground).await;
    test.until("dependents of the cycle are deleted", async || {
        let held = test.get("secrets", "shop", "held").await.expect("a finalizer keeps it");
        held["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    test.settled().await;
    assert!(test.get("configmaps", "shop", &names[1]).await.is_some(), "it waits for its dependents");
    let key = test.key("secrets", "shop", "held");
    let entry = test.store.get(&key).await.unwrap().value.unwrap();
    test.store.commit(key, Expect::Revision(entry.revision()), Change::Delete).await.unwrap();
    for name in &names {
        test.wait_until_deleted("configmaps", "shop", name).await;
    }
    test.end().await;
}

/// Creates objects of which each is owned by the one before, and the first by the last.
async fn circle(test: &TestCluster, length: usize) -> Vec<String> {
    let name = |number: usize| format!("of-{length}-{}", number % length);
    for number in 0..length {
        let owned = json!({ "ownerReferences": owner(&name(number + length - 1)) });
        test.put("configmaps", "shop", &name(number), owned).await;
    }
    (0..length).map(name).collect()
}

fn owner(name: &str) -> Value {
    owned_by(&[("v1", "ConfigMap", name)])["ownerReferences"].clone()
}

#[tokio::test]
async fn orphans_are_kept_without_their_owner_reference() {
    let test = TestCluster::new().await;
    a_deployment(&test).await;
    test.settled().await;
    test.delete("deployments", "shop", "web", Propagation::Orphan).await;
    test.wait_until_deleted("deployments", "shop", "web").await;
    test.settled().await;
    let orphan = test.get("replicasets", "shop", "web-1").await.expect("it is not deleted");
    assert_eq!(orphan["metadata"].get("ownerReferences"), None);
    let pod = test.get("pods", "shop", "web-1-a").await.expect("its owner still exists");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "web-1");
    test.end().await;
}

/// Regression: an owner seemed to have no dependents, because the first list had not reached them. It was deleted, and
/// its dependents after it.
#[tokio::test]
async fn orphans_are_kept_when_the_controllers_start_during_the_deletion() {
    let mut test = TestCluster::asleep().await;
    test.put("configmaps", "shop", "owner", json!({})).await;
    for number in 0..1500 {
        let owned = owned_by(&[("v1", "ConfigMap", "owner")]);
        test.put("secrets", "shop", &format!("heir-{number}"), owned).await;
    }
    test.delete("configmaps", "shop", "owner", Propagation::Orphan).await;
    test.wake();
    test.wait_until_deleted("configmaps", "shop", "owner").await;
    test.settled().await;
    let heirs = Collection { group: "", plural: "secrets" }.range(test.cluster, Some("shop"));
    let heirs = test.store.list(heirs, Page::default()).await.unwrap().value.entries;
    assert_eq!(heirs.len(), 1500);
    test.end().await;
}

#[tokio::test]
async fn an_object_with_one_remaining_owner_is_kept() {
    let test = TestCluster::new().await;
    for owner in ["one", "two"] {
        test.put("configmaps", "shop", owner, json!({})).await;
    }
    let owners = [("v1", "ConfigMap", "one"), ("v1", "ConfigMap", "two")];
    test.put("secrets", "shop", "shared", owned_by(&owners)).await;
    test.delete("configmaps", "shop", "one", Propagation::Background).await;
    test.until("the reference to the absent owner is removed", async || {
        let shared = test.get("secrets", "shop", "shared").await.expect("the other owner reference is kept");
        shared["metadata"]["ownerReferences"].as_array().unwrap().len() == 1
    })
    .await;
    test.delete("configmaps", "shop", "two", Propagation::Background).await;
    test.wait_until_deleted("secrets", "shop", "shared").await;
    test.end().await;
}

/// Kubernetes had both bugs: an owner was looked up in the wrong scope, and an owner of a kind that is not served
/// counted as deleted. In both cases the object was deleted.
#[tokio::test]
async fn an_owner_of_an_unknown_kind_does_not_count_as_absent() {
    let test = TestCluster::new().await;
    test.put("configmaps", "shop", "map", json!({})).await;
    test.put("nodes", "-", "node", owned_by(&[("v1", "ConfigMap", "map")])).await;
    test.put("secrets", "shop", "odd", owned_by(&[("gone.io/v1", "Widget", "w")])).await;
    // In another namespace the owner is known not to exist.
    test.put("namespaces", "-", "other", json!({})).await;
    test.put("secrets", "other", "stray", owned_by(&[("v1", "ConfigMap", "map")])).await;
    test.wait_until_deleted("secrets", "other", "stray").await;
    test.settled().await;
    assert!(test.get("nodes", "-", "node").await.is_some());
    assert!(test.get("secrets", "shop", "odd").await.is_some());
    test.end().await;
}

#[tokio::test]
async fn an_owner_of_the_same_name_that_is_another_object_is_no_owner() {
    let test = TestCluster::new().await;
    test.put("configmaps", "shop", "map", json!({ "uid": "second-life" })).await;
    test.put("secrets", "shop", "heir", owned_by(&[("v1", "ConfigMap", "map")])).await;
    test.wait_until_deleted("secrets", "shop", "heir").await;
    assert!(test.get("configmaps", "shop", "map").await.is_some());
    test.end().await;
}

#[tokio::test]
async fn a_terminating_namespace_deletes_pods_first_and_waits_for_finalizers() {
    let test = TestCluster::new().await;
    test.put("pods", "shop", "held", json!({ "finalizers": ["a.b/c"] })).await;
    test.put("secrets", "shop", "used", json!({})).await;
    test.put("configmaps", "shop", "also-held", json!({ "finalizers": ["a.b/c"] })).await;
    test.delete("namespaces", "-", "shop", Propagation::Background).await;
    let condition = async |kind: &str| {
        let namespace = test.get("namespaces", "-", "shop").await.expect("the namespace waits");
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    };
    let content = "NamespaceContentRemaining";
    test.until("the conditions name the remaining content", async || {
        condition(content).await["status"] == "True"
    })
    .await;
    assert_eq!(
        condition(content).await["message"],
        "Some resources are remaining: pods. has 1 resource instances"
    );
    assert!(test.get("secrets", "shop", "used").await.is_some(), "the pod may still use it");

    let release = async |plural: &str, name: &str| {
        let key = test.key(plural, "shop", name);
        let entry = test.store.get(&key).await.unwrap().value.unwrap();
        let tree = stored::tree(&entry).unwrap();
        assert!(tree["metadata"]["deletionTimestamp"].is_string(), "{tree}");
        test.store.commit(key, Expect::Revision(entry.revision()), Change::Delete).await.unwrap();
    };
    release("pods", "held").await;
    test.wait_until_deleted("secrets", "shop", "used").await;
    test.until("the conditions name the remaining finalizers", async || {
        condition(content).await["message"]
            == "Some resources are remaining: configmaps. has 1 resource instances"
    })
    .await;
    release("configmaps", "also-held").await;
    test.wait_until_deleted("namespaces", "-", "shop").await;
    test.end().await;
}

#[tokio::test]
async fn a_namespace_gets_its_defaults_back() {
    let test = TestCluster::new().await;
    let has_defaults = async || {
        let map = test.get("configmaps", "shop", "kube-root-ca.crt").await.unwrap_or_default();
        test.get("serviceaccounts", "shop", "default").await.is_some()
            && map["data"]["ca.crt"] == "the authority"
    };
    test.until("the defaults are created", has_defaults).await;
    test.delete("serviceaccounts", "shop", "default", Propagation::Background).await;
    let key = test.key("configmaps", "shop", "kube-root-ca.crt");
    let entry = test.store.get(&key).await.unwrap().value.unwrap();
    let mut map = stored::tree(&entry).unwrap();
    map["data"] = json!({ "ca.crt": "another certificate" });
    let change = Change::Put(stored::encode(&map));
    test.store.commit(key, Expect::Revision(entry.revision()), change).await.unwrap();
    test.until("the defaults are restored", has_defaults).await;
    test.end().await;
}

#[tokio::test]
async fn a_deleted_logical_cluster_leaves_no_entries() {
    let mut test = TestCluster::new().await;
    let outer = test.cluster;
    // web contains inner, and inner contains objects. A finalizer in it does not delay the deletion, because no
    // controller could remove it.
    let (web, inner) = (Id::new(70), Id::new(700));
    let status = |id: Id| json!({ "id": id.to_string(), "phase": "Ready" });
    for (within, name, id) in [(outer, "web", web), (web, "inner", inner)] {
        test.cluster = within;
        let key = test.key("logicalclusters", "-", name);
        records::write(&*test.store, id, &LogicalClusterRecord::new(within, name)).await.unwrap();
        // The controller of this finalizer cannot reach web once outer is terminating.
        let finalizers = if within == web { json!(["a.b/c"]) } else { json!([]) };
        let metadata = json!({ "name": name, "uid": name, "finalizers": finalizers });
        let object = json!({ "metadata": metadata, "status": status(id) });
        let value = Change::Put(stored::encode(&object));
        test.store.commit(key, Expect::Absent, value).await.unwrap();
    }
    for cluster in [web, inner] {
        test.cluster = cluster;
        for number in 0..20 {
            test.put("namespaces", "-", &format!("space-{number}"), json!({})).await;
        }
        test.put("namespaces", "-", "shop", json!({})).await;
        for number in 0..300 {
            let held = json!({ "finalizers": ["a.b/c"] });
            test.put("configmaps", "shop", &format!("map-{number}"), held).await;
        }
    }
    // These namespaces get their defaults back as long as they exist.
    test.until("the last namespace has its defaults", async || {
        test.get("configmaps", "shop", "kube-root-ca.crt").await.is_some()
    })
    .await;
    test.cluster = outer;
    test.delete("logicalclusters", "-", "web", Propagation::Background).await;
    test.wait_until_deleted("logicalclusters", "-", "web").await;
    test.settled().await;
    let all = test.store.list(Range::all(), Page::default()).await.unwrap().value.entries;
    let left: Vec<_> = all
        .iter()
        .filter(|entry| ObjectKey::of(entry.key()).is_some_and(|place| place.cluster != outer))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(test.get("namespaces", "-", "shop").await.is_some(), "the other logical clusters are unchanged");
    test.end().await;
}

#[tokio::test]
async fn allocations_of_a_deleted_service_are_released() {
    let test = TestCluster::new().await;
    let mut service = json!({
        "metadata": { "namespace": "shop", "name": "web", "uid": "web" },
        "spec": { "type": "NodePort", "ports": [{ "port": 80 }] },
    });
    let allocations =
        allocation::assign(&*test.store, test.cluster, false, None, &mut service).await.unwrap();
    let key = test.key("services", "shop", "web");
    let value = Change::Put(stored::encode(&service));
    test.store.commit(key, Expect::Absent, value).await.unwrap();
    allocations.done(&*test.store, Revision(u64::MAX)).await;
    let taken = async || {
        let mut taken = 0;
        for allocation in allocation::allocations_of(&service) {
            taken +=
                usize::from(test.store.get(&allocation.key(test.cluster)).await.unwrap().value.is_some());
        }
        taken
    };
    test.settled().await;
    assert_eq!(taken().await, 2);
    test.delete("services", "shop", "web", Propagation::Background).await;
    test.until("both allocations are released", async || taken().await == 0).await;
    test.end().await;
}

#[tokio::test]
async fn objects_of_every_kind_can_be_collected() {
    // An object whose resource is not found would never be collected, so the kind of every resource must lead back to
    // it.
    for resource in Kinds::built_in().resources().iter().filter(|resource| resource.stored_as.is_none()) {
        let found = Kinds::built_in().find_kind(&resource.group, &resource.kind);
        assert!(found.is_some_and(|found| found.plural == resource.plural), "{}", resource.qualified());
    }
}
