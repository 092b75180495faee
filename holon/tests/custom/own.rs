//! Holon's own kinds.

use testkit::Kubectl;

const EAST: &str = "
apiVersion: holon.dev/v1alpha1
kind: PhysicalCluster
metadata: {name: east, labels: {region: eu}}
spec:
  bounds: {cpu: 16, memory: 64Gi}
  taints: [{key: gpu, effect: NoSchedule}]
  connection: {push: {secretRef: {namespace: default, name: east}}}
";

const PLACEMENT: &str = "
apiVersion: holon.dev/v1alpha1
kind: Placement
metadata: {name: europe}
spec:
  clusterSelector: {matchLabels: {region: eu}}
  numberOfClusters: 2
";

const STATUS: &str = r#"{"status":{"version":"v1.36.4","allocatable":{"cpu":"8","memory":"32Gi","pods":"110"},"conditions":[
    {"type":"Ready","status":"True","reason":"Beats","lastTransitionTime":"2026-11-16T06:00:00Z"}]}}"#;

pub(crate) fn suite(k: &Kubectl) {
    reading(k);
    writing(k);
    invalid_objects(k);
    reserved_group(k);
    k.finish();
}

fn reading(k: &Kubectl) {
    k.says(&["get", "phc"], "No resources found");
    let ours = [
        ("physicalclusters", "phc"),
        ("placements", ""),
        ("overrides", ""),
        ("statusrules", ""),
        ("distributions", ""),
    ];
    for (plural, short) in ours {
        k.says(&["api-resources", "--api-group=holon.dev"], plural);
        k.says(&["api-resources", "--api-group=holon.dev"], short);
        k.says(&["explain", plural], "VERSION:    v1alpha1");
    }
    k.says(&["explain", "phc.spec.taints.effect"], "ENUM:");
    k.says(
        &["explain", "phc.spec.connection.push.secretRef"],
        "A key of a Secret in the same logical cluster.",
    );
    k.says(&["explain", "placement.spec", "--recursive"], "fallbackGroups");
    // They are not CustomResourceDefinitions, which a user could change or delete.
    k.says(&["get", "crd"], "No resources found");
}

fn writing(k: &Kubectl) {
    k.with(&["apply"], EAST, "physicalcluster.holon.dev/east created");
    k.with(&["apply"], EAST, "physicalcluster.holon.dev/east unchanged");
    k.with(&["apply", "--server-side", "--force-conflicts"], EAST, "serverside-applied");
    k.field(&["phc", "east"], "{.spec.schedulable} {.spec.connection.push.secretRef.key}", "true kubeconfig");
    // Not even an administrator may write its status. The server cannot connect to it, and reports why.
    let patch = ["patch", "phc", "east", "--subresource=status", "--type=merge", "-p", STATUS];
    k.fails(&patch, "only the server writes the status of a physical cluster");
    k.says(&["wait", "--for=condition=Ready=False", "phc/east", "--timeout=30s"], "condition met");
    k.field(&["phc", "east"], "{.status.conditions[?(@.type=='Ready')].reason}", "CannotConnect");
    let columns = "NAME   READY   SCHEDULABLE   VERSION   CPU   MEMORY   PODS   AGE";
    k.says(&["get", "phc"], columns);
    k.says(&["get", "phc"], "east   False   true    ");
    k.says(&["get", "phc", "-l", "region=eu", "-o", "name"], "physicalcluster.holon.dev/east");
    k.with(&["apply"], PLACEMENT, "placement.holon.dev/europe created");
    k.field(&["placement", "europe"], "{.spec.division} {.spec.weights} {.spec.priority}", "Divide Equal 0");
    k.says(&["delete", "placement", "europe"], "deleted");
}

fn invalid_objects(k: &Kubectl) {
    let wrong = |from: &str, to: &str, expected: &str| {
        let file = k.file("wrong.yaml", &EAST.replace("name: east,", "name: west,").replace(from, to));
        k.fails(&["apply", "-f", &file], expected);
    };
    wrong(
        "NoSchedule",
        "Never",
        "spec.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\"",
    );
    wrong("bounds", "bound", "unknown field \"spec.bound\"");
    wrong("cpu: 16", "cpu: many", "spec.bounds.cpu: Invalid value: \"many\"");
    wrong("{push:", "{pull: {}, push:", "spec.connection: Too many: 2: must have at most 1 item");
    wrong(
        "{namespace: default, name: east}",
        "{}",
        "spec.connection.push.secretRef.namespace: Required value",
    );
    wrong("name: west,", "name: west.example,", "metadata.name: Invalid value: \"west.example\"");
    k.fails(&["get", "phc", "west"], "NotFound");
}

/// Users define CustomResourceDefinitions in Holon's group.
fn reserved_group(k: &Kubectl) {
    for plural in ["physicalclusters", "others"] {
        let definition = format!(
            "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.holon.dev}}
spec:
  group: holon.dev
  scope: Cluster
  names: {{plural: {plural}, kind: Theirs}}
  versions:
  - {{name: v2, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}
"
        );
        let file = k.file("theirs.yaml", &definition);
        k.fails(&["create", "-f", &file], "kinds of the group holon.dev are built in");
    }
    k.says(&["delete", "phc", "east"], "deleted");
}
