//! All of Holon in one process, with physical clusters.
//!
//! ```text
//!   TestClient ─► API server ◄─ Splitter, Fleet        one Syncer each ─► stand-in, or a real server
//! ```
//!
//! These are the components that `holon start` runs, without sockets and without a disk: a scenario that takes a person
//! a minute with kubectl takes a test a second.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::cluster::Id;
use api::fleet::DEFINITIONS;
use api::names::SYNCER_ACCOUNT;
use apiserver::authn::identity::{Identity, User};
use apiserver::authn::service_accounts::Accounts;
use apiserver::authz::access::Access;
use apiserver::authz::policy_index;
use apiserver::authz::policy_index::Index;
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapObject, BootstrapOptions, BootstrapStore};
use apiserver::controllers::Controllers;
use apiserver::history::history;
use apiserver::keys::Collection;
use apiserver::kinds::{Own, Registry};
use apiserver::local;
use apiserver::quota::Quotas;
use apiserver::request::path::Cluster;
use apiserver::stack::Stack;
use controller::remote::Remote;
use controller::tasks::Tasks;
use kube::Client;
use serde_json::{Value, json};
use splitter::Splitter;
use standin::{Options, Standin};
use storage::Store;
use storage::memory::Memory;
use syncer::{Settings, Syncer};
use tokio::task::JoinHandle;

use crate::client::{TestClient, condition};

/// The collection in which physical clusters are registered.
pub const PHYSICAL_CLUSTERS: &str = "/apis/holon.dev/v1alpha1/physicalclusters";

/// Holon, and the physical clusters that have joined it. Everything ends when it is dropped.
#[derive(Debug)]
pub struct Fleet {
    stack: Arc<Stack>,
    /// The client of the root logical cluster, in which users work unless a test uses another one.
    pub root: TestClient,
    members: BTreeMap<String, FleetMember>,
    splitter: Option<AbortOnDrop>,
    fleet_controller: Option<AbortOnDrop>,
    _tasks: Tasks,
}

/// A physical cluster.
#[derive(Debug)]
pub struct FleetMember {
    /// The client that its syncer uses downstream.
    client: Remote,
    /// A client of its mailbox.
    pub mailbox: TestClient,
    pub mailbox_id: Id,
    /// A client of the physical cluster itself.
    pub downstream: TestClient,
    /// `None` for a real cluster.
    standin: Option<Standin>,
    syncer: Option<RunningSyncer>,
}

/// A syncer. It is aborted when this value is dropped, and stops gracefully when only `group` is dropped.
#[derive(Debug)]
struct RunningSyncer {
    task: AbortOnDrop,
    group: Tasks,
}

