//! `holon dev`: the first five minutes. It grows with the product; so far it shows the store.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use storage::embedded::{Embedded, Options};
use storage::{Change, Event, Expect, Key, Page, Range, Revision, Store};

#[derive(Args)]
pub(crate) struct Dev {
    /// Where to keep the store
    #[arg(long, default_value = ".holon-dev")]
    data_dir: PathBuf,
    /// Leave the store there at the end, for `holon store …` to look at
    #[arg(long)]
    keep: bool,
}

impl Dev {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        let existed = self.data_dir.exists();
        println!(
            "Holon {} shows its store; `holon start` serves the Kubernetes API.\n",
            env!("CARGO_PKG_VERSION")
        );
        runtime.block_on(self.show())?;
        let dir = self.data_dir.display();
        if self.keep || existed {
            println!("\nThe store is in {dir}. Next, type:");
            println!("  cargo run --release -- store check --data-dir {dir}");
            println!("  cargo run --release -- store export --data-dir {dir} backup.holon");
        } else {
            std::fs::remove_dir_all(&self.data_dir).with_context(|| format!("removing {dir}"))?;
            println!("\nNothing is left behind. To keep the store and look at it, type:");
            println!("  cargo run --release -- dev --keep");
        }
        println!("To serve logical clusters to kubectl, type:");
        println!("  cargo run --release -- start");
        Ok(())
    }

    async fn show(&self) -> Result<()> {
        let begun = Instant::now();
        let store = Embedded::open(&self.data_dir, Options::default())?;
        let start = store.get(&Key::from("")).await?.revision;
        println!("opened  {} at revision {start} in {:.0?}", self.data_dir.display(), begun.elapsed());
        let mut watch = store.watch(Range::prefix("dev/"), start).await?;
        for (key, value) in [("dev/a", "one"), ("dev/b", "two"), ("dev/a", "three")] {
            let begun = Instant::now();
            let event = put(&store, key, value).await?;
            println!(
                "wrote   {key} = {value} at revision {}, durable after {:.1?}",
                event.revision,
                begun.elapsed()
            );
        }
        for event in watch.next().await?.events {
            println!("watched {}", describe(&event));
        }
        drop((watch, store));
        let begun = Instant::now();
        let store = Embedded::open(&self.data_dir, Options::default())?;
        let listed = store.list(Range::prefix("dev/"), Page::default()).await?;
        let (count, revision) = (listed.value.entries.len(), listed.revision);
        println!("opened  again in {:.0?}: {count} entries at revision {revision}", begun.elapsed());
        let mut watch = store.watch(Range::prefix("dev/"), Revision(revision.0 - 1)).await?;
        for event in watch.next().await?.events {
            println!("watched {} (from history)", describe(&event));
        }
        Ok(())
    }
}

async fn put(store: &Embedded, key: &str, value: &'static str) -> Result<Event> {
    let key = Key::from(key);
    let current = store.get(&key).await?.value;
    let expect = current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
    Ok(store.commit(key, expect, Change::Put(value.into())).await?)
}

fn describe(event: &Event) -> String {
    let shown = |entry: &Option<storage::Entry>| match entry {
        Some(entry) => String::from_utf8_lossy(entry.value()).into_owned(),
        None => "nothing".to_owned(),
    };
    format!(
        "revision {}: {:?} {} -> {}",
        event.revision,
        event.key,
        shown(&event.previous),
        shown(&event.current)
    )
}
