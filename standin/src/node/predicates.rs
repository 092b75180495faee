//! The scheduler's predicates: whether a node accepts a pod, and whether the pod fits its free resources.

use api::meta::quantity::{self, Amounts};
use api::meta::selector::Requirement;
use serde_json::{Value, json};

use crate::objects::fields::{fields, flag, label, list, name, text};

/// Returns why a pod may not run on a node, apart from resources.
pub(crate) fn mismatch(node: &Value, pod: &Value) -> Option<String> {
    let unschedulable = json!({ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" });
    if flag(node, "/spec/unschedulable") && !is_tolerated(&unschedulable, pod) {
        return Some("node(s) were unschedulable".to_owned());
    }
    let is_hard = |taint: &&Value| text(taint, "/effect") != "PreferNoSchedule";
    let taint = list(node, "/spec/taints").iter().filter(is_hard).find(|taint| !is_tolerated(taint, pod));
    if let Some(taint) = taint {
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        return Some(format!("node(s) had untolerated taint {{{key}: {value}}}"));
    }
    let labels = &node["metadata"]["labels"];
    let selected = fields(pod, "/spec/nodeSelector").all(|(key, value)| labels[key] == *value);
    (!selected || !matches_affinity(node, pod))
        .then(|| "node(s) didn't match Pod's node affinity/selector".to_owned())
}

/// Returns whether one of the required node affinity terms of a pod matches.
fn matches_affinity(node: &Value, pod: &Value) -> bool {
    const TERMS: &str =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let node_field = |field: &str| (field == "metadata.name").then(|| name(node));
    let is_met = |term: &Value| {
        let requirements = |pointer: &str| list(term, pointer).iter().map(Requirement::from_node_selector);
        requirements("/matchExpressions")
            .all(|term| term.is_some_and(|term| term.matches(label(node, &term.key))))
            && requirements("/matchFields")
                .all(|term| term.is_some_and(|term| term.matches(node_field(&term.key))))
    };
    let terms = list(pod, TERMS);
    terms.is_empty() || terms.iter().any(is_met)
}

fn is_tolerated(taint: &Value, pod: &Value) -> bool {
    list(pod, "/spec/tolerations").iter().any(|toleration| {
        let effect = text(toleration, "/effect");
        let key = text(toleration, "/key");
        let exists = text(toleration, "/operator") == "Exists";
        (effect.is_empty() || effect == text(taint, "/effect"))
            && (key == text(taint, "/key") || (key.is_empty() && exists))
            && (exists || text(toleration, "/value") == text(taint, "/value"))
    })
}

/// Returns the resources that a pod requests.
pub(crate) fn requests(pod: &Value) -> Amounts {
    quantity::asked_by(&pod["spec"])
}

/// Returns the allocatable resources of a node.
pub(crate) fn allocatable(node: &Value) -> Amounts {
    quantity::amounts_of(&node["status"]["allocatable"])
}

/// Returns the message about the first requested resource that is insufficient.
pub(crate) fn insufficient(free: &Amounts, requested: &Amounts) -> Option<String> {
    let missing = requested
        .iter()
        .find(|(resource, amount)| free.get(*resource).copied().unwrap_or_default() < **amount);
    missing.map(|(resource, _)| match resource.as_str() {
        "pods" => "Too many pods".to_owned(),
        resource => format!("Insufficient {resource}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_names_the_predicate() {
        let check = |node: Value, pod: Value, expected: Option<&str>| {
            let node = json!({"metadata": {"name": "a", "labels": {"zone": "x"}}, "spec": node});
            let pod = json!({"spec": pod});
            assert_eq!(mismatch(&node, &pod).as_deref(), expected, "{node} {pod}");
        };
        let other = Some("node(s) didn't match Pod's node affinity/selector");
        check(json!({}), json!({}), None);
        check(json!({"unschedulable": true}), json!({}), Some("node(s) were unschedulable"));
        check(json!({}), json!({"nodeSelector": {"zone": "x"}}), None);
        check(json!({}), json!({"nodeSelector": {"zone": "y"}}), other);
        let taint = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
        check(taint.clone(), json!({}), Some("node(s) had untolerated taint {gpu: yes}"));
        check(taint.clone(), json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}), None);
        check(
            taint.clone(),
            json!({"tolerations": [{"key": "gpu", "value": "no"}]}),
            Some("node(s) had untolerated taint {gpu: yes}"),
        );
        check(taint, json!({"tolerations": [{"operator": "Exists"}]}), None);
        let field = |name: &str| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}})
        };
        check(json!({}), field("a"), None);
        check(json!({}), field("b"), other);
    }

    #[test]
    fn a_pod_requests_the_sum_of_its_containers_or_the_largest_init_container() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"spec": {
            "containers": [container("250m"), container("1")], "initContainers": [container("2"), container("1")],
        }});
        assert_eq!(requests(&pod), Amounts::from([("cpu".to_owned(), 2000), ("pods".to_owned(), 1000)]));
    }
}
