//! Benchmarks, each beside the usual alternative in the same run. Started by `hack/bench`.

mod api_bench;
mod fleet_bench;
mod measure;
mod storage_bench;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// The store beside etcd.
    Storage {
        /// Shorter runs and fewer entries; for a first look, not for docs/benchmarks.md.
        #[arg(long)]
        quick: bool,
        /// Where to write the figures.
        #[arg(long, default_value = "target/bench/storage.json")]
        json: PathBuf,
    },
    /// The API beside kube-apiserver with its etcd.
    Api(api_bench::Api),
    /// Large deletions, and the memory that they free.
    Leaving(api_bench::Leaving),
    /// Many Deployments over two physical clusters.
    Splitting(api_bench::Splitting),
    /// Many physical clusters at rest, and how far behind a real one is.
    Fleet(fleet_bench::Fleet),
    /// One measurement in a process of its own, so that no other measurement counts into its memory and time.
    #[command(hide = true)]
    Child {
        #[command(subcommand)]
        command: storage_bench::Child,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().benchmark {
        Benchmark::Storage { quick, json } => runtime()?.block_on(storage_bench::run(quick, &json)),
        Benchmark::Api(api) => runtime()?.block_on(api.run()),
        Benchmark::Leaving(leaving) => runtime()?.block_on(leaving.run()),
        Benchmark::Splitting(splitting) => runtime()?.block_on(splitting.run()),
        Benchmark::Fleet(fleet) => runtime()?.block_on(fleet.run()),
        Benchmark::Child { command } => command.run(),
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
