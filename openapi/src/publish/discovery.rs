//! Discovery documents, in the two forms that clients request: everything at once (`APIGroupDiscoveryList`), or group
//! by group.
//!
//! All of it is built from [`ResourceInfo`]s. Groups, and versions within them, are listed in the order of their first
//! occurrence. So the built-in ones come first and in order of priority, and the caller decides the place of custom
//! kinds.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::catalog::resource_info::{ResourceInfo, Subresource, Verb, api_version};
use crate::schema::Origin;

/// The two path prefixes of API groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApiRoot {
    /// `/api`: the core group alone.
    Core,
    /// `/apis`: all others.
    Groups,
}

/// Returns `APIGroupDiscoveryList`, version `apidiscovery.k8s.io/v2`.
pub fn aggregated(rows: &[Arc<ResourceInfo>], root: ApiRoot) -> Value {
    let groups = groups(rows).into_iter().filter(|(group, _)| (root == ApiRoot::Core) == group.is_empty());
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            let versions: Vec<Value> =
                versions.iter().map(|version| aggregated_version(rows, group, version)).collect();
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_version(rows: &[Arc<ResourceInfo>], group: &str, version: &str) -> Value {
    let resources: Vec<Value> = of(rows, group, version).map(aggregated_resource).collect();
    json!({ "version": version, "freshness": "Current", "resources": resources })
}

fn aggregated_resource(resource: &ResourceInfo) -> Value {
    let (group, version) = response_version(resource);
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": { "group": group, "version": version, "kind": resource.kind },
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(&resource.verbs),
    });
    put_all(&mut entry, "shortNames", &resource.short_names);
    put_all(&mut entry, "categories", &resource.categories);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| aggregated_subresource(resource, subresource))
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

/// Returns group and version of a custom kind. For a built-in kind both are empty, as in Kubernetes.
fn response_version(resource: &ResourceInfo) -> (Arc<str>, Arc<str>) {
    match resource.origin {
        Origin::BuiltIn => Default::default(),
        Origin::Custom => (resource.group.clone(), resource.version.clone()),
    }
}

fn aggregated_subresource(resource: &ResourceInfo, subresource: &Subresource) -> Value {
    let (group, version) = subresource.foreign.clone().unwrap_or_else(|| response_version(resource));
    json!({
        "subresource": subresource.name,
        "responseKind": { "group": group, "version": version, "kind": subresource.kind },
        "verbs": verbs(&subresource.verbs),
    })
}

/// Returns `APIVersions`, the document at `/api`. `address` is the server's address (`10.0.0.1:6443`).
pub fn core_versions(rows: &[Arc<ResourceInfo>], address: &str) -> Value {
    let groups = groups(rows);
    let versions = groups.iter().find(|(group, _)| group.is_empty()).map(|(_, versions)| versions.clone());
    json!({
        "kind": "APIVersions",
        "versions": versions.unwrap_or_default(),
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }],
    })
}

/// Returns `APIGroupList`, the document at `/apis`.
pub fn group_list(rows: &[Arc<ResourceInfo>]) -> Value {
    let groups = groups(rows).into_iter().filter(|(group, _)| !group.is_empty());
    let groups: Vec<Value> = groups.map(|(group, versions)| group_entry(group, &versions)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// Returns `APIGroup`, the document at `/apis/<group>`, if the group exists.
pub fn group(rows: &[Arc<ResourceInfo>], name: &str) -> Option<Value> {
    let (group, versions) =
        groups(rows).into_iter().find(|(group, _)| *group == name && !group.is_empty())?;
    let mut entry = group_entry(group, &versions);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    Some(entry)
}

fn group_entry(group: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({ "groupVersion": api_version(group, version), "version": version });
    json!({
        "name": group,
        "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version),
    })
}

/// Returns `APIResourceList`, the document at `/api/v1` and `/apis/<group>/<version>`, if the version exists.
pub fn resource_list(rows: &[Arc<ResourceInfo>], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in of(rows, group, version) {
        resources.push(resource_entry(resource));
        resources
            .extend(resource.subresources.iter().map(|subresource| subresource_entry(resource, subresource)));
    }
    if resources.is_empty() {
        return None;
    }
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": api_version(group, version),
        "resources": resources,
    });
    // As in Kubernetes, where the core group is older than the field.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn resource_entry(resource: &ResourceInfo) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(&resource.verbs),
    });
    put_all(&mut entry, "shortNames", &resource.short_names);
    put_all(&mut entry, "categories", &resource.categories);
    if let Some(hash) = &resource.storage_version_hash {
        entry["storageVersionHash"] = json!(hash);
    }
    entry
}

