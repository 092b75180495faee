//! `holon store`: a store on disk, while no server has it open.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use storage::embedded::{self, Embedded, Options};
use storage::{Key, Page, Range, backup};

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
    /// Write everything, as it is at one revision, into a file
    Export {
        #[command(flatten)]
        place: Place,
        file: PathBuf,
    },
    /// Make a new store from an exported file
    Import {
        #[command(flatten)]
        place: Place,
        file: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct Place {
    /// Where the store is
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

/// Opens a store that is there; a mistyped path must not make a new one.
fn open(dir: &Path) -> Result<Embedded> {
    if !dir.join("FORMAT").exists() {
        bail!("there is no store in {}; name its directory with --data-dir", dir.display());
    }
    let progress = Arc::new(|progress| eprintln!("reading: {progress}"));
    Ok(Embedded::open(dir, Options { progress, ..Options::default() })?)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("starting the runtime")
}

fn check(dir: &Path) -> Result<()> {
    let begun = Instant::now();
    let store = open(dir)?;
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
    match open(dir) {
        Ok(_) => {
            println!("{} is not damaged; nothing to do", dir.display());
            return Ok(());
        }
        // Only damage is to be recovered from; a store that is in use, or cannot be read just now, is not.
        Err(error) if accept_loss && is_damage(&error) => eprintln!("{error}\nrecovering what is readable"),
        Err(error) => return Err(error),
    }
    let recovery = embedded::recover(dir)?;
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

fn is_damage(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(embedded::OpenError::Damaged { .. }))
}

fn export(dir: &Path, path: &Path) -> Result<()> {
    let store = open(dir)?;
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
    let summary = backup::import(dir, &mut BufReader::new(file))?;
    println!("{} entries at revision {} restored into {}", summary.entries, summary.revision, dir.display());
    Ok(())
}
