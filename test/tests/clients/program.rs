//! A client in a program of its own: it watches, and reports its state on request.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use scenarios::holon::signal;
use serde_json::Value;

use crate::InformerReport;
use crate::objects::{InformerState, ObjectKind};

/// A running program. It is killed when dropped.
pub(crate) struct ClientProgram {
    child: Child,
    commands: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl ClientProgram {
    pub(crate) fn start(peer: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<ClientProgram> {
        let mut command = Command::new(testkit::peers::program(peer));
        command.args(arguments).envs(variables.iter().copied());
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.with_context(|| format!("starting {peer}"))?;
        let commands = child.stdin.take().context("stdin is not a pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is not a pipe")?);
        Ok(ClientProgram { child, commands, stdout })
    }

    /// Suspends the process, like a closed laptop.
    pub(crate) fn sleep(&self) -> Result<()> {
        signal("STOP", self.child.id())
    }

    pub(crate) fn wake(&self) -> Result<()> {
        signal("CONT", self.child.id())
    }

    pub(crate) fn report(&mut self) -> Result<InformerReport> {
        self.commands.write_all(b"dump\n")?;
        let mut state = InformerState::new();
        loop {
            let mut line = String::new();
            self.stdout.read_line(&mut line)?;
            let report: Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line:?}"))?;
            if let Some(summary) = report.get("summary") {
                return Ok(InformerReport {
                    state,
                    back: summary["back"].as_u64().context("the summary has no counter `back`")?,
                    lists: most(&summary["traffic"]["lists"]),
                    counters: summary.to_string(),
                });
            }
            let text = |field: &str| report[field].as_str().unwrap_or_default().to_owned();
            let kind =
                ObjectKind::parse(&text("kind")).with_context(|| format!("unknown kind in {line:?}"))?;
            let found =
                text("resourceVersion").parse().with_context(|| format!("invalid version in {line:?}"))?;
            state.insert((kind, text("name")), (found, text("value")));
        }
    }
}

/// Returns the largest number in an object.
fn most(counts: &Value) -> u64 {
    let counts = counts.as_object().into_iter().flat_map(|counts| counts.values());
    counts.filter_map(Value::as_u64).max().unwrap_or_default()
}

impl Drop for ClientProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end and returns the JSON lines of its output.
pub(crate) fn run(peer: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = Command::new(testkit::peers::program(peer)).args(arguments).stdin(Stdio::null()).output()?;
    let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    anyhow::ensure!(output.status.success(), "{peer} {arguments:?} failed: {stdout}{stderr}");
    stdout
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line:?}")))
        .collect()
}
