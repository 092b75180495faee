//! The downstream account of a syncer.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::physical::Address;
use crate::setup::TestClient;

pub(crate) const NAME: &str = "system:serviceaccount:kube-system:holon";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The rights of the account: rules by the namespace in which they are bound, or everywhere.
pub(crate) struct Rights(Vec<(Option<&'static str>, Value)>);

impl Rights {
    pub(crate) fn everything() -> Rights {
        Rights(vec![(None, rule("*", "*", "*"))])
    }

    pub(crate) fn none() -> Rights {
        Rights(Vec::new())
    }

    /// Adds a rule, everywhere or in a namespace.
    pub(crate) fn and(mut self, namespace: Option<&'static str>, rule: Value) -> Rights {
        self.0.push((namespace, rule));
        self
    }
}

/// Returns a rule from comma-separated lists.
pub(crate) fn rule(groups: &str, resources: &str, verbs: &str) -> Value {
    let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    json!({ "apiGroups": words(groups), "resources": words(resources), "verbs": words(verbs) })
}

/// Creates the account, and returns its kubeconfig.
pub(crate) async fn create(admin: &TestClient, address: &Address) -> Result<Value> {
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    let metadata = json!({ "name": "holon" });
    admin
        .create(accounts, json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }))
        .await
        .context("creating the account of the syncer")?;
    let token_request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 7200 },
    });
    let created = admin.create(&format!("{accounts}/holon/token"), token_request).await?;
    let token = created["status"]["token"].as_str().context("the response has no token")?;
    let mut cluster = json!({ "server": address.server, "certificate-authority-data": address.authority });
    if let Some(proxy) = &address.proxy {
        cluster["proxy-url"] = json!(proxy);
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "downstream",
        "clusters": [{ "name": "downstream", "cluster": cluster }],
        "users": [{ "name": "holon", "user": { "token": token } }],
        "contexts": [{ "name": "downstream", "context": { "cluster": "downstream", "user": "holon" } }],
    }))
}

/// Grants rights to the account, whether or not it exists yet.
pub(crate) async fn grant(admin: &TestClient, name: &str, rights: &Rights) -> Result<()> {
    for (number, (namespace, rule)) in rights.0.iter().enumerate() {
        bind(admin, &format!("{name}-{number}"), *namespace, rule).await?;
    }
    Ok(())
}

async fn bind(admin: &TestClient, name: &str, namespace: Option<&str>, rule: &Value) -> Result<()> {
    let (role, folder) = match namespace {
        Some(namespace) => ("Role", format!("{RBAC}/namespaces/{namespace}/")),
        None => ("ClusterRole", format!("{RBAC}/cluster")),
    };
    let kind = |kind: &str| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name } });
    let mut created = kind(role);
    created["rules"] = json!([rule]);
    admin.create(&format!("{folder}roles"), created).await?;
    let mut binding = kind(&format!("{role}Binding"));
    binding["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name });
    binding["subjects"] = json!([{ "kind": "ServiceAccount", "name": "holon", "namespace": "kube-system" }]);
    admin.create(&format!("{folder}rolebindings"), binding).await.map(drop)
}
