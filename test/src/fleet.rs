//! All of Holon in one process, with physical clusters.
//!
//! ```text
//!   TestClient ─► API server ◄─ Splitter, Fleet        one Syncer each ─► stand-in, or a real server
//! ```
//!
//! These are the parts that `holon start` puts together, without sockets and without a disk: a story that takes a
//! person a minute with kubectl takes a test a second.

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
    /// The client of the root logical cluster, in which users work unless a story says otherwise.
    pub root: TestClient,
    members: BTreeMap<String, Member>,
    splitter: Option<Running>,
    watching: Option<Running>,
    _tasks: Tasks,
}

/// A physical cluster.
#[derive(Debug)]
pub struct Member {
    /// The client with which its syncer reaches it.
    client: Remote,
    pub mailbox: TestClient,
    pub mailbox_id: Id,
    pub below: TestClient,
    /// `None` for a real cluster.
    standin: Option<Standin>,
    syncer: Option<RunningSyncer>,
}

/// A syncer. It is aborted when this value is dropped, and stops in order when only `group` is dropped.
#[derive(Debug)]
struct RunningSyncer {
    task: Running,
    group: Tasks,
}

/// A task that is aborted, even in the middle of its work, when this value is dropped.
#[derive(Debug)]
struct Running(JoinHandle<()>);

impl Running {
    fn start(task: impl Future<Output = ()> + Send + 'static) -> Running {
        Running(tokio::spawn(task))
    }
}

impl Drop for Running {
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
        let complaints =
            tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN);
        let _ = complaints.with_test_writer().without_time().try_init();
        let mut tasks = Tasks::new();
        let stack = stack(&mut tasks).await?;
        let fleet = splitter::fleet::Fleet::new(ours(&stack, "fleet", &Cluster::Bare));
        let all = ours(&stack, "fleet", &Cluster::All);
        let running = Running::start(async move { match fleet.run(all, |_| {}).await {} });
        let root = TestClient(ours(&stack, "user", &Cluster::Id(Id::ROOT)));
        let mut fleet = Fleet {
            stack,
            root,
            members: BTreeMap::new(),
            splitter: None,
            watching: Some(running),
            _tasks: tasks,
        };
        fleet.split();
        Ok(fleet)
    }

    /// Starts the splitter. One that already runs is aborted first; the new one starts with empty caches.
    pub fn split(&mut self) {
        self.stop_splitting();
        let splitter = Arc::new(Splitter::new(ours(&self.stack, "splitter", &Cluster::Bare)));
        let all = ours(&self.stack, "splitter", &Cluster::All);
        self.splitter = Some(Running::start(async move {
            panic!("the splitter failed: {}", splitter.run(all).await);
        }));
    }

    pub fn stop_splitting(&mut self) {
        self.splitter = None;
    }

    /// Stops the controller that judges physical clusters by their heartbeats. A story that writes their conditions
    /// itself then need not wait until a heartbeat is overdue.
    pub fn stop_watching(&mut self) {
        self.watching = None;
    }

    /// Returns a test client of a logical cluster.
    pub fn client(&self, path: &str) -> Result<TestClient> {
        let path = path.parse().with_context(|| format!("{path} is no path"))?;
        Ok(TestClient(ours(&self.stack, "user", &Cluster::Path(path))))
    }

    /// Returns a client that reads from all logical clusters at once.
    pub fn all(&self) -> Remote {
        ours(&self.stack, "user", &Cluster::All)
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
        called: &str,
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
        home.make(PHYSICAL_CLUSTERS, object).await?;
        let path = format!("{PHYSICAL_CLUSTERS}/{name}");
        let known = home.until(&path, |found| found["status"]["mailbox"].is_string()).await?;
        let mailbox_id: Id = known["status"]["mailbox"].as_str().unwrap_or_default().parse()?;
        let mailbox = TestClient(ours(&self.stack, "user", &Cluster::Id(mailbox_id)));
        let client = Remote::new(client);
        let below = TestClient(client.clone());
        let member = Member { mailbox, mailbox_id, below, standin, syncer: None, client };
        self.members.insert(called.to_owned(), member);
        self.sync(called);
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
    pub fn sync(&mut self, name: &str) {
        let stack = self.stack.clone();
        let member = self.members.get_mut(name).expect("it has joined");
        member.syncer = None;
        let settings = Settings {
            name: name.rsplit('/').next().unwrap_or(name).to_owned(),
            mailbox: member.mailbox_id.to_string(),
            directory: None,
            encryption_key: None,
        };
        let id = member.mailbox_id;
        let above = local::client(stack, account(id), &Cluster::Id(id));
        let syncer = Syncer::new(above, member.client.client().clone(), settings);
        let group = Tasks::new();
        let stop = group.stop();
        let task = Running::start(async move {
            if let Err(error) = syncer.run(stop).await {
                panic!("a syncer failed: {error}");
            }
        });
        member.syncer = Some(RunningSyncer { task, group });
    }

    /// Stops the syncer of a physical cluster in order, as a server that shuts down does. Returns once it writes nothing
    /// any more, so that its last status does not overwrite what a test writes next.
    pub async fn stop_syncing(&mut self, name: &str) {
        let syncer = self.members.get_mut(name).expect("it has joined").syncer.take();
        let Some(RunningSyncer { mut task, group }) = syncer else { return };
        drop(group);
        (&mut task.0).await.expect("a syncer stops in order");
    }

    pub fn member(&self, name: &str) -> &Member {
        self.members.get(name).unwrap_or_else(|| panic!("{name} has not joined"))
    }

    pub fn members(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.members.iter().map(|(name, member)| (name.as_str(), member))
    }

    /// Patches a PhysicalCluster.
    pub async fn change(&self, name: &str, change: Value) -> Result<Value> {
        self.root.merge(&format!("{PHYSICAL_CLUSTERS}/{name}"), change).await
    }

    /// Creates a logical cluster below the root.
    pub async fn logical(&self, name: &str) -> Result<TestClient> {
        let object = json!({
            "apiVersion": "holon.dev/v1alpha1", "kind": "LogicalCluster", "metadata": { "name": name },
        });
        self.root.make("/apis/holon.dev/v1alpha1/logicalclusters", object).await?;
        self.client(&format!("root:{name}"))
    }

    /// Returns the name that a namespace of the root logical cluster has on shared physical clusters.
    pub fn below(namespace: &str) -> String {
        splitter::transform::physical_namespace(&Id::ROOT.to_string(), namespace)
    }
}

