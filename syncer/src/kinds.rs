//! Which kinds both sides serve.
//!
//! Both servers say it themselves, so a kind somebody defines works without a word about it here. What few kinds are
//! different is in tables: those that are never placed, those that are projected, those that bring nothing about.

use std::collections::BTreeMap;

use api::fleet::ServedKind;
use api::names::GROUP;
use controller::discovery;
use controller::kind::Kind;
use controller::remote::{CallError, Remote};

/// Name of a kind that stays the same over versions.
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

    /// Whether what placed objects bring about below is shown in the mailbox.
    pub(crate) fn is_projected(&self) -> bool {
        self.is_in(PROJECTED)
    }

    /// Whether objects of it in the mailbox are of interest that are not placed: those that are shown there, and what the
    /// mailbox itself knows of kinds.
    pub(crate) fn is_mixed(&self) -> bool {
        self.is_projected() || self.is_definitions()
    }

    /// Whether its objects bring about others.
    pub(crate) fn is_inert(&self) -> bool {
        self.is_in(INERT)
    }

    /// Whether its status in the mailbox is the mailbox's own.
    pub(crate) fn has_own_status(&self) -> bool {
        self.is_namespaces() || self.is_definitions()
    }
}

/// A server's own business.
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

/// As long as only these are placed, nothing that is projected is followed.
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
struct Version {
    kind: Kind,
    /// Can be listed, watched and changed.
    followed: bool,
    status: bool,
}

/// What a server serves, preferred versions first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Served(BTreeMap<KindName, Vec<Version>>);

/// A kind of the mailbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    /// The physical cluster has it, in this version.
    pub(crate) below: bool,
    /// Its status is a part of its own.
    pub(crate) status: bool,
}

/// Asks a server what it serves.
pub(crate) async fn discover(remote: &Remote) -> Result<Served, CallError> {
    let mut served = Served::default();
    served.add(discovery::discover(remote).await?);
    Ok(served)
}

impl Served {
    fn add(&mut self, found: Vec<discovery::Served>) {
        for found in found {
            let followed = found.can(&["list", "watch", "patch"]);
            let status = found.parts.iter().any(|part| part == "status");
            let name = KindName::new(&found.kind.group, &found.kind.plural);
            self.0.entry(name).or_default().push(Version { kind: found.kind, followed, status });
        }
    }

    /// All kinds of the mailbox of which something can be placed or shown, with the version both sides have.
    pub(crate) fn rows(&self, below: &Served) -> BTreeMap<KindName, Row> {
        let placeable = |name: &KindName| name.group != GROUP && !name.is_in(NEVER_PLACED);
        let kinds = self.0.iter().filter(|(name, _)| placeable(name));
        kinds.filter_map(|(name, versions)| Some((name.clone(), row(versions, below.0.get(name))?))).collect()
    }

    /// The row of a kind the mailbox had, as long as the mailbox does not answer.
    pub(crate) fn kept_row(&self, kind: Kind) -> (KindName, Row) {
        let name = KindName::new(&kind.group, &kind.plural);
        let version = Version { kind, followed: true, status: true };
        let below =
            self.0.get(&name).is_some_and(|there| there.iter().any(|other| other.kind == version.kind));
        (name, Row { kind: version.kind, below, status: version.status })
    }

    /// As the report says it.
    pub(crate) fn report(&self) -> Vec<ServedKind> {
        let kinds = self.0.iter().filter(|(_, versions)| versions.iter().any(|version| version.followed));
        let said = |(name, versions): (&KindName, &Vec<Version>)| ServedKind {
            group: name.group.clone(),
            kind: versions[0].kind.name.clone(),
            resource: name.plural.clone(),
            namespaced: versions[0].kind.namespaced,
            versions: versions.iter().map(|version| version.kind.version.clone()).collect(),
        };
        kinds.map(said).collect()
    }
}

fn row(here: &[Version], below: Option<&Vec<Version>>) -> Option<Row> {
    let there = |version: &Version| {
        let same = |other: &&Version| other.followed && other.kind == version.kind;
        below.into_iter().flatten().find(same).is_some()
    };
    let followed: Vec<&Version> = here.iter().filter(|version| version.followed).collect();
    let common = followed.iter().find(|version| there(version));
    let version = common.or(followed.first())?;
    Some(Row { kind: version.kind.clone(), below: common.is_some(), status: version.status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn served(group: &str, versions: &[(&str, &[&str])]) -> Served {
        let resource = |plural: &&str| {
            json!({
                "resource": plural, "scope": "Namespaced", "responseKind": { "kind": plural.to_uppercase() },
                "verbs": if plural.starts_with("review") { json!(["create"]) } else { json!(["list", "watch", "patch", "get"]) },
                "subresources": [{ "subresource": "status" }],
            })
        };
        let version = |(version, plurals): &(&str, &[&str])| json!({ "version": version, "resources": plurals.iter().map(resource).collect::<Vec<_>>() });
        let versions: Vec<_> = versions.iter().map(version).collect();
        let mut served = Served::default();
        let document = json!({ "items": [{ "metadata": { "name": group }, "versions": versions }] });
        served.add(discovery::read(&document));
        served
    }

    fn check(here: Served, below: Served, expected: &[(&str, &str, bool)]) {
        let rows = here.rows(&below);
        let rows: Vec<_> =
            rows.values().map(|row| (&*row.kind.plural, &*row.kind.version, row.below)).collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_first_version_both_have_is_used_and_what_is_missing_below_is_known() {
        let here = || served("x.com", &[("v2", &["gardens", "pots"]), ("v1", &["gardens", "reviews"])]);
        check(here(), here(), &[("gardens", "v2", true), ("pots", "v2", true)]);
        check(
            here(),
            served("x.com", &[("v1", &["gardens"])]),
            &[("gardens", "v1", true), ("pots", "v2", false)],
        );
        check(here(), Served::default(), &[("gardens", "v2", false), ("pots", "v2", false)]);
    }

    #[test]
    fn a_servers_own_kinds_and_ours_are_never_placed() {
        for (group, plural) in
            [("", "nodes"), ("coordination.k8s.io", "leases"), ("holon.dev", "physicalclusters")]
        {
            check(served(group, &[("v1", &[plural])]), served(group, &[("v1", &[plural])]), &[]);
        }
    }
}
