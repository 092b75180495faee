//! The status of Placements, Overrides and StatusRules: whether they are valid, and counts of their objects.
//!
//! Policies are read for every object they select, and an invalid expression fails there, for every object. The author
//! of a policy looks at the policy. So each is compiled once more when it changes, and its status has the errors with
//! line and column.

use api::cluster::Id;
use api::fleet::{
    Condition, FleetObject, Override, OverrideStatus, Placement, PlacementStatus, PolicyError, StatusRule,
    StatusRuleStatus,
};
use api::meta::time;
use controller::informer::{Key, View};
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath, Patch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::context::{Splitter, lock};
use crate::snapshot::policy_index::PolicyKind;
use crate::status::policy_errors::{error_message, override_errors, placement_errors, rule_errors};

/// Writes the status of a policy.
pub(crate) async fn reconcile(
    splitter: &Splitter,
    policy: PolicyKind,
    cluster: Id,
    name: &str,
) -> Result<Outcome, CallError> {
    let own = &splitter.caches.config;
    let key = Key { cluster: Some(cluster), namespace: String::new(), name: name.to_owned() };
    match policy {
        PolicyKind::Placement => {
            let counts = lock(&splitter.placement_counts).of(cluster, name);
            write_status(splitter, &own.placements, &key, |policy: &Placement, before: &PlacementStatus| {
                PlacementStatus {
                    observed_generation: policy.metadata.generation,
                    conditions: vec![accepted(&before.conditions, &placement_errors(&policy.spec))],
                    counts: Some(counts),
                }
            })
            .await
        }
        PolicyKind::Override => {
            write_status(splitter, &own.overrides, &key, |policy: &Override, before: &OverrideStatus| {
                OverrideStatus {
                    observed_generation: policy.metadata.generation,
                    conditions: vec![accepted(&before.conditions, &override_errors(&policy.spec))],
                }
            })
            .await
        }
        PolicyKind::StatusRule => {
            write_status(
                splitter,
                &own.status_rules,
                &key,
                |policy: &StatusRule, before: &StatusRuleStatus| {
                    let errors = rule_errors(&policy.spec);
                    StatusRuleStatus {
                        observed_generation: policy.metadata.generation,
                        conditions: vec![accepted(&before.conditions, &errors)],
                        errors,
                    }
                },
            )
            .await
        }
    }
}

/// Writes a status if it changed.
async fn write_status<
    Spec: DeserializeOwned + Default,
    Status: Serialize + DeserializeOwned + Default + PartialEq,
>(
    splitter: &Splitter,
    view: &View,
    key: &Key,
    status: impl Fn(&FleetObject<Spec, Status>, &Status) -> Status,
) -> Result<Outcome, CallError> {
    let Some(policy) = splitter.caches.get_own::<FleetObject<Spec, Status>>(view, key) else {
        return Ok(Outcome::Done);
    };
    let nothing = Status::default();
    let now = status(&policy, policy.status.as_ref().unwrap_or(&nothing));
    if policy.status.as_ref() == Some(&now) {
        return Ok(Outcome::Done);
    }
    let place = ObjectPath::new(&view.kind, "", &key.name).part("status");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": policy.metadata.uid },
        { "op": "add", "path": "/status", "value": now },
    ]);
    let here = splitter.caches.server.within(key.cluster.unwrap_or(Id::ROOT));
    here.patch(place, Patch::Json, &change).await?;
    Ok(Outcome::Done)
}

fn accepted(before: &[Condition], errors: &[PolicyError]) -> Condition {
    let fields = match errors.first() {
        None => ("Accepted", "True", "Accepted", String::new()),
        Some(first) => ("Accepted", "False", "InvalidExpression", error_message(first)),
    };
    Condition::since(before, (fields.0, fields.1, fields.2, &fields.3), &time::now())
}
