//! The kinds that the mailbox and the physical cluster serve.
//!
//! Both servers list them in discovery, so custom kinds need no code here. Tables list the exceptions: kinds that are
//! never placed, kinds that are projected, and kinds whose objects create no others.

use std::collections::BTreeMap;

use api::fleet::ServedKind;
use api::names::GROUP;
use controller::discovery;
use controller::kind::ResourceKind;
use controller::remote::{CallError, Remote};

/// The group and plural of a kind, which are the same in all versions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct KindName {
    pub(crate) group: String,
    pub(crate) plural: String,
}

impl KindName {
    pub(crate) fn new(group: &str, plural: &str) -> KindName {
        KindName { group: group.to_owned(), plural: plural.to_owned() }
    }

    fn is_in(&self, table: &[(&str, &str)]) -> bool {
        table.contains(&(&*self.group, &*self.plural))
    }

    pub(crate) fn is_namespaces(&self) -> bool {
        self.is_in(&[("", "namespaces")])
    }

    pub(crate) fn is_definitions(&self) -> bool {
        self.is_in(&[("apiextensions.k8s.io", "customresourcedefinitions")])
    }

    pub(crate) fn is_pods(&self) -> bool {
        self.is_in(&[("", "pods")])
    }

    pub(crate) fn is_events(&self) -> bool {
        self.is_in(&[("", "events")])
    }

    pub(crate) fn is_claims(&self) -> bool {
        self.is_in(&[("", "persistentvolumeclaims")])
    }

    pub(crate) fn is_stateful_sets(&self) -> bool {
        self.is_in(&[("apps", "statefulsets")])
    }

    /// Returns whether its objects are projected into the mailbox if placed objects create them.
    pub(crate) fn is_projected(&self) -> bool {
        self.is_in(PROJECTED)
    }

    /// Returns whether the syncer also watches objects of it in the mailbox that are not placed: projections, and the
    /// definitions of the mailbox itself.
    pub(crate) fn is_mixed(&self) -> bool {
        self.is_projected() || self.is_definitions()
    }

    /// Returns whether objects of it create no others.
    pub(crate) fn is_inert(&self) -> bool {
        self.is_in(INERT)
    }

    /// Returns whether the mailbox itself sets the status of its objects.
    pub(crate) fn has_own_status(&self) -> bool {
        self.is_namespaces() || self.is_definitions()
    }
}

