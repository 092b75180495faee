use openapi::catalog::built_in;
use openapi::catalog::resource_info::{ResourceInfo, Verb};
use openapi::publish::discovery::{ApiRoot, aggregated, core_versions, group, group_list, resource_list};
use serde_json::Value;

use crate::server::Server;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const JSON: &str = "application/json";

/// Returns the differences of discovery; none are expected.
pub(crate) fn differences(server: &Server) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |path: &str, accept: &str, ours: Value| {
        let mut theirs = server.get(path, accept);
        // The addresses of the servers differ.
        if theirs.get("serverAddressByClientCIDRs").is_some() {
            theirs["serverAddressByClientCIDRs"] = ours["serverAddressByClientCIDRs"].clone();
        }
        if ours != theirs {
            found.push(format!("{path} ({accept}):\n    ours   {ours}\n    theirs {theirs}"));
        }
    };
    check("/api", AGGREGATED, aggregated(built_in(), ApiRoot::Core));
    check("/apis", AGGREGATED, aggregated(built_in(), ApiRoot::Groups));
    check("/api", JSON, core_versions(built_in(), ""));
    check("/apis", JSON, group_list(built_in()));
    for row in built_in() {
        let path = root(row);
        check(&path, JSON, resource_list(built_in(), &row.group, &row.version).unwrap());
        if !row.group.is_empty() {
            check(&format!("/apis/{}", row.group), JSON, group(built_in(), &row.group).unwrap());
        }
    }
    found.dedup();
    found
}

/// Checks that the server accepts every field label that we accept, and rejects unknown ones.
pub(crate) fn selectors_differ(server: &Server) -> Vec<String> {
    let mut found = Vec::new();
    for row in built_in().iter().filter(|row| row.allows(Verb::List) && row.allows(Verb::Watch)) {
        let status = |label: &str| {
            server.request(&format!("{}/{}?limit=1&fieldSelector={label}%3Dx", root(row), row.plural), JSON).0
        };
        for field in &row.selectable {
            // Some labels need a value of another type than text.
            let status = status(&field.label);
            if status != 200 {
                found.push(format!("{}: {} is refused with {status}", row.qualified(), field.label));
            }
        }
        let labels =
            ["spec.nodeName", "status.phase", "type", "status.replicas", "spec.type", "metadata.uid"];
        for label in
            labels.iter().filter(|label| !row.selectable.iter().any(|field| *field.label == ***label))
        {
            if status(label) == 200 {
                found.push(format!("{}: {label} is accepted there", row.qualified()));
            }
        }
    }
    found
}

pub(crate) fn root(row: &ResourceInfo) -> String {
    format!("/{}", openapi::publish::documents::path(&row.group, &row.version))
}
