//! Writes, reads and watches a store on disk: `cargo run -p storage --example store`.

use storage::embedded::{Embedded, Options};
use storage::{Change, Expect, Key, Page, Range, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let store = Embedded::open(directory.path(), Options::default())?;
    let (pods, web) = (Range::prefix("pods/"), Key::from("pods/web"));

    // A write names what it expects. So two writers never overwrite each other unawares.
    let created = store.commit(web.clone(), Expect::Absent, Change::Put("nginx:1".into())).await?;
    let mut watch = store.watch(pods.clone(), created.revision).await?;
    store.commit(web.clone(), Expect::Revision(created.revision), Change::Put("nginx:2".into())).await?;
    let outdated = store.commit(web, Expect::Revision(created.revision), Change::Delete).await;
    println!("a write that expects an old revision: {}", outdated.expect_err("a conflict"));

    for event in watch.next().await?.events {
        let text = |entry: Option<storage::Entry>| {
            entry.map(|entry| String::from_utf8_lossy(entry.value()).into_owned())
        };
        println!("at {}: {:?} instead of {:?}", event.revision, text(event.current), text(event.previous));
    }
    let listed = store.list(pods, Page::default()).await?;
    println!("{} entries at revision {}", listed.value.entries.len(), listed.revision);
    Ok(())
}
