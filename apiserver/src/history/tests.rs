use api::cluster::Id;
use controller::tasks::Tasks;
use serde_json::{Value, json};
use storage::memory::Memory;
use storage::{Change, Expect};

use super::*;
use crate::authn::identity::User;
use crate::clusters::bootstrap::{BootstrapOptions, BootstrapStore, objects};
use crate::clusters::records::{self, LogicalClusterRecord};
use crate::kinds::DEFINITIONS;
use crate::rbac::controller_role::ControllerRole;

struct Fixture {
    store: Arc<dyn Store>,
    stack: Stack,
}

impl Fixture {
    async fn new() -> Fixture {
        let address = ([127, 0, 0, 1], 6443).into();
        let objects = objects(&BootstrapOptions { authority: "a certificate", address });
        let store = BootstrapStore::open(Arc::new(Memory::new()), objects).await.unwrap();
        let stack = Stack::new(store.clone(), String::new(), Tasks::new().stop());
        Fixture { store, stack }
    }

    fn history(&self) -> Arc<dyn History> {
        history(&self.stack, Identity::user("admin", &["system:masters"]))
    }

    /// The history as a controller with this role reads it.
    fn history_with(&self, role: &str) -> Arc<dyn History> {
        let controller_role = Some(Arc::new(ControllerRole::read(role).unwrap()));
        let user = User { name: "one".into(), controller_role, ..User::default() };
        history(&self.stack, Identity::known(user))
    }

    /// Writes an object, or deletes it. Returns the revision.
    async fn write(&self, collection: Collection<'_>, cluster: Id, object: &Value, change: Change) -> u64 {
        let metadata = &object["metadata"];
        let key = collection.key(cluster, metadata["namespace"].as_str(), metadata["name"].as_str().unwrap());
        let before = self.store.get(&key).await.unwrap().value;
        let expect = before.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
        self.store.commit(key, expect, change).await.unwrap().revision.0
    }

    async fn put(&self, collection: Collection<'_>, cluster: Id, object: &Value) -> u64 {
        self.write(collection, cluster, object, Change::Put(stored::encode(object))).await
    }
}

const CONFIG_MAPS: Collection<'static> = Collection { group: "", plural: "configmaps" };
const SECRETS: Collection<'static> = Collection { group: "", plural: "secrets" };
const WIDGETS: Collection<'static> = Collection { group: "shop.example", plural: "widgets" };

fn kind(group: &str, version: &str, plural: &str) -> ResourceKind {
    ResourceKind::new(group, version, plural, plural, true)
}

fn named(api_version: &str, kind: &str, name: &str) -> Value {
    let metadata = json!({ "name": name, "namespace": "shop", "uid": name });
    json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata })
}

/// The changes up to a revision, as text.
async fn through(changes: &mut dyn Changes, revision: u64) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let batch = changes.next(Some(revision)).await.unwrap();
        lines.extend(batch.changes.iter().map(|change| match change {
            ObjectChange::Put { number, object } => {
                format!("+{number} {}@{}", object.key.name, object.revision)
            }
            ObjectChange::Deleted { number, key, revision } => format!("-{number} {}@{revision}", key.name),
        }));
        if batch.through >= revision {
            return lines;
        }
    }
}

#[tokio::test]
async fn the_followed_kinds_have_one_order_and_the_bytes_of_the_store() {
    let test = Fixture::new().await;
    let history = test.history();
    let (maps, secrets) = (kind("", "v1", "configmaps"), kind("", "v1", "secrets"));
    let map = named("v1", "ConfigMap", "one");
    let first = test.put(CONFIG_MAPS, Id::ROOT, &map).await;
    let at = history.newest().await.unwrap();
    assert_eq!(at, first);
    let listed = history.list(&maps, at).await.unwrap();
    let object = listed.iter().find(|object| object.key.name == "one").unwrap();
    assert_eq!((object.revision, &*object.uid, object.key.cluster), (first, "one", Some(Id::ROOT)));
    let entry = test.store.get(&CONFIG_MAPS.key(Id::ROOT, Some("shop"), "one")).await.unwrap().value.unwrap();
    assert!(entry.value().as_ptr_range().contains(&object.json.as_ptr()), "the object was copied");
    let mut changes = history.changes(at).await.unwrap();
    changes.follow(&maps, 0);
    changes.follow(&secrets, 1);
    let secret = named("v1", "Secret", "two");
    test.put(SECRETS, Id::ROOT, &secret).await;
    test.put(CONFIG_MAPS, Id::ROOT, &map).await;
    test.put(Collection { group: "", plural: "services" }, Id::ROOT, &named("v1", "Service", "other")).await;
    test.write(SECRETS, Id::ROOT, &secret, Change::Delete).await;
    let last = test.write(CONFIG_MAPS, Id::ROOT, &map, Change::Delete).await;
    let expected = [(1, "+1 two"), (2, "+0 one"), (4, "-1 two"), (5, "-0 one")];
    let expected = expected.map(|(after, line)| format!("{line}@{}", first + after));
    assert_eq!(through(&mut *changes, last).await, expected);
    assert_eq!(
        history.list(&secrets, first + 1).await.unwrap().len(),
        1,
        "an earlier revision can be listed"
    );
}

