//! Real kubectls: the newest and the oldest that are supported.
//!
//! `first_day` is a story that only Holon can run. The suite has the other commands of users; it runs against Holon in
//! three places (the root, a nested logical cluster, on etcd), and against a real kube-apiserver, which shows that its
//! expectations are right.

use testkit::{Kubectl, Server};

use common::HOLON;

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
#[ignore = "needs kubectl"]
fn a_first_day_with_the_newest_kubectl() {
    first_day::run_with("kubectl");
}

#[test]
#[ignore = "needs kubectl-1.32"]
fn a_first_day_with_an_older_kubectl() {
    first_day::run_with("kubectl-1.32");
}

#[test]
#[ignore = "needs kubectl"]
fn the_suite_in_the_root() {
    let program = testkit::peers::program("kubectl");
    let server = Server::start(HOLON);
    suite(&Kubectl::at(&server, &program, "root"), true);
}

#[test]
#[ignore = "needs kubectl"]
fn the_suite_in_a_nested_logical_cluster() {
    let program = testkit::peers::program("kubectl");
    let server = Server::start(HOLON);
    suite(&Kubectl::at(&server, &program, "root:a:b"), true);
}

#[test]
#[ignore = "needs kubectl-1.32"]
fn the_suite_with_an_older_kubectl() {
    let program = testkit::peers::program("kubectl-1.32");
    let server = Server::start(HOLON);
    suite(&Kubectl::at(&server, &program, "root:a:b"), true);
}

#[test]
#[ignore = "needs etcd and kubectl"]
fn the_suite_on_etcd() {
    let program = testkit::peers::program("kubectl");
    let etcd = testkit::peers::Etcd::start(testkit::peers::program("etcd"), 1);
    let server = Server::start_with(HOLON, &["--etcd-endpoints", &etcd.endpoint(0)]);
    suite(&Kubectl::at(&server, &program, "root:a:b"), true);
}

#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn the_suite_on_a_real_server() {
    // No controller runs there that creates service accounts or counts for quotas.
    let plug_ins = "--disable-admission-plugins=ServiceAccount,ResourceQuota,TaintNodesByCondition";
    let cluster = testkit::peers::Cluster::start_bare(&[plug_ins]);
    let scratch = tempfile::tempdir().unwrap();
    let kubeconfig = scratch.path().join("kubeconfig");
    std::fs::copy(cluster.kubeconfig(), &kubeconfig).unwrap();
    let program = testkit::peers::program("kubectl");
    suite(&Kubectl::with_kubeconfig(&program, kubeconfig, scratch.path().join("cache")), false);
}
