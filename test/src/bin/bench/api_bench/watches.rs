//! Watch fan-out: many watches of one namespace, and a writer that never waits.
//!
//! Each write is due at a fixed time, and the lag of its event is counted from then: a server that delays the writer
//! does not improve its figures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use memchr::{memchr, memmem};
use tokio::task::JoinSet;

use super::client::{BenchConnection, ResponseHead};
use super::load::Effort;
use super::objects::{ConfigMaps, PREFIX};
use super::report::{Better, ReportRow};
use super::target::{BenchTarget, ServerPair};
use crate::measure::percentile_ms;

const WRITES_PER_SECOND: usize = 50;
/// After so long without an event, the missing events count as lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of one round against one server.
struct FanOut {
    p50_ms: f64,
    p99_ms: f64,
    /// Processor time of the server for one delivered event, including the writes.
    cpu_us: f64,
}

pub(crate) async fn compare(pair: &ServerPair, effort: Effort, watchers: usize) -> Result<Vec<ReportRow>> {
    let what = format!("{watchers} watches, {WRITES_PER_SECOND} writes a second");
    println!("W: {what}");
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        let ours = fan_out(&pair.ours, round, watchers, effort.time).await?;
        let theirs = match &pair.theirs {
            Some(theirs) => Some(fan_out(theirs, round, watchers, effort.time).await?),
            None => None,
        };
        rounds.push((ours, theirs));
    }
    let row = |figure: &str, unit, of: fn(&FanOut) -> f64| {
        let figures: Vec<_> =
            rounds.iter().map(|(ours, theirs)| (of(ours), theirs.as_ref().map(of))).collect();
        ReportRow::new("W", format!("{what}: {figure}"), unit, Better::Less, &figures)
    };
    Ok(vec![
        row("lag p50", "ms", |fan| fan.p50_ms),
        row("lag p99", "ms", |fan| fan.p99_ms).goal("≥ 5×"),
        row("server CPU per event", "µs", |fan| fan.cpu_us).goal("≥ 3×"),
    ])
}

async fn fan_out(target: &BenchTarget, round: usize, watchers: usize, time: Duration) -> Result<FanOut> {
    let writes = (time.as_secs_f64() * WRITES_PER_SECOND as f64).ceil() as usize;
    let mut writer = BenchConnection::open(target).await?;
    let namespace = format!("w-{round}");
    writer.create_namespace(&namespace).await?;
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let list = writer.get(&collection).await?;
    let version = ResponseHead::of(&list, "ConfigMapList", "")?.metadata.version.to_owned();
    let path = format!("{collection}?watch=true&resourceVersion={version}");
    let epoch = Instant::now();
    let mut opening = JoinSet::new();
    for mut connection in BenchConnection::open_for(target, watchers).await? {
        let path = path.clone();
        opening.spawn(async move { connection.send_request(Method::GET, &path, Bytes::new()).await });
    }
    let mut streams = Vec::with_capacity(watchers);
    while let Some(opened) = opening.join_next().await {
        streams.push(opened??.into_body());
    }
    let cpu = target.cpu_seconds()?;
    let mut watching = JoinSet::new();
    for stream in streams {
        watching.spawn(collect_lags(stream, writes, epoch));
    }
    write_on_time(&writer, collection, writes, epoch).await?;
    let mut lags = Vec::with_capacity(writes * watchers);
    while let Some(done) = watching.join_next().await {
        lags.extend(done?.with_context(|| format!("{} lost events: the run is invalid", target.name))?);
    }
    ensure!(lags.len() == writes * watchers, "{} events of {}", lags.len(), writes * watchers);
    Ok(FanOut {
        cpu_us: (target.cpu_seconds()? - cpu) * 1e6 / lags.len() as f64,
        p50_ms: percentile_ms(&mut lags, 0.50),
        p99_ms: percentile_ms(&mut lags, 0.99),
    })
}

/// Writes objects that carry the time at which they were due and their number.
async fn write_on_time(
    writer: &BenchConnection,
    collection: String,
    writes: usize,
    epoch: Instant,
) -> Result<()> {
    let config_maps = ConfigMaps::new();
    let collection = Arc::<str>::from(collection);
    let begun = Instant::now();
    let mut writing = JoinSet::new();
    for number in 0..writes {
        let due = begun + Duration::from_secs(1) * number as u32 / WRITES_PER_SECOND as u32;
        tokio::time::sleep_until(due.into()).await;
        let body = config_maps.with_word(number, &format!("{number}@{}", (due - epoch).as_micros()));
        let (mut writer, collection) = (writer.clone(), collection.clone());
        writing.spawn(async move { writer.send(Method::POST, &collection, body).await });
    }
    while let Some(done) = writing.join_next().await {
        done??;
    }
    Ok(())
}

/// Reads until every write was seen, each once. Returns the lag of each.
async fn collect_lags(mut stream: Incoming, writes: usize, epoch: Instant) -> Result<Vec<Duration>> {
    let mut lags = Vec::with_capacity(writes);
    let mut seen = vec![false; writes];
    let mut unread = Vec::new();
    while lags.len() < writes {
        let frame = tokio::time::timeout(PATIENCE, stream.frame())
            .await
            .with_context(|| format!("{} events of {writes}, then nothing", lags.len()))?;
        let Ok(chunk) = frame.context("the watch ended")??.into_data() else { continue };
        unread.extend_from_slice(&chunk);
        let now = epoch.elapsed();
        let mut begin = 0;
        while let Some(length) = memchr(b'\n', &unread[begin..]) {
            if let Some((number, due)) = read(&unread[begin..begin + length])? {
                let is_seen = seen.get_mut(number).context("an event without a write")?;
                ensure!(!*is_seen, "write {number} was delivered twice");
                *is_seen = true;
                lags.push(now.saturating_sub(due));
            }
            begin += length + 1;
        }
        unread.drain(..begin);
    }
    Ok(lags)
}

/// Returns the number of the write of an event, and when it was due. `None` for an object that the server
/// itself added.
fn read(event: &[u8]) -> Result<Option<(usize, Duration)>> {
    if memmem::find(event, format!("\"name\":\"{PREFIX}").as_bytes()).is_none() {
        return Ok(None);
    }
    let text = || String::from_utf8_lossy(event).into_owned();
    ensure!(event.starts_with(b"{\"type\":\"ADDED\""), "{}", text());
    let word =
        memmem::find(event, WORD_FIELD).map(|at| &event[at + WORD_FIELD.len()..]).with_context(text)?;
    let word = std::str::from_utf8(word.split(|byte| *byte == b'"').next().unwrap_or_default())?;
    let (number, micros) = word.split_once('@').with_context(text)?;
    Ok(Some((number.parse()?, Duration::from_micros(micros.parse()?))))
}

const WORD_FIELD: &[u8] = b"\"word\":\"";