impl Member {
    pub fn standin(&self) -> &Standin {
        self.standin.as_ref().expect("it is a stand-in")
    }
}

/// Grants every logical cluster the use of every physical cluster, as on a server that was just installed.
fn granted() -> [BootstrapObject; 2] {
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
    objects.extend(granted());
    let index = Index::new(memory.clone(), policy_index::shared(&objects));
    let seen = BootstrapStore::open(memory.clone(), objects).await?;
    let access = Arc::new(Access::new(seen.clone(), index, Arc::new(Quotas::new(memory.clone()))));
    let accounts = Arc::new(Accounts::new(seen.clone(), format!("https://{address}")));
    let kinds = Arc::new(Registry::new(memory.clone()).with_own(Own::read(DEFINITIONS)?));
    kinds.load().await?;
    tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
    let controllers = Controllers::new(seen.clone(), memory, String::new())
        .with_kinds(kinds.clone())
        .with_accounts(accounts.clone());
    tasks.spawn("controllers", controllers.run(tasks.stop()));
    let following = access.clone();
    tasks.spawn("roles and bindings", async move {
        match following.follow().await {}
        #[allow(unreachable_code)]
        Ok::<_, std::convert::Infallible>(())
    });
    let stack = Stack::new(seen, address.to_string(), tasks.stop())
        .with_kinds(kinds)
        .with_access(access)
        .with_accounts(accounts);
    Ok(Arc::new(stack))
}

/// Returns a client with all rights, under a user name of its own.
fn ours(stack: &Arc<Stack>, name: &str, cluster: &Cluster) -> Remote {
    let groups = vec!["system:masters".to_owned()];
    let who = User { name: format!("system:holon:{name}"), groups, ..User::default() };
    Remote::new(local::client(stack.clone(), Identity::known(who), cluster))
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
