//! The log of the process, on standard error.

mod repeated_warnings;

use std::io::IsTerminal;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::repeated_warnings::RepeatedWarnings;

/// These modules are always off: fjall also returns as errors what it logs.
const QUIET: &str = "fjall=off,lsm_tree=off";
/// The environment variable with the filter, if the command line has none.
const VARIABLE: &str = "HOLON_LOG";

#[derive(Args)]
pub(crate) struct LogOptions {
    /// The log filter: a level, or levels by module, for example `info,apiserver=debug` [default: $HOLON_LOG, else
    /// `info`; `warn` for `dev`]
    #[arg(long, global = true, value_name = "FILTER")]
    log_level: Option<String>,
    /// The log format
    #[arg(long, global = true, value_enum, default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// For machines: one object per line
    Json,
}

impl LogOptions {
    /// Starts logging, with this filter if none was given.
    pub(crate) fn start(&self, default: &str) -> Result<()> {
        let filter = self.log_level.clone().or_else(|| std::env::var(VARIABLE).ok());
        let directives = filter.as_deref().unwrap_or(default);
        let filter = EnvFilter::try_new(format!("{QUIET},{directives}")).with_context(|| {
            format!("{directives:?} is not a log filter; try info, debug or apiserver=debug")
        })?;
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            // Colours on a terminal only.
            LogFormat::Text => {
                let subscriber = subscriber.with_ansi(std::io::stderr().is_terminal()).finish();
                subscriber.with(RepeatedWarnings::default()).init();
            }
            LogFormat::Json => {
                subscriber.json().flatten_event(true).finish().with(RepeatedWarnings::default()).init();
            }
        }
        Ok(())
    }
}
