//! The binary: commands and wiring. The logic is in the crates that it connects.

mod authz;
mod clients;
mod commands;
mod data_dir;
mod fleet;
mod kubeconfig;
mod process;
mod pull;
mod register;
mod server;
mod state_key;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{
    ca, dev, explain, join, kubeconfig as kubeconfig_command, lc, leave, start, store, syncer,
};
use crate::process::{descriptors, log, memory, version};

/// Serve logical Kubernetes clusters whose workloads run on joined physical clusters
#[derive(Parser)]
#[command(name = "holon", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: log::LogOptions,
}

#[derive(Subcommand)]
enum Command {
    /// Try Holon: run a server with two simulated physical clusters, and print what to type next
    Dev(dev::Dev),
    /// Run a server of logical clusters
    Start(start::Start),
    /// Create, list and delete logical clusters
    Lc(lc::Lc),
    /// Join a physical cluster, to run workloads on it
    Join(join::Join),
    /// Run the syncer of the physical cluster that this process runs in
    Syncer(syncer::SyncerCommand),
    /// Remove a physical cluster, and delete what was placed on it
    Leave(leave::Leave),
    /// Explain where a workload runs, why, and why not elsewhere
    Explain(explain::Explain),
    /// Print a kubeconfig for logical clusters
    Kubeconfig(kubeconfig_command::Kubeconfig),
    /// Rotate the certificate authority of the server and its clients
    Ca(ca::Ca),
    /// Check, recover, export or import a store while its server is stopped
    #[command(subcommand)]
    Store(store::Store),
    /// Print version, commit and compiler of the build
    Version,
}

fn main() -> ExitCode {
    memory::refuse_huge_pages();
    let arguments = Arguments::parse();
    // Log lines must not scroll away the commands that `dev` suggests.
    let default = if matches!(arguments.command, Command::Dev(_)) { "warn" } else { "info" };
    if let Err(error) = arguments.log.start(default) {
        eprintln!("holon: {error:#}");
        return ExitCode::FAILURE;
    }
    descriptors::raise_limit();
    let result = match arguments.command {
        Command::Dev(dev) => dev.run(),
        Command::Start(start) => start.run(),
        Command::Lc(lc) => lc.run(),
        Command::Join(join) => join.run(),
        Command::Syncer(syncer) => syncer.run(),
        Command::Leave(leave) => leave.run(),
        Command::Explain(explain) => explain.run(),
        Command::Kubeconfig(kubeconfig) => kubeconfig.run(),
        Command::Ca(ca) => ca.run(),
        Command::Store(store) => store.run(),
        Command::Version => {
            version::print();
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holon: {error:#}");
            ExitCode::FAILURE
        }
    }
}
