//! Changing existing objects: apply, replace, edit, patch, label, annotate, set, scale.

use testkit::Kubectl;

const N: &str = "--namespace=changing";

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'web:1', ports: [{containerPort: 80}]}
      - {name: proxy, image: 'proxy:1'}
";

const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: '1', b: '2'}
";

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
";

pub(crate) fn suite(k: &Kubectl) {
    k.says(&["create", "namespace", "changing"], "created");
    applied(k);
    replaced(k);
    marked(k);
    patched(k);
    set(k);
    scaled(k);
}

fn applied(k: &Kubectl) {
    k.with(&["apply", N, "--dry-run=server"], WEB, "deployment.apps/web created (server dry run)");
    k.with(&["apply", N], WEB, "deployment.apps/web created");
    k.with(&["apply", N], WEB, "deployment.apps/web unchanged");
    k.with(&["diff", N], WEB, "");
    let changed = WEB.replace("proxy:1", "proxy:2");
    let file = k.file("changed.yaml", &changed);
    k.fails(&["diff", N, "-f", &file], "proxy:2");
    k.with(&["apply", N], &changed, "deployment.apps/web configured");
    k.field(&["deploy", "web", N], "{.spec.template.spec.containers[*].image}", "web:1 proxy:2");
    // A field that is no longer in the file is removed; fields that others set stay.
    k.says(&["label", "deploy", "web", N, "mine=kept"], "labeled");
    let relabelled = WEB.replace("name: web, labels: {app: web}", "name: web, labels: {tier: front}");
    k.with(&["apply", N], &relabelled, "configured");
    k.field(&["deploy", "web", N], "{.metadata.labels}", "{\"mine\":\"kept\",\"tier\":\"front\"}");
    k.says(&["apply", "view-last-applied", "deploy/web", N], "replicas: 2");
    k.with(&["apply", N], &format!("{SETTINGS}---{SERVICE}"), "service/web created");
    k.with(&["apply", N], &format!("{SETTINGS}---{SERVICE}"), "service/web unchanged");
    let misspelt = k.file("misspelt.yaml", &WEB.replace("replicas", "replcias"));
    k.fails(&["apply", N, "-f", &misspelt], "unknown field \"spec.replcias\"");
    let wrong = k.file("wrong.yaml", &WEB.replace("replicas: 2", "replicas: two"));
    k.fails(&["apply", N, "-f", &wrong], "replicas");
    let other = k.file("other.yaml", &WEB.replace("matchLabels: {app: web}", "matchLabels: {app: other}"));
    k.fails(&["apply", N, "-f", &other], "selector");
}

fn replaced(k: &Kubectl) {
    k.with(&["replace", N], &SETTINGS.replace("a: '1', ", ""), "configmap/settings replaced");
    k.field(&["cm", "settings", N], "{.data}", "{\"b\":\"2\"}");
    let (_, before) = k.run(&["get", "cm", "settings", N, "-o", "jsonpath={.metadata.uid}"]);
    k.with(&["replace", N, "--force"], SETTINGS, "configmap/settings replaced");
    let (_, after) = k.run(&["get", "cm", "settings", N, "-o", "jsonpath={.metadata.uid}"]);
    k.check(before != after, &["replace", "--force"], "another uid", &after);
    let absent = k.file("absent.yaml", &SETTINGS.replace("settings", "absent"));
    k.fails(&["replace", N, "-f", &absent], "configmaps \"absent\" not found");
    k.edits(&["cm", "settings", N], "s/b:.*/b:\\ edited/", "configmap/settings edited");
    k.field(&["cm", "settings", N], "{.data.b}", "edited");
    k.edits(&["cm", "settings", N], "s/nothing/nothing/", "no changes made");
}

