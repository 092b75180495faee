//! The holon binary as a process: a server in a directory of its own, on a free port.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::process::{self, Process};

const ANY_PORT: &str = "127.0.0.1:0";

/// How a server is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Killed without warning, as when the machine goes down.
    Killed,
    /// Terminated, as an administrator stops it.
    Terminated,
}

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
        let (process, url) = launch(&program, dir.path(), ANY_PORT, options, log);
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
        (self.process, self.url) =
            launch(&self.program, self.dir.path(), ANY_PORT, options, Stdio::inherit());
    }

    /// Ends the server and starts it again on the same data, at the same address.
    #[track_caller]
    pub fn restart_in_place(&mut self, end: End, options: &[&str]) {
        self.while_stopped(end, options, |_| {});
    }

    /// The same. While the server is stopped, `between` is called.
    #[track_caller]
    pub fn while_stopped<T>(&mut self, end: End, options: &[&str], between: impl FnOnce(&Server) -> T) -> T {
        match end {
            End::Killed => self.kill(),
            End::Terminated => {
                self.signal_stop();
                self.process.wait().expect("the server was started");
            }
        }
        let result = between(self);
        let address = self.address().to_owned();
        (self.process, self.url) =
            launch(&self.program, self.dir.path(), &address, options, Stdio::inherit());
        result
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// `127.0.0.1:…`
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("https://")
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

    /// Returns a command of the binary that does not use the data of this server.
    pub fn other(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
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

    /// Writes this kubeconfig to a file and returns its path.
    #[track_caller]
    pub fn kubeconfig_file(&self, cluster: &str) -> PathBuf {
        let file = self.file(&format!("{}.kubeconfig", cluster.replace(':', "-")));
        std::fs::write(&file, self.kubeconfig(cluster)).expect("a writable directory");
        file
    }

    /// Returns the path of a file in the data directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Starts a server, and returns it with its address once it reports that it is ready.
#[track_caller]
fn launch(
    program: &Path,
    dir: &Path,
    listen: &str,
    options: &[&str],
    log: impl Into<Stdio>,
) -> (Process, String) {
    let mut command = Command::new(program);
    command.args(["start", "--listen", listen, "--data-dir"]).arg(dir).args(options);
    let mut process = Process::spawn(command.stdout(Stdio::piped()).stderr(log));
    let mut line = String::new();
    // The pipe stays open in the process. The server writes one line to it.
    BufReader::new(process.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("text");
    let url = line.split([' ', ',']).find(|word| word.starts_with("https://")).map(str::to_owned);
    let url = url.unwrap_or_else(|| panic!("the server printed {line:?}"));
    (process, url)
}
