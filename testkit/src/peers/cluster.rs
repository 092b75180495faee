//! A real Kubernetes cluster from `hack/cluster`, with which Holon is compared.

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::proxy::{Answer, Proxy, Request};
use crate::kubectl::Kubectl;

/// The programs of a whole cluster.
pub const WHOLE: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"];
/// The programs of a bare API server, without controllers.
pub const BARE: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

const NAME: &str = "test";

/// A cluster, taken down when dropped.
#[derive(Debug)]
pub struct Cluster {
    state: TempDir,
    kubectl: Kubectl,
    proxy: Option<Proxy>,
}

impl Cluster {
    /// Starts a cluster with one node, on which pods only seem to run, and with additional flags for its API server.
    /// Panics if a program it needs is not installed.
    #[track_caller]
    pub fn start(flags: &[&str]) -> Cluster {
        Cluster::up(&WHOLE, &["--nodes=1"], flags)
    }

    /// The same, with a node that serves logs, exec and port-forward of its pods. Commands run on this machine.
    #[track_caller]
    pub fn start_with_kubelet() -> Cluster {
        Cluster::up(&WHOLE, &["--nodes=1", "--kubelet"], &[])
    }

    /// Returns the file that holds the output of all pods, if they write any: lines of time, stream, `F` and text.
    pub fn log(&self) -> PathBuf {
        self.state.path().join(NAME).join("kubelet/log")
    }

    /// Starts only an API server: no controller touches the objects of a test.
    #[track_caller]
    pub fn start_bare(flags: &[&str]) -> Cluster {
        Cluster::up(&BARE, &["--bare"], flags)
    }

    #[track_caller]
    fn up(programs: &[&str], kind: &[&str], flags: &[&str]) -> Cluster {
        for name in programs {
            super::program(name);
        }
        let state = tempfile::tempdir().expect("a directory for the cluster");
        let program = super::program("kubectl");
        let [kubeconfig, cache] =
            [&format!("{NAME}/kubeconfig"), "kubectl-cache"].map(|file| state.path().join(file));
        let kubectl = Kubectl::with_kubeconfig(&program, kubeconfig, cache);
        let mut cluster = Cluster { state, kubectl, proxy: None };
        let flags = flags.iter().map(|flag| format!("--apiserver-flag={flag}"));
        let options: Vec<_> = kind.iter().map(|&option| option.to_owned()).chain(flags).collect();
        let up = cluster.hack("up", &options);
        let output =
            format!("{}{}", String::from_utf8_lossy(&up.stdout), String::from_utf8_lossy(&up.stderr));
        assert!(up.status.success(), "{output}");
        cluster.proxy = Some(Proxy::start(&program, &cluster.kubeconfig()));
        cluster
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.path().join(NAME).join("kubeconfig")
    }

    /// Returns the ids of the processes that serve requests and store objects: the API server and its etcd.
    pub fn server_pids(&self) -> Vec<u32> {
        let pids = self.state.path().join(NAME).join("pids");
        let read = |component| std::fs::read_to_string(pids.join(component)).expect("the cluster is up");
        ["kube-apiserver", "etcd"].map(|name| read(name).trim().parse().expect("a process id")).to_vec()
    }

    pub fn send(&self, request: Request<'_>) -> Answer {
        self.proxy.as_ref().expect("the cluster is up").send(request)
    }

    /// Runs kubectl with a manifest as input and returns its output. Panics if it fails.
    #[track_caller]
    pub fn run(&self, arguments: &[&str], input: &str) -> String {
        self.kubectl.output_of(arguments, input)
    }

    /// Takes the cluster down and returns whether it left nothing behind.
    pub fn down(mut self) -> bool {
        self.proxy = None;
        self.hack("down", &[]).status.success() && !self.state.path().join(NAME).exists()
    }

    fn hack(&self, verb: &str, options: &[String]) -> Output {
        let mut command = Command::new(super::hack("cluster"));
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
