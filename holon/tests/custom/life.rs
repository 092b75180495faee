//! The life of a custom kind, from the creation of its definition to its deletion.

use super::manifests::{WIDGETS, plain, widget};

use testkit::Kubectl;

/// The common part of the messages: the rest depends on whether kubectl has the resource in its cache.
pub(crate) const NOT_SERVED: &str = "the server";
const DEFINITION: &str = "crd/widgets.shop.example";

pub(crate) fn definition(k: &Kubectl) {
    k.fails(&["get", "widgets"], "the server doesn't have a resource type \"widgets\"");
    k.with(
        &["create"],
        WIDGETS,
        "customresourcedefinition.apiextensions.k8s.io/widgets.shop.example created",
    );
    k.says(&["wait", "--for=condition=established", DEFINITION, "--timeout=10s"], "condition met");
    k.says(&["get", "crd"], "widgets.shop.example");
    k.field(
        &[DEFINITION],
        "{.status.acceptedNames.listKind} {.status.storedVersions}",
        "WidgetList [\"v1\"]",
    );
    k.says(
        &["api-resources", "--api-group=shop.example"],
        "wd           shop.example/v1   true         Widget",
    );
    k.says(&["explain", "widget.spec"], "How large it is.");
    k.says(&["explain", "widget.spec", "--output=plaintext"], "-required-");
}

