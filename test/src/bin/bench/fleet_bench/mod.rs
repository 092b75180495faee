//! The cost of physical clusters, and how far the syncers lag behind.
//!
//! ```text
//!   steady   holon ══ TLS ══► so many stand-ins, all in the benchmark's process     nothing happens: what does it cost?
//!   lags     mailbox ─► holon ══ TLS ══► kube-apiserver + etcd ─► watch             one change at a time, each way
//! ```
//!
//! Holon is a process of its own, started and joined as an administrator does, so its time and memory can be measured.

mod lags;
mod members;
mod steady;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::measure::{Measurement, format_figure};

/// How much to measure. Without options as for docs/benchmarks.md.
#[derive(Args)]
pub(crate) struct Fleet {
    /// Stand-ins
    #[arg(long, default_value_t = 100)]
    clusters: usize,
    /// Objects placed in each
    #[arg(long, default_value_t = 50)]
    objects: usize,
    /// Seconds for which the idle clusters are measured
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Changes each way, one after the other, with a real kube-apiserver
    #[arg(long, default_value_t = 500)]
    changes: usize,
    /// The server to measure [default: the binary beside this one]
    #[arg(long)]
    holon: Option<PathBuf>,
}

impl Fleet {
    pub(crate) async fn run(self) -> Result<()> {
        let program = match &self.holon {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("holon"),
        };
        let mut rows: Vec<Measurement> = Vec::new();
        if self.clusters > 0 {
            let size = steady::FleetSize { clusters: self.clusters, objects: self.objects };
            rows.extend(steady::measure(&program, size, Duration::from_secs(self.seconds)).await?);
        }
        if self.changes > 0 {
            rows.extend(lags::measure(&program, self.changes).await?);
        }
        println!("\n| what | unit | figure | target |\n|---|---|---:|---|");
        for row in &rows {
            let target = row.target.unwrap_or_default();
            println!("| {} | {} | {} | {target} |", row.what, row.unit, format_figure(row.ours));
        }
        Ok(())
    }
}
