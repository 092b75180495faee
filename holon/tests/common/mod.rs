//! A server as a user has it: the built binary, in a directory of its own, on a port nobody else uses.

// Every test target compiles this for itself and uses what it needs.
#![allow(dead_code)]

pub(crate) mod kubectl;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Killed when dropped, its directory removed.
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    /// `https://127.0.0.1:…`
    pub(crate) url: String,
}

impl Server {
    /// Returns once the server says that it is ready.
    pub(crate) fn start() -> Server {
        Server::start_with(&[])
    }

    /// With more of its options.
    pub(crate) fn start_with(options: &[&str]) -> Server {
        Server::start_in(tempfile::tempdir().unwrap(), options)
    }

    /// The same, in a directory that may hold something already.
    pub(crate) fn start_in(dir: TempDir, arguments: &[&str]) -> Server {
        Server::start_logging(dir, arguments, Stdio::inherit())
    }

    /// The same, with its log somewhere else.
    pub(crate) fn start_logging(dir: TempDir, arguments: &[&str], log: impl Into<Stdio>) -> Server {
        let (child, url) = launch(dir.path(), arguments, log);
        Server { child, dir, url }
    }

    /// The same server after a crash: in the same directory, at another address.
    pub(crate) fn again(mut self) -> Server {
        let _ = self.child.kill();
        let _ = self.child.wait();
        (self.child, self.url) = launch(self.dir.path(), &[], Stdio::inherit());
        self
    }

    /// The same server again after a crash, when somebody has looked at what it left.
    pub(crate) fn again_after(mut self, arguments: &[&str], between: impl FnOnce(&Path)) -> Server {
        let _ = self.child.kill();
        let _ = self.child.wait();
        between(self.dir.path());
        (self.child, self.url) = launch(self.dir.path(), arguments, Stdio::inherit());
        self
    }

    /// The same in place, at another address.
    pub(crate) fn restart(&mut self, between: impl FnOnce(&Path)) {
        self.restart_with(&[], between);
    }

    /// The same, with more of its options.
    pub(crate) fn restart_with(&mut self, arguments: &[&str], between: impl FnOnce(&Path)) {
        self.kill();
        between(self.dir.path());
        (self.child, self.url) = launch(self.dir.path(), arguments, Stdio::inherit());
    }

    /// What a client needs to reach a logical cluster, as `holon kubeconfig` prints it.
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

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to stop, and does not wait.
    pub(crate) fn ask_to_stop(&self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
    }

    /// Asks it to stop, and says whether it did so well.
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

/// Starts a server, and returns it and its address once it says that it is ready.
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
    // The server keeps its end of the pipe; one line is all it is asked for.
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    let words = said.split([' ', ',']);
    let url = words.into_iter().find(|word| word.starts_with("https://")).map(str::to_owned);
    let url = url.unwrap_or_else(|| panic!("the server said {said:?}"));
    (child, url)
}

/// What lies beside the crates.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
