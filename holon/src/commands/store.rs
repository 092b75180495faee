//! `holon store`: a store on disk, while no server has it open.

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

/// The file every store has.
const FORMAT: &str = "FORMAT";

#[derive(Subcommand)]
pub(crate) enum Store {
    /// Read everything and prove that nothing acknowledged is missing
    Check(Place),
    /// Keep what is readable of a damaged store; the damaged files stay beside it
    Recover {
        #[command(flatten)]
        place: Place,
        /// Yes, what cannot be read is lost, and something older or deleted may come back
        #[arg(long)]
        accept_loss: bool,
    },
    /// Write every object, as it is at one revision, into a file. Certificates are not in it: copy DATA_DIR/pki as well
    Export {
        #[command(flatten)]
        place: Place,
        file: PathBuf,
    },
    /// Make a new store from an exported file, in a data directory that has none
    Import {
        #[command(flatten)]
        place: Place,
        file: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct Place {
    /// The data directory of the server, as `holon start` takes it
    #[arg(long, default_value = ".holon")]
    data_dir: PathBuf,
}

impl Store {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Store::Check(place) => check(&place.data_dir),
            Store::Recover { place, accept_loss } => recover(&place.data_dir, accept_loss),
            Store::Export { place, file } => export(&place.data_dir, &file),
            Store::Import { place, file } => import(&place.data_dir, &file),
        }
    }
}

/// Where the store of a data directory is. A command beside the server makes none.
fn find(data_dir: &Path) -> Result<PathBuf> {
    let store = data_dir::store(data_dir::existing(data_dir)?);
    if store.join(FORMAT).exists() {
        return Ok(store);
    }
    if data_dir.join(FORMAT).exists() {
        bail!(
            "{dir} is a store, not a data directory; --data-dir names the directory whose `store` it is",
            dir = data_dir.display()
        );
    }
    bail!(
        "there is no store in {}; its server has not been started, or keeps its objects in etcd",
        data_dir.display()
    );
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
    tokio::runtime::Runtime::new().context("starting the runtime")
}

fn check(dir: &Path) -> Result<()> {
    let begun = Instant::now();
    let store = open_in(dir)?;
    runtime()?.block_on(async {
        use storage::Store as _;
        let page = Page { limit: Some(0), count: true, ..Page::default() };
        let counted = store.list(Range::all(), page).await?;
        let entries = counted.value.remaining.unwrap_or_default();
        let head = store.get(&Key::from("")).await?.revision;
        println!(
            "{}: {entries} entries at revision {head}, all there ({:.1?})",
            dir.display(),
            begun.elapsed()
        );
        Ok(())
    })
}

fn recover(dir: &Path, accept_loss: bool) -> Result<()> {
    let store = find(dir)?;
    match open(&store) {
        Ok(_) => {
            println!("{} is not damaged; nothing to do", dir.display());
            return Ok(());
        }
        // Only damage is to be recovered from; a store that is in use, or cannot be read just now, is not.
        Err(error @ OpenError::Damaged { .. }) if accept_loss => {
            eprintln!("{}\nrecovering what is readable", data_dir::explain(dir, error));
        }
        Err(error) => return Err(data_dir::explain(dir, error)),
    }
    let recovery = embedded::recover(&store)?;
    println!("{} entries kept; the store goes on after revision {}", recovery.entries, recovery.revision);
    match recovery.lost.as_slice() {
        [] => println!("no revision after the last compaction is missing"),
        lost => {
            let shown: Vec<_> =
                lost.iter().take(10).map(|gap| format!("{}-{}", gap.start(), gap.end())).collect();
            let more = if lost.len() > 10 { format!(" and {} more", lost.len() - 10) } else { String::new() };
            println!("lost revisions: {}{more}", shown.join(", "));
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
    // Written beside and renamed, so that a file by that name is a whole backup.
    let temporary = path.with_extension("partial");
    // For its owner only: a backup holds every secret the store holds.
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
    let file = file.with_context(|| format!("creating {}", temporary.display()))?;
    let mut out = BufWriter::new(file);
    let summary = runtime()?.block_on(backup::export(&store, &mut out))?;
    out.flush()?;
    out.get_ref().sync_all()?;
    std::fs::rename(&temporary, path).with_context(|| format!("renaming to {}", path.display()))?;
    println!("{} entries at revision {} written to {}", summary.entries, summary.revision, path.display());
    Ok(())
}

fn import(dir: &Path, path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
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
    let (revision, shown) = (summary.revision, dir.display());
    println!("{} entries at revision {revision} restored into {shown}. Next, type:", summary.entries);
    println!("  holon start --data-dir {shown}");
    if !data_dir::pki(dir).exists() {
        println!(
            "It makes a new certificate authority. For existing kubeconfigs to work, first copy the old server's pki to {shown}/pki."
        );
    }
    Ok(())
}
