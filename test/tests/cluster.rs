//! A real Kubernetes cluster from `hack/cluster` starts, and is taken down without a trace.

use testkit::peers::Cluster;

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn a_deployment_on_a_real_cluster_becomes_ready() {
    let cluster = Cluster::start(&[]);
    cluster.run(&["create", "deployment", "web", "--image=web:1", "--replicas=3"], "");
    cluster.run(&["rollout", "status", "deployment/web", "--timeout=60s"], "");
    let ready = cluster.run(&["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"], "");
    assert_eq!(ready, "3");
    assert!(cluster.down(), "the cluster could not be removed completely");
}
