//! Metrics of this process, where the kernel provides them.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Clock ticks per second, as reported to programs: the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Collects its metrics on each scrape.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let help = "CPU time of this process in seconds";
            let encoder =
                encoder.encode_descriptor("process_cpu_seconds", help, None, counter.metric_type())?;
            counter.encode(encoder)?;
        }
        if let Some(bytes) = resident_bytes() {
            let gauge = ConstGauge::new(bytes);
            let help = "Resident memory of this process in bytes";
            let encoder = encoder.encode_descriptor(
                "process_resident_memory_bytes",
                help,
                None,
                gauge.metric_type(),
            )?;
            gauge.encode(encoder)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            let gauge = ConstGauge::new(open.count() as i64);
            let help = "Open files and connections";
            let encoder = encoder.encode_descriptor("process_open_fds", help, None, gauge.metric_type())?;
            gauge.encode(encoder)?;
        }
        Ok(())
    }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program name in parentheses, which may contain anything.
    let (_, after) = stat.rsplit_once(')')?;
    // Fields 14 and 15: time in user mode and in the kernel.
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks as f64 / TICKS_PER_SECOND)
}

fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
