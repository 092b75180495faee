//! The manifest of a syncer, which an administrator applies in its physical cluster.

use anyhow::Result;
use api::names::SYNCER_OF;
use serde_json::{Value, json};

use super::ticket::Ticket;

/// The name of all objects of the syncer, and of its namespace.
pub(crate) const SYNCER_NAMESPACE: &str = "holon-syncer";
/// The Secret in which the syncer stores its credential.
pub(super) const CREDENTIAL_SECRET: &str = "holon-syncer-credential";
/// Annotation of the pod template: the id of the ticket, so that a new ticket starts a new pod.
const TICKET: &str = "holon.dev/ticket";
/// The directory in which the ticket and the state key are mounted.
const SECRETS: &str = "/var/run/holon";
/// Key of the Secret: the URL of the proxy.
const PROXY: &str = "proxy";

/// The options of the manifest.
pub(crate) struct SyncerManifest<'a> {
    pub(crate) image: &'a str,
    /// The key that encrypts the state, as base64.
    pub(crate) state_key: &'a str,
    /// The PersistentVolumeClaim of the state, if the state is to outlive the pod.
    pub(crate) state_claim: Option<&'a str>,
    /// The proxy to the server, if any.
    pub(crate) proxy: Option<&'a str>,
}

impl SyncerManifest<'_> {
    /// Returns the objects to apply, for a ticket.
    pub(crate) fn objects(&self, ticket: &Ticket) -> Result<Vec<Value>> {
        let metadata = json!({ "name": SYNCER_NAMESPACE, "namespace": SYNCER_NAMESPACE });
        let labels = json!({ "app": SYNCER_NAMESPACE });
        let subject =
            json!({ "kind": "ServiceAccount", "name": SYNCER_NAMESPACE, "namespace": SYNCER_NAMESPACE });
        let annotations = json!({ TICKET: ticket.id });
        let mut secrets = json!({ "ticket": serde_json::to_string(ticket)?, "state-key": self.state_key });
        if let Some(proxy) = self.proxy {
            // The URL may contain a password.
            secrets[PROXY] = proxy.into();
        }
        Ok(vec![
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": SYNCER_NAMESPACE, "annotations": { SYNCER_OF: ticket.mailbox } },
            }),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": SYNCER_NAMESPACE },
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
                    "template": { "metadata": { "labels": labels, "annotations": annotations }, "spec": pod_spec(self) },
                },
            }),
        ])
    }
}

fn pod_spec(manifest: &SyncerManifest<'_>) -> Value {
    let proxy = manifest.proxy.map(
        |_| json!({ "name": "HTTPS_PROXY", "valueFrom": { "secretKeyRef": { "name": SYNCER_NAMESPACE, "key": PROXY } } }),
    );
    let container = json!({
        "name": "syncer", "image": manifest.image,
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
    let state = match manifest.state_claim {
        Some(claim) => json!({ "name": "state", "persistentVolumeClaim": { "claimName": claim } }),
        None => json!({ "name": "state", "emptyDir": {} }),
    };
    json!({
        "serviceAccountName": SYNCER_NAMESPACE,
        "securityContext": { "fsGroup": 65532 },
        "containers": [container],
        "volumes": [{ "name": "ticket", "secret": { "secretName": SYNCER_NAMESPACE } }, state],
    })
}
