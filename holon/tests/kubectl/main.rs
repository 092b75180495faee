//! Real kubectls: the newest and the oldest that are supported.
//!
//! `first_day` is a story that only Holon can run. The suite has the other commands of users; it runs against Holon in
//! three places (the root, a nested logical cluster, on etcd), and against a real kube-apiserver, which shows that its
//! expectations are right.

#[path = "../common/mod.rs"]
mod common;

mod applying;
mod changing;
mod creating;
mod first_day;
mod history;
mod leaving;
mod looking;
mod running;

use common::Server;
use common::kubectl::Kubectl;

fn suite(k: &Kubectl, has_controllers: bool) {
    looking::suite(k);
    creating::suite(k);
    changing::suite(k);
    applying::suite(k);
    running::suite(k);
    history::suite(k);
    leaving::suite(k, has_controllers);
    k.finish();
}

#[test]
fn a_first_day_with_the_newest_kubectl() {
    first_day::told_with("kubectl");
}

#[test]
fn a_first_day_with_an_older_kubectl() {
    first_day::told_with("kubectl-1.32");
}

#[test]
fn the_suite_in_the_root() {
    let Some(program) = peers::need("the_suite_in_the_root", "kubectl") else { return };
    let server = Server::start();
    suite(&Kubectl::at(&server, &program, "root"), true);
}

#[test]
fn the_suite_in_a_nested_logical_cluster() {
    let Some(program) = peers::need("the_suite_in_a_nested_logical_cluster", "kubectl") else { return };
    let server = Server::start();
    suite(&Kubectl::at(&server, &program, "root:a:b"), true);
}

#[test]
fn the_suite_with_an_older_kubectl() {
    let Some(program) = peers::need("the_suite_with_an_older_kubectl", "kubectl-1.32") else { return };
    let server = Server::start();
    suite(&Kubectl::at(&server, &program, "root:a:b"), true);
}

#[test]
fn the_suite_on_etcd() {
    let test = "the_suite_on_etcd";
    let (Some(program), Some(etcd)) = (peers::need(test, "kubectl"), peers::need(test, "etcd")) else {
        return;
    };
    let etcd = peers::Etcd::start(etcd, 1);
    let server = Server::start_with(&["--etcd-endpoints", &etcd.endpoint(0)]);
    suite(&Kubectl::at(&server, &program, "root:a:b"), true);
}

#[test]
fn the_suite_on_a_real_server() {
    // No controller runs there that creates service accounts or counts for quotas.
    let plug_ins = "--disable-admission-plugins=ServiceAccount,ResourceQuota,TaintNodesByCondition";
    let Some(cluster) = peers::Cluster::start_bare("the_suite_on_a_real_server", &[plug_ins]) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let kubeconfig = scratch.path().join("kubeconfig");
    std::fs::copy(cluster.kubeconfig(), &kubeconfig).unwrap();
    let program = peers::find("kubectl").unwrap();
    suite(&Kubectl::with_kubeconfig(&program, kubeconfig, scratch.path().join("cache")), false);
}
