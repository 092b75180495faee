//! Deletions, and waiting for them.

use testkit::Kubectl;

const N: &str = "--namespace=leaving";

pub(crate) fn suite(k: &Kubectl, has_controllers: bool) {
    k.says(&["create", "namespace", "leaving"], "created");
    let create = |name: &str, label: &str| {
        k.says(&["create", "configmap", name, N], "created");
        k.says(&["label", "cm", name, N, label], "labeled");
    };
    ["one", "two"].iter().for_each(|name| create(name, "group=a"));
    ["three", "four"].iter().for_each(|name| create(name, "group=b"));
    k.says(&["delete", "cm", "one", N, "--dry-run=server"], "deleted");
    k.says(&["get", "cm", "one", N], "one");
    k.says(&["delete", "cm", "one", N], "configmap \"one\" deleted");
    k.fails(&["delete", "cm", "one", N], "configmaps \"one\" not found");
    k.prints(&["delete", "cm", "one", N, "--ignore-not-found"], "");
    k.says(&["delete", "cm", "-l", "group=a", N], "\"two\" deleted");
    k.says(&["get", "cm", "-l", "group", N, "-o", "name"], "configmap/four\nconfigmap/three\n");
    k.says(&["delete", "cm", "--field-selector=metadata.name=three", N], "\"three\" deleted");
    k.says(&["delete", "secrets", "--all", N], "");
    pods(k);
    waiting(k);
    if has_controllers {
        owned(k);
        k.says(&["delete", "namespace", "leaving", "--timeout=60s"], "namespace \"leaving\" deleted");
        k.fails(&["get", "ns", "leaving"], "NotFound");
    }
}

/// Pods without a node are deleted at once, because no kubelet has to stop them.
fn pods(k: &Kubectl) {
    for (name, flags) in [("p1", &["--now"][..]), ("p2", &["--grace-period=0", "--force"]), ("p3", &[])] {
        k.says(&["run", name, N, "--image=p:1", "--overrides", r#"{"apiVersion":"v1"}"#], "created");
        k.says(&[&["delete", "pod", name, N], flags].concat(), "deleted");
        k.fails(&["get", "pod", name, N], "NotFound");
    }
}

fn waiting(k: &Kubectl) {
    let finalizers = |value: &str| format!(r#"{{"metadata":{{"finalizers":{value}}}}}"#);
    let patch = |value: &str| {
        k.says(&["patch", "cm", "four", N, "--type=merge", "-p", &finalizers(value)], "patched");
    };
    patch(r#"["example.com/hold"]"#);
    k.says(&["delete", "cm", "four", N, "--wait=false"], "deleted");
    k.fails(&["delete", "cm", "four", N, "--timeout=1s"], "timed out");
    k.fails(&["wait", "--for=delete", "cm/four", N, "--timeout=1s"], "timed out");
    k.says(
        &["wait", "--for=jsonpath={.metadata.deletionTimestamp}", "cm/four", N, "--timeout=10s"],
        "condition met",
    );
    patch("null");
    k.says(&["wait", "--for=delete", "cm/four", N, "--timeout=10s"], "");
    k.fails(&["get", "cm", "four", N], "NotFound");
}

/// Deletes an owner in each of the three ways, and checks its dependent.
fn owned(k: &Kubectl) {
    for (cascade, is_child_kept) in [("background", false), ("foreground", false), ("orphan", true)] {
        let (owner, child) = (format!("owner-{cascade}"), format!("child-{cascade}"));
        k.says(&["create", "configmap", &owner, N], "created");
        let (_, uid) = k.run(&["get", "cm", &owner, N, "-o", "jsonpath={.metadata.uid}"]);
        let manifest = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {child}\n  ownerReferences:\n  - {{apiVersion: v1, \
             kind: ConfigMap, name: {owner}, uid: {uid}, blockOwnerDeletion: true}}\n"
        );
        k.with(&["create", N], &manifest, "created");
        k.says(&["delete", "cm", &owner, N, &format!("--cascade={cascade}"), "--timeout=30s"], "deleted");
        let child = format!("cm/{child}");
        if is_child_kept {
            k.field(&[&child, N], "{.metadata.ownerReferences}", "");
        } else {
            k.says(&["wait", "--for=delete", &child, N, "--timeout=30s"], "");
        }
    }
}
