//! Rollbacks. No controller records a history here, so the test writes the revisions that a controller would.

use testkit::Kubectl;

const N: &str = "--namespace=history";

pub(crate) fn suite(k: &Kubectl) {
    k.says(&["create", "namespace", "history"], "created");
    deployment(k);
    daemon_set(k);
}

/// The history of a Deployment is in its ReplicaSets.
fn deployment(k: &Kubectl) {
    k.says(&["create", "deployment", "web", N, "--image=web:2"], "created");
    k.says(&["annotate", "deploy", "web", N, "deployment.kubernetes.io/revision=2"], "annotated");
    let (_, uid) = k.run(&["get", "deploy", "web", N, "-o", "jsonpath={.metadata.uid}"]);
    for revision in ["1", "2"] {
        let set = format!(
            "
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-{revision}
  labels: {{app: web, pod-template-hash: '{revision}'}}
  annotations: {{deployment.kubernetes.io/revision: '{revision}'}}
  ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: web, uid: {uid}, controller: true}}]
spec:
  replicas: 0
  selector: {{matchLabels: {{app: web, pod-template-hash: '{revision}'}}}}
  template:
    metadata: {{labels: {{app: web, pod-template-hash: '{revision}'}}}}
    spec: {{containers: [{{name: web, image: 'web:{revision}'}}]}}
"
        );
        k.with(&["create", N], &set, "created");
    }
    k.says(&["rollout", "history", "deploy/web", N], "2         <none>");
    k.says(&["rollout", "history", "deploy/web", N, "--revision=1"], "web:1");
    k.says(&["rollout", "undo", "deploy/web", N, "--dry-run=server"], "(server dry run)");
    k.says(&["rollout", "undo", "deploy/web", N], "deployment.apps/web rolled back");
    k.field(&["deploy", "web", N], "{.spec.template.spec.containers[*].image}", "web:1");
    k.says(&["rollout", "undo", "deploy/web", N, "--to-revision=2"], "deployment.apps/web rolled back");
    k.field(&["deploy", "web", N], "{.spec.template.spec.containers[*].image}", "web:2");
    k.says(&["rollout", "undo", "deploy/web", N, "--to-revision=2"], "skipped rollback");
    k.fails(&["rollout", "undo", "deploy/web", N, "--to-revision=7"], "unable to find specified revision 7");
    k.says(&["rollout", "restart", "deploy/web", N], "restarted");
    k.edits(&["deploy", "web", N], "s/image:\\ web:2/image:\\ web:3/", "deployment.apps/web edited");
    k.field(&["deploy", "web", N], "{.spec.template.spec.containers[*].image}", "web:3");
}

const AGENT: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: 'agent:2'}, {name: added, image: 'added:1'}]}
";

/// The history of a DaemonSet is in patches, each of which replaces the template.
fn daemon_set(k: &Kubectl) {
    k.with(&["create", N], AGENT, "daemonset.apps/agent created");
    let (_, uid) = k.run(&["get", "ds", "agent", N, "-o", "jsonpath={.metadata.uid}"]);
    for revision in ["1", "2"] {
        let past = format!(
            "
apiVersion: apps/v1
kind: ControllerRevision
metadata:
  name: agent-{revision}
  labels: {{app: agent}}
  ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: {uid}, controller: true}}]
revision: {revision}
data:
  spec:
    template:
      $patch: replace
      metadata: {{labels: {{app: agent}}}}
      spec: {{containers: [{{name: agent, image: 'agent:{revision}'}}]}}
"
        );
        k.with(&["create", N], &past, "created");
    }
    k.says(&["rollout", "history", "ds/agent", N], "2         <none>");
    k.says(&["rollout", "history", "ds/agent", N, "--revision=1"], "agent:1");
    k.says(&["rollout", "undo", "ds/agent", N, "--to-revision=1"], "daemonset.apps/agent rolled back");
    k.field(&["ds", "agent", N], "{.spec.template.spec.containers[*].image}", "agent:1");
}
