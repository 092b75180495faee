//! Measures authorization decisions with many logical clusters.
//!
//!     cargo bench -p apiserver --bench decisions
//!
//! A thousand logical clusters with two hundred bindings each, and beside them as many again that have only what every
//! new logical cluster has. Each decision is about another logical cluster, so nothing is in a processor's cache by
//! luck.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::cluster::Id;
use apiserver::authz::policy_index;
use apiserver::authz::policy_index::Index;
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::BootstrapOptions;
use apiserver::keys;
use apiserver::keys::Collection;
use apiserver::objects::stored;
use apiserver::rbac::{Decision, UserInfo};
use apiserver::request::attributes::{Attributes, ResourceAttributes};
use serde_json::json;
use storage::embedded::{Embedded, Options};
use storage::{Change, Expect, Store};

const CLUSTERS: u64 = 1000;
const BINDINGS: usize = 200;
const DECISIONS: u64 = 100_000;
const GROUP: &str = "rbac.authorization.k8s.io";

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path(), Options::default()).expect("a store"));
    create_policies(&store).await;
    let surroundings =
        BootstrapOptions { authority: "a certificate", address: ([127, 0, 0, 1], 6443).into() };
    let index = Index::new(store.clone(), policy_index::shared(&bootstrap::objects(&surroundings)));
    let begun = Instant::now();
    index.reach(now(&store).await).await.expect("the store answers");
    println!(
        "read {} bindings of {CLUSTERS} logical clusters in {:.0?}",
        CLUSTERS as usize * BINDINGS,
        begun.elapsed()
    );
    let groups = ["dev", "ops", "staff", "leads", "system:authenticated"].map(str::to_owned);
    for (case, name, namespace, changed) in [
        ("allowed by a binding of a namespace", "user-7", "ns-7", true),
        ("denied", "stranger", "ns-7", true),
        ("denied where nothing was changed", "stranger", "ns-7", false),
    ] {
        let user = UserInfo { name, groups: &groups };
        let attributes = Attributes::Resource(ResourceAttributes {
            verb: "list".to_owned(),
            resource: "pods".to_owned(),
            namespace: namespace.to_owned(),
            ..ResourceAttributes::default()
        });
        let (mut allowed, begun) = (0, Instant::now());
        for turn in 0..DECISIONS {
            let id = Id::new(1 + turn % CLUSTERS + if changed { 0 } else { CLUSTERS });
            // Like a request: catch up with the store, then decide.
            index.reach(now(&store).await).await.expect("the store answers");
            let Decision { allowed: yes, .. } = index.read(id, |layers| layers.decide(user, &attributes));
            allowed += usize::from(yes);
        }
        each(case, begun.elapsed(), allowed);
    }
    let (begun, mut turns) = (Instant::now(), Duration::ZERO);
    for turn in 0..1000 {
        let key = Collection { group: "", plural: "pods" }.key(Id::ROOT, Some("x"), &format!("p-{turn}"));
        store.commit(key, Expect::Absent, Change::Put("{}".into())).await.expect("a write");
        let head = now(&store).await;
        let one = Instant::now();
        index.reach(head).await.expect("the store answers");
        turns += one.elapsed();
    }
    println!(
        "catching up after each of 1000 writes of others: {:.2?} each ({:.0?} in all)",
        turns / 1000,
        begun.elapsed()
    );
}

/// Every user is bound in one namespace, and some bindings are of groups.
async fn create_policies(store: &Arc<dyn Store>) {
    let bindings = Collection { group: GROUP, plural: "rolebindings" };
    let create_cluster_policies = async |cluster| {
        for number in 0..BINDINGS {
            let (name, namespace) = (format!("binding-{number}"), format!("ns-{}", number % 20));
            let subject = match number % 5 {
                4 => json!({ "kind": "Group", "name": format!("group-{number}") }),
                _ => json!({ "kind": "User", "name": format!("user-{number}") }),
            };
            let object = json!({
                "metadata": { "name": name, "namespace": namespace },
                "roleRef": { "kind": "ClusterRole", "name": "view" }, "subjects": [subject],
            });
            let key = bindings.key(Id::new(cluster), Some(&namespace), &name);
            let change = Change::Put(stored::encode(&object));
            store.commit(key, Expect::Absent, change).await.expect("a write");
        }
    };
    futures::future::join_all((1..=CLUSTERS).map(create_cluster_policies)).await;
}

async fn now(store: &Arc<dyn Store>) -> storage::Revision {
    store.get(&keys::cluster_record(Id::ROOT)).await.expect("the store answers").revision
}

fn each(case: &str, took: Duration, allowed: usize) {
    let each = took.as_nanos() as f64 / DECISIONS as f64 / 1000.0;
    println!("{each:6.2} µs each: {case} ({allowed} of {DECISIONS} allowed)");
}