#[tokio::test]
async fn a_new_logical_cluster_appears_with_its_bootstrap_objects() {
    let test = Fixture::new().await;
    let history = test.history();
    let mut changes = history.changes(history.newest().await.unwrap()).await.unwrap();
    changes.follow(&kind("", "v1", "namespaces"), 0);
    records::write(&*test.store, Id::new(7), &LogicalClusterRecord::root()).await.unwrap();
    let newest = history.newest().await.unwrap();
    let names = through(&mut *changes, newest).await;
    let expected = ["default", "kube-node-lease", "kube-public", "kube-system"];
    assert_eq!(names, expected.map(|name| format!("+0 {name}@{newest}")));
}

#[tokio::test]
async fn a_controller_reads_the_kinds_of_its_role_only() {
    let test = Fixture::new().await;
    test.put(CONFIG_MAPS, Id::ROOT, &named("v1", "ConfigMap", "one")).await;
    let (maps, secrets) = (kind("", "v1", "configmaps"), kind("", "v1", "secrets"));
    // Rights in one logical cluster are no rights in all of them.
    for role in ["everywhere\n  list - configmaps,secrets\n  watch - configmaps\nroot\n  watch - secrets\n"] {
        let history = test.history_with(role);
        let at = history.newest().await.unwrap();
        assert!(history.list(&maps, at).await.is_ok());
        let refused = history.list(&secrets, at).await.unwrap_err();
        let message = "User \"one\" cannot watch resource \"secrets\" in all logical clusters";
        assert_eq!(refused, HistoryError::Forbidden(message.to_owned()));
        let mut changes = history.changes(at).await.unwrap();
        changes.follow(&maps, 0);
        changes.follow(&secrets, 1);
        test.put(SECRETS, Id::ROOT, &named("v1", "Secret", "two")).await;
        let last = test.put(CONFIG_MAPS, Id::ROOT, &named("v1", "ConfigMap", "one")).await;
        assert_eq!(through(&mut *changes, last).await, [format!("+0 one@{last}")]);
    }
}

/// The schema of a definition, and the definition of a logical cluster that serves these versions and stores the last.
fn widgets(versions: &[&str], fields: &[&str]) -> Value {
    let names =
        json!({ "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" });
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), json!({ "type": "string" }))).collect();
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": Some(name) == versions.last(),
            "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                "spec": { "type": "object", "properties": properties },
            } } },
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.shop.example", "uid": uuid::Uuid::new_v4().to_string() },
        "spec": {
            "group": "shop.example", "scope": "Namespaced", "names": names.clone(),
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
        "status": { "acceptedNames": names, "conditions": [{ "type": "Established", "status": "True" }] },
    })
}

#[tokio::test]
async fn custom_objects_have_the_followed_version_and_the_newest_schema() {
    let test = Fixture::new().await;
    let (a, b) = (Id::new(1), Id::new(2));
    for id in [a, b] {
        records::write(&*test.store, id, &LogicalClusterRecord::root()).await.unwrap();
    }
    test.put(DEFINITIONS, a, &widgets(&["v1", "v2"], &["size"])).await;
    test.put(DEFINITIONS, b, &widgets(&["v2"], &["size"])).await;
    let mut widget = named("shop.example/v2", "Widget", "one");
    widget["spec"] = json!({ "size": "S", "color": "red" });
    for id in [a, b] {
        test.put(WIDGETS, id, &widget).await;
    }
    let history = test.history();
    let read = async |version: &str| {
        let at = history.newest().await.unwrap();
        let listed = history.list(&kind("shop.example", version, "widgets"), at).await.unwrap();
        let read = |object: SharedObject| {
            let tree: Value = serde_json::from_slice(&object.json).unwrap();
            (object.key.cluster.unwrap(), tree["apiVersion"].clone(), tree["spec"].clone())
        };
        listed.into_iter().map(read).collect::<Vec<_>>()
    };
    // Fields that the schema does not have are pruned.
    assert_eq!(read("v1").await, [(a, json!("shop.example/v1"), json!({ "size": "S" }))]);
    let in_v2 = |id| (id, json!("shop.example/v2"), json!({ "size": "S" }));
    assert_eq!(read("v2").await, [in_v2(a), in_v2(b)]);
    // Neither the registry nor this history has seen an event of this change.
    test.put(DEFINITIONS, a, &widgets(&["v1", "v2"], &["size", "color"])).await;
    assert_eq!(read("v1").await, [(a, json!("shop.example/v1"), widget["spec"].clone())]);
    let mut changes = history.changes(history.newest().await.unwrap()).await.unwrap();
    changes.follow(&kind("shop.example", "v1", "widgets"), 3);
    test.put(WIDGETS, b, &widget).await;
    let last = test.put(WIDGETS, a, &widget).await;
    let lines = through(&mut *changes, last).await;
    assert_eq!(lines, [format!("-3 one@{}", last - 1), format!("+3 one@{last}")]);
}
