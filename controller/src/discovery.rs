//! The kinds that a server serves, from aggregated discovery.

use serde_json::Value;

use crate::kind::ResourceKind;
use crate::remote::{CallError, Remote};

/// The newest version first. Servers with neither version are older than Kubernetes 1.26.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// A kind in one of its versions, as a server serves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    pub kind: ResourceKind,
    pub verbs: Vec<String>,
    /// Its subresources: `status`, `scale`.
    pub parts: Vec<String>,
}

impl Served {
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|has| has == verb))
    }
}

/// Lists the served kinds. Versions of one kind are in the order of the server's preference.
pub async fn discover(remote: &Remote) -> Result<Vec<Served>, CallError> {
    let mut served = Vec::new();
    for root in ["/api", "/apis"] {
        let document = remote.read_as(root, AGGREGATED).await?;
        if document["kind"] != "APIGroupDiscoveryList" {
            return Err(CallError::Garbled(
                "a server without aggregated discovery (Kubernetes 1.26)".to_owned(),
            ));
        }
        served.extend(read(&document));
    }
    Ok(served)
}

/// Reads an APIGroupDiscoveryList.
pub fn read(document: &Value) -> Vec<Served> {
    let mut served = Vec::new();
    for group in list(&document["items"]) {
        for version in list(&group["versions"]) {
            for resource in list(&version["resources"]) {
                let kind = ResourceKind {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    plural: text(&resource["resource"]),
                    name: text(&resource["responseKind"]["kind"]),
                    namespaced: resource["scope"] == "Namespaced",
                };
                let verbs = list(&resource["verbs"]).iter().map(text).collect();
                let parts =
                    list(&resource["subresources"]).iter().map(|part| text(&part["subresource"])).collect();
                served.push(Served { kind, verbs, parts });
            }
        }
    }
    served
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
