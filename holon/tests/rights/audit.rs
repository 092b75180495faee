//! The audit log of a server.

use serde_json::{Value, json};

use crate::{GROUP, TestServer};

#[test]
fn the_audit_log_has_changes_and_refused_requests() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    let test = TestServer::start_with(&["--audit-log", file.to_str().unwrap()]);
    let a = test.admin.create_logical_cluster("root:a");
    let secrets = format!("{a}/api/v1/namespaces/default/secrets");
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "k": "h1dden" } });
    assert_eq!(test.admin.ask("POST", &secrets, &secret).code, 201);
    assert_eq!(test.admin.get(&secrets).code, 200);
    assert_eq!(test.user("ann").get(&secrets).code, 404);
    test.admin.bind(&a, "holon:access", "User ann");
    assert_eq!(test.admin.with("Impersonate-User: ann").get(&secrets).code, 403);
    assert_eq!(test.user("nobody").get(&secrets).code, 401);
    // Attempts to reach other logical clusters are logged, whatever form the path has.
    let ann = test.user("ann");
    for path in ["/clusters/~bbbbbbbbbbbbbbcc/api", "/clusters/*/api/v1/secrets", "/clusters/root:a/../b"] {
        assert_eq!(ann.get(path).code, 404);
    }
    let masters = ann.with("Impersonate-User: eve\r\nImpersonate-Group: system:masters");
    assert_eq!(masters.get(&secrets).code, 403);
    // Also escalation attempts, and creates by update.
    let writes = json!([{ "verbs": ["create", "update"], "apiGroups": ["*"], "resources": ["clusterroles", "leases"] }]);
    test.create_role(&a, "writes", writes);
    test.admin.bind(&a, "writes", "User ann");
    let role = json!({ "metadata": { "name": "r" }, "rules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }] });
    assert_eq!(ann.ask("POST", &format!("{a}/apis/{GROUP}/v1/clusterroles"), &role).code, 403);
    let lease = format!("{a}/apis/coordination.k8s.io/v1/namespaces/default/leases/l");
    test.create_role(
        &a,
        "changes",
        json!([{ "verbs": ["update"], "apiGroups": ["*"], "resources": ["leases"] }]),
    );
    test.admin.bind(&a, "holon:access", "User bob");
    test.admin.bind(&a, "changes", "User bob");
    assert_eq!(test.user("bob").ask("PUT", &lease, &json!({ "metadata": { "name": "l" } })).code, 403);
    // A token without `/clusters/` in the path leads to its own logical cluster.
    let token = test.token(&a, "default", json!({}))["status"]["token"].clone();
    let bot = test.with_token(token.as_str().unwrap());
    assert_eq!(bot.get("/api/v1/secrets").code, 403);
    // Requests for pod logs are logged too.
    assert_ne!(test.admin.get(&format!("{a}/api/v1/namespaces/default/pods/p/log")).code, 200);
    assert!(test.server.stop());

    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("h1dden") && !text.contains("token-of"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = |line: &Value| {
        let text = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
        let fields = ["user", "cluster", "verb", "resource", "decision"].map(text);
        let impersonated = line["impersonated"]["user"].as_str().map(|name| format!(" as {name}"));
        format!("{} {}{}", fields.join(" "), line["code"], impersonated.unwrap_or_default())
    };
    let found: Vec<_> = lines.iter().map(summary).collect();
    let expected = [
        "holon-admin root create logicalclusters allow 201",
        "holon-admin root:a create secrets allow 201",
        "ann root:a list secrets forbid 404",
        "holon-admin root:a create clusterrolebindings allow 201",
        "holon-admin root:a list secrets forbid 403 as ann",
        "system:anonymous root:a list secrets forbid 401",
        "ann ~bbbbbbbbbbbbbbcc - - forbid 404",
        "ann * list secrets forbid 404",
        "ann - - - forbid 404",
        "ann root:a list secrets forbid 403 as eve",
        "holon-admin root:a create clusterroles allow 201",
        "holon-admin root:a create clusterrolebindings allow 201",
        "ann root:a create clusterroles forbid 403",
        "holon-admin root:a create clusterroles allow 201",
        "holon-admin root:a create clusterrolebindings allow 201",
        "holon-admin root:a create clusterrolebindings allow 201",
        "bob root:a update leases forbid 403",
        "holon-admin root:a create serviceaccounts allow 201",
        "system:serviceaccount:default:default root:a list secrets forbid 403",
        "holon-admin root:a get pods allow 404",
    ];
    assert_eq!(found, expected);
    assert!(lines.iter().all(|line| line["duration_ms"].is_number() && line["time"].is_string()));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}
