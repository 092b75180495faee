//! The first commands of a new user.

use std::process::Stdio;

use testkit::{Kubectl, Server};

use crate::common::HOLON;

const APP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec:
      containers:
      - {name: api, image: api:1}
      - {name: proxy, image: proxy:1}
";

const TEAM: &str = "
apiVersion: holon.dev/v1alpha1
kind: LogicalCluster
metadata: {name: team-a}
";

#[track_caller]
pub(crate) fn run_with(name: &str) {
    let program = testkit::peers::program(name);
    let server = Server::start(HOLON);
    let root = Kubectl::new(&server, &program, "root");

    root.says(&["get", "--raw", "/readyz"], "ok");
    root.says(&["cluster-info"], &server.url);
    root.says(&["version"], "+holon");
    root.with(&["create"], TEAM, "logicalcluster.holon.dev/team-a created");
    root.says(&["get", "lc"], "Ready");
    root.with(&["apply", "--dry-run=server"], &TEAM.replace("team-a", "team-b"), "created (server dry run)");
    root.fails(&["get", "lc", "team-b"], "NotFound");

    let team = Kubectl::new(&server, &program, "root:team-a");
    discovery(&team);
    identity_and_rights(&team);
    small_objects(&team);
    an_application(&team);
    watching(&team);
    deleting(&team);

    // The same names in another logical cluster belong to other objects.
    team.says(&["create", "configmap", "settings"], "created");
    root.fails(&["get", "configmap", "settings"], "NotFound");
    root.says(&["delete", "lc", "team-a"], "deleted");
    team.fails(&["get", "ns"], "NotFound");
    root.with(&["create"], TEAM, "created");
    team.fails(&["get", "configmap", "settings"], "NotFound");
    root.finish();
    team.finish();
    assert!(server.stop(), "the server did not stop gracefully");
}

fn discovery(team: &Kubectl) {
    for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        team.says(&["get", "ns"], namespace);
    }
    // Twice, because the second time the client sends a conditional request.
    team.says(&["api-resources"], "logicalclusters");
    team.says(&["api-resources", "--cached=false"], "deployments");
    team.says(&["api-versions"], "apps/v1");
    team.says(&["explain", "deployment.spec.replicas"], "<integer>");
    team.says(&["explain", "lc", "--recursive"], "phase");
    team.says(&["get", "all", "-A"], "service/kubernetes");
}

fn identity_and_rights(team: &Kubectl) {
    team.says(&["auth", "whoami"], "holon-admin");
    team.says(&["auth", "whoami"], "system:authenticated");
    team.prints(&["auth", "can-i", "create", "deployments", "-n", "default"], "yes");
    team.prints(&["auth", "can-i", "get", "/metrics"], "yes");
    team.says(&["auth", "can-i", "--list"], "*.*");
}

