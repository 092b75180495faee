//! The client in the same process: like any client, but without a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::names::LOGICAL_CLUSTER;
use apiserver::audit::Audit;
use apiserver::authn::identity::{Identity, User};
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore};
use apiserver::local;
use apiserver::rbac::controller_role::ControllerRole;
use apiserver::request::path::Cluster;
use apiserver::stack::Stack;
use bytes::Bytes;
use controller::tasks::Tasks;
use futures::{StreamExt, TryStreamExt};
use http::Request;
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use storage::memory::Memory;
use storage::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Key, Listing, Page, Range, ReadError, Revision,
    Store, Watch,
};
use tokio::sync::Notify;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct TestServer {
    stack: Arc<Stack>,
    tasks: Tasks,
}

impl TestServer {
    async fn new() -> TestServer {
        TestServer::on(Arc::new(Memory::new()), |stack| stack).await
    }

    /// Starts a server on this store, changed by `with`.
    async fn on(store: Arc<dyn Store>, with: impl FnOnce(Stack) -> Stack) -> TestServer {
        let address = "192.0.2.10:6443".parse().unwrap();
        let objects = bootstrap::objects(&BootstrapOptions { authority: "a certificate", address });
        let store = BootstrapStore::open(store, objects).await.unwrap();
        let tasks = Tasks::new();
        TestServer { stack: Arc::new(with(Stack::new(store, String::new(), tasks.stop()))), tasks }
    }

    fn client(&self, cluster: &Cluster) -> Client {
        local::client(self.stack.clone(), identity("tester", &["system:masters"]), cluster)
    }

    /// Creates a logical cluster in the root.
    async fn find_cluster(&self, name: &str) -> Cluster {
        let kind = GroupVersionKind::gvk("holon.dev", "v1alpha1", "LogicalCluster");
        let kind = ApiResource::from_gvk(&kind);
        let all: Api<DynamicObject> = Api::all_with(self.client(&Cluster::Bare), &kind);
        all.create(&PostParams::default(), &DynamicObject::new(name, &kind)).await.unwrap();
        Cluster::Path(format!("root:{name}").parse().unwrap())
    }
}

fn identity(name: &str, groups: &[&str]) -> Identity {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    Identity::known(User { name: name.to_owned(), groups, ..User::default() })
}

fn map(name: &str, color: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "color": color } })).unwrap()
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

fn color(map: &ConfigMap) -> &str {
    &map.data.as_ref().unwrap()["color"]
}

fn code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_in_process_client_reads_and_writes_like_a_remote_one() {
    let test = TestServer::new().await;
    let maps = maps(test.client(&Cluster::Bare));
    let made = maps.create(&PostParams::default(), &map("paint", "red")).await.unwrap();
    assert_eq!(made.managed_fields()[0].manager.as_deref(), Some("tester"), "the manager is the user agent");
    assert_eq!(maps.get("paint").await.unwrap(), made);
    assert_eq!(
        maps.list(&ListParams::default().match_any()).await.unwrap().items.len(),
        2,
        "the server's certificate"
    );
    let blue = Patch::Merge(json!({ "data": { "color": "blue" } }));
    let patched = maps.patch("paint", &PatchParams::default(), &blue).await.unwrap();
    let green = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "color": "green" } });
    let apply = PatchParams::apply("painter");
    let refused = maps.patch("paint", &apply, &Patch::Apply(&green)).await.unwrap_err();
    assert_eq!((color(&patched), code(refused)), ("blue", 409));
    let forced = maps.patch("paint", &apply.force(), &Patch::Apply(&green)).await.unwrap();
    assert_eq!(color(&forced), "green");
    maps.delete("paint", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(maps.get("paint").await.unwrap_err()), 404);
}

