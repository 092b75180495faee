//! A closed loop: so many clients, each with one request under way, for so long.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::client::Connection;
use super::report::{Better, Row};
use super::target::{Pair, Target};
use crate::measure::{cpu_seconds_of, percentile_ms};

/// A round of writes ends after so many for each second it may take, on the faster side before the time is up. So that
/// neither server is left with a hundred times the objects of the other.
const WRITES_PER_SECOND: f64 = 2_000.0;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Of one round against one server.
    pub(crate) time: Duration,
}

impl Effort {
    fn writes(&self) -> i64 {
        (self.time.as_secs_f64() * WRITES_PER_SECOND).ceil() as i64
    }
}

/// What clients do.
pub(crate) trait Workload: Sized + Send + Sync + 'static {
    /// What one of them remembers from one request to the next.
    type Client: Send;
    /// Whether the server keeps what it is sent.
    const WRITES: bool;

    /// Makes ready, once for each round.
    fn prepare(&self, setup: &mut Connection) -> impl Future<Output = Result<()>> + Send;
    fn client(
        &self,
        connection: Connection,
        number: usize,
    ) -> impl Future<Output = Result<Self::Client>> + Send;
    /// One request, its answer checked.
    fn step(&self, client: &mut Self::Client) -> impl Future<Output = Result<()>> + Send;
}

/// What one round against one server gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Of the server's processors, for one request.
    pub(crate) cpu_us: f64,
    /// How many processors the benchmark itself kept busy. Near all there are, it is the benchmark that is measured.
    pub(crate) client_cores: f64,
}

async fn round<W: Workload>(target: &Target, workload: W, clients: usize, effort: Effort) -> Result<Round> {
    let mut connections = Connection::open_for(target, clients).await?;
    workload.prepare(&mut connections[0]).await?;
    let mut ready = Vec::with_capacity(clients);
    for (number, connection) in connections.into_iter().enumerate() {
        ready.push(workload.client(connection, number).await?);
    }
    let workload = Arc::new(workload);
    let left = Arc::new(AtomicI64::new(if W::WRITES { effort.writes() } else { i64::MAX }));
    let (cpu, own_cpu, begun) = (target.cpu_seconds()?, cpu_seconds_of("self")?, Instant::now());
    let mut tasks = JoinSet::new();
    for mut client in ready {
        let (workload, left) = (workload.clone(), left.clone());
        tasks.spawn(async move {
            let mut samples = Vec::new();
            while begun.elapsed() < effort.time && left.fetch_sub(1, Ordering::Relaxed) > 0 {
                let sent = Instant::now();
                workload.step(&mut client).await?;
                samples.push(sent.elapsed());
            }
            anyhow::Ok(samples)
        });
    }
    let mut samples = Vec::new();
    while let Some(done) = tasks.join_next().await {
        samples
            .extend(done?.with_context(|| format!("{} gave a wrong answer: the run is void", target.name))?);
    }
    let (count, seconds) = (samples.len() as f64, begun.elapsed().as_secs_f64());
    Ok(Round {
        per_second: count / seconds,
        p50_ms: percentile_ms(&mut samples, 0.50),
        p99_ms: percentile_ms(&mut samples, 0.99),
        cpu_us: (target.cpu_seconds()? - cpu) * 1e6 / count,
        client_cores: (cpu_seconds_of("self")? - own_cpu) / seconds,
    })
}

/// The rounds of one workload, ours and theirs in turn.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) id: &'static str,
    what: String,
    rounds: Vec<(Round, Option<Round>)>,
}

impl Comparison {
    /// `make` gives the workload of one round, by its number.
    pub(crate) async fn run<W: Workload>(
        id: &'static str,
        what: impl Into<String>,
        pair: &Pair,
        (clients, effort): (usize, Effort),
        make: impl Fn(usize) -> W,
    ) -> Result<Comparison> {
        let what = what.into();
        println!("{id}: {what}");
        let mut rounds = Vec::with_capacity(effort.rounds);
        for number in 0..effort.rounds {
            let ours = round(&pair.ours, make(number), clients, effort).await?;
            let theirs = match &pair.theirs {
                Some(theirs) => Some(round(theirs, make(number), clients, effort).await?),
                None => None,
            };
            rounds.push((ours, theirs));
        }
        Ok(Comparison { id, what, rounds })
    }

    /// One figure of every round.
    pub(crate) fn row(
        &self,
        figure: &str,
        unit: &'static str,
        better: Better,
        of: impl Fn(&Round) -> f64,
    ) -> Row {
        let figures: Vec<_> =
            self.rounds.iter().map(|(ours, theirs)| (of(ours), theirs.as_ref().map(&of))).collect();
        let cores = self.rounds.iter().map(|(ours, _)| ours.client_cores).fold(0.0, f64::max);
        let what = format!("{}{figure}", self.what);
        Row::new(self.id, what, unit, better, &figures).client_cores(cores)
    }

    pub(crate) fn rate(&self) -> Row {
        self.row("", "1/s", Better::More, |round| round.per_second)
    }

    pub(crate) fn p50(&self) -> Row {
        self.row(": p50", "ms", Better::Less, |round| round.p50_ms)
    }

    pub(crate) fn p99(&self) -> Row {
        self.row(": p99", "ms", Better::Less, |round| round.p99_ms)
    }

    pub(crate) fn cpu(&self) -> Row {
        self.row(": server CPU each", "µs", Better::Less, |round| round.cpu_us)
    }
}
