//! The holon binary as a process: a server in a directory of its own, on a free port.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::process::{self, Process};

/// A running server. Killed when dropped; its directory is removed.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    process: Process,
    dir: TempDir,
    /// `https://127.0.0.1:…`
    pub url: String,
}

impl Server {
    /// Starts a server and returns once it reports that it is ready.
    #[track_caller]
    pub fn start(program: impl Into<PathBuf>) -> Server {
        Server::start_with(program, &[])
    }

    /// The same with additional options.
    #[track_caller]
    pub fn start_with(program: impl Into<PathBuf>, options: &[&str]) -> Server {
        Server::start_in(program, tempfile::tempdir().expect("a directory for the server"), options)
    }

    /// The same in a directory that may have data already.
    #[track_caller]
    pub fn start_in(program: impl Into<PathBuf>, dir: TempDir, options: &[&str]) -> Server {
        Server::start_logging(program, dir, options, Stdio::inherit())
    }

    /// The same with another destination of the log.
    #[track_caller]
    pub fn start_logging(
        program: impl Into<PathBuf>,
        dir: TempDir,
        options: &[&str],
        log: impl Into<Stdio>,
    ) -> Server {
        let program = program.into();
        let (process, url) = launch(&program, dir.path(), options, log);
        Server { program, process, dir, url }
    }

    /// Kills the server and starts it again on the same data, at another address.
    #[track_caller]
    pub fn restart(&mut self) {
        self.restart_with(&[], |_| {});
    }

    /// The same with additional options. While the server is stopped, `between` is called with its directory.
    #[track_caller]
    pub fn restart_with(&mut self, options: &[&str], between: impl FnOnce(&Path)) {
        self.kill();
        between(self.dir.path());
        (self.process, self.url) = launch(&self.program, self.dir.path(), options, Stdio::inherit());
    }

    /// Kills the server without a shutdown.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends the server a signal to stop, and does not wait.
    pub fn signal_stop(&self) {
        let sent = Command::new("kill").arg(self.process.id().to_string()).status().expect("kill runs");
        assert!(sent.success(), "the server has already ended");
    }

    /// Stops the server and returns whether it exited successfully.
    pub fn stop(mut self) -> bool {
        self.signal_stop();
        self.process.wait().expect("the server was started").success()
    }

    /// Returns a command of the binary that uses the data directory of this server.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--data-dir").arg(self.dir.path());
        command
    }

    /// Returns whether such a command succeeds, and its output.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> (bool, String) {
        process::run(&mut self.command(arguments))
    }

    /// Returns the kubeconfig of a logical cluster, as `holon kubeconfig` prints it.
    #[track_caller]
    pub fn kubeconfig(&self, cluster: &str) -> String {
        let output = self.command(&["kubeconfig", cluster]).output().expect("holon runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("a kubeconfig is text")
    }

    /// Returns the path of a file in the data directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Starts a server, and returns it with its address once it reports that it is ready.
#[track_caller]
fn launch(program: &Path, dir: &Path, options: &[&str], log: impl Into<Stdio>) -> (Process, String) {
    let mut command = Command::new(program);
    command.args(["start", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir).args(options);
    let mut process = Process::spawn(command.stdout(Stdio::piped()).stderr(log));
    let mut line = String::new();
    // The pipe stays open in the process. The server writes one line to it.
    BufReader::new(process.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("text");
    let url = line.split([' ', ',']).find(|word| word.starts_with("https://")).map(str::to_owned);
    let url = url.unwrap_or_else(|| panic!("the server printed {line:?}"));
    (process, url)
}