#[tokio::test]
async fn a_client_reaches_its_logical_cluster_or_all_of_them() {
    let test = TestServer::new().await;
    let (a, b) = (test.find_cluster("a").await, test.find_cluster("b").await);
    for (cluster, name) in [(&a, "red"), (&b, "blue")] {
        maps(test.client(cluster)).create(&PostParams::default(), &map("paint", name)).await.unwrap();
    }
    let found = maps(test.client(&a)).get("paint").await.unwrap();
    assert_eq!(color(&found), "red");
    let all: Api<ConfigMap> = Api::all(test.client(&Cluster::All));
    let listed = all.list(&ListParams::default().fields("metadata.name=paint")).await.unwrap();
    let homes: Vec<_> = listed.iter().map(|map| map.annotations()[LOGICAL_CLUSTER].clone()).collect();
    assert!(homes.len() == 2 && homes[0] != homes[1], "{homes:?}");
    // By id, as a client continues after a list of all logical clusters.
    let by_id = maps(test.client(&Cluster::Id(homes[0].parse().unwrap())));
    assert_eq!(by_id.get("paint").await.unwrap().data, listed.items[0].data);
    // Or with one client for all of them.
    let bare = test.client(&Cluster::Bare);
    let path = "/clusters/root:b/api/v1/namespaces/default/configmaps/paint";
    let found: ConfigMap = bare.request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(color(&found), "blue");
    let nowhere = maps(test.client(&Cluster::Path("root:c".parse().unwrap())));
    assert_eq!(code(nowhere.get("paint").await.unwrap_err()), 404);
}

/// A controller works in all logical clusters without being an administrator in any.
#[tokio::test]
async fn a_client_with_a_controller_role_has_its_rules_in_their_scope() {
    let test = TestServer::new().await;
    let (a, b) = (test.find_cluster("a").await, test.find_cluster("b").await);
    for cluster in [&a, &b] {
        maps(test.client(cluster)).create(&PostParams::default(), &map("paint", "red")).await.unwrap();
    }
    let label = Request::patch("/apis/holon.dev/v1alpha1/logicalclusters/b")
        .header("content-type", "application/merge-patch+json")
        .body(json!({ "metadata": { "labels": { "box": "yes" } } }).to_string().into_bytes());
    let b: Value = test.client(&Cluster::Bare).request(label.unwrap()).await.unwrap();
    let b = Cluster::Id(b["status"]["id"].as_str().unwrap().parse().unwrap());
    let table = "everywhere\n  list - configmaps\nlabelled box\n  * * *\n  but rbac.authorization.k8s.io\n";
    let controller_role = Some(Arc::new(ControllerRole::read(table).unwrap()));
    let identity = Identity::known(User { name: "painter".to_owned(), controller_role, ..User::default() });
    let painter = |cluster: &Cluster| local::client(test.stack.clone(), identity.clone(), cluster);

    let all: Api<ConfigMap> = Api::all(painter(&Cluster::All));
    let paint = ListParams::default().fields("metadata.name=paint");
    assert_eq!(all.list(&paint).await.unwrap().items.len(), 2);
    assert_eq!(maps(painter(&a)).list(&paint).await.unwrap().items.len(), 1);
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::all(painter(&Cluster::All));
    assert_eq!(code(secrets.list(&ListParams::default()).await.unwrap_err()), 403);
    // It may write only in the logical cluster with the label.
    let made = PostParams::default();
    maps(painter(&b)).create(&made, &map("more", "red")).await.unwrap();
    let error = maps(painter(&a)).create(&made, &map("more", "red")).await.unwrap_err();
    let kube::Error::Api(error) = error else { panic!("{error}") };
    assert_eq!(
        error.message,
        "configmaps is forbidden: User \"painter\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    // Even there it may not write RBAC objects, impersonate users, or read endpoints of the server itself.
    let send = async |cluster: &Cluster, request: http::request::Builder, body: Value| {
        let request = request.header("content-type", "application/json").body(body.to_string().into_bytes());
        painter(cluster).request::<Value>(request.unwrap()).await.map_err(code)
    };
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = json!({
        "metadata": { "name": "mine" }, "subjects": [{ "kind": "User", "name": "painter", "apiGroup": "rbac.authorization.k8s.io" }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
    });
    for cluster in [&a, &b] {
        assert_eq!(send(cluster, Request::post(bindings), binding.clone()).await, Err(403));
    }
    assert_eq!(send(&a, Request::delete("/api/v1/namespaces/default"), json!({})).await, Err(403));
    assert_eq!(send(&Cluster::Bare, Request::get("/metrics"), Value::Null).await, Err(403));
    let as_admin = Request::get("/api/v1/secrets").header("impersonate-user", "ann");
    assert!(matches!(send(&a, as_admin, Value::Null).await, Err(403 | 404)));
    // Without the label it is like any other logical cluster.
    let bare = test.client(&Cluster::Bare);
    let off = json!({ "metadata": { "labels": { "box": null } } }).to_string().into_bytes();
    let off = Request::patch("/apis/holon.dev/v1alpha1/logicalclusters/b")
        .header("content-type", "application/merge-patch+json")
        .body(off);
    bare.request::<Value>(off.unwrap()).await.unwrap();
    assert_eq!(code(maps(painter(&b)).create(&made, &map("most", "red")).await.unwrap_err()), 403);
}

/// A client in the server's own process has only the rights of its identity.
#[tokio::test]
async fn a_client_has_only_the_rights_of_its_identity() {
    let test = TestServer::new().await;
    let as_bob = |cluster| local::client(test.stack.clone(), identity("bob", &["dev"]), cluster);
    // Without rights, the response is the same as for a logical cluster that does not exist.
    assert_eq!(code(maps(as_bob(&Cluster::Bare)).list(&ListParams::default()).await.unwrap_err()), 404);
    assert_eq!(
        code(Api::<ConfigMap>::all(as_bob(&Cluster::All)).list(&ListParams::default()).await.unwrap_err()),
        404
    );
    let anonymous = local::client(test.stack.clone(), Identity::Anonymous, &Cluster::Bare);
    assert_eq!(code(maps(anonymous).get("paint").await.unwrap_err()), 401);
    let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] });
    let access = json!({ "nonResourceURLs": ["/"], "verbs": ["access"] });
    let role = json!({ "metadata": { "name": "painter" }, "rules": [rule, access] });
    let subject = json!({ "kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io" });
    let reference =
        json!({ "kind": "ClusterRole", "name": "painter", "apiGroup": "rbac.authorization.k8s.io" });
    let binding = json!({ "metadata": { "name": "bob" }, "subjects": [subject], "roleRef": reference });
    for (kind, object) in [("ClusterRole", role), ("ClusterRoleBinding", binding)] {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(test.client(&Cluster::Bare), &kind);
        let object = DynamicObject { types: None, ..serde_json::from_value(object).unwrap() };
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    assert!(maps(as_bob(&Cluster::Bare)).list(&ListParams::default()).await.is_ok());
    let refused = maps(as_bob(&Cluster::Bare)).get("paint").await.unwrap_err();
    assert!(refused.to_string().contains("User \"bob\" cannot get resource"), "{refused}");
    assert_eq!(code(refused), 403);
}

