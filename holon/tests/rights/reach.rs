//! Access to logical clusters, and the responses without it.

use serde_json::json;
use testkit::Client;

use crate::{TestServer, check_status};

const NOT_FOUND: &str = "the server could not find the requested resource";

#[test]
fn users_need_access_to_a_logical_cluster_and_then_have_their_roles() {
    let test = TestServer::start();
    let (a, ann) = (test.admin.create_logical_cluster("root:a"), test.user("ann"));
    let secrets = |cluster: &str| format!("{cluster}/api/v1/namespaces/default/secrets");
    check_status(&ann.get(&secrets(&a)), 404, NOT_FOUND);
    // A role without `access` is not enough.
    test.admin.bind(&a, "view", "User ann");
    check_status(&ann.get(&format!("{a}/api/v1/namespaces/default/configmaps")), 404, NOT_FOUND);
    test.admin.bind(&a, "holon:access", "User ann");
    assert_eq!(ann.get(&format!("{a}/api/v1/namespaces/default/configmaps")).code, 200);
    assert_eq!(ann.get(&format!("{a}/api/v1/namespaces/default")).code, 200);
    assert_eq!(ann.get(&format!("{a}/apis")).code, 200);

    let refused = ann.get(&secrets(&a));
    let reason =
        "User \"ann\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\"";
    check_status(&refused, 403, &format!("secrets is forbidden: {reason}"));
    let status = refused.json();
    assert_eq!((&status["reason"], &status["details"]), (&json!("Forbidden"), &json!({ "kind": "secrets" })));
    let deleted =
        ann.ask("DELETE", &format!("{a}/apis/apps/v1/namespaces/shop/deployments/web/scale"), &json!({}));
    let reason = "User \"ann\" cannot delete resource \"deployments/scale\" in API group \"apps\" in the namespace \"shop\"";
    check_status(&deleted, 403, &format!("deployments.apps \"web\" is forbidden: {reason}"));
    let reason = "User \"ann\" cannot list resource \"nodes\" in API group \"\" at the cluster scope";
    check_status(&ann.get(&format!("{a}/api/v1/nodes")), 403, &format!("nodes is forbidden: {reason}"));
    check_status(
        &ann.get(&format!("{a}/metrics")),
        403,
        "forbidden: User \"ann\" cannot get path \"/metrics\"",
    );
    // A request for an undefined kind is forbidden, instead of not found.
    assert_eq!(ann.get(&format!("{a}/apis/nothing.io/v1/things")).code, 403);

    // The access is for this logical cluster only: not for the root, not for a sibling.
    let b = test.admin.create_logical_cluster("root:b");
    for elsewhere in ["", "/clusters/root", &b] {
        check_status(&ann.get(&format!("{elsewhere}/api/v1/namespaces/default/configmaps")), 404, NOT_FOUND);
        check_status(&ann.get(&format!("{elsewhere}/apis")), 404, NOT_FOUND);
    }
}

#[test]
fn an_ancestor_grants_access_by_path_and_no_other_rights() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    test.admin.create_logical_cluster("root:a:dev");
    let dev = format!("{a}:dev");
    let maps = |cluster: &str| format!("{cluster}/api/v1/namespaces/default/configmaps");
    let check = |name: &str, expected: [u16; 3]| {
        let found = ["", &a, &dev].map(|cluster| test.user(name).get(&maps(cluster)).code);
        assert_eq!(found, expected, "{name}");
    };
    // Access to the parent does not include the child.
    test.admin.bind("", "holon:access", "User ann");
    test.admin.bind("", "view", "User ann");
    check("ann", [200, 404, 404]);
    test.create_role("", "to-dev", json!([{ "verbs": ["access"], "nonResourceURLs": ["/clusters/a:dev"] }]));
    test.admin.bind("", "to-dev", "User bob");
    check("bob", [404, 404, 403]);
    test.create_role(&a, "below", json!([{ "verbs": ["access"], "nonResourceURLs": ["/clusters/*"] }]));
    test.admin.bind(&a, "below", "User eve");
    check("eve", [404, 404, 403]);
    // An administrator of the parent has access to the child, but may not read its objects.
    test.admin.bind(&a, "cluster-admin", "User lead");
    check("lead", [404, 200, 403]);
    test.admin.bind(&dev, "view", "User lead");
    check("lead", [404, 200, 200]);
}

#[test]
fn a_list_of_one_name_needs_rights_to_that_name_only() {
    let test = TestServer::start();
    let ann = test.user("ann");
    test.create_role("", "one", json!([
        { "verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"] },
    ]));
    for role in ["one", "holon:access"] {
        test.admin.bind("", role, "User ann");
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    for name in ["one", "two"] {
        let created = test.admin.ask("POST", maps, &json!({ "metadata": { "name": name } }));
        assert_eq!(created.code, 201);
    }
    let codes = ["", "/one", "/two", "?fieldSelector=metadata.name=one", "?fieldSelector=metadata.name=two"]
        .map(|suffix| ann.get(&format!("{maps}{suffix}")).code);
    assert_eq!(codes, [403, 200, 403, 200, 403]);
    let listed = ann.get(&format!("{maps}?fieldSelector=metadata.name=one")).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    let seen = ann.watched(&format!("{maps}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=one"));
    assert_eq!(seen.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["ADDED"]);
    let odd = ann.get(&format!("{maps}?fieldSelector=metadata.name=one,metadata.name!=one"));
    assert_eq!((odd.code, odd.json()["items"].as_array().map(Vec::len)), (200, Some(0)));
}

/// Some tools read discovery before they authenticate. A logical cluster may allow that, and nothing else.
#[test]
fn anonymous_clients_read_only_discovery_and_only_if_allowed() {
    let test = TestServer::start();
    let (a, anonymous) = (test.admin.create_logical_cluster("root:a"), Client::anonymous(&test.server));
    let code = |path: &str| anonymous.get(&format!("{a}{path}")).code;
    assert_eq!(code("/apis"), 401);
    test.admin.bind(&a, "system:discovery", "Group system:unauthenticated");
    assert_eq!(code("/apis"), 401, "the role alone grants no access");
    test.admin.bind(&a, "holon:access", "Group system:unauthenticated");
    assert_eq!(["/api", "/apis", "/openapi/v3"].map(code), [200, 200, 200]);
    // Not even if a binding allows it.
    test.admin.bind(&a, "cluster-admin", "Group system:unauthenticated");
    assert_eq!(["/api/v1/namespaces", "/metrics", "/"].map(code), [401, 401, 401]);
    assert_eq!(anonymous.get("/clusters/root:nowhere/apis").code, 401);
    assert_eq!(anonymous.get("/apis").code, 401);
}

/// Ids are internal. A user with access to a logical cluster knows its path, and cannot use its id.
#[test]
fn ids_are_for_administrators() {
    let test = TestServer::start();
    let (a, ann) = (test.admin.create_logical_cluster("root:a"), test.user("ann"));
    let object = test.admin.get("/apis/holon.dev/v1alpha1/logicalclusters/a").json();
    let path = format!("/clusters/{}/api", object["status"]["id"].as_str().unwrap());
    test.admin.bind(&a, "holon:access", "User ann");
    assert_eq!(ann.get(&format!("{a}/api")).code, 200);
    check_status(&ann.get(&path), 404, NOT_FOUND);
    assert_eq!(test.admin.get(&path).code, 200);
}
