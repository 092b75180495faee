//! A real Kubernetes cluster from `hack/cluster`, with which Holon is compared.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::proxy::{Answer, Proxy, Request};

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
    kubectl: PathBuf,
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
            crate::program(name);
        }
        let state = tempfile::tempdir().expect("a directory for the cluster");
        let kubectl = crate::program("kubectl");
        let mut cluster = Cluster { state, kubectl, proxy: None };
        let flags = flags.iter().map(|flag| format!("--apiserver-flag={flag}"));
        let options: Vec<_> = kind.iter().map(|&option| option.to_owned()).chain(flags).collect();
        let up = cluster.hack("up", &options);
        let said = format!("{}{}", String::from_utf8_lossy(&up.stdout), String::from_utf8_lossy(&up.stderr));
        assert!(up.status.success(), "{said}");
        cluster.proxy = Some(Proxy::start(&cluster.kubectl, &cluster.kubeconfig()));
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

    /// Returns kubectl as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        // kubectl caches discovery by the server's address, and later clusters use the same addresses.
        let cache = self.state.path().join("kubectl-cache");
        command.arg("--kubeconfig").arg(self.kubeconfig()).arg("--cache-dir").arg(cache).args(arguments);
        command
    }

    /// Runs kubectl with a manifest as input and returns its output. Panics if it fails.
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

    /// Takes the cluster down and returns whether it left nothing behind.
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
