//! Kinds that users define, with a real kubectl: in the root, in a nested logical cluster, and on two servers that share
//! an etcd.
//!
//! Everything is asked for once, right after it was made: nobody has to wait for a kind but until it says that it is
//! established.

#[path = "../common/mod.rs"]
mod common;

mod apart;
mod life;
mod manifests;

use common::Server;
use common::kubectl::Kubectl;

/// Makes the logical clusters on the way to a path, and returns a kubectl at its end.
fn kubectl_at(server: &Server, program: &std::path::Path, path: &str) -> Kubectl {
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
    suite(&kubectl_at(&Server::start(), &program, "root"));
}

#[test]
fn a_life_in_a_nested_logical_cluster() {
    let Some(program) = peers::need("a_life_in_a_nested_logical_cluster", "kubectl") else { return };
    suite(&kubectl_at(&Server::start(), &program, "root:a:b"));
}

#[test]
fn a_life_with_an_older_kubectl() {
    let Some(program) = peers::need("a_life_with_an_older_kubectl", "kubectl-1.32") else { return };
    suite(&kubectl_at(&Server::start(), &program, "root"));
}
