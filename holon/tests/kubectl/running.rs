//! Rollouts, waits, events and nodes. No pods run here, so the test writes the statuses that a cluster would.

use std::process::Stdio;

use testkit::Kubectl;

const N: &str = "--namespace=running";

pub(crate) fn suite(k: &Kubectl) {
    k.says(&["create", "namespace", "running"], "created");
    rollouts(k);
    watches(k);
    events(k);
    nodes(k);
}

fn rollouts(k: &Kubectl) {
    k.says(&["create", "deployment", "web", N, "--image=web:1", "--replicas=2"], "created");
    k.fails(&["rollout", "status", "deploy/web", N, "--timeout=1s"], "timed out");
    let status = r#"{"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2,"conditions":[{"type":"Available","status":"True","reason":"Enough","message":"","lastUpdateTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    k.says(&["patch", "deploy", "web", N, "--subresource=status", "--type=merge", "-p", status], "patched");
    k.says(&["rollout", "status", "deploy/web", N, "--timeout=10s"], "successfully rolled out");
    k.says(&["wait", "--for=condition=Available", "deploy/web", N, "--timeout=10s"], "condition met");
    k.says(
        &["wait", "--for=jsonpath={.status.readyReplicas}=2", "deploy/web", N, "--timeout=10s"],
        "condition met",
    );
    k.fails(&["wait", "--for=condition=Progressing", "deploy/web", N, "--timeout=1s"], "timed out");
    k.says(&["rollout", "pause", "deploy/web", N], "deployment.apps/web paused");
    k.field(&["deploy", "web", N], "{.spec.paused}", "true");
    k.fails(&["rollout", "pause", "deploy/web", N], "already paused");
    k.says(&["rollout", "resume", "deploy/web", N], "deployment.apps/web resumed");
    k.says(&["rollout", "restart", "deploy/web", N], "deployment.apps/web restarted");
    k.field(&["deploy", "web", N], "{.metadata.generation}", "4");
    k.says(&["rollout", "history", "deploy/web", N], "deployment.apps/web");
    k.says(&["describe", "deploy/web", N], "2 desired | 2 updated | 2 total | 2 available");
    k.says(&["get", "deploy", "web", N], "2/2");
    k.fails(&["logs", "deploy/web", N], "");
}

fn watches(k: &Kubectl) {
    let watch = k
        .command(&["get", "configmaps", N, "-w", "-o", "name", "--request-timeout", "4s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    k.says(&["create", "configmap", "seen", N], "created");
    k.says(&["delete", "configmap", "seen", N], "deleted");
    let output = watch.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    k.check(printed.matches("configmap/seen\n").count() == 2, &["get", "-w"], "seen, twice", &printed);
}

const EVENT: &str = "
apiVersion: v1
kind: Event
metadata: {name: web.1, namespace: running}
involvedObject: {apiVersion: apps/v1, kind: Deployment, name: web, namespace: running}
type: Warning
reason: TooQuiet
message: Nothing happens here
source: {component: suite}
firstTimestamp: '2026-01-01T00:00:00Z'
lastTimestamp: '2026-01-01T00:00:00Z'
count: 3
";

fn events(k: &Kubectl) {
    k.with(&["create"], EVENT, "event/web.1 created");
    k.says(&["get", "events", N], "TooQuiet");
    k.says(&["events", N], "Nothing happens here");
    k.says(&["events", N, "--for", "deployment/web", "--types=Warning"], "TooQuiet");
    k.says(&["get", "events", N, "--field-selector=reason=TooQuiet", "-o", "name"], "event/web.1");
    k.says(&["get", "events.events.k8s.io", N], "web");
}

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: suite-node, labels: {kubernetes.io/hostname: suite-node}}
";

const RESIDENT: &str = "
apiVersion: v1
kind: Pod
metadata: {name: resident, namespace: running}
spec: {nodeName: suite-node, terminationGracePeriodSeconds: 0, containers: [{name: a, image: 'a:1'}]}
";

fn nodes(k: &Kubectl) {
    k.with(&["create"], NODE, "node/suite-node created");
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Up","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}],"capacity":{"cpu":"4"},"allocatable":{"cpu":"4"}}}"#;
    k.says(&["patch", "node", "suite-node", "--subresource=status", "--type=merge", "-p", ready], "patched");
    k.says(&["get", "nodes"], "Ready");
    k.says(&["cordon", "suite-node"], "node/suite-node cordoned");
    k.says(&["get", "nodes"], "Ready,SchedulingDisabled");
    k.says(&["cordon", "suite-node"], "already cordoned");
    k.says(&["uncordon", "suite-node"], "node/suite-node uncordoned");
    k.says(&["taint", "nodes", "suite-node", "key=value:NoSchedule"], "node/suite-node tainted");
    k.field(&["node", "suite-node"], "{.spec.taints[0].effect}", "NoSchedule");
    k.says(&["taint", "nodes", "suite-node", "key-"], "untainted");
    k.says(&["label", "node", "suite-node", "disk=ssd"], "labeled");
    k.says(&["describe", "node", "suite-node"], "Taints:");
    k.with(&["create"], RESIDENT, "created");
    k.says(&["get", "pods", "-A", "--field-selector=spec.nodeName=suite-node", "-o", "name"], "pod/resident");
    k.fails(&["drain", "suite-node", "--timeout=10s"], "cannot delete");
    k.says(&["drain", "suite-node", "--force", "--timeout=30s"], "node/suite-node drained");
    k.fails(&["get", "pod", "resident", N], "NotFound");
    k.says(&["delete", "node", "suite-node"], "deleted");
}
