//! Rewrites pods so that they reach the API of their logical cluster, not that of the physical cluster they run on.
//!
//! A client in a pod uses the variables `KUBERNETES_SERVICE_HOST` and `…_PORT`, and a folder with a token, a
//! certificate and a namespace. Both are replaced: the variables by the address of this server, the folder by a Secret
//! with the same three files for the service account of the logical cluster. The physical cluster mounts no token of
//! its own. Variables and volumes that the user set stay.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::references::pod_spec_at;

/// How a pod reaches the API of its logical cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiAccess {
    pub host: String,
    pub port: u16,
    /// The Secret in the pod's namespace with `token`, `ca.crt` and `namespace`.
    pub secret: String,
    /// Whether it is mounted at the standard path. If not, the user's own volumes may still use it.
    pub mounts: bool,
}

/// The service account with which the pods of an object call the API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PodApiAccess {
    pub(crate) account: String,
    /// Whether the pods mount a token even if the account disables automounting.
    pub(crate) always: bool,
}

/// Every namespace has this account, so it is not cached.
const DEFAULT: &str = "default";
impl PodApiAccess {
    pub(crate) fn of(object: &Value) -> Option<PodApiAccess> {
        let spec = pod_spec_at(object).and_then(|at| object.pointer(at))?;
        let mounts = spec["automountServiceAccountToken"].as_bool();
        let always = mounts == Some(true) || projects(spec);
        (always || mounts.is_none()).then(|| PodApiAccess { account: account_of(spec).to_owned(), always })
    }
}

/// Pods without a service account name use the default one.
pub(crate) fn account_of(spec: &Value) -> &str {
    let named = |field: &str| spec[field].as_str().filter(|name| !name.is_empty());
    named("serviceAccountName").or_else(|| named("serviceAccount")).unwrap_or(DEFAULT)
}

const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "holon-api-access";
const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

pub(super) fn rewrite(object: &mut Value, api_access: &ApiAccess) {
    let Some(spec) = pod_spec_at(object).and_then(|at| object.pointer_mut(at)) else { return };
    if !spec.is_object() {
        return;
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        redirect(volume, api_access);
    }
    let mounts = api_access.mounts && spec["automountServiceAccountToken"] != false;
    spec["automountServiceAccountToken"] = false.into();
    if mounts {
        push(spec, "volumes", json!({ "name": VOLUME, "secret": { "secretName": api_access.secret } }));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            set_variables(container, api_access);
            if mounts {
                mount(container);
            }
        }
    }
}

fn set_variables(container: &mut Value, api_access: &ApiAccess) {
    let port = api_access.port.to_string();
    let ours = [
        ("KUBERNETES_SERVICE_HOST", &api_access.host),
        ("KUBERNETES_SERVICE_PORT", &port),
        ("KUBERNETES_SERVICE_PORT_HTTPS", &port),
    ];
    for (name, value) in ours {
        let found =
            container["env"].as_array().into_iter().flatten().any(|variable| variable["name"] == name);
        if !found {
            push(container, "env", json!({ "name": name, "value": value }));
        }
    }
}

fn mount(container: &mut Value) {
    let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
    if !mounts.any(|mount| mount["mountPath"] == FOLDER) {
        push(container, "volumeMounts", json!({ "name": VOLUME, "mountPath": FOLDER, "readOnly": true }));
    }
}

fn push(holder: &mut Value, field: &str, item: Value) {
    if !holder[field].is_array() {
        holder[field] = json!([]);
    }
    if let Some(items) = holder[field].as_array_mut().filter(|items| !items.contains(&item)) {
        items.push(item);
    }
}

/// Whether a pod has a projected volume with a token or the root certificate.
pub(crate) fn projects(spec: &Value) -> bool {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.filter_map(|volume| volume.pointer("/projected/sources")?.as_array()).flatten();
    sources.any(|source| is_token(source) || is_certificate(source))
}

/// A token for another audience is not for the API.
fn is_token(source: &Value) -> bool {
    source.get("serviceAccountToken").is_some_and(|token| token["audience"].is_null())
}

fn is_certificate(source: &Value) -> bool {
    source.pointer("/configMap/name").is_some_and(|name| name == ROOT_CERTIFICATE)
}

/// Replaces the token and the root certificate in a projected volume of the user.
fn redirect(volume: &mut Value, api_access: &ApiAccess) {
    let sources = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut);
    for source in sources.into_iter().flatten() {
        let items = match source.pointer("/configMap/items") {
            _ if is_token(source) => {
                json!([{ "key": "token", "path": source["serviceAccountToken"]["path"] }])
            }
            _ if !is_certificate(source) => continue,
            Some(items) => items.clone(),
            None => json!([{ "key": "ca.crt", "path": "ca.crt" }]),
        };
        *source = json!({ "secret": { "name": api_access.secret, "items": items } });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_mount_a_token_call_the_api_as_their_account() {
        let check = |spec: Value, expected: Option<(&str, bool)>| {
            let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": { "spec": spec } } });
            let found = PodApiAccess::of(&object);
            let found = found.as_ref().map(|access| (access.account.as_str(), access.always));
            assert_eq!(found, expected, "{object}");
        };
        let containers = json!([{ "name": "a" }]);
        let project = |source: Value| json!([{ "name": "own", "projected": { "sources": [source] } }]);
        check(json!({ "containers": containers }), Some(("default", false)));
        check(json!({ "containers": containers, "serviceAccountName": "bot" }), Some(("bot", false)));
        check(json!({ "containers": containers, "serviceAccount": "bot" }), Some(("bot", false)));
        check(
            json!({ "containers": containers, "serviceAccountName": "bot", "automountServiceAccountToken": true }),
            Some(("bot", true)),
        );
        check(json!({ "containers": containers, "automountServiceAccountToken": false }), None);
        let token = json!({ "serviceAccountToken": { "path": "token" } });
        check(
            json!({ "containers": containers, "automountServiceAccountToken": false, "volumes": project(token) }),
            Some(("default", true)),
        );
        let vault = json!({ "serviceAccountToken": { "path": "token", "audience": "vault" } });
        check(
            json!({ "containers": containers, "automountServiceAccountToken": false, "volumes": project(vault) }),
            None,
        );
        assert_eq!(PodApiAccess::of(&json!({ "kind": "ConfigMap", "data": {} })), None);
    }
}
