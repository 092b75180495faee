//! Sums of amounts: `500m` of CPU, `2Gi` of memory, `3` pods.

use api::meta::quantity::{self, Quantities, QuantityText};
use serde_json::Value;

/// Amounts by resource name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Amounts(quantity::Amounts);

impl Amounts {
    /// Parses a list like `status.allocatable` of a node. An amount that cannot be parsed counts as zero.
    pub(crate) fn of(list: &Value) -> Amounts {
        Amounts(quantity::amounts_of(list))
    }

    pub(crate) fn add(&mut self, other: &Amounts) {
        quantity::add(&mut self.0, &other.0, 1);
    }

    pub(crate) fn quantities(&self) -> Quantities {
        self.0
            .iter()
            .map(|(name, amount)| (name.clone(), QuantityText::new(quantity::exact(name, *amount))))
            .collect()
    }
}

/// Returns the requests of a pod.
pub(crate) fn requested(pod: &Value) -> Amounts {
    Amounts(quantity::asked_by(&pod["spec"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(list: Value, expected: Value) {
        assert_eq!(serde_json::to_value(Amounts::of(&list).quantities()).unwrap(), expected);
    }

    #[test]
    fn amounts_are_read_and_written_as_kubernetes_does() {
        check(
            json!({ "cpu": "1500m", "memory": "2Gi", "pods": "110", "gpu": 2, "disk": "1.5k", "odd": "much", "none": null }),
            json!({ "cpu": "1500m", "memory": "2Gi", "pods": "110", "gpu": "2", "disk": "1500" }),
        );
        check(json!({ "cpu": "0.25", "memory": "1M" }), json!({ "cpu": "250m", "memory": "1000000" }));
    }

    #[test]
    fn a_pod_requests_the_maximum_over_its_phases() {
        let container = |cpu: &str| json!({ "resources": { "requests": { "cpu": cpu } } });
        let sidecar = json!({ "restartPolicy": "Always", "resources": { "requests": { "cpu": "100m" } } });
        let check = |spec: Value, cpu: &str| {
            let quantities = requested(&json!({ "spec": spec })).quantities();
            assert_eq!(quantities["cpu"].as_str(), cpu, "{quantities:?}");
            assert_eq!(quantities["pods"].as_str(), "1");
        };
        check(json!({ "containers": [container("100m"), container("1")] }), "1100m");
        check(
            json!({ "containers": [container("1")], "initContainers": [container("3"), container("2")] }),
            "3",
        );
        check(
            json!({ "containers": [container("1")], "initContainers": [sidecar, container("3")] }),
            "3100m",
        );
        check(
            json!({ "containers": [container("1")], "initContainers": [sidecar] , "overhead": { "cpu": "1" } }),
            "2100m",
        );
    }
}