fn marked(k: &Kubectl) {
    k.says(&["label", "cm", "settings", N, "colour=red", "size=s"], "configmap/settings labeled");
    k.fails(&["label", "cm", "settings", N, "colour=blue"], "already has a value (red)");
    k.says(&["label", "cm", "settings", N, "colour=blue", "--overwrite"], "labeled");
    k.says(&["label", "cm", "settings", N, "size-"], "unlabeled");
    k.says(&["label", "cm", "--all", N, "all=yes"], "settings labeled");
    k.field(&["cm", "settings", N], "{.metadata.labels}", "{\"all\":\"yes\",\"colour\":\"blue\"}");
    k.says(&["annotate", "cm", "settings", N, "note=this is a note"], "configmap/settings annotated");
    k.says(&["annotate", "cm", "settings", N, "note-"], "annotated");
    k.fails(&["label", "cm", "settings", N, "bad=_-"], "a valid label must be an empty string or consist of");
    k.fails(
        &["label", "cm", "settings", N, "colour=x", "--overwrite", "--resource-version=1"],
        "the object has been modified",
    );
}

fn patched(k: &Kubectl) {
    let patch = |kind: &str, patch: &str, expected: &str| {
        k.says(&["patch", "deploy", "web", N, kind, "-p", patch], expected);
    };
    let one = r#"{"spec":{"template":{"spec":{"containers":[{"name":"proxy","image":"proxy:3"}]}}}}"#;
    patch("--type=strategic", one, "deployment.apps/web patched");
    k.field(&["deploy", "web", N], "{.spec.template.spec.containers[*].image}", "web:1 proxy:3");
    patch("--type=strategic", one, "patched (no change)");
    patch("--type=merge", r#"{"spec":{"replicas":4}}"#, "patched");
    patch("--type=json", r#"[{"op":"replace","path":"/spec/replicas","value":5}]"#, "patched");
    k.field(&["deploy", "web", N], "{.spec.replicas}", "5");
    let patch = |kind: &str, patch: &str, expected: &str| {
        k.fails(&["patch", "deploy", "web", N, kind, "-p", patch], expected);
    };
    patch("--type=json", r#"[{"op":"remove","path":"/spec/nothing"}]"#, "the server rejected our request");
    patch("--type=merge", r#"{"spec":{"replicas":"x"}}"#, "replicas");
    patch("--type=merge", r#"{"spec":{"replicas":-1}}"#, "must be greater than or equal to 0");
    let status = r#"{"status":{"replicas":5,"readyReplicas":1}}"#;
    k.says(&["patch", "deploy", "web", N, "--subresource=status", "--type=merge", "-p", status], "patched");
    k.field(&["deploy", "web", N, "--subresource=status"], "{.status.readyReplicas}", "1");
}

fn set(k: &Kubectl) {
    k.says(&["set", "image", "deploy/web", N, "web=web:9"], "deployment.apps/web image updated");
    k.says(&["set", "env", "deploy/web", N, "-c", "web", "MODE=fast"], "deployment.apps/web env updated");
    k.says(&["set", "env", "deploy/web", N, "--list"], "MODE=fast");
    k.says(&["set", "env", "deploy/web", N, "--from=configmap/settings", "--prefix=S_"], "env updated");
    let resources = ["set", "resources", "deploy/web", N, "-c", "web", "--limits=cpu=200m,memory=512Mi"];
    k.says(&resources, "resource requirements updated");
    k.field(&["deploy", "web", N], "{.spec.template.spec.containers[0].resources.limits.cpu}", "200m");
    k.says(&["set", "serviceaccount", "deploy/web", N, "robot"], "serviceaccount updated");
    k.field(&["deploy", "web", N], "{.spec.template.spec.serviceAccountName}", "robot");
    k.says(&["set", "selector", "svc/web", N, "app=other"], "service/web selector updated");
    k.field(&["svc", "web", N], "{.spec.selector}", "{\"app\":\"other\"}");
}

fn scaled(k: &Kubectl) {
    k.says(&["scale", "deploy/web", N, "--replicas=6"], "deployment.apps/web scaled");
    k.field(&["deploy", "web", N], "{.spec.replicas}", "6");
    k.says(&["scale", "deploy/web", N, "--current-replicas=6", "--replicas=1"], "scaled");
    k.fails(
        &["scale", "deploy/web", N, "--current-replicas=6", "--replicas=2"],
        "Expected replicas to be 6, was 1",
    );
    k.says(&["get", "deploy", "web", N, "--subresource=scale"], "DESIRED");
    k.fails(&["scale", "deploy/absent", N, "--replicas=1"], "not found");
    k.fails(&["scale", "cm/settings", N, "--replicas=1"], "could not find the requested resource");
}
