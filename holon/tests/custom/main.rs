//! Custom kinds and Holon's own kinds, with a real kubectl: in the root, in a nested logical cluster, and on two
//! servers that share an etcd.
//!
//! Every command runs once, right after the previous one: clients have to wait for a kind only until it is established.

#[path = "../common/mod.rs"]
mod common;

mod apart;
mod life;
mod manifests;
mod own;

use common::Server;
use common::kubectl::Kubectl;

fn suite(k: &Kubectl) {
    life::definition(k);
    life::objects(k);
    life::looking(k);
    life::changing(k);
    life::versions(k);
    life::names(k);
    life::leaving(k);
    k.finish();
}

#[test]
fn a_life_in_the_root() {
    let Some(program) = peers::need("a_life_in_the_root", "kubectl") else { return };
    suite(&Kubectl::at(&Server::start(), &program, "root"));
}

#[test]
fn a_life_in_a_nested_logical_cluster() {
    let Some(program) = peers::need("a_life_in_a_nested_logical_cluster", "kubectl") else { return };
    suite(&Kubectl::at(&Server::start(), &program, "root:a:b"));
}

#[test]
fn what_comes_with_holon_in_a_nested_logical_cluster() {
    let Some(program) = peers::need("what_comes_with_holon_in_a_nested_logical_cluster", "kubectl") else {
        return;
    };
    let server = Server::start();
    own::suite(&Kubectl::at(&server, &program, "root:a:b"));
}

#[test]
fn what_comes_with_holon_with_an_older_kubectl() {
    let Some(program) = peers::need("what_comes_with_holon_with_an_older_kubectl", "kubectl-1.32") else {
        return;
    };
    let server = Server::start();
    own::suite(&Kubectl::at(&server, &program, "root"));
}

#[test]
fn a_life_with_an_older_kubectl() {
    let Some(program) = peers::need("a_life_with_an_older_kubectl", "kubectl-1.32") else { return };
    suite(&Kubectl::at(&Server::start(), &program, "root"));
}