/// A task that is aborted, even in the middle of its work, when this value is dropped.
#[derive(Debug)]
pub struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        AbortOnDrop(tokio::spawn(task))
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Fleet {
    /// Returns a fleet with stand-ins of these names, without delays.
    pub async fn of(names: &[&str]) -> Result<Fleet> {
        let mut fleet = Fleet::alone().await?;
        for name in names {
            fleet.join(Options::new(*name), &[]).await?;
        }
        Ok(fleet)
    }

    /// Returns a fleet without any physical cluster.
    pub async fn alone() -> Result<Fleet> {
        // A failing test prints the warnings. Several tests of one process share the subscriber.
        let subscriber =
            tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN);
        let _ = subscriber.with_test_writer().without_time().try_init();
        let mut tasks = Tasks::new();
        let stack = stack(&mut tasks).await?;
        let server = admin_client(&stack, "fleet", &Cluster::Bare);
        let fleet = splitter::fleet::Fleet::new(server, history(&stack, admin("fleet")));
        let running = AbortOnDrop::spawn(async move { match fleet.run(|_| {}).await {} });
        let root = TestClient(admin_client(&stack, "user", &Cluster::Id(Id::ROOT)));
        let mut fleet = Fleet {
            stack,
            root,
            members: BTreeMap::new(),
            splitter: None,
            fleet_controller: Some(running),
            _tasks: tasks,
        };
        fleet.start_splitter();
        Ok(fleet)
    }

    /// Starts the splitter. One that already runs is aborted first; the new one starts with empty caches.
    pub fn start_splitter(&mut self) {
        self.stop_splitter();
        let server = admin_client(&self.stack, "splitter", &Cluster::Bare);
        let splitter = Arc::new(Splitter::new(server, history(&self.stack, admin("splitter"))));
        self.splitter = Some(AbortOnDrop::spawn(async move {
            panic!("the splitter failed: {}", splitter.run().await);
        }));
    }

    pub fn stop_splitter(&mut self) {
        self.splitter = None;
    }

    /// Stops the controller that sets the Ready condition of physical clusters from their heartbeats. A test that
    /// writes these conditions itself then does not wait until a heartbeat is overdue.
    pub fn stop_fleet_controller(&mut self) {
        self.fleet_controller = None;
    }

    /// Returns a test client of a logical cluster.
    pub fn client(&self, path: &str) -> Result<TestClient> {
        let path = path.parse().with_context(|| format!("invalid logical cluster path {path:?}"))?;
        Ok(TestClient(admin_client(&self.stack, "user", &Cluster::Path(path))))
    }

    /// Returns a client that reads from all logical clusters at once.
    pub fn all(&self) -> Remote {
        admin_client(&self.stack, "user", &Cluster::All)
    }

    /// Starts a stand-in and joins it. Returns when it is reported ready.
    pub async fn join(&mut self, options: Options, labels: &[(&str, &str)]) -> Result<()> {
        let name = options.name.clone();
        self.join_standin(&name, Standin::start(options).await?, labels).await
    }

    /// Joins a stand-in that the caller has prepared.
    pub async fn join_standin(
        &mut self,
        name: &str,
        standin: Standin,
        labels: &[(&str, &str)],
    ) -> Result<()> {
        let client = standin.client();
        self.join_server(name, client, labels, Some(standin)).await
    }

    /// Joins a server that already runs.
    pub async fn join_server(
        &mut self,
        name: &str,
        client: Client,
        labels: &[(&str, &str)],
        standin: Option<Standin>,
    ) -> Result<()> {
        self.join_in(self.root.clone(), name, name, client, labels, standin).await
    }

    /// Starts a stand-in and joins it to the logical cluster at `path`. Its name in this fleet is `path/name`.
    pub async fn join_within(&mut self, path: &str, options: Options) -> Result<()> {
        let (home, name) = (self.client(path)?, options.name.clone());
        let standin = Standin::start(options).await?;
        let client = standin.client();
        self.join_in(home, &format!("{path}/{name}"), &name, client, &[], Some(standin)).await
    }

    async fn join_in(
        &mut self,
        home: TestClient,
        key: &str,
        name: &str,
        client: Client,
        labels: &[(&str, &str)],
        standin: Option<Standin>,
    ) -> Result<()> {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let object = json!({
            "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster",
            "metadata": { "name": name, "labels": labels }, "spec": { "connection": { "pull": {} } },
        });
        home.create(PHYSICAL_CLUSTERS, object).await?;
        let path = format!("{PHYSICAL_CLUSTERS}/{name}");
        let registered = home.until(&path, |found| found["status"]["mailbox"].is_string()).await?;
        let mailbox_id: Id = registered["status"]["mailbox"].as_str().unwrap_or_default().parse()?;
        let mailbox = TestClient(admin_client(&self.stack, "user", &Cluster::Id(mailbox_id)));
        let client = Remote::new(client);
        let downstream = TestClient(client.clone());
        let member = FleetMember { mailbox, mailbox_id, downstream, standin, syncer: None, client };
        self.members.insert(key.to_owned(), member);
        self.start_syncer(key);
        home.until(&path, |found| condition(found, "Ready")["status"] != "Unknown").await?;
        Ok(())
    }

    /// Joins a logical cluster of this server, as a physical cluster, to another one. Its name in this fleet is
    /// `path/name`.
    pub async fn join_logical(&mut self, path: &str, name: &str, logical: &str) -> Result<()> {
        let (home, client) = (self.client(path)?, self.client(logical)?.0.client().clone());
        self.join_in(home, &format!("{path}/{name}"), name, client, &[], None).await
    }

    /// Starts the syncer of a physical cluster. One that already runs is aborted first.
    pub fn start_syncer(&mut self, name: &str) {
        let stack = self.stack.clone();
        let member = self.members.get_mut(name).expect("the physical cluster has joined");
        member.syncer = None;
        let settings = Settings {
            name: name.rsplit('/').next().unwrap_or(name).to_owned(),
            mailbox: member.mailbox_id.to_string(),
            directory: None,
            encryption_key: None,
        };
        let id = member.mailbox_id;
        let mailbox = local::client(stack, account(id), &Cluster::Id(id));
        let syncer = Syncer::new(mailbox, member.client.client().clone(), settings);
        let group = Tasks::new();
        let stop = group.stop();
        let task = AbortOnDrop::spawn(async move {
            if let Err(error) = syncer.run(stop).await {
                panic!("the syncer failed: {error}");
            }
        });
        member.syncer = Some(RunningSyncer { task, group });
    }

    /// Stops the syncer of a physical cluster gracefully, as a server that shuts down does. Returns after its last
    /// write, so that its last status does not overwrite what a test writes next.
    pub async fn stop_syncer(&mut self, name: &str) {
        let syncer = self.members.get_mut(name).expect("the physical cluster has joined").syncer.take();
        let Some(RunningSyncer { mut task, group }) = syncer else { return };
        drop(group);
        (&mut task.0).await.expect("the syncer stops gracefully");
    }

    /// Aborts the syncer of a physical cluster in the middle of its work, as a crash does. Its lease is not released.
    pub fn kill_syncer(&mut self, name: &str) {
        self.members.get_mut(name).expect("the physical cluster has joined").syncer = None;
    }

    pub fn member(&self, name: &str) -> &FleetMember {
        self.members.get(name).unwrap_or_else(|| panic!("{name} has not joined"))
    }

    pub fn members(&self) -> impl Iterator<Item = (&str, &FleetMember)> {
        self.members.iter().map(|(name, member)| (name.as_str(), member))
    }

    /// Patches a PhysicalCluster.
    pub async fn change(&self, name: &str, change: Value) -> Result<Value> {
        self.root.merge(&format!("{PHYSICAL_CLUSTERS}/{name}"), change).await
    }

    /// Creates a child of the root logical cluster.
    pub async fn logical(&self, name: &str) -> Result<TestClient> {
        let object = json!({
            "apiVersion": "holon.dev/v1alpha1", "kind": "LogicalCluster", "metadata": { "name": name },
        });
        self.root.create("/apis/holon.dev/v1alpha1/logicalclusters", object).await?;
        self.client(&format!("root:{name}"))
    }

    /// Returns the name that a namespace of the root logical cluster has on shared physical clusters.
    pub fn downstream_namespace(namespace: &str) -> String {
        splitter::transform::physical_namespace(&Id::ROOT.to_string(), namespace)
    }
}

