//! The disruption budget check of evictions.
//!
//! The disruption controller computes a budget; evictions only spend from it. Spending is a write with the resource
//! version that the decision was made on, so two evictions never spend the same allowance.

use api::meta::selector::LabelSelector;
use openapi::meta::status::{Cause, GroupResource, Status};
use serde_json::{Value, json};
use storage::{Change, Entry, Page, Store};

use crate::endpoints::ATTEMPTS;
use crate::endpoints::update;
use crate::kinds::Kinds;
use crate::objects::metadata;
use crate::objects::store_errors::unreadable;
use crate::registry::call::Call;

/// The maximum number of evicted pods that the disruption controller has not counted yet. As in Kubernetes.
const DISRUPTED_MAX: usize = 2000;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const SEVERAL: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// Spends from the budget of a pod, if it has one. Returns an error if the pod must not be evicted.
pub(super) async fn spare(store: &dyn Store, pod: &Call, tree: &Value, dry: bool) -> Result<(), Status> {
    if is_over(tree) {
        return Ok(());
    }
    let resource =
        Kinds::built_in().find("policy", "v1", "poddisruptionbudgets").ok_or_else(Status::unknown_path)?;
    let budgets = Call { resource: resource.clone(), name: None, ..pod.clone() };
    for _ in 0..ATTEMPTS {
        let Some((entry, budget)) = budget_of(store, &budgets, tree).await? else { return Ok(()) };
        let name = metadata::text(&budget, "name").to_owned();
        let Some(spent) = spent(&budget, tree)? else { return Ok(()) };
        if dry {
            return Ok(());
        }
        let one = Call { name: Some(name), ..budgets.clone() };
        let change = Change::Put(one.encode(&spent));
        if update::commit(store, &one, &entry, change).await?.is_some() {
            return Ok(());
        }
    }
    Err(Status::too_many_requests(REFUSED, 10))
}

/// Reports whether a pod needs no budget: it does not run, or is terminating.
fn is_over(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    metadata::is_being_deleted(pod) || matches!(phase, "Succeeded" | "Failed" | "Pending" | "")
}

/// Returns the budget that covers a pod. More than one is an error.
async fn budget_of(store: &dyn Store, budgets: &Call, pod: &Value) -> Result<Option<(Entry, Value)>, Status> {
    let listed = store.list(budgets.range(), Page::default()).await.map_err(unreadable)?;
    let mut covering = Vec::new();
    for entry in listed.value.entries {
        let tree = budgets.tree(&entry)?;
        if covers(&tree, pod) {
            covering.push((entry, tree));
        }
    }
    if covering.len() > 1 {
        return Err(Status::failed(SEVERAL));
    }
    Ok(covering.pop())
}

fn covers(budget: &Value, pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    let selector = LabelSelector::from_value(&budget["spec"]["selector"]);
    selector.is_some_and(|selector| selector.matches(|label| labels.get(label).and_then(Value::as_str)))
}

/// Returns the budget less one pod. None if the pod is not ready and the budget allows its eviction for free.
fn spent(budget: &Value, pod: &Value) -> Result<Option<Value>, Status> {
    let name = metadata::text(budget, "name");
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    if !is_ready(pod) && (always || healthy >= desired && desired > 0) {
        return Ok(None);
    }
    let refused = |wait: u32, why: String| {
        let cause = Cause { reason: "DisruptionBudget".to_owned(), message: why, ..Cause::default() };
        let status = Status::too_many_requests(REFUSED, wait);
        Err(status.because(cause))
    };
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return refused(10, format!("The disruption budget {name} is still being processed by the server."));
    }
    let forbidden =
        |why: &str| Err(Status::forbidden(GroupResource::new("policy", "poddisruptionbudget"), name, why));
    let disrupted = budget["status"]["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
    match number("disruptionsAllowed") {
        allowed if allowed < 0 => forbidden("pdb disruptions allowed is negative"),
        _ if disrupted > DISRUPTED_MAX => {
            forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller")
        }
        0 => {
            let why = format!(
                "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
            );
            refused(0, why)
        }
        allowed => {
            let mut budget = budget.clone();
            budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
            budget["status"]["disruptedPods"][metadata::text(pod, "name")] = json!(metadata::now());
            Ok(Some(budget))
        }
    }
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        json!({
            "metadata": { "name": "p", "labels": { "app": "web" } },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
        })
    }

    fn budget(allowed: i64, healthy: i64) -> Value {
        json!({
            "metadata": { "name": "b", "generation": 1 },
            "spec": { "selector": { "matchLabels": { "app": "web" } } },
            "status": { "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 1 },
        })
    }

    #[test]
    fn a_budget_is_spent_one_pod_at_a_time() {
        let after = spent(&budget(2, 3), &pod(true)).unwrap().unwrap();
        assert_eq!(after["status"]["disruptionsAllowed"], 1);
        assert!(after["status"]["disruptedPods"]["p"].is_string());
        let refused = spent(&budget(0, 1), &pod(true)).unwrap_err();
        let cause = &refused.details.unwrap().causes[0];
        assert_eq!((refused.code, cause.reason.as_str()), (429, "DisruptionBudget"));
        assert_eq!(cause.message, "The disruption budget b needs 1 healthy pods and has 1 currently");
    }

    #[test]
    fn evicting_an_unhealthy_pod_spends_no_budget_while_enough_others_are_healthy() {
        assert_eq!(spent(&budget(0, 1), &pod(false)).unwrap(), None);
        assert!(spent(&budget(0, 0), &pod(false)).is_err());
        let mut always = budget(0, 0);
        always["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
        assert_eq!(spent(&always, &pod(false)).unwrap(), None);
    }

    #[test]
    fn an_eviction_is_refused_until_the_budget_is_observed() {
        let mut new = budget(1, 3);
        new["metadata"]["generation"] = 2.into();
        let refused = spent(&new, &pod(true)).unwrap_err();
        assert_eq!((refused.code, refused.details.unwrap().retry_after_seconds), (429, 10));
    }

    #[test]
    fn budgets_cover_the_pods_they_select() {
        assert!(covers(&budget(1, 1), &pod(true)));
        assert!(covers(&json!({ "spec": { "selector": {} } }), &pod(true)), "all pods");
        assert!(!covers(&json!({ "spec": {} }), &pod(true)), "no pods");
    }
}
