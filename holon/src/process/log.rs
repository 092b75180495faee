//! What the process says about itself, on standard error.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Beside the levels of our own: fjall reports through its errors what it also logs.
const QUIET: &str = "fjall=off,lsm_tree=off";
/// Where the level comes from if the command line does not say.
const VARIABLE: &str = "HOLON_LOG";

#[derive(Args)]
pub(crate) struct Log {
    /// What to log: a level, or levels by module, as in `info,apiserver=debug` [default: HOLON_LOG, or info]
    #[arg(long, global = true, value_name = "FILTER")]
    log_level: Option<String>,
    /// How to write the log
    #[arg(long, global = true, value_enum, default_value = "text")]
    log_format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For machines: one object per line
    Json,
}

impl Log {
    /// From here on, what the process logs is seen.
    pub(crate) fn start(&self) -> Result<()> {
        let said = self.log_level.clone().or_else(|| std::env::var(VARIABLE).ok());
        let words = said.as_deref().unwrap_or("info");
        let filter = EnvFilter::try_new(format!("{QUIET},{words}"))
            .with_context(|| format!("{words:?} says not what to log; try info, debug or apiserver=debug"))?;
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            // Colours are for people; a file or a pipe gets plain text.
            Format::Text => subscriber.with_ansi(std::io::stderr().is_terminal()).init(),
            Format::Json => subscriber.json().flatten_event(true).init(),
        }
        Ok(())
    }
}
