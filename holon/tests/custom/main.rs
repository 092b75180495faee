//! Custom kinds and Holon's own kinds, with a real kubectl: in the root, in a nested logical cluster, and on two
//! servers that share an etcd.
//!
//! Every command runs once, right after the previous one: clients have to wait for a kind only until it is established.

use testkit::{Kubectl, Server};

use common::HOLON;

#[path = "../common/mod.rs"]
mod common;

mod apart;
mod life;
mod manifests;
mod own;

fn suite(k: &Kubectl) {
    life::definition(k);
    life::objects(k);
    life::reading(k);
    life::changing(k);
    life::versions(k);
    life::names(k);
    life::deleting(k);
    k.finish();
}

#[test]
#[ignore = "needs kubectl"]
fn the_custom_kind_suite_in_the_root() {
    let program = testkit::peers::program("kubectl");
    suite(&Kubectl::at(&Server::start(HOLON), &program, "root"));
}

#[test]
#[ignore = "needs kubectl"]
fn the_custom_kind_suite_in_a_nested_logical_cluster() {
    let program = testkit::peers::program("kubectl");
    suite(&Kubectl::at(&Server::start(HOLON), &program, "root:a:b"));
}

#[test]
#[ignore = "needs kubectl"]
fn built_in_kinds_are_served_in_a_nested_logical_cluster() {
    let program = testkit::peers::program("kubectl");
    let server = Server::start(HOLON);
    own::suite(&Kubectl::at(&server, &program, "root:a:b"));
}

#[test]
#[ignore = "needs kubectl-1.32"]
fn built_in_kinds_are_served_to_an_older_kubectl() {
    let program = testkit::peers::program("kubectl-1.32");
    let server = Server::start(HOLON);
    own::suite(&Kubectl::at(&server, &program, "root"));
}

#[test]
#[ignore = "needs kubectl-1.32"]
fn the_custom_kind_suite_with_an_older_kubectl() {
    let program = testkit::peers::program("kubectl-1.32");
    suite(&Kubectl::at(&Server::start(HOLON), &program, "root"));
}