pub(crate) fn objects(k: &Kubectl) {
    k.with(&["create"], &widget("one", 1), "widget.shop.example/one created");
    k.with(&["apply"], &widget("two", 2), "widget.shop.example/two created");
    k.with(&["apply"], &widget("two", 3), "widget.shop.example/two configured");
    k.with(&["apply", "--server-side", "--force-conflicts"], &widget("two", 3), "serverside-applied");
    k.field(&["widget", "two"], "{.spec} {.metadata.generation}", r#"{"color":"blue","size":3} 2"#);
    let wrong = |expected: &str, text: &str, verb: &[&str]| {
        let file = k.file("wrong.yaml", text);
        k.fails(&[verb, &["-f", &file]].concat(), expected);
    };
    let junk = widget("three", 1).replace("{size: 1}", "{size: 1, junk: 1}");
    wrong("unknown field \"spec.junk\"", &junk, &["create"]);
    k.with(&["create", "--validate=false"], &junk, "created");
    k.field(&["widget", "three"], "{.spec}", r#"{"color":"blue","size":1}"#);
    wrong("spec.size in body should be greater than or equal to 1", &widget("bad", 0), &["create"]);
    wrong("spec.size: Required value", &widget("bad", 1).replace("{size: 1}", "{}"), &["create"]);
    let green = widget("bad", 1).replace("{size: 1}", "{size: 1, color: green}");
    wrong("Unsupported value: \"green\": supported values: \"blue\", \"red\"", &green, &["create"]);
    k.says(&["diff", "-f", &k.file("same.yaml", &widget("two", 3))], "");
}

pub(crate) fn reading(k: &Kubectl) {
    k.prints(&["get", "wd", "one"], "NAME   SIZE\none    1");
    k.prints(&["get", "widgets", "one", "-o", "wide"], "NAME   SIZE   COLOR\none    1      blue");
    k.says(&["get", "all"], "widget.shop.example/one");
    k.prints(&["get", "widgets", "-l", "size=3", "-o", "name"], "widget.shop.example/two");
    k.says(&["get", "widgets", "--field-selector=spec.color=blue", "-o", "name"], "widget.shop.example/one");
    k.prints(&["get", "widgets", "--field-selector=spec.color=red", "-o", "name"], "");
    k.fails(&["get", "widgets", "--field-selector=spec.size=1"], "field label not supported: spec.size");
    k.says(&["describe", "widget", "one"], "Color:  blue");
    k.says(&["get", "--raw", "/apis/shop.example/v1"], "\"widgets/scale\"");
}

pub(crate) fn changing(k: &Kubectl) {
    k.says(&["patch", "widget", "one", "--type=merge", "-p", r#"{"spec":{"color":"red"}}"#], "patched");
    k.prints(&["get", "widgets", "--field-selector=spec.color=red", "-o", "name"], "widget.shop.example/one");
    let replace = r#"[{"op":"replace","path":"/spec/size","value":5}]"#;
    k.says(&["patch", "widget", "one", "--type=json", "-p", replace], "patched");
    k.fails(
        &["patch", "widget", "one", "--type=strategic", "-p", "{}"],
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    );
    k.says(&["label", "widget", "one", "tier=x"], "labeled");
    k.says(&["annotate", "widget", "one", "note=y"], "annotated");
    k.edits(&["widget", "one"], "s/size:.5/size:\\ 6/", "edited");
    k.field(&["widget", "one"], "{.spec.size}", "6");
    k.says(&["scale", "widget", "one", "--replicas=4"], "scaled");
    k.field(&["widget", "one", "--subresource=scale"], "{.spec.replicas} {.status.replicas}", "4 0");
    let status = r#"{"spec":{"size":9},"status":{"phase":"Ready","replicas":2}}"#;
    k.says(&["patch", "widget", "one", "--subresource=status", "--type=merge", "-p", status], "patched");
    k.field(&["widget", "one"], "{.spec.size} {.status.phase}", "6 Ready");
    k.field(&["widget", "one", "--subresource=scale"], "{.spec.replicas} {.status.replicas}", "4 2");
    k.says(&["patch", "widget", "one", "--type=merge", "-p", r#"{"status":{"phase":"Lost"}}"#], "no change");
    k.says(&["wait", "--for=jsonpath={.status.phase}=Ready", "widget/one", "--timeout=5s"], "condition met");
}

pub(crate) fn versions(k: &Kubectl) {
    let old = "widgets.v1beta1.shop.example";
    k.says(
        &["get", old, "one"],
        "Warning: shop.example/v1beta1 Widget is deprecated; use shop.example/v1 Widget",
    );
    k.says(&["get", old, "one", "-o", "yaml"], "apiVersion: shop.example/v1beta1");
    // A changed definition takes effect at once.
    let wider = WIDGETS.replace("color: {", "weight: {type: integer, default: 7}\n              color: {");
    k.with(&["replace"], &with_version(k, &wider), "replaced");
    k.field(&["widget", "one"], "{.spec.weight}", "7");
    k.with(&["apply"], &widget("four", 4).replace("{size: 4}", "{size: 4, weight: 8}"), "created");
    k.field(&["widget", "four"], "{.spec.weight}", "8");
    let unserved = r#"[{"op":"replace","path":"/spec/versions/1/served","value":false}]"#;
    k.says(&["patch", DEFINITION, "--type=json", "-p", unserved], "patched");
    k.fails(&["get", "--raw", "/apis/shop.example/v1beta1/widgets"], "NotFound");
    k.says(&["get", "widgets"], "one");
}

/// Returns a manifest with the current resource version of the definition.
fn with_version(k: &Kubectl, manifest: &str) -> String {
    let (_, version) = k.run(&["get", DEFINITION, "-o", "jsonpath={.metadata.resourceVersion}"]);
    let name = "  name: widgets.shop.example\n";
    manifest.replace(name, &format!("{name}  resourceVersion: \"{}\"\n", version.trim()))
}

pub(crate) fn names(k: &Kubectl) {
    let rival = plain("gadgets", "Widget", "{}");
    k.with(&["create"], &rival, "created");
    let reason = "--for=jsonpath={.status.conditions[?(@.type==\"NamesAccepted\")].reason}=ListKindConflict";
    k.says(&["wait", reason, "crd/gadgets.shop.example", "--timeout=10s"], "condition met");
    k.fails(&["get", "gadgets.shop.example"], "the server doesn't have a resource type \"gadgets\"");
    k.says(&["delete", "crd", "gadgets.shop.example", "--timeout=10s"], "deleted");
}

pub(crate) fn deleting(k: &Kubectl) {
    let hold = |value: &str| {
        let patch = format!(r#"{{"metadata":{{"finalizers":{value}}}}}"#);
        k.says(&["patch", "widget", "two", "--type=merge", "-p", &patch], "patched");
    };
    hold(r#"["shop.example/hold"]"#);
    k.says(&["delete", "widget", "three"], "widget.shop.example \"three\" deleted");
    k.says(&["delete", DEFINITION, "--wait=false"], "deleted");
    k.says(&["wait", "--for=delete", "widget/one", "--timeout=20s"], "");
    k.says(&["wait", "--for=condition=Terminating", DEFINITION, "--timeout=10s"], "condition met");
    let late = k.file("late.yaml", &widget("late", 1));
    k.fails(&["create", "-f", &late], "create not allowed while custom resource definition is terminating");
    hold("null");
    k.says(&["wait", "--for=delete", DEFINITION, "--timeout=20s"], "");
    k.fails(&["get", "widgets"], NOT_SERVED);
    // A kind that is defined again has none of the old objects.
    k.with(&["create"], WIDGETS, "created");
    k.says(&["wait", "--for=condition=established", DEFINITION, "--timeout=10s"], "condition met");
    k.prints(&["get", "widgets", "-o", "name"], "");
    k.says(&["delete", DEFINITION, "--timeout=20s"], "deleted");
}
