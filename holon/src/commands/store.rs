//! `holon store`: checks, repairs, exports and imports a store on disk, while its server is stopped.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use storage::backup::BackupError;
use storage::embedded::{self, Embedded, OpenError, Options};
use storage::{Key, Page, Range, backup};

use crate::data_dir;

/// A file that every store has.
const FORMAT: &str = "FORMAT";

#[derive(Subcommand)]
pub(crate) enum Store {
    /// Read all entries and verify that no acknowledged write is missing
    Check(StoreLocation),
    /// Keep the readable entries of a damaged store; the damaged files stay beside it
    Recover {
        #[command(flatten)]
        location: StoreLocation,
        /// Accept that unreadable entries are lost, and that older or deleted ones may come back
        #[arg(long)]
        accept_loss: bool,
    },
    /// Export all entries at one revision to a file. Certificates are not included: copy DATA_DIR/pki too
    Export {
        #[command(flatten)]
        location: StoreLocation,
        file: PathBuf,
    },
    /// Create a store from an exported file, in a data directory without one
    Import {
        #[command(flatten)]
        location: StoreLocation,
        file: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct StoreLocation {
    /// The data directory of the server
    #[arg(long, default_value = ".holon")]
    data_dir: PathBuf,
}

impl Store {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Store::Check(location) => check(&location.data_dir),
            Store::Recover { location, accept_loss } => recover(&location.data_dir, accept_loss),
            Store::Export { location, file } => export(&location.data_dir, &file),
            Store::Import { location, file } => import(&location.data_dir, &file),
        }
    }
}

/// Returns the store of a data directory, which must exist.
fn find(data_dir: &Path) -> Result<PathBuf> {
    let store = data_dir::store(data_dir::existing(data_dir)?);
    if store.join(FORMAT).exists() {
        return Ok(store);
    }
    if data_dir.join(FORMAT).exists() {
        bail!(
            "{dir} is a store, not a data directory; --data-dir takes the directory above it",
            dir = data_dir.display()
        );
    }
    bail!("no store in {}; its server was never started, or keeps its store in etcd", data_dir.display());
}

fn open(store: &Path) -> Result<Embedded, OpenError> {
    let progress = Arc::new(|progress| eprintln!("reading: {progress}"));
    Embedded::open(store, Options { progress, ..Options::default() })
}

/// Opens the store of a data directory.
fn open_in(data_dir: &Path) -> Result<Embedded> {
    open(&find(data_dir)?).map_err(|error| data_dir::explain(data_dir, error))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("cannot start the runtime")
}

fn check(dir: &Path) -> Result<()> {
    let started = Instant::now();
    let store = open_in(dir)?;
    runtime()?.block_on(async {
        use storage::Store as _;
        let page = Page { limit: Some(0), count: true, ..Page::default() };
        let counted = store.list(Range::all(), page).await?;
        let entries = counted.value.remaining.unwrap_or_default();
        let head = store.get(&Key::from("")).await?.revision;
        println!(
            "{}: {entries} entries at revision {head}, complete ({:.1?})",
            dir.display(),
            started.elapsed()
        );
        Ok(())
    })
}

fn recover(dir: &Path, accept_loss: bool) -> Result<()> {
    let store = find(dir)?;
    match open(&store) {
        Ok(_) => {
            println!("{} is not damaged; nothing to recover", dir.display());
            return Ok(());
        }
        // Recovery is for damage only, not for a store that is in use or temporarily unreadable.
        Err(error @ OpenError::Damaged { .. }) if accept_loss => {
            eprintln!("{}\nrecovering the readable entries", data_dir::explain(dir, error));
        }
        Err(error) => return Err(data_dir::explain(dir, error)),
    }
    let recovery = embedded::recover(&store)?;
    println!("kept {} entries; the store continues after revision {}", recovery.entries, recovery.revision);
    match recovery.lost.as_slice() {
        [] => println!("no revision after the last compaction is missing"),
        lost => {
            let gaps: Vec<_> =
                lost.iter().take(10).map(|gap| format!("{}-{}", gap.start(), gap.end())).collect();
            let more = if lost.len() > 10 { format!(" and {} more", lost.len() - 10) } else { String::new() };
            println!("lost revisions: {}{more}", gaps.join(", "));
        }
    }
    println!(
        "the damaged files are in {}; remove them when you no longer need them",
        recovery.damaged.display()
    );
    Ok(())
}

fn export(dir: &Path, path: &Path) -> Result<()> {
    let store = open_in(dir)?;
    // Written under another name and renamed, so that the file is a complete export or absent.
    let temporary = path.with_extension("partial");
    // Readable by its owner only: an export has every Secret of the store.
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
    let file = file.with_context(|| format!("cannot create {}", temporary.display()))?;
    let mut out = BufWriter::new(file);
    let summary = runtime()?.block_on(backup::export(&store, &mut out))?;
    out.flush()?;
    out.get_ref().sync_all()?;
    std::fs::rename(&temporary, path).with_context(|| format!("cannot rename to {}", path.display()))?;
    println!("exported {} entries at revision {} to {}", summary.entries, summary.revision, path.display());
    Ok(())
}

fn import(dir: &Path, path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    if dir.join(FORMAT).exists() {
        bail!("{} is a store, not a data directory; name another --data-dir", dir.display());
    }
    let summary =
        backup::import(&data_dir::store(dir), &mut BufReader::new(file)).map_err(|error| match error {
            BackupError::Open(OpenError::NotEmpty { dir: store }) => anyhow!(
                "{} already holds a store; name another --data-dir, or move {} away first",
                dir.display(),
                store.display()
            ),
            other => other.into(),
        })?;
    let (revision, dir_name) = (summary.revision, dir.display());
    println!("restored {} entries at revision {revision} into {dir_name}. Next, type:", summary.entries);
    println!("  holon start --data-dir {dir_name}");
    if !data_dir::pki(dir).exists() {
        println!(
            "The server will create a new certificate authority. To keep existing kubeconfigs valid, copy the old server's pki to {dir_name}/pki first."
        );
    }
    Ok(())
}
