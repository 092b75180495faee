//! Role bindings for tests of authorization.

use serde_json::json;

use crate::client::Client;

impl Client {
    /// Binds a cluster role to `User ann` or `Group dev`, in the logical cluster at `/clusters/…`, or in the root.
    pub(crate) fn bind(&self, cluster: &str, role: &str, subject: &str) {
        let (kind, name) = subject.split_once(' ').unwrap();
        let group = "rbac.authorization.k8s.io";
        let body = json!({
            "metadata": { "generateName": "made-for-a-test-" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": group, "kind": kind, "name": name }],
        });
        let made = self.ask("POST", &format!("{cluster}/apis/{group}/v1/clusterrolebindings"), &body);
        assert_eq!(made.code, 201, "{}", made.body);
    }
}
