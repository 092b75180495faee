//! Impersonation.

use serde_json::json;

use crate::{TestServer, check_status};

#[test]
fn impersonation_needs_the_right_to_every_user_and_group() {
    let test = TestServer::start();
    let a = test.admin.create_logical_cluster("root:a");
    test.create_role(&a, "as-bob", json!([
        { "verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"] },
        { "verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"] },
    ]));
    for (role, to) in [("as-bob", "User ann"), ("holon:access", "User ann"), ("view", "User bob")] {
        test.admin.bind(&a, role, to);
    }
    let ann = test.user("ann");
    let maps = format!("{a}/api/v1/namespaces/default/configmaps");
    let as_bob = ann.with("Impersonate-User: bob");
    assert_eq!((ann.get(&maps).code, as_bob.get(&maps).code), (403, 200));
    let review = as_bob.with("Impersonate-Group: dev");
    let review =
        review.ask("POST", &format!("{a}/apis/authentication.k8s.io/v1/selfsubjectreviews"), &json!({}));
    let expected = json!({ "username": "bob", "groups": ["dev", "system:authenticated"] });
    assert_eq!(review.json()["status"]["userInfo"], expected);
    let cannot = |resource: &str, name: &str| {
        format!(
            "{resource} \"{name}\" is forbidden: User \"ann\" cannot impersonate resource \"{resource}\" in API group \"\" at the cluster scope"
        )
    };
    check_status(&ann.with("Impersonate-User: eve").get(&maps), 403, &cannot("users", "eve"));
    check_status(&as_bob.with("Impersonate-Group: ops").get(&maps), 403, &cannot("groups", "ops"));
    assert_eq!(ann.with("Impersonate-Group: dev").get(&maps).code, 400);
    // A client that impersonates bob has only bob's rights there.
    let reason =
        "User \"bob\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\"";
    let secrets = format!("{a}/api/v1/namespaces/default/secrets");
    check_status(&as_bob.get(&secrets), 403, &format!("secrets is forbidden: {reason}"));
}

/// kcp had it the other way (GHSA-c7xh-gjv4-4jgv): the administrator of one workspace became an administrator of all.
#[test]
fn a_tenant_cannot_impersonate_masters_or_reach_other_logical_clusters() {
    let test = TestServer::start();
    let (a, b) = (test.admin.create_logical_cluster("root:a"), test.admin.create_logical_cluster("root:b"));
    test.admin.bind(&a, "cluster-admin", "User lead");
    test.admin.bind(&b, "cluster-admin", "User bob");
    let lead = test.user("lead");
    let maps = |cluster: &str| format!("{cluster}/api/v1/namespaces/default/configmaps");
    assert_eq!(lead.get(&maps(&a)).code, 200);
    let master = lead.with("Impersonate-User: x").with("Impersonate-Group: system:masters");
    let reason =
        "User \"lead\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope";
    check_status(&master.get(&maps(&a)), 403, &format!("groups \"system:masters\" is forbidden: {reason}"));
    for user in ["bob", "holon-admin", "system:serviceaccount:default:default"] {
        let acting = lead.with(&format!("Impersonate-User: {user}"));
        assert_eq!(acting.get(&maps(&b)).code, 404, "{user}");
        assert_eq!(acting.get("/clusters/*/api/v1/configmaps").code, 404, "{user}");
    }
    // An administrator may impersonate, and then has only the rights of the impersonated user.
    let acting = test.admin.with("Impersonate-User: bob");
    assert_eq!((acting.get(&maps(&b)).code, acting.get(&maps(&a)).code), (200, 403));
    test.admin.bind("", "cluster-admin", "User bob");
    assert_eq!(acting.get("/api/v1/configmaps").code, 200);
    assert_eq!(acting.get("/clusters/*/api/v1/configmaps").code, 404);
    let acting = test.admin.with("Impersonate-User: x").with("Impersonate-Group: system:masters");
    assert_eq!(acting.get(&maps(&a)).code, 200);
}
