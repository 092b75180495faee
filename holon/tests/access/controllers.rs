//! Holon's own controllers send requests like every client: the audit log shows their requests, and that they stay
//! within their roles.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::objects::deployment;
use testkit::{Client, until};

use crate::common::fleet::TestFleet;

#[test]
fn controllers_are_logged_by_name_and_none_of_their_requests_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    let fleet = TestFleet::start_with(&["east"], &["--audit-log", file.to_str().unwrap()]);
    let team = fleet.admin.create_logical_cluster("root:team-a");
    let create = |path: &str, object: Value| fleet.admin.create(&format!("{team}{path}"), &object);
    create("/api/v1/namespaces", json!({ "metadata": { "name": "shop" } }));
    create(
        "/api/v1/namespaces/shop/configmaps",
        json!({ "metadata": { "name": "settings" }, "data": { "a": "b" } }),
    );
    let ports = json!([{ "port": 80 }]);
    let service =
        json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" }, "ports": ports } });
    create("/api/v1/namespaces/shop/services", service);
    let settings = json!([{ "configMapRef": { "name": "settings" } }]);
    let pod = json!({ "containers": [{ "name": "a", "image": "nginx", "envFrom": settings }] });
    create("/apis/apps/v1/namespaces/shop/deployments", deployment("web", 2, pod));
    let template =
        json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "a", "image": "once" }] } });
    create(
        "/apis/batch/v1/namespaces/shop/jobs",
        json!({ "metadata": { "name": "once" }, "spec": { "template": template } }),
    );
    let web = format!("{team}/apis/apps/v1/namespaces/shop/deployments/web");
    until("the Deployment is ready", || fleet.admin.get(&web).json()["status"]["readyReplicas"] == 2);
    let lines_before = std::fs::read_to_string(&file).unwrap().lines().count();
    assert_eq!(fleet.admin.ask("DELETE", &format!("{team}/api/v1/namespaces/shop"), &Value::Null).code, 200);
    until("all placed namespaces are deleted", || fleet.placed("east", "/api/v1/namespaces").is_empty());
    assert!(fleet.server.stop());

    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lines_of = |name: &str| {
        lines.iter().filter(move |line| line["user"] == format!("system:holon:{name}")).collect::<Vec<_>>()
    };
    for name in ["fleet", "splitter"] {
        assert!(!lines_of(name).is_empty(), "{name} sent no request");
    }
    // A create in a terminating namespace is rejected for every client, so requests that were in flight then may fail.
    let is_late_create = |index: usize, line: &Value| {
        let is_in_shop = line["namespace"].as_str().is_some_and(|namespace| namespace.starts_with("shop"));
        index >= lines_before && line["verb"] == "create" && is_in_shop
    };
    let is_ours = |line: &Value| line["user"].as_str().is_some_and(|user| user.starts_with("system:holon:"));
    let refused = lines.iter().enumerate().filter(|(_, line)| is_ours(line) && line["decision"] != "allow");
    let refused: Vec<_> = refused.filter(|(index, line)| !is_late_create(*index, line)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    // In a user's logical cluster the splitter writes Distributions, statuses, namespace metadata and tokens, and none
    // of the user's own objects.
    let in_team = lines_of("splitter").into_iter().filter(|line| line["cluster"] == "root:team-a");
    let operations: BTreeSet<String> = in_team
        .map(|line| {
            let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
            let subresource = match text("subresource").as_str() {
                "" => String::new(),
                subresource => format!("/{subresource}"),
            };
            format!("{} {}{subresource}", text("verb"), text("resource"))
        })
        .collect();
    let resources: BTreeSet<&str> = operations
        .iter()
        .filter_map(|operation| operation.split_once(' '))
        .map(|(_, resource)| resource)
        .collect();
    for needed in ["distributions", "deployments/status", "namespaces", "serviceaccounts/token"] {
        assert!(resources.contains(needed), "{needed}: {operations:?}");
    }
    let never = [
        "configmaps",
        "secrets",
        "services",
        "deployments",
        "jobs",
        "serviceaccounts",
        "clusterroles",
        "clusterrolebindings",
        "logicalclusters",
    ];
    for kind in never {
        assert!(!resources.contains(kind), "{kind}: {operations:?}");
    }
    let elsewhere = |line: &&Value| {
        let cluster = line["cluster"].as_str().unwrap_or_default();
        // In the root it checks who may use a physical cluster, and marks a used one with a finalizer.
        let of_cluster =
            ["subjectaccessreviews", "physicalclusters"].map(Value::from).contains(&line["resource"]);
        !matches!(cluster, "root:team-a" | "root:mailbox-east") && !of_cluster
    };
    let elsewhere: Vec<_> = lines_of("splitter").into_iter().filter(elsewhere).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:#?}");
}

/// A user with the name of a controller has no rights of a controller.
#[test]
fn the_name_of_a_controller_gives_no_rights() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.csv");
    std::fs::write(&file, "t,system:holon:splitter,1\n").unwrap();
    let fleet = TestFleet::start_with(&[], &["--token-auth-file", file.to_str().unwrap()]);
    fleet.admin.create_logical_cluster("root:team-a");
    let named = Client::anonymous(&fleet.server).with("Authorization: Bearer t");
    for path in ["/clusters/*/api/v1/secrets", "/clusters/root:team-a/api/v1/secrets"] {
        assert_eq!(named.get(path).code, 404, "{path}");
    }
    assert_eq!(named.get("/api/v1/secrets").code, 404);
}