/// Kinds that each server manages itself.
const NEVER_PLACED: &[(&str, &str)] = &[
    ("", "componentstatuses"),
    ("", "nodes"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "controllerrevisions"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("coordination.k8s.io", "leases"),
    ("coordination.k8s.io", "leasecandidates"),
    ("events.k8s.io", "events"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("internal.apiserver.k8s.io", "storageversions"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "servicecidrs"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "volumeattachments"),
];

const PROJECTED: &[(&str, &str)] = &[
    ("", "events"),
    ("", "persistentvolumeclaims"),
    ("", "pods"),
    ("apps", "replicasets"),
    ("batch", "jobs"),
    ("discovery.k8s.io", "endpointslices"),
];

/// While only objects of these kinds are placed, projected kinds are not watched downstream.
const INERT: &[(&str, &str)] = &[
    ("", "configmaps"),
    ("", "limitranges"),
    ("", "namespaces"),
    ("", "resourcequotas"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("networking.k8s.io", "networkpolicies"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "storageclasses"),
];

/// One version of a kind on one server.
#[derive(Clone, PartialEq, Eq, Debug)]
struct KindVersion {
    kind: ResourceKind,
    /// Whether it can be listed, watched and patched.
    watchable: bool,
    status: bool,
}

/// The kinds that a server serves, preferred versions first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServedKinds(BTreeMap<KindName, Vec<KindVersion>>);

/// A kind of the mailbox, in the version in which it is synced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SyncedResource {
    pub(crate) kind: ResourceKind,
    /// Whether the physical cluster serves this version.
    pub(crate) is_served_downstream: bool,
    /// Whether it has a status subresource.
    pub(crate) has_status: bool,
}

/// Reads the discovery documents of a server.
pub(crate) async fn discover(remote: &Remote) -> Result<ServedKinds, CallError> {
    let mut served = ServedKinds::default();
    served.add(discovery::discover(remote).await?);
    Ok(served)
}

impl ServedKinds {
    fn add(&mut self, served: Vec<discovery::Served>) {
        for resource in served {
            let watchable = resource.can(&["list", "watch", "patch"]);
            let status = resource.parts.iter().any(|part| part == "status");
            let name = KindName::new(&resource.kind.group, &resource.kind.plural);
            self.0.entry(name).or_default().push(KindVersion { kind: resource.kind, watchable, status });
        }
    }

    /// Returns the kinds of the mailbox that can be placed or projected, each in the first version that both servers
    /// serve.
    pub(crate) fn synced_resources(&self, downstream: &ServedKinds) -> BTreeMap<KindName, SyncedResource> {
        let placeable = |name: &KindName| name.group != GROUP && !name.is_in(NEVER_PLACED);
        let kinds = self.0.iter().filter(|(name, _)| placeable(name));
        kinds
            .filter_map(|(name, versions)| {
                Some((name.clone(), synced_resource(versions, downstream.0.get(name))?))
            })
            .collect()
    }

    /// Returns the kind of a stored object, for use while the mailbox does not answer.
    pub(crate) fn stored_resource(&self, kind: ResourceKind) -> (KindName, SyncedResource) {
        let name = KindName::new(&kind.group, &kind.plural);
        let version = KindVersion { kind, watchable: true, status: true };
        let downstream =
            self.0.get(&name).is_some_and(|versions| versions.iter().any(|other| other.kind == version.kind));
        (
            name,
            SyncedResource {
                kind: version.kind,
                is_served_downstream: downstream,
                has_status: version.status,
            },
        )
    }

    /// Returns the kinds for the report.
    pub(crate) fn report(&self) -> Vec<ServedKind> {
        let kinds = self.0.iter().filter(|(_, versions)| versions.iter().any(|version| version.watchable));
        let reported = |(name, versions): (&KindName, &Vec<KindVersion>)| ServedKind {
            group: name.group.clone(),
            kind: versions[0].kind.name.clone(),
            resource: name.plural.clone(),
            namespaced: versions[0].kind.namespaced,
            versions: versions.iter().map(|version| version.kind.version.clone()).collect(),
        };
        kinds.map(reported).collect()
    }
}

fn synced_resource(mailbox: &[KindVersion], downstream: Option<&Vec<KindVersion>>) -> Option<SyncedResource> {
    let is_served = |version: &KindVersion| {
        let same = |other: &&KindVersion| other.watchable && other.kind == version.kind;
        downstream.into_iter().flatten().find(same).is_some()
    };
    let watchable: Vec<&KindVersion> = mailbox.iter().filter(|version| version.watchable).collect();
    let common = watchable.iter().find(|version| is_served(version));
    let version = common.or(watchable.first())?;
    Some(SyncedResource {
        kind: version.kind.clone(),
        is_served_downstream: common.is_some(),
        has_status: version.status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn served(group: &str, versions: &[(&str, &[&str])]) -> ServedKinds {
        let resource = |plural: &&str| {
            json!({
                "resource": plural, "scope": "Namespaced", "responseKind": { "kind": plural.to_uppercase() },
                "verbs": if plural.starts_with("review") { json!(["create"]) } else { json!(["list", "watch", "patch", "get"]) },
                "subresources": [{ "subresource": "status" }],
            })
        };
        let version = |(version, plurals): &(&str, &[&str])| json!({ "version": version, "resources": plurals.iter().map(resource).collect::<Vec<_>>() });
        let versions: Vec<_> = versions.iter().map(version).collect();
        let mut served = ServedKinds::default();
        let document = json!({ "items": [{ "metadata": { "name": group }, "versions": versions }] });
        served.add(discovery::read(&document));
        served
    }

    fn check(mailbox: ServedKinds, downstream: ServedKinds, expected: &[(&str, &str, bool)]) {
        let resources = mailbox.synced_resources(&downstream);
        let resources: Vec<_> = resources
            .values()
            .map(|resource| (&*resource.kind.plural, &*resource.kind.version, resource.is_served_downstream))
            .collect();
        assert_eq!(resources, expected);
    }

    #[test]
    fn the_first_common_version_is_used_and_missing_kinds_are_reported() {
        let mailbox = || served("x.com", &[("v2", &["gardens", "pots"]), ("v1", &["gardens", "reviews"])]);
        check(mailbox(), mailbox(), &[("gardens", "v2", true), ("pots", "v2", true)]);
        check(
            mailbox(),
            served("x.com", &[("v1", &["gardens"])]),
            &[("gardens", "v1", true), ("pots", "v2", false)],
        );
        check(mailbox(), ServedKinds::default(), &[("gardens", "v2", false), ("pots", "v2", false)]);
    }

    #[test]
    fn kinds_that_each_server_manages_are_never_placed() {
        for (group, plural) in
            [("", "nodes"), ("coordination.k8s.io", "leases"), ("holon.dev", "physicalclusters")]
        {
            check(served(group, &[("v1", &[plural])]), served(group, &[("v1", &[plural])]), &[]);
        }
    }
}
