//! Several servers on one etcd: a change through one takes effect on the other at once.

use serde_json::json;
use testkit::Client;
use testkit::peers::Etcd;

use crate::{GROUP, TestServer};

#[test]
#[ignore = "needs etcd"]
fn a_revocation_on_one_server_applies_on_the_other() {
    let etcd = Etcd::start(testkit::peers::program("etcd"), 1);
    let options = ["--etcd-endpoints", &etcd.endpoint(0)];
    let (one, other) = (TestServer::start_with(&options), TestServer::start_with(&options));
    let a = one.admin.create_logical_cluster("root:a");
    let maps = format!("{a}/api/v1/namespaces/default/configmaps");
    let bindings = format!("{a}/apis/{GROUP}/v1/clusterrolebindings");
    let ann = other.user("ann");
    assert_eq!(ann.get(&maps).code, 404);
    one.admin.bind(&a, "holon:access", "User ann");
    let body = json!({
        "metadata": { "name": "reads" },
        "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": "ann" }],
    });
    for _ in 0..10 {
        assert_eq!(one.admin.ask("POST", &bindings, &body).code, 201);
        assert_eq!(ann.get(&maps).code, 200);
        assert_eq!(one.admin.ask("DELETE", &format!("{bindings}/reads"), &json!({})).code, 200);
        assert_eq!(ann.get(&maps).code, 403);
    }
    // Tokens issued by one server are valid on the other, because the keys are in the store.
    one.admin.bind(&a, "view", "Group system:serviceaccounts");
    let path = format!("{a}/api/v1/namespaces/default/serviceaccounts/default/token");
    let created = one.admin.ask("POST", &path, &json!({})).json();
    let bearer = format!("Authorization: Bearer {}", created["status"]["token"].as_str().unwrap());
    for test in [&one, &other] {
        let bot = Client::anonymous(&test.server).with(&bearer);
        assert_eq!(bot.get("/api/v1/namespaces/default/configmaps").code, 200);
    }
}
