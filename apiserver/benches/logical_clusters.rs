//! Measures the memory of empty logical clusters, and how many are created per second.
//!
//! ```text
//!   cargo bench -p apiserver --bench logical_clusters [-- 10000]
//! ```
//!
//! For each, the benchmark writes what a server writes: a record, and a LogicalCluster object in the parent.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use api::cluster::Id;
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore};
use apiserver::clusters::logical_cluster;
use apiserver::clusters::records;
use apiserver::clusters::records::LogicalClusterRecord;
use apiserver::keys::Collection;
use apiserver::objects::stored;
use futures::{StreamExt, stream};
use serde_json::json;
use storage::embedded::{Embedded, Options};
use storage::{Change, Expect, Page, Range, Store};

const CLUSTERS: Collection<'static> = Collection { group: api::names::GROUP, plural: "logicalclusters" };
/// Enough at once for the store to make one batch of many.
const TOGETHER: usize = 64;

#[tokio::main]
async fn main() {
    let count: u64 = arguments().next().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    if let Some(dir) = arguments().nth(1) {
        return open(Path::new(&dir), count);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let inner = Arc::new(Embedded::open(dir.path(), Options::default()).expect("a new store opens"));
    let surroundings = BootstrapOptions {
        authority: "a certificate",
        address: "192.0.2.10:6443".parse().expect("an address"),
    };
    let objects = bootstrap::objects(&surroundings);
    let store = BootstrapStore::open(inner.clone(), objects).await.expect("the root is created");
    let innate = store.list(Range::all(), Page::default()).await.expect("listed").value.entries.len() - 1;

    let (before, begun) = (resident_bytes(), Instant::now());
    let made = stream::iter(0..count).map(|nth| create(&*store, nth)).buffer_unordered(TOGETHER);
    made.for_each(|()| async {}).await;
    let (took, after) = (begun.elapsed(), resident_bytes());
    let grown = after.saturating_sub(before);
    println!("{count} logical clusters in {took:.1?}: {:.0} a second", count as f64 / took.as_secs_f64());
    println!(
        "resident memory grew by {grown} bytes: {} each, with the store's tail of recent events",
        grown / count
    );

    let begun = Instant::now();
    let page = Page { limit: Some(0), count: true, ..Page::default() };
    let seen = store.list(Range::all(), page).await.expect("listed").value.remaining.unwrap_or_default();
    println!(
        "{seen} entries seen, {innate} of them in each logical cluster; counted in {:.1?}",
        begun.elapsed()
    );
    drop((store, inner));
    // In a new process, so that the result is the memory of a restarted server with an open store.
    let program = std::env::current_exe().expect("this program");
    let opened = Command::new(program).args([&count.to_string()]).arg(dir.path()).status();
    assert!(opened.is_ok_and(|status| status.success()));
}

fn open(dir: &Path, count: u64) {
    let (before, begun) = (resident_bytes(), Instant::now());
    let store = Embedded::open(dir, Options::default()).expect("the store opens again");
    let grown = resident_bytes().saturating_sub(before);
    println!("opened again in {:.1?}, in a new process: {} bytes each", begun.elapsed(), grown / count);
    drop(store);
}

async fn create(store: &dyn Store, nth: u64) {
    let name = format!("team-{nth}");
    let mut object = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "LogicalCluster",
        "metadata": {
            "name": name, "uid": uuid::Uuid::new_v4().to_string(), "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    });
    let id = logical_cluster::assign_id(&mut object);
    records::write(store, id, &LogicalClusterRecord::new(Id::ROOT, &name)).await.expect("written");
    let value = Change::Put(stored::encode(&object));
    store.commit(CLUSTERS.key(Id::ROOT, None, &name), Expect::Absent, value).await.expect("written");
}

/// Returns the resident memory of this process, from `/proc`.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * 4096
}

/// The arguments, without the one that cargo adds.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench")
}
