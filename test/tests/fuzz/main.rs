//! Malformed and unusual requests to the server in this process, without a socket.
//!
//! ```text
//!   requests of the corpus (test/fuzz/corpus) ─► mutate: path, query, headers, trees, bytes ─► Stack on memory ─► check
//! ```
//!
//! Whatever the request, the server must not panic, hang, grow or answer with an internal error, and its response must
//! be one that clients understand. The same seed generates the same requests:
//!
//! ```text
//!   HOLON_FUZZ_ITERATIONS=1000000 HOLON_FUZZ_SEED=7 cargo test -p scenarios --test fuzz -- --nocapture
//! ```
//!
//! A request that breaks a rule is printed and written to a file. In the corpus it is tried in every run.

mod mutate;
mod request;
mod response;
mod server;
mod trees;
mod watchdog;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mutate::mutated;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use request::Request;
use server::FuzzServer;
use watchdog::Watchdog;

/// About half a minute in a debug build.
const ITERATIONS: u64 = 20_000;
/// The server and its store are replaced after so many requests, so that lists stay short.
const REQUESTS_PER_SERVER: u64 = 400;
/// How much memory the process may have after a run, or at its peak, beyond that after its first server. The largest
/// body is 3 MiB and its tree some tens of MiB; cached documents are a few more.
const GROWTH_BYTES_MAX: u64 = 512 << 20;

fn corpus_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn number(variable: &str, otherwise: impl FnOnce() -> u64) -> u64 {
    let value = std::env::var(variable).ok();
    value
        .map_or_else(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

/// Tries one request. If it breaks a rule, writes it to a file.
async fn check(server: &FuzzServer, watchdog: &Watchdog, request: &Request) -> Result<u16> {
    watchdog.begin(request);
    let checked = server.send_checked(request).await;
    watchdog.end();
    checked.with_context(|| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("finding.http");
        let _ = std::fs::write(&file, request.serialized());
        format!("add {} to test/fuzz/corpus; the request was\n{request:?}", file.display())
    })
}

fn run(test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(test())
}

#[test]
fn requests_of_the_corpus_keep_the_rules() -> Result<()> {
    let watchdog = Watchdog::start();
    run(async || {
        for (name, request) in request::read_all(&corpus_dir())? {
            let server = FuzzServer::start().await?;
            check(&server, &watchdog, &request).await.with_context(|| name)?;
            server.still_works().await?;
        }
        Ok(())
    })
}

#[test]
fn mutated_requests_keep_the_rules() -> Result<()> {
    let iterations = number("HOLON_FUZZ_ITERATIONS", || ITERATIONS);
    let seed = number("HOLON_FUZZ_SEED", rand::random);
    println!("{iterations} requests from HOLON_FUZZ_SEED={seed}");
    let watchdog = Watchdog::start();
    run(async || {
        let corpus: Vec<Request> =
            request::read_all(&corpus_dir())?.into_iter().map(|(_, request)| request).collect();
        let mut random = StdRng::seed_from_u64(seed);
        let mut codes: BTreeMap<u16, u64> = BTreeMap::new();
        let (mut tried, mut base) = (0, None);
        while tried < iterations {
            let server = FuzzServer::start().await?;
            let until = iterations.min(tried + REQUESTS_PER_SERVER);
            while tried < until {
                let corpus_request = &corpus[random.random_range(0..corpus.len())];
                let request = mutated(corpus_request, &corpus, &mut random);
                let position = || format!("request {tried} of HOLON_FUZZ_SEED={seed}");
                *codes
                    .entry(check(&server, &watchdog, &request).await.with_context(position)?)
                    .or_default() += 1;
                tried += 1;
            }
            server
                .still_works()
                .await
                .with_context(|| format!("after request {tried} of HOLON_FUZZ_SEED={seed}"))?;
            base.get_or_insert(server::resident()?.now);
        }
        println!("responses by code: {codes:?}");
        let memory = server::resident()?;
        let base = base.unwrap_or_default();
        println!("memory: {} MiB after the first server, {memory:?} at the end", base >> 20);
        ensure!(memory.most < base + GROWTH_BYTES_MAX, "memory grew from {base} to {memory:?}");
        ensure!(
            codes.keys().filter(|code| **code < 300).count() > 1,
            "no two status codes of success: the corpus is wrong"
        );
        Ok(())
    })
}

/// Requests at the limits, which mutations reach only by chance.
#[test]
fn requests_beyond_a_limit_get_the_expected_code() -> Result<()> {
    let watchdog = Watchdog::start();
    run(async || {
        let server = FuzzServer::start().await?;
        for (name, request, code) in request::at_the_limits() {
            let found = check(&server, &watchdog, &request).await.with_context(|| name)?;
            ensure!(found == code, "{name}: {found} instead of {code}");
        }
        server.still_works().await
    })
}
