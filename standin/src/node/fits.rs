//! Whether a node takes a pod: what it says about itself, and the room it has.

use std::collections::BTreeMap;

use openapi::meta::quantity::Quantity;
use serde_json::{Value, json};

use crate::object::{fields, flag, list, meets, name, text};

/// Amounts in thousandths, by resource.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// Why a node does not take a pod, whatever room it has.
pub(crate) fn refusal(node: &Value, pod: &Value) -> Option<String> {
    let unschedulable = json!({ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" });
    if flag(node, "/spec/unschedulable") && !is_tolerated(&unschedulable, pod) {
        return Some("node(s) were unschedulable".to_owned());
    }
    let hard = |taint: &&Value| text(taint, "/effect") != "PreferNoSchedule";
    let taint = list(node, "/spec/taints").iter().filter(hard).find(|taint| !is_tolerated(taint, pod));
    if let Some(taint) = taint {
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        return Some(format!("node(s) had untolerated taint {{{key}: {value}}}"));
    }
    let labels = &node["metadata"]["labels"];
    let selected = fields(pod, "/spec/nodeSelector").all(|(key, value)| labels[key] == *value);
    (!selected || !is_near(node, pod)).then(|| "node(s) didn't match Pod's node affinity/selector".to_owned())
}

/// Whether one of the terms a pod requires of its node holds.
fn is_near(node: &Value, pod: &Value) -> bool {
    const TERMS: &str =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let named = json!({ "metadata.name": name(node) });
    let holds = |term: &Value| {
        let by_label = list(term, "/matchExpressions")
            .iter()
            .all(|expression| meets(expression, &node["metadata"]["labels"]));
        by_label && list(term, "/matchFields").iter().all(|expression| meets(expression, &named))
    };
    let terms = list(pod, TERMS);
    terms.is_empty() || terms.iter().any(holds)
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

/// What a pod asks for: its containers together, or the largest that runs before them. One place, always.
pub(crate) fn requests(pod: &Value) -> Amounts {
    let of = |container: &Value| amounts(&container["resources"]["requests"]);
    let mut sum = Amounts::new();
    for container in list(pod, "/spec/containers") {
        of(container).into_iter().for_each(|(resource, amount)| *sum.entry(resource).or_default() += amount);
    }
    for container in list(pod, "/spec/initContainers") {
        for (resource, amount) in of(container) {
            let most = sum.entry(resource).or_default();
            *most = amount.max(*most);
        }
    }
    sum.insert("pods".to_owned(), 1000);
    sum
}

/// What a node has to give.
pub(crate) fn allocatable(node: &Value) -> Amounts {
    amounts(&node["status"]["allocatable"])
}

fn amounts(quantities: &Value) -> Amounts {
    let milli = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let whole: Quantity = text.parse().ok()?;
        tenfold(tenfold(tenfold(whole)?)?)?.ceil()
    };
    let all = quantities.as_object().into_iter().flatten();
    all.filter_map(|(resource, value)| Some((resource.clone(), milli(value)?))).collect()
}

fn tenfold(one: Quantity) -> Option<Quantity> {
    let two = one.checked_add(&one)?;
    let four = two.checked_add(&two)?;
    four.checked_add(&four)?.checked_add(&two)
}

/// What there is too little of.
pub(crate) fn lacking(free: &Amounts, wanted: &Amounts) -> Option<String> {
    let short =
        wanted.iter().find(|(resource, amount)| free.get(*resource).copied().unwrap_or_default() < **amount);
    short.map(|(resource, _)| match resource.as_str() {
        "pods" => "Too many pods".to_owned(),
        resource => format!("Insufficient {resource}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_why_not() {
        let check = |node: Value, pod: Value, expected: Option<&str>| {
            let node = json!({"metadata": {"name": "a", "labels": {"zone": "x"}}, "spec": node});
            let pod = json!({"spec": pod});
            assert_eq!(refusal(&node, &pod).as_deref(), expected, "{node} {pod}");
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
    fn a_pod_asks_for_its_containers_or_for_what_runs_before_them() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"spec": {
            "containers": [container("250m"), container("1")], "initContainers": [container("2"), container("1")],
        }});
        assert_eq!(requests(&pod), Amounts::from([("cpu".to_owned(), 2000), ("pods".to_owned(), 1000)]));
    }
}
