//! A real Kubernetes from `hack/cluster`: the thing Holon is compared with.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::proxy::{Answer, Proxy, Request};

/// What a whole cluster is made of.
pub const WHOLE: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"];
/// What an API server that nothing else works on is made of.
pub const BARE: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

const NAME: &str = "test";

/// Taken down when dropped.
#[derive(Debug)]
pub struct Cluster {
    state: TempDir,
    kubectl: PathBuf,
    proxy: Option<Proxy>,
}

impl Cluster {
    /// A cluster with one node, on which pods seem to run, and these more flags for its API server. None, after
    /// having said that `test` is skipped, where a program it needs is not installed.
    pub fn start(test: &str, flags: &[&str]) -> Option<Cluster> {
        crate::present(test, &WHOLE).then(|| Cluster::up(&["--nodes=1"], flags))
    }

    /// The same, with a node that answers logs, commands and ports of its pods. Commands run on this machine.
    pub fn start_with_kubelet(test: &str) -> Option<Cluster> {
        crate::present(test, &WHOLE).then(|| Cluster::up(&["--nodes=1", "--kubelet"], &[]))
    }

    /// What all its pods write, if they do: a line each of time, stream, `F` and text.
    pub fn log(&self) -> PathBuf {
        self.state.path().join(NAME).join("kubelet/log")
    }

    /// Only an API server: no controller touches what a test has written.
    pub fn start_bare(test: &str, flags: &[&str]) -> Option<Cluster> {
        crate::present(test, &BARE).then(|| Cluster::up(&["--bare"], flags))
    }

    fn up(kind: &[&str], flags: &[&str]) -> Cluster {
        let state = tempfile::tempdir().expect("a directory for the cluster");
        let kubectl = crate::find("kubectl").expect("it was there a moment ago");
        let mut cluster = Cluster { state, kubectl, proxy: None };
        let flags = flags.iter().map(|flag| format!("--apiserver-flag={flag}"));
        let options: Vec<_> = kind.iter().map(|&option| option.to_owned()).chain(flags).collect();
        let up = cluster.hack("up", &options);
        let said = format!("{}{}", String::from_utf8_lossy(&up.stdout), String::from_utf8_lossy(&up.stderr));
        assert!(up.status.success(), "{said}");
        cluster.proxy = Some(Proxy::start(&cluster.kubectl, &cluster.kubeconfig()));
        cluster
    }

    /// Whose credentials may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.path().join(NAME).join("kubeconfig")
    }

    /// The processes that answer requests and keep what is written: the API server and its etcd.
    pub fn server_pids(&self) -> Vec<u32> {
        let pids = self.state.path().join(NAME).join("pids");
        let read = |component| std::fs::read_to_string(pids.join(component)).expect("the cluster is up");
        ["kube-apiserver", "etcd"].map(|name| read(name).trim().parse().expect("a process id")).to_vec()
    }

    pub fn send(&self, request: Request<'_>) -> Answer {
        self.proxy.as_ref().expect("the cluster is up").send(request)
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        // What kubectl learns about a server it keeps by the server's address, and ours are used again by others.
        let cache = self.state.path().join("kubectl-cache");
        command.arg("--kubeconfig").arg(self.kubeconfig()).arg("--cache-dir").arg(cache).args(arguments);
        command
    }

    /// Runs kubectl with a manifest; it must work. Returns what it said.
    pub fn run(&self, arguments: &[&str], input: &str) -> String {
        let mut command = self.kubectl(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        // Not every command reads its input.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("kubectl ends");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said
    }

    /// Takes it down and says whether nothing was left behind.
    pub fn down(mut self) -> bool {
        self.proxy = None;
        self.hack("down", &[]).status.success() && !self.state.path().join(NAME).exists()
    }

    fn hack(&self, verb: &str, options: &[String]) -> Output {
        let mut command = Command::new(crate::hack("cluster"));
        command.args([verb, NAME]).args(options).env("HOLON_CLUSTERS", self.state.path());
        command.output().expect("hack/cluster runs")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.proxy = None;
        self.hack("down", &[]);
    }
}