/// Returns how many watches are open, from the server's metrics.
async fn open_watches(client: &Client) -> Option<String> {
    let figures = client.request_text(Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap();
    let line = figures.lines().find(|line| line.starts_with("apiserver_longrunning_requests{"));
    line.and_then(|line| Some(line.rsplit_once(' ')?.1.to_owned()))
}

#[tokio::test]
async fn a_watch_streams_until_it_is_dropped() {
    let test = TestServer::new().await;
    let client = test.client(&Cluster::Bare);
    let maps = maps(client.clone());
    let begun = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = Box::pin(maps.watch(&WatchParams::default(), &begun).await.unwrap());
    assert_eq!(open_watches(&client).await.as_deref(), Some("1"));
    for expected in ["red", "blue"] {
        maps.create(&PostParams::default(), &map(expected, expected)).await.unwrap();
        let event = tokio::time::timeout(PATIENCE, events.try_next()).await.expect("an event").unwrap();
        assert!(matches!(&event, Some(WatchEvent::Added(map)) if color(map) == expected), "{event:?}");
    }
    drop(events);
    assert_eq!(open_watches(&client).await.as_deref(), Some("0"));
}

/// A server that stops does not wait for watches.
#[tokio::test]
async fn a_watch_ends_with_the_server() {
    let test = TestServer::new().await;
    let maps = maps(test.client(&Cluster::Bare));
    let events = maps.watch(&WatchParams::default(), "0").await.unwrap();
    let stopped = test.tasks.run_until(std::future::ready(()), PATIENCE);
    let (stopped_result, rest) =
        tokio::join!(stopped, tokio::time::timeout(PATIENCE, events.collect::<Vec<_>>()));
    stopped_result.unwrap();
    assert!(rest.expect("the watch continues").iter().all(Result::is_ok));
}

#[tokio::test]
async fn in_process_clients_get_the_errors_of_the_server() {
    let test = TestServer::new().await;
    let maps = maps(test.client(&Cluster::Bare));
    maps.create(&PostParams::default(), &map("paint", "red")).await.unwrap();
    let repeated = maps.create(&PostParams::default(), &map("paint", "red")).await.unwrap_err();
    assert!(repeated.to_string().contains("configmaps \"paint\" already exists"), "{repeated}");
    let odd: Result<Value, _> =
        test.client(&Cluster::All).request(Request::get("/nowhere").body(Vec::new()).unwrap()).await;
    assert_eq!(code(odd.unwrap_err()), 404);
}

/// A store whose commits or reads wait while it is blocked.
#[derive(Debug, Default)]
struct BlockingStore {
    inner: Memory,
    is_blocked: AtomicBool,
    reads_are_blocked: AtomicBool,
    /// A commit or a read waits.
    waits: Notify,
    released: Notify,
}

impl Store for BlockingStore {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        Box::pin(async move {
            // The namespace is read in the write itself, after the request was authorized.
            if self.reads_are_blocked.load(Ordering::Relaxed) && format!("{key:?}").contains("/namespaces/") {
                self.waits.notify_one();
                self.released.notified().await;
            }
            self.inner.get(key).await
        })
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        self.inner.list(range, page)
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(async move {
            if self.is_blocked.load(Ordering::Relaxed) {
                self.waits.notify_one();
                self.released.notified().await;
            }
            self.inner.commit(key, expect, change).await
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        self.inner.watch(range, after)
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        self.inner.compact(through)
    }
}

/// A client that left while the store committed its write, or gave it a short timeout, made a write without a line in
/// the audit log, that its quota did not count while it was in progress, and that was not checked against a namespace
/// which was deleted at the same time.
#[tokio::test]
async fn a_write_whose_client_disconnects_is_finished_and_audited() {
    let dir = tempfile::tempdir().unwrap();
    let (file, store) = (dir.path().join("audit.log"), Arc::new(BlockingStore::default()));
    let audit = Audit::open(&file).unwrap();
    let server = TestServer::on(store.clone(), |stack| stack.with_audit(audit)).await;
    let maps = maps(server.client(&Cluster::Bare));
    store.is_blocked.store(true, Ordering::Relaxed);

    let (theirs, made) = (maps.clone(), map("left", "red"));
    let client = tokio::spawn(async move { theirs.create(&PostParams::default(), &made).await });
    store.waits.notified().await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    let log = || std::fs::read_to_string(&file).unwrap();
    eventually("the request is in the audit log", async || log().contains("\"code\":499")).await;
    store.released.notify_one();
    eventually("the object is stored", async || maps.get("left").await.is_ok()).await;
    eventually("the result is in the audit log", async || log().contains("\"code\":201")).await;

    let body = json!({ "metadata": { "name": "left" }, "data": { "color": "blue" } }).to_string();
    let late_request = Request::put("/api/v1/namespaces/default/configmaps/left?timeout=50ms")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)));
    let response = server.stack.respond(identity("tester", &["system:masters"]), late_request.unwrap()).await;
    assert_eq!(response.status(), 504);
    store.waits.notified().await;
    eventually("the request is in the audit log", async || log().contains("\"code\":504")).await;
    store.released.notify_one();
    eventually("the object is stored", async || color(&maps.get("left").await.unwrap()) == "blue").await;

    // A write of which the store has nothing ends with its client: controllers that have lost a lease rely on that.
    let (theirs, made) = (maps.clone(), map("late", "red"));
    store.reads_are_blocked.store(true, Ordering::Relaxed);
    let client = tokio::spawn(async move { theirs.create(&PostParams::default(), &made).await });
    store.waits.notified().await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    store.reads_are_blocked.store(false, Ordering::Relaxed);
    store.is_blocked.store(false, Ordering::Relaxed);
    store.released.notify_one();
    eventually("the end of the request is in the audit log", async || log().contains("\"code\":503")).await;
    assert_eq!(code(maps.get("late").await.unwrap_err()), 404);
}

async fn eventually(condition: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "never: {condition}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