impl FleetMember {
    pub fn standin(&self) -> &Standin {
        self.standin.as_ref().expect("the member is a stand-in")
    }
}

/// Grants every logical cluster the use of every physical cluster, as on a server that was just installed.
fn default_grants() -> [BootstrapObject; 2] {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let object = |plural, value| BootstrapObject { collection: Collection { group: RBAC, plural }, value };
    let metadata = json!({ "name": "holon:use-physical-clusters" });
    let rule = json!({ "verbs": ["use"], "apiGroups": ["holon.dev"], "resources": ["physicalclusters"] });
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": [rule],
    });
    let all = json!({ "apiGroup": RBAC, "kind": "Group", "name": "system:holon:logicalclusters" });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": metadata["name"] }, "subjects": [all],
    });
    [object("clusterroles", role), object("clusterrolebindings", binding)]
}

/// Builds the server: logical clusters with roles, controllers and Holon's own kinds.
async fn stack(tasks: &mut Tasks) -> Result<Arc<Stack>> {
    let (memory, address): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), ([127, 0, 0, 1], 6443).into());
    let mut objects = bootstrap::objects(&BootstrapOptions { authority: "an authority", address });
    objects.extend(default_grants());
    let index = Index::new(memory.clone(), policy_index::shared(&objects));
    let bootstrap_store = BootstrapStore::open(memory.clone(), objects).await?;
    let access = Arc::new(Access::new(bootstrap_store.clone(), index, Arc::new(Quotas::new(memory.clone()))));
    let accounts = Arc::new(Accounts::new(bootstrap_store.clone(), format!("https://{address}")));
    let kinds = Arc::new(Registry::new(memory.clone()).with_own(Own::read(DEFINITIONS)?));
    kinds.load().await?;
    tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
    let controllers = Controllers::new(bootstrap_store.clone(), memory, String::new())
        .with_kinds(kinds.clone())
        .with_accounts(accounts.clone());
    tasks.spawn("controllers", controllers.run(tasks.stop()));
    let access_index = access.clone();
    tasks.spawn("roles and bindings", async move {
        match access_index.follow().await {}
        #[allow(unreachable_code)]
        Ok::<_, std::convert::Infallible>(())
    });
    let stack = Stack::new(bootstrap_store, address.to_string(), tasks.stop())
        .with_kinds(kinds)
        .with_access(access)
        .with_accounts(accounts);
    Ok(Arc::new(stack))
}

/// Returns a client with all rights, under a user name of its own.
fn admin(name: &str) -> Identity {
    let groups = vec!["system:masters".to_owned()];
    Identity::known(User { name: format!("system:holon:{name}"), groups, ..User::default() })
}

fn admin_client(stack: &Arc<Stack>, name: &str, cluster: &Cluster) -> Remote {
    Remote::new(local::client(stack.clone(), admin(name), cluster))
}

/// Returns the identity of a syncer: its service account in its mailbox.
fn account(mailbox: Id) -> Identity {
    Identity::known(User {
        name: format!("system:serviceaccount:kube-system:{SYNCER_ACCOUNT}"),
        groups: vec!["system:serviceaccounts".to_owned(), "system:serviceaccounts:kube-system".to_owned()],
        home: Some(mailbox),
        ..User::default()
    })
}