fn small_objects(team: &Kubectl) {
    team.says(&["create", "configmap", "a", "--from-literal=x=y"], "configmap/a created");
    team.fails(&["create", "configmap", "a"], "already exists");
    team.says(&["create", "secret", "generic", "s", "--from-literal=password=p"], "created");
    team.prints(&["get", "secret", "s", "-o", "jsonpath={.data.password}"], "cA==");
    team.says(&["label", "configmap", "a", "tier=front"], "labeled");
    team.fails(&["label", "configmap", "a", "tier=back"], "already has a value");
    team.fails(
        &["patch", "configmap", "a", "--type=merge", "-p", r#"{"metadata":{"labels":{"bad":"_-"}}}"#],
        "Invalid value",
    );
    team.says(&["annotate", "configmap", "a", "note=this"], "annotated");
    team.says(&["get", "configmaps", "-l", "tier in (front)", "-A"], "a ");
    team.says(&["get", "configmaps", "-l", "tier,tier!=front"], "No resources found");
    team.says(&["get", "configmaps", "--field-selector", "metadata.name=a", "-o", "wide"], "DATA");
    team.says(
        &["patch", "configmap", "a", "--type=json", "-p", r#"[{"op":"add","path":"/data/z","value":"1"}]"#],
        "patched",
    );
    team.fails(
        &["patch", "configmap", "a", "--type=json", "-p", r#"[{"op":"test","path":"/data/z","value":"2"}]"#],
        "rejected",
    );
    team.says(
        &["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"z":null,"q":"2"}}"#],
        "patched",
    );
    team.prints(&["get", "configmap", "a", "-o", "jsonpath={.data}"], r#"{"q":"2","x":"y"}"#);
    team.says(&["create", "configmap", "dry", "--dry-run=server"], "created (server dry run)");
    team.fails(&["get", "configmap", "dry"], "NotFound");
    team.says(&["delete", "configmap", "a", "--dry-run=server"], "deleted");
    team.says(&["delete", "configmap", "a"], "deleted");
    team.says(&["wait", "--for=delete", "configmap/a", "--timeout=5s"], "");
    team.fails(&["get", "configmap", "a"], "configmaps \"a\" not found");
}

fn an_application(team: &Kubectl) {
    team.says(&["create", "namespace", "shop"], "created");
    team.prints(
        &["get", "ns", "shop", "-o", "jsonpath={.status.phase} {.spec.finalizers}"],
        "Active [\"kubernetes\"]",
    );
    team.prints(&["get", "ns", "-l", "kubernetes.io/metadata.name=shop", "-o", "name"], "namespace/shop");
    team.says(&["create", "deployment", "web", "--image=web:1", "-n", "shop"], "created");
    team.with(&["apply"], APP, "deployment.apps/api created");
    team.with(&["apply"], APP, "deployment.apps/api unchanged");
    team.with(&["diff"], APP, "");
    // One of two containers changes; the other is matched by its name and stays.
    team.with(&["apply"], &APP.replace("api:1", "api:2"), "deployment.apps/api configured");
    let images = "jsonpath={.spec.template.spec.containers[*].image} {.metadata.generation}";
    team.prints(&["get", "deploy", "api", "-n", "shop", "-o", images], "api:2 proxy:1 2");
    team.says(&["set", "image", "deploy/api", "proxy=proxy:2", "-n", "shop"], "updated");
    team.prints(&["get", "deploy", "api", "-n", "shop", "-o", images], "api:2 proxy:2 3");
    team.says(&["get", "deploy", "-A", "-o", "wide"], "api,proxy");
    team.says(&["get", "deploy", "api", "-n", "shop", "-o", "yaml"], "kind: Deployment");

    team.fails(
        &["patch", "deploy", "web", "-n", "shop", "-p", r#"{"spec":{"replicas":"many"}}"#],
        "replicas",
    );
    team.says(&["patch", "deploy", "web", "-n", "shop", "-p", r#"{"spec":{"replicas":5}}"#], "patched");
    team.edits(&["deploy", "web", "-n", "shop"], "s/replicas:.5/replicas:\\ 7/", "edited");
    team.prints(&["get", "deploy", "web", "-n", "shop", "-o", "jsonpath={.spec.replicas}"], "7");

    // No controller runs here, so the test writes the status that a cluster would, and kubectl accepts it.
    team.fails(&["rollout", "status", "deploy/web", "-n", "shop", "--timeout=1s"], "timed out");
    let status = r#"{"spec":{"replicas":1},"status":{"observedGeneration":3,"replicas":7,"updatedReplicas":7,"readyReplicas":7,"availableReplicas":7,"conditions":[{"type":"Available","status":"True"}]}}"#;
    team.says(&["patch", "deploy", "web", "-n", "shop", "--subresource=status", "-p", status], "patched");
    team.says(&["rollout", "status", "deploy/web", "-n", "shop", "--timeout=5s"], "successfully rolled out");
    team.says(
        &["wait", "--for=condition=Available", "deploy/web", "-n", "shop", "--timeout=5s"],
        "condition met",
    );
    team.prints(&["get", "deploy", "web", "-n", "shop", "-o", "jsonpath={.spec.replicas}"], "7");
    team.says(&["describe", "deploy", "web", "-n", "shop"], "7 desired");
}

fn watching(team: &Kubectl) {
    let watch = team
        .command(&["get", "secrets", "-w", "-o", "name", "--request-timeout", "3s"])
        .stdout(Stdio::piped())
        .spawn();
    let watch = watch.unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1000));
    team.says(&["create", "secret", "generic", "seen"], "created");
    let output = watch.wait_with_output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output_text.contains("secret/s\n") && output_text.contains("secret/seen\n"),
        "the watch printed {output_text:?}"
    );
}

fn deleting(team: &Kubectl) {
    team.fails(&["delete", "namespace", "default"], "may not be deleted");
    // An object with a finalizer delays the deletion of its namespace, until the finalizer is removed.
    team.says(&["create", "configmap", "kept", "-n", "shop"], "created");
    team.says(
        &[
            "patch",
            "configmap",
            "kept",
            "-n",
            "shop",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":["example.com/wait"]}}"#,
        ],
        "patched",
    );
    team.says(&["delete", "namespace", "shop", "--wait=false"], "deleted");
    team.prints(&["get", "ns", "shop", "-o", "jsonpath={.status.phase}"], "Terminating");
    team.fails(&["create", "configmap", "late", "-n", "shop"], "because it is being terminated");
    team.says(
        &[
            "patch",
            "configmap",
            "kept",
            "-n",
            "shop",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ],
        "patched",
    );
    team.says(&["wait", "--for=delete", "namespace/shop", "--timeout=60s"], "");
    team.fails(&["get", "ns", "shop"], "NotFound");
    team.says(&["create", "namespace", "shop"], "created");
    team.says(&["delete", "namespace", "shop", "--timeout=10s"], "deleted");
}
