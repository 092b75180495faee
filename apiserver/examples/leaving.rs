//! How long it takes to delete a lot, and whether the memory comes back.
//!
//! ```text
//!   cargo run --release -p apiserver --example leaving [-- 100000 10000]
//! ```
//!
//! One logical cluster with many objects, then many namespaces with an object each, made and deleted through the API
//! (without sockets) while the controllers run. Prints how far it is every second, and of the memory that is resident
//! what there was before anything was made, at most, and a few seconds after all is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::cluster::Id;
use apiserver::births::{self, Birth};
use apiserver::controllers::Controllers;
use apiserver::identity::{Identity, User};
use apiserver::newborn::{self, Newborn, Surroundings, Template};
use apiserver::stack::Stack;
use bytes::Bytes;
use controller::tasks::Tasks;
use futures::{StreamExt, stream};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use storage::embedded::{Embedded, Options};
use storage::{Page, Range, Store};
use tikv_jemallocator::Jemalloc;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Requests under way at once: enough for the store to make one batch of many.
const TOGETHER: usize = 64;
/// Until the store has noticed that nobody writes any more, and written what it held back.
const SETTLES: Duration = Duration::from_secs(5);
const CLUSTERS: &str = "/apis/holon.dev/v1alpha1/logicalclusters";

#[tokio::main]
async fn main() {
    let number =
        |nth, otherwise| std::env::args().nth(nth).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (objects, namespaces): (usize, usize) = (number(1, 100_000), number(2, 10_000));
    let dir = tempfile::tempdir().expect("a directory");
    let kept: Arc<dyn Store> =
        Arc::new(Embedded::open(dir.path(), Options::default()).expect("a new store opens"));
    let surroundings =
        Surroundings { authority: "a certificate", address: "192.0.2.10:6443".parse().expect("an address") };
    let template = Template::new(newborn::objects(&surroundings));
    let seen: Arc<dyn Store> = Arc::new(Newborn::new(kept.clone(), template));
    births::write(&*seen, Id::ROOT, &Birth::root()).await.expect("written");
    let mut tasks = Tasks::new();
    let controllers = Controllers::new(seen.clone(), kept.clone(), "a certificate".to_owned());
    tasks.spawn("controllers", controllers.run(tasks.stop()));
    let api = Api { stack: Stack::new(seen, String::new(), tasks.stop()), kept };

    api.say_memory("before").await;
    // Twice: what the first left behind would be seen in the second.
    for _ in 0..2 {
        api.ask("POST", CLUSTERS, json!({ "metadata": { "name": "big" } })).await;
        let maps = "/clusters/root:big/api/v1/namespaces/default/configmaps";
        api.make(objects, "objects", async |nth| {
            let body =
                json!({ "metadata": { "name": format!("map-{nth}") }, "data": { "x": "y".repeat(500) } });
            api.ask("POST", maps, body).await;
        })
        .await;
        let begun = Instant::now();
        api.ask("DELETE", &format!("{CLUSTERS}/big"), Value::Null).await;
        api.until_gone(begun, &format!("{CLUSTERS}/big")).await;
    }

    api.make(namespaces, "namespaces", async |nth| {
        api.ask("POST", "/api/v1/namespaces", json!({ "metadata": { "name": format!("space-{nth}") } }))
            .await;
        let maps = format!("/api/v1/namespaces/space-{nth}/configmaps");
        api.ask("POST", &maps, json!({ "metadata": { "name": "map" } })).await;
    })
    .await;
    let begun = Instant::now();
    let deleting = stream::iter(0..namespaces).map(|nth| {
        let path = format!("/api/v1/namespaces/space-{nth}");
        let api = &api;
        async move { api.ask("DELETE", &path, Value::Null).await }
    });
    deleting.buffer_unordered(TOGETHER).for_each(|_| async {}).await;
    println!("  all marked after {:.1?}", begun.elapsed());
    let left = || api.ask("GET", "/api/v1/namespaces?limit=1", Value::Null);
    loop {
        let more = left().await["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        // Four are there from the beginning; one of them is on the page.
        match more.saturating_sub(3) {
            0 => break println!("{namespaces} namespaces gone after {:.1?}", begun.elapsed()),
            left => println!("  {left} namespaces left after {:.1?}", begun.elapsed()),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    api.say_memory("in the end").await;
    tokio::time::sleep(SETTLES).await;
    api.say_memory("a few seconds later").await;
    println!("at most: {} MB resident", resident("VmHWM:") >> 20);
}

struct Api {
    stack: Stack,
    kept: Arc<dyn Store>,
}

impl Api {
    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).body(Full::new(body)).expect("a request");
        let groups = vec!["system:masters".to_owned()];
        let user = Identity::known(User { name: "admin".to_owned(), groups, ..User::default() });
        let answer = self.stack.respond(user, request).await.into_body().collect().await.expect("an answer");
        serde_json::from_slice(&answer.to_bytes()).unwrap_or_default()
    }

    async fn make(&self, count: usize, what: &str, one: impl AsyncFn(usize)) {
        let begun = Instant::now();
        stream::iter(0..count).map(|nth| one(nth)).buffer_unordered(TOGETHER).for_each(|()| async {}).await;
        let took = begun.elapsed();
        println!("{count} {what} made in {took:.1?}: {:.0} a second", count as f64 / took.as_secs_f64());
        self.say_memory("now").await;
    }

    async fn until_gone(&self, begun: Instant, path: &str) {
        loop {
            let found = self.ask("GET", path, Value::Null).await;
            match found["kind"].as_str() {
                Some("LogicalCluster") => {
                    let told = found["status"]["conditions"][0]["message"].as_str().unwrap_or("marked");
                    println!("  {told} after {:.1?}", begun.elapsed());
                }
                _ => break println!("gone after {:.1?}", begun.elapsed()),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.say_memory("after it").await;
        tokio::time::sleep(SETTLES).await;
        self.say_memory("a few seconds later").await;
    }

    /// Resident memory, without the history of what was just deleted.
    async fn say_memory(&self, when: &str) {
        self.kept.compact(storage::Revision(u64::MAX)).await.expect("compacted");
        let page = Page { limit: Some(0), count: true, ..Page::default() };
        let entries = self.kept.list(Range::all(), page).await.expect("listed").value.remaining.unwrap_or(0);
        println!("  {when}: {} MB resident, {entries} entries", resident("VmRSS:") >> 20);
    }
}

/// In bytes, by the kernel's name for it.
fn resident(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
