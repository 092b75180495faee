//! What is applied in the physical cluster.

use anyhow::Result;
use api::names::SEAT_OF;
use serde_json::{Value, json};

use super::ticket::Ticket;

/// What everything of the syncer there is called, and its namespace.
pub(crate) const HERE: &str = "holon-syncer";
/// The Secret in which the syncer keeps how it is known.
pub(super) const CREDENTIAL: &str = "holon-syncer-credential";
/// Of a pod template: which ticket it begins with, so that another one starts another Pod.
const TICKET: &str = "holon.dev/ticket";
/// Where the ticket and the key of the state are.
const SECRETS: &str = "/var/run/holon";
/// Of the Secret: the address of the proxy.
const PROXY: &str = "proxy";

/// What is asked for beside the ticket.
pub(crate) struct Wanted<'a> {
    pub(crate) image: &'a str,
    /// What seals the state on disk, as text.
    pub(crate) state_key: &'a str,
    /// The claim of the volume to keep the state on, if it is to outlive the Pod.
    pub(crate) state_claim: Option<&'a str>,
    /// The proxy through which it reaches the server, if there is one.
    pub(crate) proxy: Option<&'a str>,
}

pub(crate) fn manifest(ticket: &Ticket, wanted: &Wanted<'_>) -> Result<Vec<Value>> {
    let metadata = json!({ "name": HERE, "namespace": HERE });
    let labels = json!({ "app": HERE });
    let subject = json!({ "kind": "ServiceAccount", "name": HERE, "namespace": HERE });
    let annotations = json!({ TICKET: ticket.id });
    let mut secrets = json!({ "ticket": serde_json::to_string(ticket)?, "state-key": wanted.state_key });
    if let Some(proxy) = wanted.proxy {
        // It may have a password in it.
        secrets[PROXY] = proxy.into();
    }
    Ok(vec![
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": HERE, "annotations": { SEAT_OF: ticket.mailbox } },
        }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": HERE },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [subject],
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "stringData": secrets,
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 1,
                "strategy": { "type": "Recreate" },
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels, "annotations": annotations }, "spec": pod(wanted) },
            },
        }),
    ])
}

fn pod(wanted: &Wanted<'_>) -> Value {
    let proxy = wanted.proxy.map(
        |_| json!({ "name": "HTTPS_PROXY", "valueFrom": { "secretKeyRef": { "name": HERE, "key": PROXY } } }),
    );
    let container = json!({
        "name": "syncer", "image": wanted.image,
        "args": ["syncer", "--state-key-file", format!("{SECRETS}/state-key")],
        "env": proxy.as_slice(),
        "volumeMounts": [
            { "name": "ticket", "mountPath": SECRETS, "readOnly": true },
            { "name": "state", "mountPath": "/var/lib/holon" },
        ],
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
            "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
        },
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "512Mi" } },
    });
    let state = match wanted.state_claim {
        Some(claim) => json!({ "name": "state", "persistentVolumeClaim": { "claimName": claim } }),
        None => json!({ "name": "state", "emptyDir": {} }),
    };
    json!({
        "serviceAccountName": HERE,
        "securityContext": { "fsGroup": 65532 },
        "containers": [container],
        "volumes": [{ "name": "ticket", "secret": { "secretName": HERE } }, state],
    })
}
