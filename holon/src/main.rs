//! The binary: a command line, and wiring. Whatever decides or stores lives in the crates it wires.

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

/// A Kubernetes cluster that is not tied to any cluster.
#[derive(Parser)]
#[command(name = "holon", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: log::Log,
}

#[derive(Subcommand)]
enum Command {
    /// Try it: a server, two stand-ins for physical clusters, and what to type next
    Dev(dev::Dev),
    /// Serve logical clusters
    Start(start::Start),
    /// Make, list and delete logical clusters
    Lc(lc::Lc),
    /// Have a physical cluster run things
    Join(join::Join),
    /// Be the syncer of the physical cluster this runs in
    Syncer(syncer::SyncerCommand),
    /// Let a physical cluster go, with everything that was sent there
    Leave(leave::Leave),
    /// Say where something runs and why, and why not elsewhere
    Explain(explain::Explain),
    /// Print what kubectl needs to reach logical clusters
    Kubeconfig(kubeconfig_command::Kubeconfig),
    /// Replace the authority that vouches for the server and its clients
    Ca(ca::Ca),
    /// Check, repair, back up and restore a store that no server has open
    #[command(subcommand)]
    Store(store::Store),
    /// Print which build this is: version, commit and compiler
    Version,
}

fn main() -> ExitCode {
    memory::refuse_huge_pages();
    let arguments = Arguments::parse();
    if let Err(error) = arguments.log.start() {
        eprintln!("holon: {error:#}");
        return ExitCode::FAILURE;
    }
    descriptors::raise_limit();
    let done = match arguments.command {
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
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holon: {error:#}");
            ExitCode::FAILURE
        }
    }
}
