//! Processes that end with their value.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};

/// A child process. Killed when dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a command.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Process {
        Process(command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}")))
    }

    /// Kills the process without a shutdown, as `kill -9` does, and waits until it has ended.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns whether a command succeeds, and everything it prints.
#[track_caller]
pub fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

/// Returns a shell in a mount namespace of its own, for programs that expect files at the fixed paths of a pod. Panics
/// if this user may not mount.
#[track_caller]
pub fn with_own_mounts(script: &str) -> Command {
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-ec", script]);
        command
    };
    let (can_mount, output) = run(&mut shell("mount -t tmpfs none /run"));
    assert!(can_mount, "unshare cannot mount here; be root or allow user namespaces: {output}");
    shell(script)
}
