//! A real Helm, and a chart with many features (`test/charts/shop`): hooks that are deleted and hooks that stay, a
//! custom kind and an object of it.
//!
//! Helm 4 uses server-side apply by default, so the story runs with both kinds of apply, in the root, in a nested
//! logical cluster, and on a real kube-apiserver, which shows that its expectations are right.

#[path = "../common/mod.rs"]
mod common;
mod fleet;
mod story;

use std::path::Path;

use common::HOLON;
use story::Helm;

use testkit::{Kubectl, Server};

const PLUG_INS_OFF: &str = "--disable-admission-plugins=ServiceAccount";

/// Returns the programs that the stories need.
#[track_caller]
fn programs() -> [std::path::PathBuf; 2] {
    [testkit::peers::program("helm"), testkit::peers::program("kubectl")]
}

fn run_stories(helm: &Path, kubectl: Kubectl, kubeconfig: &Path) {
    for server_side in ["true", "false"] {
        let helm = Helm::new(helm, kubeconfig, server_side);
        story::run_story(&helm, &kubectl);
    }
    kubectl.finish();
}

#[test]
#[ignore = "needs helm and kubectl"]
fn a_release_in_the_root() {
    let [helm, program] = programs();
    let server = Server::start(HOLON);
    let kubectl = Kubectl::new(&server, &program, "root");
    run_stories(&helm, kubectl, &server.file("root.kubeconfig"));
}

#[test]
#[ignore = "needs helm and kubectl"]
fn a_release_in_a_nested_logical_cluster() {
    let [helm, program] = programs();
    let server = Server::start(HOLON);
    let root = Kubectl::new(&server, &program, "root");
    let manifest = "apiVersion: holon.dev/v1alpha1\nkind: LogicalCluster\nmetadata: {name: shops}\n";
    root.with(&["create"], manifest, "created");
    root.finish();
    let kubectl = Kubectl::new(&server, &program, "root:shops");
    run_stories(&helm, kubectl, &server.file("root-shops.kubeconfig"));
    root.fails(&["get", "shops"], "the server doesn't have a resource type \"shops\"");
    root.finish();
}

#[test]
#[ignore = "needs helm, etcd, kube-apiserver and kubectl"]
fn a_release_on_a_real_server() {
    let [helm, program] = programs();
    let cluster = testkit::peers::Cluster::start_bare(&[PLUG_INS_OFF]);
    let scratch = tempfile::tempdir().unwrap();
    let kubeconfig = scratch.path().join("kubeconfig");
    std::fs::copy(cluster.kubeconfig(), &kubeconfig).unwrap();
    let kubectl = Kubectl::with_kubeconfig(&program, kubeconfig.clone(), scratch.path().join("cache"));
    run_stories(&helm, kubectl, &kubeconfig);
}
