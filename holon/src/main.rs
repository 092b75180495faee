//! The binary: a command line, and wiring. Whatever decides or stores lives in the crates it wires.

mod dev;
mod kubeconfig;
mod start;
mod store;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kubernetes cluster that is not tied to any cluster.
#[derive(Parser)]
#[command(name = "holon", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Try what works so far, in a directory of its own
    Dev(dev::Dev),
    /// Serve logical clusters
    Start(start::Start),
    /// Print what kubectl needs to reach a logical cluster
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Check, repair, back up and restore a store that no server has open
    #[command(subcommand)]
    Store(store::Store),
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("HOLON_LOG")
        // fjall reports through its errors what it also logs.
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,fjall=off,lsm_tree=off"));
    // Colours are for people; a file or a pipe gets plain text.
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    let done = match Arguments::parse().command {
        Command::Dev(dev) => dev.run(),
        Command::Start(start) => start.run(),
        Command::Kubeconfig(kubeconfig) => kubeconfig.run(),
        Command::Store(store) => store.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holon: {error:#}");
            ExitCode::FAILURE
        }
    }
}