fn subresource_entry(resource: &ResourceInfo, subresource: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind,
        "verbs": verbs(&subresource.verbs),
    });
    if let Some((group, version)) = &subresource.foreign {
        entry["group"] = json!(group);
        entry["version"] = json!(version);
    }
    entry
}

/// Returns the groups and their versions, each in order of first occurrence.
fn groups(rows: &[Arc<ResourceInfo>]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in rows {
        let index = groups.iter().position(|(group, _)| *group == &*resource.group).unwrap_or_else(|| {
            groups.push((&resource.group, Vec::new()));
            groups.len() - 1
        });
        let versions = &mut groups[index].1;
        if !versions.contains(&&*resource.version) {
            versions.push(&resource.version);
        }
    }
    groups
}

fn of<'a>(
    rows: &'a [Arc<ResourceInfo>],
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a ResourceInfo> {
    rows.iter()
        .map(|resource| &**resource)
        .filter(move |resource| &*resource.group == group && &*resource.version == version)
}

fn verbs(verbs: &[Verb]) -> Vec<&'static str> {
    verbs.iter().map(|verb| verb.as_str()).collect()
}

fn put_all(entry: &mut Value, key: &str, texts: &[Arc<str>]) {
    if !texts.is_empty() {
        entry[key] = json!(texts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::built_in;

    #[test]
    fn both_forms_have_the_same_resources() {
        let mut listed = Vec::new();
        let mut aggregated_names = Vec::new();
        for root in [ApiRoot::Core, ApiRoot::Groups] {
            for group in aggregated(built_in(), root)["items"].as_array().unwrap() {
                let name = group["metadata"]["name"].as_str().unwrap_or_default();
                for version in group["versions"].as_array().unwrap() {
                    let number = version["version"].as_str().unwrap();
                    for resource in version["resources"].as_array().unwrap() {
                        aggregated_names.push(format!("{name}/{number}/{}", resource["resource"]));
                    }
                    let list = resource_list(built_in(), name, number).unwrap();
                    for resource in list["resources"].as_array().unwrap() {
                        if !resource["name"].as_str().unwrap().contains('/') {
                            listed.push(format!("{name}/{number}/{}", resource["name"]));
                        }
                    }
                }
            }
        }
        assert_eq!(listed, aggregated_names);
        assert_eq!(listed.len(), built_in().len());
    }

    #[test]
    fn unserved_groups_and_versions_are_not_in_discovery() {
        assert_eq!(group(built_in(), "nobody.example"), None);
        assert_eq!(group(built_in(), ""), None);
        assert_eq!(resource_list(built_in(), "apps", "v1beta1"), None);
        assert_eq!(aggregated(&[], ApiRoot::Groups)["items"], json!([]));
    }

    #[test]
    fn rows_made_later_join_behind_the_built_in_groups() {
        let mut rows = built_in().to_vec();
        let widget =
            ResourceInfo { group: "shop.example".into(), plural: "widgets".into(), ..(*rows[0]).clone() };
        rows.push(Arc::new(widget));
        let groups = group_list(&rows);
        assert_eq!(groups["groups"].as_array().unwrap().last().unwrap()["name"], "shop.example");
        assert_eq!(
            group(&rows, "shop.example").unwrap()["preferredVersion"]["groupVersion"],
            "shop.example/v1"
        );
    }
}
