//! Adding up amounts: `500m` of CPU, `2Gi` of memory, `3` pods.

use std::collections::BTreeMap;

use api::fleet::{Quantities, Quantity};
use serde_json::Value;

/// In thousandths. Enough for a million machines with a petabyte each.
type Thousandths = i128;

/// Of the suffixes of Kubernetes, in thousandths of one. Smaller than a thousandth is rounded up, as it does.
const SUFFIXES: &[(&str, Thousandths)] = &[
    ("Ki", 1000 << 10),
    ("Mi", 1000 << 20),
    ("Gi", 1000 << 30),
    ("Ti", 1000 << 40),
    ("Pi", 1000 << 50),
    ("Ei", 1000 << 60),
    ("m", 1),
    ("k", 1000 * 1000),
    ("M", 1000 * 1000_i128.pow(2)),
    ("G", 1000 * 1000_i128.pow(3)),
    ("T", 1000 * 1000_i128.pow(4)),
    ("P", 1000 * 1000_i128.pow(5)),
    ("E", 1000 * 1000_i128.pow(6)),
];

/// Amounts by what there is of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Amounts(BTreeMap<String, Thousandths>);

impl Amounts {
    /// As in `status.allocatable` of a node. What cannot be read counts as nothing.
    pub(crate) fn of(list: &Value) -> Amounts {
        let amount = |(name, value): (&String, &Value)| Some((name.clone(), read(value)?));
        Amounts(list.as_object().into_iter().flatten().filter_map(amount).collect())
    }

    pub(crate) fn one(name: &str) -> Amounts {
        Amounts(BTreeMap::from([(name.to_owned(), 1000)]))
    }

    pub(crate) fn add(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            *self.0.entry(name.clone()).or_default() += amount;
        }
    }

    /// Of each the larger.
    pub(crate) fn raise(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }

    pub(crate) fn quantities(&self) -> Quantities {
        self.0.iter().map(|(name, amount)| (name.clone(), Quantity::new(written(name, *amount)))).collect()
    }
}

/// What a pod asks of a node: its containers together with those that start first and go on, or the hungriest of those that
/// start before them, whichever is more.
pub(crate) fn requested(pod: &Value) -> Amounts {
    let requests = |container: &Value| Amounts::of(&container["resources"]["requests"]);
    let containers = |field: &str| pod["spec"][field].as_array().cloned().unwrap_or_default();
    let (mut running, mut first) = (Amounts::default(), Amounts::default());
    containers("containers").iter().for_each(|container| running.add(&requests(container)));
    let mut beside = Amounts::default();
    for container in containers("initContainers") {
        let mut needs = beside.clone();
        needs.add(&requests(&container));
        first.raise(&needs);
        if container["restartPolicy"] == "Always" {
            beside = needs;
        }
    }
    running.add(&beside);
    running.raise(&first);
    running.add(&Amounts::of(&pod["spec"]["overhead"]));
    running.add(&Amounts::one("pods"));
    running
}

fn read(value: &Value) -> Option<Thousandths> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let suffix = SUFFIXES.iter().find_map(|(suffix, scale)| Some((text.strip_suffix(suffix)?, *scale)));
    let (number, scale) = suffix.unwrap_or((&text, 1000));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: Thousandths = whole.parse().ok()?;
    // More digits than this do not change a thousandth of anything we add up.
    let fraction: String = fraction.chars().take(9).collect();
    let part: Thousandths = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let below = part * scale / 10_i128.pow(fraction.len() as u32);
    whole.checked_mul(scale)?.checked_add(below)
}

/// Bytes are written in the largest unit that leaves no rest, as people write them.
fn written(name: &str, amount: Thousandths) -> String {
    let is_bytes = name == "memory" || name.ends_with("storage") || name.starts_with("hugepages-");
    let units = SUFFIXES.iter().rev().filter(|(suffix, _)| is_bytes && suffix.ends_with('i'));
    let unit = units.into_iter().find(|(_, scale)| amount != 0 && amount % scale == 0);
    match (unit, amount % 1000) {
        (Some((suffix, scale)), _) => format!("{}{suffix}", amount / scale),
        (None, 0) => (amount / 1000).to_string(),
        (None, _) => format!("{amount}m"),
    }
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
    fn a_pod_asks_for_its_hungriest_moment() {
        let container = |cpu: &str| json!({ "resources": { "requests": { "cpu": cpu } } });
        let sidecar = json!({ "restartPolicy": "Always", "resources": { "requests": { "cpu": "100m" } } });
        let check = |spec: Value, cpu: &str| {
            let found = requested(&json!({ "spec": spec })).quantities();
            assert_eq!(found["cpu"].as_str(), cpu, "{found:?}");
            assert_eq!(found["pods"].as_str(), "1");
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
