//! kubectl with the kubeconfig of one logical cluster, or of a real Kubernetes.
//!
//! Failed expectations are collected, so that one run shows everything that is wrong.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::Server;

pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    wrong: RefCell<Vec<String>>,
}

impl Kubectl {
    pub(crate) fn new(server: &Server, program: &Path, path: &str) -> Kubectl {
        let kubeconfig = server.file(&format!("{}.kubeconfig", path.replace(':', "-")));
        std::fs::write(&kubeconfig, server.kubeconfig(path)).unwrap();
        Kubectl::with_kubeconfig(program, kubeconfig, server.file("cache"))
    }

    /// Creates the logical clusters along a path, and returns a kubectl for the last one.
    pub(crate) fn at(server: &Server, program: &Path, path: &str) -> Kubectl {
        let mut parent = Kubectl::new(server, program, "root");
        let mut at = "root".to_owned();
        for name in path.split(':').skip(1) {
            let manifest =
                format!("apiVersion: holon.dev/v1alpha1\nkind: LogicalCluster\nmetadata:\n  name: {name}\n");
            parent.with(&["create"], &manifest, "created");
            parent.finish();
            at = format!("{at}:{name}");
            parent = Kubectl::new(server, program, &at);
        }
        parent
    }

    pub(crate) fn with_kubeconfig(program: &Path, kubeconfig: PathBuf, cache: PathBuf) -> Kubectl {
        Kubectl { program: program.to_owned(), kubeconfig, cache, wrong: RefCell::default() }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(&self.cache);
        command.args(["--request-timeout", "20s"]).args(arguments).stdin(Stdio::null());
        command
    }

    /// Returns whether the command succeeded, and its output.
    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String) {
        said(&mut self.command(arguments))
    }

    /// Expects success and this output.
    pub(crate) fn says(&self, arguments: &[&str], expected: &str) {
        let (worked, said) = self.run(arguments);
        self.check(worked && said.contains(expected), arguments, expected, &said);
    }

    /// Expects failure and this output.
    pub(crate) fn fails(&self, arguments: &[&str], expected: &str) {
        let (worked, said) = self.run(arguments);
        self.check(!worked && said.contains(expected), arguments, expected, &said);
    }

    /// Expects exactly this output.
    pub(crate) fn prints(&self, arguments: &[&str], expected: &str) {
        let (worked, said) = self.run(arguments);
        self.check(worked && said.trim() == expected, arguments, expected, &said);
    }

    /// Writes a manifest to a file and runs a verb with it.
    pub(crate) fn with(&self, verb: &[&str], manifest: &str, expected: &str) {
        let file = self.file("manifest.yaml", manifest);
        self.says(&[verb, &["-f", &file]].concat(), expected);
    }

    /// Runs `edit` with one `sed` expression as the editor.
    pub(crate) fn edits(&self, arguments: &[&str], expression: &str, expected: &str) {
        let mut command = self.command(&[&["edit"], arguments].concat());
        let (worked, said) = said(command.env("KUBE_EDITOR", format!("sed -i {expression}")));
        self.check(worked && said.contains(expected), arguments, expected, &said);
    }

    /// Expects this value of a field, selected by a JSONPath.
    pub(crate) fn field(&self, object: &[&str], path: &str, expected: &str) {
        self.prints(&[&["get"], object, &["-o", &format!("jsonpath={path}")]].concat(), expected);
    }

    /// Writes a file beside the kubeconfig and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let file = self.kubeconfig.with_extension(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }

    pub(crate) fn check(&self, right: bool, arguments: &[&str], expected: &str, said: &str) {
        if !right {
            self.wrong
                .borrow_mut()
                .push(format!("kubectl {}\n  expected {expected:?}, said:\n{said}", arguments.join(" ")));
        }
    }

    /// Panics if any expectation failed so far.
    pub(crate) fn finish(&self) {
        let wrong = self.wrong.borrow();
        assert!(wrong.is_empty(), "{} steps went wrong:\n\n{}", wrong.len(), wrong.join("\n"));
    }
}

pub(crate) fn said(command: &mut Command) -> (bool, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}
