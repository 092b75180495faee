//! kubectl with one kubeconfig.
//!
//! A test either expects each command to succeed ([`Kubectl::output`]), or collects failed expectations
//! ([`Kubectl::says`] and others, then [`Kubectl::finish`]), so that one run reports all failures.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::process;

/// Bounds a request of an ordinary command, so that a server that does not answer fails the test.
const REQUEST_TIMEOUT: &str = "--request-timeout=20s";

/// A kubectl, a kubeconfig, and the expectations that failed so far.
#[derive(Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    environment: Vec<(&'static str, &'static str)>,
    failures: Mutex<Vec<String>>,
}

impl Kubectl {
    /// `cache` is a directory for discovery, which kubectl caches by the address of a server: later servers may have
    /// the same address.
    pub fn with_kubeconfig(program: &Path, kubeconfig: PathBuf, cache: PathBuf) -> Kubectl {
        let (program, environment) = (program.to_owned(), Vec::new());
        Kubectl { program, kubeconfig, cache, environment, failures: Mutex::default() }
    }

    /// Sets an environment variable of all commands from now on.
    pub fn set_env(&mut self, name: &'static str, value: &'static str) {
        self.environment.retain(|(set, _)| *set != name);
        self.environment.push((name, value));
    }

    /// Returns a command that may take as long as it needs.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(&self.cache);
        command.args(arguments).envs(self.environment.iter().copied()).stdin(Stdio::null());
        command
    }

    /// Returns whether the command succeeds, and everything it prints.
    pub fn run(&self, arguments: &[&str]) -> (bool, String) {
        process::run(&mut self.command(&[&[REQUEST_TIMEOUT], arguments].concat()))
    }

    /// Returns what a command line prints to stdout. Panics if it fails.
    #[track_caller]
    pub fn output(&self, line: &str) -> String {
        self.output_of(&line.split(' ').collect::<Vec<_>>(), "")
    }

    /// The same with arguments that may contain spaces, and with an input.
    #[track_caller]
    pub fn output_of(&self, arguments: &[&str], input: &str) -> String {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        let output = thread::scope(|scope| {
            // Not every command reads its input. One that does may print before it has read everything.
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            child.wait_with_output().expect("kubectl ends")
        });
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "kubectl {}: {stdout}{stderr}", arguments.join(" "));
        stdout
    }

    /// Expects success and this output.
    pub fn says(&self, arguments: &[&str], expected: &str) {
        let (ok, output) = self.run(arguments);
        self.check(ok && output.contains(expected), arguments, expected, &output);
    }

    /// Expects failure and this output.
    pub fn fails(&self, arguments: &[&str], expected: &str) {
        let (ok, output) = self.run(arguments);
        self.check(!ok && output.contains(expected), arguments, expected, &output);
    }

    /// Expects exactly this output.
    pub fn prints(&self, arguments: &[&str], expected: &str) {
        let (ok, output) = self.run(arguments);
        self.check(ok && output.trim() == expected, arguments, expected, &output);
    }

    /// Writes a manifest to a file and runs a verb with it.
    pub fn with(&self, verb: &[&str], manifest: &str, expected: &str) {
        let file = self.file("manifest.yaml", manifest);
        self.says(&[verb, &["-f", &file]].concat(), expected);
    }

    /// Runs `edit` with one `sed` expression as the editor.
    pub fn edits(&self, arguments: &[&str], expression: &str, expected: &str) {
        let mut command = self.command(&[&[REQUEST_TIMEOUT, "edit"], arguments].concat());
        let (ok, output) = process::run(command.env("KUBE_EDITOR", format!("sed -i {expression}")));
        self.check(ok && output.contains(expected), arguments, expected, &output);
    }

    /// Expects this value of a field, selected by a JSONPath.
    pub fn field(&self, object: &[&str], path: &str, expected: &str) {
        self.prints(&[&["get"], object, &["-o", &format!("jsonpath={path}")]].concat(), expected);
    }

    /// Writes a file beside the kubeconfig and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let file = self.kubeconfig.with_extension(name);
        std::fs::write(&file, text).expect("a writable directory");
        file.to_str().expect("a path in UTF-8").to_owned()
    }

    /// Notes a failed expectation of a command.
    pub fn check(&self, is_right: bool, arguments: &[&str], expected: &str, output: &str) {
        if !is_right {
            let failure =
                format!("kubectl {}\n  expected {expected:?}, printed:\n{output}", arguments.join(" "));
            self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
        }
    }

    /// Panics if any expectation failed so far.
    #[track_caller]
    pub fn finish(&self) {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(failures.is_empty(), "{} steps failed:\n\n{}", failures.len(), failures.join("\n"));
    }
}

#[cfg(feature = "server")]
impl Kubectl {
    /// Returns kubectl for a logical cluster of a server.
    pub fn new(server: &crate::Server, program: &Path, cluster: &str) -> Kubectl {
        Kubectl::with_kubeconfig(program, server.kubeconfig_file(cluster), server.file("cache"))
    }

    /// Creates the logical clusters along a path, and returns a kubectl for the last one.
    pub fn at(server: &crate::Server, program: &Path, path: &str) -> Kubectl {
        let mut kubectl = Kubectl::new(server, program, "root");
        let mut at = "root".to_owned();
        for name in path.split(':').skip(1) {
            let manifest =
                format!("apiVersion: holon.dev/v1alpha1\nkind: LogicalCluster\nmetadata:\n  name: {name}\n");
            kubectl.with(&["create"], &manifest, "created");
            kubectl.finish();
            at = format!("{at}:{name}");
            kubectl = Kubectl::new(server, program, &at);
        }
        kubectl
    }
}
