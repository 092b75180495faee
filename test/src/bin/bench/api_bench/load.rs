//! A closed loop: a fixed number of clients, each with one request in flight, for a fixed time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::client::BenchConnection;
use super::report::{Better, ReportRow};
use super::target::{BenchTarget, ServerPair};
use crate::measure::{cpu_seconds_of, percentile_ms};

/// A round of writes ends after this many writes for each second of its time. A faster server then finishes early, so
/// that it does not end up with a hundred times the objects of the other.
const WRITES_PER_SECOND: f64 = 2_000.0;

/// How many rounds run, and how long each takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// The time of one round against one server.
    pub(crate) time: Duration,
}

impl Effort {
    fn writes(&self) -> i64 {
        (self.time.as_secs_f64() * WRITES_PER_SECOND).ceil() as i64
    }
}

/// The requests of the clients of one benchmark.
pub(crate) trait Workload: Sized + Send + Sync + 'static {
    /// The state that one client keeps between requests.
    type Client: Send;
    /// Whether the requests create or change objects.
    const WRITES: bool;

    /// Prepares a round.
    fn prepare(&self, setup: &mut BenchConnection) -> impl Future<Output = Result<()>> + Send;
    fn client(
        &self,
        connection: BenchConnection,
        number: usize,
    ) -> impl Future<Output = Result<Self::Client>> + Send;
    /// Sends one request and checks its response.
    fn step(&self, client: &mut Self::Client) -> impl Future<Output = Result<()>> + Send;
}

/// The result of one round against one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundResult {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Processor time of the server for one request.
    pub(crate) cpu_us: f64,
    /// How many processors the benchmark itself kept busy. If it is close to all of them, the figures measure the
    /// benchmark.
    pub(crate) client_cores: f64,
}

async fn round<W: Workload>(
    target: &BenchTarget,
    workload: W,
    clients: usize,
    effort: Effort,
) -> Result<RoundResult> {
    let mut connections = BenchConnection::open_for(target, clients).await?;
    workload.prepare(&mut connections[0]).await?;
    let mut ready = Vec::with_capacity(clients);
    for (number, connection) in connections.into_iter().enumerate() {
        ready.push(workload.client(connection, number).await?);
    }
    let workload = Arc::new(workload);
    let writes_left = Arc::new(AtomicI64::new(if W::WRITES { effort.writes() } else { i64::MAX }));
    let (cpu, client_cpu, begun) = (target.cpu_seconds()?, cpu_seconds_of("self")?, Instant::now());
    let mut tasks = JoinSet::new();
    for mut client in ready {
        let (workload, writes_left) = (workload.clone(), writes_left.clone());
        tasks.spawn(async move {
            let mut samples = Vec::new();
            while begun.elapsed() < effort.time && writes_left.fetch_sub(1, Ordering::Relaxed) > 0 {
                let sent = Instant::now();
                workload.step(&mut client).await?;
                samples.push(sent.elapsed());
            }
            anyhow::Ok(samples)
        });
    }
    let mut samples = Vec::new();
    while let Some(done) = tasks.join_next().await {
        samples.extend(
            done?.with_context(|| format!("{} sent a wrong response: the run is invalid", target.name))?,
        );
    }
    let (count, seconds) = (samples.len() as f64, begun.elapsed().as_secs_f64());
    Ok(RoundResult {
        per_second: count / seconds,
        p50_ms: percentile_ms(&mut samples, 0.50),
        p99_ms: percentile_ms(&mut samples, 0.99),
        cpu_us: (target.cpu_seconds()? - cpu) * 1e6 / count,
        client_cores: (cpu_seconds_of("self")? - client_cpu) / seconds,
    })
}

/// The rounds of one workload, Holon's and the peer's in turn.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) id: &'static str,
    what: String,
    rounds: Vec<(RoundResult, Option<RoundResult>)>,
}

impl Comparison {
    /// Runs the rounds. `workload_of_round` returns the workload of a round by its number.
    pub(crate) async fn run<W: Workload>(
        id: &'static str,
        what: impl Into<String>,
        pair: &ServerPair,
        (clients, effort): (usize, Effort),
        workload_of_round: impl Fn(usize) -> W,
    ) -> Result<Comparison> {
        let what = what.into();
        println!("{id}: {what}");
        let mut rounds = Vec::with_capacity(effort.rounds);
        for number in 0..effort.rounds {
            let ours = round(&pair.ours, workload_of_round(number), clients, effort).await?;
            let theirs = match &pair.theirs {
                Some(theirs) => Some(round(theirs, workload_of_round(number), clients, effort).await?),
                None => None,
            };
            rounds.push((ours, theirs));
        }
        Ok(Comparison { id, what, rounds })
    }

    /// Returns the row for one figure, over all rounds.
    pub(crate) fn row(
        &self,
        figure: &str,
        unit: &'static str,
        better: Better,
        of: impl Fn(&RoundResult) -> f64,
    ) -> ReportRow {
        let figures: Vec<_> =
            self.rounds.iter().map(|(ours, theirs)| (of(ours), theirs.as_ref().map(&of))).collect();
        let cores = self.rounds.iter().map(|(ours, _)| ours.client_cores).fold(0.0, f64::max);
        let what = format!("{}{figure}", self.what);
        ReportRow::new(self.id, what, unit, better, &figures).client_cores(cores)
    }

    pub(crate) fn rate(&self) -> ReportRow {
        self.row("", "1/s", Better::More, |round| round.per_second)
    }

    pub(crate) fn p50(&self) -> ReportRow {
        self.row(": p50", "ms", Better::Less, |round| round.p50_ms)
    }

    pub(crate) fn p99(&self) -> ReportRow {
        self.row(": p99", "ms", Better::Less, |round| round.p99_ms)
    }

    pub(crate) fn cpu(&self) -> ReportRow {
        self.row(": server CPU each", "µs", Better::Less, |round| round.cpu_us)
    }
}
