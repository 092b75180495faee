//! No user can grant rights that they do not have. The messages are those of kube-apiserver 1.36.4.

use serde_json::{Value, json};

use crate::{GROUP, TestServer, check_status};

fn grants(verbs: &[&str], resources: &[&str]) -> Value {
    json!([{ "verbs": verbs, "apiGroups": [""], "resources": resources }])
}

/// Returns a server where ann may only write roles and bindings and read pods.
fn server_with_a_role_writer() -> TestServer {
    let test = TestServer::start();
    let kinds = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
    let verbs = ["get", "create", "update", "patch"];
    test.create_role("", "writes", json!([{ "verbs": verbs, "apiGroups": [GROUP], "resources": kinds }]));
    test.create_role("", "reads", grants(&["get"], &["pods"]));
    for role in ["holon:access", "writes", "reads"] {
        test.admin.bind("", role, "User ann");
    }
    test
}

fn binding(name: &str, kind: &str, role: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": GROUP, "kind": kind, "name": role },
        "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": "bob" }],
    })
}

#[test]
fn a_role_contains_no_rights_that_its_writer_lacks() {
    let (test, roles) = (server_with_a_role_writer(), format!("/apis/{GROUP}/v1/clusterroles"));
    let ann = test.user("ann");
    let role = |name: &str, rules: Value| json!({ "metadata": { "name": name }, "rules": rules });
    assert_eq!(ann.ask("POST", &roles, &role("a", grants(&["get"], &["pods"]))).code, 201);
    let prefix = "user \"ann\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:";
    let missing = "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
                   {APIGroups:[\"\"], Resources:[\"services\"], Verbs:[\"get\" \"list\"]}";
    let refused = |name: &str| format!("clusterroles.{GROUP} \"{name}\" is forbidden: {prefix}\n{missing}");
    let more = grants(&["get", "list"], &["pods", "services"]);
    check_status(&ann.ask("POST", &roles, &role("b", more.clone())), 403, &refused("b"));
    check_status(&ann.ask("PUT", &format!("{roles}/a"), &role("a", more.clone())), 403, &refused("a"));
    check_status(&ann.ask("PATCH", &format!("{roles}/a"), &json!({ "rules": more })), 403, &refused("a"));
    let aggregating = json!({
        "metadata": { "name": "c" },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] },
    });
    let reason = "must have cluster-admin privileges to use the aggregationRule";
    check_status(
        &ann.ask("POST", &roles, &aggregating),
        403,
        &format!("clusterroles.{GROUP} \"c\" is forbidden: {reason}"),
    );

    // Except with the verb `escalate`.
    test.create_role(
        "",
        "raises",
        json!([{ "verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["clusterroles"] }]),
    );
    test.admin.bind("", "raises", "User ann");
    assert_eq!(ann.ask("POST", &roles, &role("b", more)).code, 201);
}

#[test]
fn a_binding_grants_no_rights_that_its_writer_lacks() {
    let test = server_with_a_role_writer();
    let ann = test.user("ann");
    let (all, some) = (
        format!("/apis/{GROUP}/v1/clusterrolebindings"),
        format!("/apis/{GROUP}/v1/namespaces/default/rolebindings"),
    );
    assert_eq!(ann.ask("POST", &all, &binding("a", "ClusterRole", "reads")).code, 201);
    assert_eq!(ann.ask("POST", &some, &binding("a", "ClusterRole", "reads")).code, 201);
    let refused = ann.ask("POST", &all, &binding("b", "ClusterRole", "cluster-admin"));
    let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
    let begins = format!("clusterrolebindings.{GROUP} \"b\" is forbidden: user \"ann\" (groups=");
    let ends =
        "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
    assert!(refused.code == 403 && message.starts_with(&begins) && message.ends_with(ends), "{message}");
    check_status(
        &ann.ask("POST", &some, &binding("b", "ClusterRole", "gone")),
        404,
        &format!("rolebindings.{GROUP} \"gone\" not found"),
    );
    // The role of a binding cannot be changed, not even by an administrator.
    let other = binding("a", "ClusterRole", "cluster-admin");
    assert_eq!(test.admin.ask("PUT", &format!("{some}/a"), &other).code, 422);

    let binds = json!([{
        "verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["view"],
    }]);
    test.create_role("", "binds", binds);
    test.admin.bind("", "binds", "User ann");
    assert_eq!(ann.ask("POST", &all, &binding("c", "ClusterRole", "view")).code, 201);
    assert_eq!(ann.ask("POST", &all, &binding("d", "ClusterRole", "edit")).code, 403);
}

/// Some requests create the object that they were to change. A user with only the right to update must not create that
/// way.
#[test]
fn an_update_of_a_missing_object_needs_the_right_to_create() {
    let test = TestServer::start();
    let leases = json!([
        { "verbs": ["get", "update", "patch"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"] },
        { "verbs": ["get", "update", "patch"], "apiGroups": [""], "resources": ["configmaps"] },
    ]);
    test.create_role("", "changes", leases);
    test.admin.bind("", "holon:access", "User ann");
    test.admin.bind("", "changes", "User ann");
    let ann = test.user("ann");
    let refused = |resource: &str, group: &str, named: &str| {
        let action = format!("cannot create resource \"{resource}\" in API group \"{group}\"");
        format!("{named} \"a\" is forbidden: User \"ann\" {action} in the namespace \"default\"")
    };
    let lease = json!({ "metadata": { "name": "a" } });
    let put = ann.ask("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/a", &lease);
    check_status(&put, 403, &refused("leases", "coordination.k8s.io", "leases.coordination.k8s.io"));
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let path = "/api/v1/namespaces/default/configmaps/a?fieldManager=me";
    let applied = ann.with("Content-Type: application/apply-patch+yaml").ask("PATCH", path, &map);
    check_status(&applied, 403, &refused("configmaps", "", "configmaps"));
}

/// A role of 1.6 KB was once expanded into millions of rules, and the server answered no other request meanwhile.
#[test]
fn a_role_of_too_many_combinations_is_refused() {
    let test = server_with_a_role_writer();
    let names = |count: usize| (0..count).map(|number| format!("w{number}")).collect::<Vec<_>>();
    let rule = json!({
        "verbs": names(70), "apiGroups": names(70), "resources": names(70), "resourceNames": names(10),
    });
    let writer_rule = json!({
        "verbs": names(70), "apiGroups": names(70), "resources": names(70), "resourceNames": names(9),
    });
    test.create_role("", "nearly", json!([writer_rule]));
    test.admin.bind("", "nearly", "User ann");
    let role = json!({ "metadata": { "name": "wide" }, "rules": [rule] });
    let answer = test.user("ann").ask("POST", &format!("/apis/{GROUP}/v1/clusterroles"), &role);
    let reason = "the rules are too large to compare with the rules you hold; use fewer verbs, groups, \
               resources or names";
    check_status(&answer, 403, &format!("clusterroles.{GROUP} \"wide\" is forbidden: {reason}"));
    // The message names only some of the missing rights.
    let answer = test.user("ann").ask(
        "POST",
        &format!("/apis/{GROUP}/v1/clusterroles"),
        &json!({ "metadata": { "name": "wide" }, "rules": [{
            "verbs": names(70), "apiGroups": names(70), "resources": ["other"],
        }] }),
    );
    assert!(answer.code == 403 && answer.body.len() < 80_000, "{}", answer.body.len());
}
