//! A server for tests: the built binary, in a directory of its own, on a free port.

// Every test target compiles this module for itself and uses a part of it.
#![allow(dead_code)]

pub(crate) mod kubectl;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A running server. Killed when dropped; its directory is removed.
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    /// `https://127.0.0.1:…`
    pub(crate) url: String,
}

impl Server {
    /// Starts a server and returns once it reports that it is ready.
    pub(crate) fn start() -> Server {
        Server::start_with(&[])
    }

    /// The same with additional options.
    pub(crate) fn start_with(options: &[&str]) -> Server {
        Server::start_in(tempfile::tempdir().unwrap(), options)
    }

    /// The same in a directory that may have data already.
    pub(crate) fn start_in(dir: TempDir, arguments: &[&str]) -> Server {
        Server::start_logging(dir, arguments, Stdio::inherit())
    }

    /// The same with another destination of the log.
    pub(crate) fn start_logging(dir: TempDir, arguments: &[&str], log: impl Into<Stdio>) -> Server {
        let (child, url) = launch(dir.path(), arguments, log);
        Server { child, dir, url }
    }

    /// Kills the server and starts it again in the same directory, at another address.
    pub(crate) fn again(mut self) -> Server {
        let _ = self.child.kill();
        let _ = self.child.wait();
        (self.child, self.url) = launch(self.dir.path(), &[], Stdio::inherit());
        self
    }

    /// Kills the server, calls `between` with its directory, and starts it again.
    pub(crate) fn again_after(mut self, arguments: &[&str], between: impl FnOnce(&Path)) -> Server {
        let _ = self.child.kill();
        let _ = self.child.wait();
        between(self.dir.path());
        (self.child, self.url) = launch(self.dir.path(), arguments, Stdio::inherit());
        self
    }

    /// Kills the server, calls `between`, and starts it again in place, at another address.
    pub(crate) fn restart(&mut self, between: impl FnOnce(&Path)) {
        self.restart_with(&[], between);
    }

    /// The same with additional options.
    pub(crate) fn restart_with(&mut self, arguments: &[&str], between: impl FnOnce(&Path)) {
        self.kill();
        between(self.dir.path());
        (self.child, self.url) = launch(self.dir.path(), arguments, Stdio::inherit());
    }

    /// Returns the kubeconfig of a logical cluster, as `holon kubeconfig` prints it.
    pub(crate) fn kubeconfig(&self, path: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_holon"))
            .args(["kubeconfig", path, "--data-dir"])
            .arg(self.dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Kills it without a shutdown.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends it a signal to stop, and does not wait.
    pub(crate) fn ask_to_stop(&self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
    }

    /// Stops it and returns whether it exited successfully.
    pub(crate) fn stop(mut self) -> bool {
        self.ask_to_stop();
        self.child.wait().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server, and returns it with its address once it reports that it is ready.
fn launch(dir: &Path, arguments: &[&str], log: impl Into<Stdio>) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_holon"))
        .args(["start", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut said = String::new();
    // The pipe stays open in `child`. The server writes one line to it.
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    let words = said.split([' ', ',']);
    let url = words.into_iter().find(|word| word.starts_with("https://")).map(str::to_owned);
    let url = url.unwrap_or_else(|| panic!("the server said {said:?}"));
    (child, url)
}

/// Returns the root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
