//! Server-side apply: several appliers of one object, migration from client-side apply, diffs, and pruning.

use testkit::Kubectl;
use testkit::process::run;

const N: &str = "--namespace=applying";

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
      - {name: web, image: 'web:1', env: [{name: A, value: '1'}, {name: B, value: '2'}]}
";

const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: '1', b: '2'}
";

pub(crate) fn suite(k: &Kubectl) {
    k.says(&["create", "namespace", "applying"], "created");
    shared(k);
    moved_over(k);
    compared(k);
    pruned(k);
    pruned_as_a_set(k);
}

/// Two appliers agree, conflict, and one of them forces.
fn shared(k: &Kubectl) {
    let apply = ["apply", N, "--server-side"];
    let as_ada = ["apply", N, "--server-side", "--field-manager=ada"];
    let file = k.file("three.yaml", &WEB.replace("replicas: 2", "replicas: 3"));
    k.with(
        &["apply", N, "--server-side", "--dry-run=server"],
        WEB,
        "web serverside-applied (server dry run)",
    );
    k.fails(&["get", "deploy", "web", N], "not found");
    k.with(&apply, WEB, "deployment.apps/web serverside-applied");
    k.with(&apply, WEB, "deployment.apps/web serverside-applied");
    k.field(&["deploy", "web", N], "{.metadata.generation}", "1");
    k.with(&as_ada, WEB, "deployment.apps/web serverside-applied");
    let conflict = "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.replicas";
    k.fails(&["apply", N, "--server-side", "--field-manager=ada", "-f", &file], conflict);
    k.says(
        &["apply", N, "--server-side", "--field-manager=ada", "--force-conflicts", "-f", &file],
        "serverside-applied",
    );
    k.field(&["deploy", "web", N], "{.spec.replicas}", "3");
    let conflict = "Apply failed with 1 conflict: conflict with \"ada\": .spec.replicas";
    let file = k.file("two.yaml", WEB);
    k.fails(&["apply", N, "--server-side", "-f", &file], conflict);
    // A field that one of them gives up stays for the other; a field that both give up is removed.
    let without = WEB.replace("{name: A, value: '1'}, ", "").replace("  replicas: 2\n", "");
    k.with(&apply, &without, "serverside-applied");
    let names = "{.spec.template.spec.containers[0].env[*].name}";
    k.field(&["deploy", "web", N], names, "A B");
    k.with(&as_ada, &without, "serverside-applied");
    k.field(&["deploy", "web", N], names, "B");
    k.field(&["deploy", "web", N], "{.spec.replicas}", "1");
    k.says(&["get", "deploy", "web", N, "-o", "yaml", "--show-managed-fields"], "manager: ada");
    // A client that changes a field in another way owns it, and conflicts with the next apply.
    k.says(&["scale", "deploy/web", N, "--replicas=5"], "scaled");
    k.says(&["set", "image", "deploy/web", N, "web=web:9"], "image updated");
    k.fails(&["apply", N, "--server-side", "-f", &file], "conflict with \"kubectl-set\" using apps/v1");
    k.says(&["apply", N, "--server-side", "--force-conflicts", "-f", &file], "serverside-applied");
    k.field(&["deploy", "web", N], "{.spec.replicas} {.spec.template.spec.containers[0].image}", "2 web:1");
    let status = "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"web\"},\"status\":{\"replicas\":1}}";
    let file = k.file("status.json", status);
    let apply =
        ["apply", N, "--server-side", "--subresource=status", "--field-manager=controller", "-f", &file];
    let (succeeded, output) = k.run(&apply);
    // Older versions of kubectl have no such option.
    let unknown = output.contains("unknown flag: --subresource");
    k.check(
        unknown || succeeded && output.contains("serverside-applied"),
        &apply,
        "serverside-applied",
        &output,
    );
}

/// Migrates from client-side apply to server-side apply and back.
fn moved_over(k: &Kubectl) {
    k.with(&["apply", N], SETTINGS, "configmap/settings created");
    let managers = "{range .metadata.managedFields[*]}{.manager}/{.operation} {end}";
    k.field(&["cm", "settings", N], managers, "kubectl-client-side-apply/Update");
    k.with(&["apply", N, "--server-side"], SETTINGS, "configmap/settings serverside-applied");
    k.field(&["cm", "settings", N], managers, "kubectl/Apply kubectl-last-applied/Apply");
    k.with(&["apply", N, "--server-side"], &SETTINGS.replace(", b: '2'", ""), "serverside-applied");
    k.field(&["cm", "settings", N], "{.data}", "{\"a\":\"1\"}");
    k.with(&["apply", N], &SETTINGS.replace("a: '1', ", ""), "configmap/settings configured");
    k.field(&["cm", "settings", N], "{.data}", "{\"b\":\"2\"}");
    k.with(&["apply", N], &SETTINGS.replace("a: '1', ", ""), "configmap/settings unchanged");
}

fn compared(k: &Kubectl) {
    let same = k.file("same.yaml", &SETTINGS.replace("a: '1', ", ""));
    let changed = k.file("changed.yaml", &SETTINGS.replace("b: '2'", "b: '3'"));
    k.prints(&["diff", N, "-f", &same], "");
    k.fails(&["diff", N, "-f", &changed], "+  b: \"3\"");
    let web = k.file("web.yaml", WEB);
    k.prints(&["diff", N, "--server-side", "-f", &web], "");
    k.fails(&["diff", N, "--server-side", "--force-conflicts", "-f", &changed], "+  b: \"3\"");
    k.field(&["cm", "settings", N], "{.data}", "{\"b\":\"2\"}");
}

fn labelled(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{pruned: 'yes'}}}}\n---\n")
}

/// The old pruning: deletes objects of these kinds that have the label and are not in the file.
fn pruned(k: &Kubectl) {
    let prune = [
        "apply",
        N,
        "--prune",
        "--selector=pruned=yes",
        "--prune-allowlist=core/v1/ConfigMap",
        "--prune-allowlist=apps/v1/Deployment",
    ];
    k.with(&prune, &(labelled("one") + &labelled("two")), "configmap/two created");
    k.with(&prune, &labelled("one"), "configmap/two pruned");
    k.says(&["get", "cm", "one", N], "one");
    k.fails(&["get", "cm", "two", N], "not found");
    k.says(&["get", "cm", "settings", N], "settings");
}

/// The new pruning: an ApplySet parent records its members.
fn pruned_as_a_set(k: &Kubectl) {
    let apply = |manifest: &str, expected: &str| {
        let file = k.file("set.yaml", manifest);
        let arguments = ["apply", N, "--prune", "--applyset=suite", "--field-manager=ada", "-f", &file];
        let mut command = k.command(&arguments);
        let (succeeded, output) = run(command.env("KUBECTL_APPLYSET", "true"));
        k.check(succeeded && output.contains(expected), &arguments, expected, &output);
    };
    apply(&(labelled("three") + &labelled("four")), "configmap/four created");
    k.field(
        &["secret", "suite", N],
        "{.metadata.annotations.applyset\\.kubernetes\\.io/contains-group-kinds}",
        "ConfigMap",
    );
    apply(&labelled("three"), "configmap/four pruned");
    k.says(&["get", "cm", "three", N, "--show-labels"], "applyset.kubernetes.io/part-of=applyset-");
    k.fails(&["get", "cm", "four", N], "not found");
}
