//! The fields a request cannot change, whatever it says: nobody comes to own them by it.

use super::set::Set;
use crate::catalog::resource_info::Resource;

type Path = &'static [&'static str];

/// What of an object a request cannot change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// All of these, with everything below.
    These(&'static [Path]),
    /// Everything but these. `*` is any item.
    AllBut(&'static [Path]),
}

impl Reset {
    /// For a request to a resource, or to a part of it.
    pub fn of(row: &Resource, part: Option<&str>) -> Reset {
        let kind = row.qualified();
        let said = TABLE.iter().find(|(name, of, _)| *name == kind && *of == part.unwrap_or_default());
        match (said, part) {
            (Some((_, _, reset)), _) => *reset,
            (None, None) if row.has_status() => STATUS,
            (None, Some("status")) if row.origin == crate::schema::Origin::Custom => METADATA_AND_SPEC,
            (None, Some("status")) => SPEC,
            _ => Reset::These(&[]),
        }
    }

    /// Whether nothing at the end of this way can be changed.
    pub fn covers(self, way: &[&str]) -> bool {
        match self {
            Reset::These(paths) => paths.iter().any(|path| way.starts_with(path)),
            Reset::AllBut(paths) => !paths.iter().any(|path| way.starts_with(path) || path.starts_with(way)),
        }
    }

    pub(super) fn keep<'a>(self, set: Set<'a>) -> Set<'a> {
        match self {
            _ if set.is_empty() => set,
            Reset::These(paths) => set.recursive_difference(&Set::of_fields(paths)),
            Reset::AllBut(patterns) => set.matching(patterns),
        }
    }
}

const STATUS: Reset = Reset::These(&[&["status"]]);
const SPEC: Reset = Reset::These(&[&["spec"]]);
const METADATA_AND_SPEC: Reset = Reset::These(&[&["metadata"], &["spec"]]);

/// Resource, part, and what a request to it does not change; where it is not what one would expect.
const TABLE: &[(&str, &str, Reset)] = &[
    ("apiservices.apiregistration.k8s.io", "status", METADATA_AND_SPEC),
    ("certificatesigningrequests.certificates.k8s.io", "", Reset::These(&[&["spec"], &["status"]])),
    (
        "certificatesigningrequests.certificates.k8s.io",
        "approval",
        Reset::These(&[&["spec"], &["status", "certificate"]]),
    ),
    (
        "certificatesigningrequests.certificates.k8s.io",
        "status",
        Reset::These(&[&["spec"], &["status", "conditions"]]),
    ),
    ("deployments.apps", "status", Reset::These(&[&["metadata", "labels"], &["spec"]])),
    ("flowschemas.flowcontrol.apiserver.k8s.io", "status", METADATA_AND_SPEC),
    ("namespaces", "finalize", STATUS),
    ("podcertificaterequests.certificates.k8s.io", "", Reset::These(&[])),
    ("pods", "ephemeralcontainers", Reset::AllBut(&[&["spec", "ephemeralContainers"]])),
    (
        "pods",
        "resize",
        Reset::AllBut(&[
            &["spec", "containers", "*", "resizePolicy"],
            &["spec", "containers", "*", "resources"],
            &["spec", "initContainers", "*", "resizePolicy"],
            &["spec", "initContainers", "*", "resources"],
            &["spec", "resources"],
        ]),
    ),
    (
        "pods",
        "status",
        Reset::These(&[&["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"], &["spec"]]),
    ),
    ("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", "status", METADATA_AND_SPEC),
    ("resourceclaims.resource.k8s.io", "status", METADATA_AND_SPEC),
    ("servicecidrs.networking.k8s.io", "status", METADATA_AND_SPEC),
    ("validatingadmissionpolicies.admissionregistration.k8s.io", "status", METADATA_AND_SPEC),
    ("volumeattachments.storage.k8s.io", "status", METADATA_AND_SPEC),
];
