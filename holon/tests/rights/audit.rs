//! The audit log of a server.

use serde_json::{Value, json};

use crate::World;

#[test]
fn the_audit_log_says_who_changed_what_and_who_was_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    let world = World::with(&["--audit-log", file.to_str().unwrap()]);
    let a = world.cluster("a");
    let secrets = format!("{a}/api/v1/namespaces/default/secrets");
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "k": "h1dden" } });
    assert_eq!(world.admin.ask("POST", &secrets, &secret).code, 201);
    assert_eq!(world.admin.get(&secrets).code, 200);
    assert_eq!(world.user("ann").get(&secrets).code, 404);
    world.admin.bind(&a, "holon:access", "User ann");
    assert_eq!(world.admin.with("Impersonate-User: ann").get(&secrets).code, 403);
    assert_eq!(world.user("nobody").get(&secrets).code, 401);
    assert!(world.server.stop());

    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("h1dden") && !text.contains("token-of"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &Value| {
        let text = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
        let fields = ["user", "cluster", "verb", "resource", "decision"].map(text);
        format!("{} {}", fields.join(" "), line["code"])
    };
    let found: Vec<_> = lines.iter().map(told).collect();
    let expected = [
        "holon-admin root create logicalclusters allow 201",
        "holon-admin root:a create secrets allow 201",
        "ann root:a list secrets forbid 404",
        "holon-admin root:a create clusterrolebindings allow 201",
        "holon-admin root:a list secrets forbid 403",
        "system:anonymous root:a list secrets forbid 401",
    ];
    assert_eq!(found, expected);
    assert!(lines.iter().all(|line| line["duration_ms"].is_number() && line["time"].is_string()));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}
