//! Rules per kind for create, update, status update and subresources.

use serde_json::Value;

use super::tables::{
    access, batch, certificates, clusters, config, events, network, pods, quotas, services, storage,
    workloads,
};
use super::value::{at, same};
use crate::validation::common::IMMUTABLE;
use crate::validation::field_path::{FieldErrors, FieldPath};

/// A rule about the old and the new object of an update.
enum UpdateRule {
    /// The field is immutable.
    Fixed(&'static str),
    /// The field is immutable, with another text, and the value is not repeated.
    Forbidden {
        field: &'static str,
        detail: &'static str,
    },
    Code(fn(&Value, &Value, &mut FieldErrors)),
}

use UpdateRule::{Code, Fixed, Forbidden};

/// Kinds for which Kubernetes validates the change before the object.
const CHANGE_FIRST: &[&str] = &[
    "apps.v1.DaemonSet",
    "core.v1.ConfigMap",
    "core.v1.Secret",
    "core.v1.Service",
    "networking.v1.IngressClass",
];

const UPDATE_RULES: &[(&str, &[UpdateRule])] = &[
    ("core.v1.Pod", &[Code(pods::validate_update)]),
    ("core.v1.ConfigMap", &[Code(config::validate_update)]),
    ("core.v1.Secret", &[Fixed("type"), Code(config::validate_update)]),
    ("core.v1.Service", &[Code(services::validate_update)]),
    ("core.v1.PersistentVolumeClaim", &[Code(storage::validate_update_claim)]),
    ("core.v1.PersistentVolume", &[Code(storage::validate_update_volume)]),
    ("core.v1.ResourceQuota", &[Code(quotas::validate_update_quota)]),
    ("core.v1.Node", &[Code(clusters::validate_update_node)]),
    ("apps.v1.Deployment", &[Fixed("spec.selector")]),
    ("apps.v1.ReplicaSet", &[Fixed("spec.selector")]),
    ("apps.v1.DaemonSet", &[Fixed("spec.selector")]),
    ("apps.v1.StatefulSet", &[Code(workloads::validate_update_set)]),
    ("apps.v1.ControllerRevision", &[Fixed("data")]),
    ("batch.v1.Job", &[Code(batch::validate_update_job)]),
    ("networking.v1.IngressClass", &[Fixed("spec.controller")]),
    ("node.v1.RuntimeClass", &[Fixed("handler")]),
    ("discovery.v1.EndpointSlice", &[Fixed("addressType")]),
    ("events.v1.Event", &[Code(events::validate_update)]),
    ("rbac.v1.RoleBinding", &[Code(access::validate_update_binding)]),
    ("rbac.v1.ClusterRoleBinding", &[Code(access::validate_update_binding)]),
    (
        "scheduling.v1.PriorityClass",
        &[
            Forbidden { field: "value", detail: "may not be changed in an update." },
            Fixed("preemptionPolicy"),
        ],
    ),
    (
        "storage.v1.StorageClass",
        &[Fixed("parameters"), Fixed("provisioner"), Fixed("reclaimPolicy"), Fixed("volumeBindingMode")],
    ),
    (
        "storage.v1.VolumeAttributesClass",
        &[
            Forbidden { field: "driverName", detail: "updates to driverName are forbidden." },
            Forbidden { field: "parameters", detail: "updates to parameters are forbidden." },
        ],
    ),
    ("storage.v1.CSIDriver", &[Fixed("spec.volumeLifecycleModes")]),
    ("storage.v1.CSIStorageCapacity", &[Fixed("nodeTopology"), Fixed("storageClassName")]),
    ("storage.v1.VolumeAttachment", &[Fixed("spec")]),
    ("networking.v1.IPAddress", &[Fixed("spec.parentRef")]),
    (DEFINITION, &[Code(validate_update_definition)]),
];

/// The one kind here that is not in the group `io.k8s.api`.
const DEFINITION: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

fn validate_create_definition(definition: &Value, found: &mut FieldErrors) {
    found.errors.extend(super::definition::validate_create(definition));
}

fn validate_update_definition(old: &Value, new: &Value, found: &mut FieldErrors) {
    found.errors.extend(super::definition::validate_update(old, new));
}

/// A kind and a rule for its new objects.
type CreateRule = (&'static str, fn(&Value, &mut FieldErrors));

/// Rules that apply only to new objects.
const CREATE_RULES: &[CreateRule] = &[
    ("core.v1.Pod", pods::validate_create),
    ("apps.v1.StatefulSet", workloads::validate_create_set),
    ("batch.v1.CronJob", batch::validate_create_cron),
    ("events.v1.Event", events::validate_create),
    ("networking.v1.Ingress", network::validate_create_ingress),
    (DEFINITION, validate_create_definition),
];

/// Kinds that count collisions of generated names. The count must not decrease.
const COLLIDING: &[&str] = &["apps.v1.DaemonSet", "apps.v1.Deployment", "apps.v1.StatefulSet"];

const PREFIX: &str = "io.k8s.api.";

/// Returns the name of a type as the tables have it.
fn short(type_name: &str) -> &str {
    type_name.strip_prefix(PREFIX).unwrap_or(type_name)
}

pub(super) fn validate_create(type_name: &str, object: &Value, found: &mut FieldErrors) {
    let name = short(type_name);
    for (_, code) in CREATE_RULES.iter().filter(|(kind, _)| *kind == name) {
        code(object, found);
    }
}

/// Reports whether the change of such an object is validated first.
pub(super) fn comes_first(type_name: &str) -> bool {
    type_name.strip_prefix(PREFIX).is_some_and(|name| CHANGE_FIRST.contains(&name))
}

pub(super) fn validate_update(type_name: &str, old: &Value, new: &Value, found: &mut FieldErrors) {
    let name = short(type_name);
    for change in UPDATE_RULES.iter().filter(|(kind, _)| *kind == name).flat_map(|(_, changes)| *changes) {
        change.validate(old, new, found);
    }
}

/// Validates the change from the first object to the second.
pub(super) type UpdateFn = fn(&Value, &Value, &mut FieldErrors);

/// Rules for status updates.
const STATUS_RULES: &[(&str, UpdateFn)] = &[
    ("batch.v1.Job", batch::validate_job_status),
    ("certificates.v1.CertificateSigningRequest", certificates::validate_status),
    ("core.v1.Namespace", clusters::validate_namespace_status),
    ("core.v1.Node", clusters::validate_node_status),
    ("core.v1.PersistentVolumeClaim", storage::validate_claim_status),
    ("core.v1.Pod", pods::validate_status),
    ("core.v1.Service", services::validate_status),
    ("networking.v1.Ingress", network::validate_ingress_status),
];

/// The part of an object that Kubernetes validates when a subresource is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValidationScope {
    /// All of it, as if it were new.
    EntireObject,
    /// Its metadata, and the fields that the rule itself reads.
    Metadata,
}

/// A kind, a subresource other than the status, the scope of validation, and a rule about the change.
type SubresourceRule = (&'static str, &'static str, ValidationScope, UpdateFn);

const SUBRESOURCE_RULES: &[SubresourceRule] = &[
    (
        "certificates.v1.CertificateSigningRequest",
        "approval",
        ValidationScope::EntireObject,
        certificates::validate_approval,
    ),
    ("core.v1.Namespace", "finalize", ValidationScope::Metadata, clusters::validate_finalize),
    (
        "core.v1.Pod",
        "ephemeralcontainers",
        ValidationScope::EntireObject,
        pods::validate_ephemeral_containers,
    ),
    ("core.v1.Pod", "resize", ValidationScope::EntireObject, pods::validate_resize),
];

/// Returns the rule for a subresource of a kind; none if there is none.
pub(super) fn subresource_rule(type_name: &str, subresource: &str) -> Option<(ValidationScope, UpdateFn)> {
    let name = short(type_name);
    let found = SUBRESOURCE_RULES.iter().find(|(kind, of, ..)| *kind == name && *of == subresource)?;
    Some((found.2, found.3))
}

pub(super) fn validate_status(type_name: &str, old: &Value, new: &Value, found: &mut FieldErrors) {
    let checks = STATUS_RULES.iter().filter(|(name, _)| type_name.strip_prefix(PREFIX) == Some(*name));
    checks.for_each(|(_, validate)| validate(old, new, found));
    let colliding = type_name.strip_prefix(PREFIX).is_some_and(|name| COLLIDING.contains(&name));
    let count = |object| at(object, "status.collisionCount").as_i64();
    if colliding && count(old).is_some_and(|before| count(new).unwrap_or(-1) < before) {
        let new_count = count(new).unwrap_or_default();
        found.invalid(&FieldPath::TOP.field("status.collisionCount"), new_count, "cannot be decremented");
    }
    if type_name == DEFINITION {
        found.errors.extend(super::definition::validate_status(old, new));
    }
}

impl UpdateRule {
    fn validate(&self, old: &Value, new: &Value, found: &mut FieldErrors) {
        let changed = |field: &str| !same(at(old, field), at(new, field));
        match self {
            Fixed(field) if changed(field) => {
                found.invalid(&FieldPath::TOP.field(field), at(new, field).clone(), IMMUTABLE);
            }
            Forbidden { field, detail } if changed(field) => {
                found.forbidden(&FieldPath::TOP.field(field), *detail);
            }
            Code(code) => code(old, new, found),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn every_rule_names_an_existing_kind() {
        let names =
            UPDATE_RULES.iter().map(|(name, _)| *name).chain(CREATE_RULES.iter().map(|(name, _)| *name));
        let names = names.chain(STATUS_RULES.iter().map(|(name, _)| *name));
        let names = names.chain(SUBRESOURCE_RULES.iter().map(|(name, ..)| *name));
        for name in names {
            assert!(catalog::built_in().iter().any(|row| short(&row.type_name) == name), "{name}");
        }
    }
}
