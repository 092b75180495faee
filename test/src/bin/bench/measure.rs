//! Small tools: percentiles, memory, tables.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// One row of the result: Holon's figure, the peer's if there is one, and the ratio.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) etcd: Option<f64>,
    /// How many times better Holon's figure is; below one, it is worse.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: Option<&'static str>,
}

impl Measurement {
    pub(crate) fn alone(
        what: impl Into<String>,
        unit: &'static str,
        ours: f64,
        target: Option<&'static str>,
    ) -> Measurement {
        Measurement { what: what.into(), unit, ours, etcd: None, ratio: None, target }
    }

    /// More is better.
    pub(crate) fn rate(
        what: impl Into<String>,
        unit: &'static str,
        ours: f64,
        etcd: f64,
        target: Option<&'static str>,
    ) -> Measurement {
        Measurement { what: what.into(), unit, ours, etcd: Some(etcd), ratio: Some(ours / etcd), target }
    }

    /// Less is better.
    pub(crate) fn cost(what: impl Into<String>, unit: &'static str, ours: f64, etcd: f64) -> Measurement {
        Measurement {
            what: what.into(),
            unit,
            ours,
            etcd: Some(etcd),
            ratio: Some(etcd / ours),
            target: None,
        }
    }
}

pub(crate) fn print(rows: &[Measurement]) {
    println!("\n| what | unit | Holon | etcd | ratio | target |\n|---|---|---:|---:|---:|---|");
    for row in rows {
        let optional =
            |figure: Option<f64>, suffix: &str| figure.map_or(String::new(), |f| format_figure(f) + suffix);
        println!(
            "| {} | {} | {} | {} | {} | {} |",
            row.what,
            row.unit,
            format_figure(row.ours),
            optional(row.etcd, ""),
            optional(row.ratio, "×"),
            row.target.unwrap_or_default()
        );
    }
}

/// Formats a figure with its significant digits only.
pub(crate) fn format_figure(figure: f64) -> String {
    match figure {
        figure if figure >= 100.0 => format!("{figure:.0}"),
        figure if figure >= 1.0 => format!("{figure:.2}"),
        figure => format!("{figure:.3}"),
    }
}

/// Returns the value below which `share` of the samples lie, in milliseconds.
pub(crate) fn percentile_ms(samples: &mut [Duration], share: f64) -> f64 {
    if samples.is_empty() {
        return f64::NAN;
    }
    samples.sort_unstable();
    let index = ((samples.len() - 1) as f64 * share).round() as usize;
    samples[index].as_secs_f64() * 1000.0
}

pub(crate) fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the resident memory of this process.
pub(crate) fn rss_bytes() -> Result<u64> {
    rss_bytes_of("self")
}

/// Returns the resident memory of the process with this id.
pub(crate) fn rss_bytes_of(process: &str) -> Result<u64> {
    let file = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kilobytes * 1024)
}

/// Returns the processor time that all threads of a process have used so far, in seconds.
pub(crate) fn cpu_seconds_of(process: &str) -> Result<f64> {
    /// The unit in which Linux reports times to user space: the same on every architecture.
    const TICKS_PER_SECOND: f64 = 100.0;
    let file = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
    // The second field is the program's name in parentheses, which can contain anything.
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (ticks.next().context("no time")??, ticks.next().context("no time")??);
    Ok((user + system) as f64 / TICKS_PER_SECOND)
}
