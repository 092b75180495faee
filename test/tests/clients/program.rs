//! A client in a program of its own: it watches, and reports its state on request.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use scenarios::holon::signal;
use serde_json::Value;

use crate::Account;
use crate::objects::{Kind, State};

/// A running program. Killed when dropped.
pub(crate) struct Program {
    child: Child,
    commands: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(peer: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Program> {
        let mut command = Command::new(testkit::peers::program(peer));
        command.args(arguments).envs(variables.iter().copied());
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.with_context(|| format!("starting {peer}"))?;
        let commands = child.stdin.take().context("its stdin is a pipe")?;
        let said = BufReader::new(child.stdout.take().context("its stdout is a pipe")?);
        Ok(Program { child, commands, said })
    }

    /// Suspends the process, like a closed laptop.
    pub(crate) fn sleep(&self) -> Result<()> {
        signal("STOP", self.child.id())
    }

    pub(crate) fn wake(&self) -> Result<()> {
        signal("CONT", self.child.id())
    }

    pub(crate) fn account(&mut self) -> Result<Account> {
        self.commands.write_all(b"dump\n")?;
        let mut state = State::new();
        loop {
            let mut line = String::new();
            self.said.read_line(&mut line)?;
            let said: Value = serde_json::from_str(&line).with_context(|| format!("it said {line:?}"))?;
            if let Some(summary) = said.get("summary") {
                return Ok(Account {
                    state,
                    back: summary["back"].as_u64().context("how often it was back in time")?,
                    lists: most(&summary["traffic"]["lists"]),
                    told: summary.to_string(),
                });
            }
            let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
            let kind = Kind::parse(&text("kind")).with_context(|| format!("a kind in {line:?}"))?;
            let found = text("resourceVersion").parse().with_context(|| format!("a version in {line:?}"))?;
            state.insert((kind, text("name")), (found, text("value")));
        }
    }
}

/// Returns the largest number in an object.
fn most(counts: &Value) -> u64 {
    let counts = counts.as_object().into_iter().flat_map(|counts| counts.values());
    counts.filter_map(Value::as_u64).max().unwrap_or_default()
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end and returns the JSON lines of its output.
pub(crate) fn run(peer: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = Command::new(testkit::peers::program(peer)).args(arguments).stdin(Stdio::null()).output()?;
    let (said, complained) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    anyhow::ensure!(output.status.success(), "{peer} {arguments:?} failed: {said}{complained}");
    said.lines().map(|line| serde_json::from_str(line).with_context(|| format!("it said {line:?}"))).collect()
}
