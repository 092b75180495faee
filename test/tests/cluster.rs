//! A real Kubernetes from `hack/cluster`: the thing Holon is compared with, and later runs pods on.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use scenarios::peers;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Takes the cluster down whatever happens.
struct Cluster {
    name: String,
    state: tempfile::TempDir,
}

impl Cluster {
    fn hack(&self, arguments: &[&str]) -> Output {
        Command::new(root().join("hack/cluster"))
            .args(arguments)
            .arg(&self.name)
            .env("HOLON_CLUSTERS", self.state.path())
            .output()
            .unwrap()
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.state.path().join(&self.name).join("kubeconfig");
        let kubectl = peers::find("kubectl").unwrap();
        let output = Command::new(kubectl).env("KUBECONFIG", kubeconfig).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.hack(&["down"]);
    }
}

#[test]
fn a_deployment_on_a_real_cluster_becomes_ready() {
    let needed = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"];
    if !peers::present("a_deployment_on_a_real_cluster_becomes_ready", &needed) {
        return;
    }
    let cluster = Cluster { name: "test".to_owned(), state: tempfile::tempdir().unwrap() };
    let up = cluster.hack(&["up"]);
    let said = format!("{}{}", String::from_utf8_lossy(&up.stdout), String::from_utf8_lossy(&up.stderr));
    assert!(up.status.success() && said.contains("kubeconfig"), "{said}");

    cluster.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=3"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    let ready = cluster.kubectl(&["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"]);
    assert_eq!(ready, "3");

    let down = cluster.hack(&["down"]);
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert!(!cluster.state.path().join("test").exists(), "nothing is left behind");
}
