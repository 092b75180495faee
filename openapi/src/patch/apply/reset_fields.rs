//! The fields that a request cannot change, and therefore does not become the owner of.

use super::field_set::FieldSet;
use crate::catalog::resource_info::ResourceInfo;

type Path = &'static [&'static str];

/// The fields of an object that a request cannot change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetFields {
    /// These fields, with everything below them.
    These(&'static [Path]),
    /// Everything but these fields. `*` is any element.
    AllBut(&'static [Path]),
}

impl ResetFields {
    /// Returns the reset fields of a request to a resource or to a subresource.
    pub fn of(resource: &ResourceInfo, subresource: Option<&str>) -> ResetFields {
        let kind = resource.qualified();
        let row = TABLE.iter().find(|(name, of, _)| *name == kind && *of == subresource.unwrap_or_default());
        match (row, subresource) {
            (Some((_, _, reset)), _) => *reset,
            (None, None) if resource.has_status() => STATUS,
            (None, Some("status")) if resource.origin == crate::schema::Origin::Custom => METADATA_AND_SPEC,
            (None, Some("status")) => SPEC,
            _ => ResetFields::These(&[]),
        }
    }

    /// Reports whether nothing at or below this path can be changed.
    pub fn covers(self, changed: &[&str]) -> bool {
        match self {
            ResetFields::These(paths) => paths.iter().any(|path| changed.starts_with(path)),
            ResetFields::AllBut(paths) => {
                !paths.iter().any(|path| changed.starts_with(path) || path.starts_with(changed))
            }
        }
    }

    pub(super) fn keep<'a>(self, set: FieldSet<'a>) -> FieldSet<'a> {
        match self {
            _ if set.is_empty() => set,
            ResetFields::These(paths) => set.recursive_difference(&FieldSet::of_fields(paths)),
            ResetFields::AllBut(patterns) => set.matching(patterns),
        }
    }
}

const STATUS: ResetFields = ResetFields::These(&[&["status"]]);
const SPEC: ResetFields = ResetFields::These(&[&["spec"]]);
const METADATA_AND_SPEC: ResetFields = ResetFields::These(&[&["metadata"], &["spec"]]);

/// Resource, subresource and reset fields, where they differ from the default.
const TABLE: &[(&str, &str, ResetFields)] = &[
    ("apiservices.apiregistration.k8s.io", "status", METADATA_AND_SPEC),
    ("certificatesigningrequests.certificates.k8s.io", "", ResetFields::These(&[&["spec"], &["status"]])),
    (
        "certificatesigningrequests.certificates.k8s.io",
        "approval",
        ResetFields::These(&[&["spec"], &["status", "certificate"]]),
    ),
    (
        "certificatesigningrequests.certificates.k8s.io",
        "status",
        ResetFields::These(&[&["spec"], &["status", "conditions"]]),
    ),
    ("deployments.apps", "status", ResetFields::These(&[&["metadata", "labels"], &["spec"]])),
    ("flowschemas.flowcontrol.apiserver.k8s.io", "status", METADATA_AND_SPEC),
    ("namespaces", "finalize", STATUS),
    ("podcertificaterequests.certificates.k8s.io", "", ResetFields::These(&[])),
    ("pods", "ephemeralcontainers", ResetFields::AllBut(&[&["spec", "ephemeralContainers"]])),
    (
        "pods",
        "resize",
        ResetFields::AllBut(&[
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
        ResetFields::These(&[
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
            &["spec"],
        ]),
    ),
    ("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", "status", METADATA_AND_SPEC),
    ("resourceclaims.resource.k8s.io", "status", METADATA_AND_SPEC),
    ("servicecidrs.networking.k8s.io", "status", METADATA_AND_SPEC),
    ("validatingadmissionpolicies.admissionregistration.k8s.io", "status", METADATA_AND_SPEC),
    ("volumeattachments.storage.k8s.io", "status", METADATA_AND_SPEC),
];
