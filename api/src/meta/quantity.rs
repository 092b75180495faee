//! Calculates with quantities of resources: `500m` of `cpu`, `16Gi` of `memory`, `110` `pods`.
//!
//! Amounts are in thousandths, the precision of the scheduler of Kubernetes. Smaller fractions are rounded up, because
//! half a thousandth of a processor is still a request. An unknown amount is absent, which means neither zero nor
//! unlimited.

mod notation;
mod text;

use std::collections::BTreeMap;

use serde_json::Value;

pub use notation::{Family, Quantity, QuantityError};
pub use text::{Quantities, QuantityText};

/// Thousandths of each resource.
pub type Amounts = BTreeMap<String, i128>;

/// Converts a quantity to thousandths, rounded up. Returns none if it is invalid.
pub fn thousandths(text: &str) -> Option<i128> {
    text.parse::<Quantity>().ok()?.thousandths()
}

/// Converts the valid quantities. Invalid ones are treated as absent.
pub fn amounts(quantities: &Quantities) -> Amounts {
    let read =
        |(name, quantity): (&String, &QuantityText)| Some((name.clone(), thousandths(quantity.as_str())?));
    quantities.iter().filter_map(read).collect()
}

/// Converts the valid quantities in a field of an object, such as `resources.requests`.
pub fn amounts_of(field: &Value) -> Amounts {
    let read = |(name, value): (&String, &Value)| {
        let amount = match value {
            Value::String(text) => thousandths(text)?,
            Value::Number(number) => thousandths(&number.to_string())?,
            _ => return None,
        };
        Some((name.clone(), amount))
    };
    field.as_object().into_iter().flatten().filter_map(read).collect()
}

/// Formats an amount for people: binary units for bytes, `m` for fractions. Large numbers are shortened to their first
/// digits.
pub fn text(resource: &str, thousandths: i128) -> String {
    written(resource, thousandths, |whole, size| whole % size == 0 && whole != 0 || whole.abs() >= 10 * size)
}

/// Formats an amount exactly.
pub fn exact(resource: &str, thousandths: i128) -> String {
    written(resource, thousandths, |whole, size| whole % size == 0 && whole != 0)
}

/// Formats an amount in the largest unit for which `will_do` returns true.
fn written(resource: &str, thousandths: i128, will_do: impl Fn(i128, i128) -> bool) -> String {
    let bytes =
        resource.contains("memory") || resource.contains("storage") || resource.starts_with("hugepages-");
    let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
    if rest != 0 {
        return format!("{thousandths}m");
    }
    let units = if bytes { &notation::BINARY[..] } else { &[] };
    match units.iter().rev().find(|(_, exponent)| will_do(whole, 1 << exponent)) {
        Some((name, exponent)) => format!("{}{name}", whole / (1 << exponent)),
        None => whole.to_string(),
    }
}

/// Returns the resources that a pod needs on a node: those of its containers and sidecars together, or those of its
/// init container with the largest need if that is more; its overhead; and one of `pods`.
pub fn asked_by(pod_spec: &Value) -> Amounts {
    let requests = |container: &Value| amounts_of(&container["resources"]["requests"]);
    let containers = |field: &str| pod_spec[field].as_array().map_or(&[][..], Vec::as_slice);
    let raise_to = |all: &mut Amounts, other: &Amounts| {
        for (name, amount) in other {
            let total = all.entry(name.clone()).or_default();
            *total = (*total).max(*amount);
        }
    };
    let (mut running, mut first, mut beside) = (Amounts::new(), Amounts::new(), Amounts::new());
    containers("containers").iter().for_each(|container| add(&mut running, &requests(container), 1));
    for container in containers("initContainers") {
        let mut needs = beside.clone();
        add(&mut needs, &requests(container), 1);
        raise_to(&mut first, &needs);
        if container["restartPolicy"] == "Always" {
            beside = needs;
        }
    }
    add(&mut running, &beside, 1);
    raise_to(&mut running, &first);
    add(&mut running, &amounts_of(&pod_spec["overhead"]), 1);
    add(&mut running, &Amounts::from([("pods".to_owned(), 1000)]), 1);
    running
}

/// Converts amounts to quantities for an object.
pub fn quantities(amounts: &Amounts) -> Quantities {
    amounts.iter().map(|(name, amount)| (name.clone(), QuantityText::new(text(name, *amount)))).collect()
}

/// Returns `all` minus `taken`, at least zero. Resources that `taken` does not have stay as they are.
pub fn minus(all: &Amounts, taken: &Amounts) -> Amounts {
    let remaining = |(name, all): (&String, &i128)| {
        let taken = taken.get(name).copied().unwrap_or_default();
        (name.clone(), all.saturating_sub(taken).max(0))
    };
    all.iter().map(remaining).collect()
}

/// Adds `more` to `total`, `times` times. A result that is too large becomes the largest number.
pub fn add(total: &mut Amounts, more: &Amounts, times: u32) {
    for (name, amount) in more {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(amount.saturating_mul(i128::from(times)));
    }
}

/// Returns how often `each` fits into `free`; none if `free` has none of the requested resources.
pub fn fits(free: &Amounts, each: &Amounts) -> Option<u32> {
    let requested = each.iter().filter(|(_, amount)| **amount > 0);
    let times = requested.filter_map(|(name, amount)| Some(free.get(name)? / amount)).min()?;
    Some(u32::try_from(times.max(0)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_read_as_kubernetes_writes_them() {
        let check = |text: &str, expected: Option<i128>| assert_eq!(thousandths(text), expected, "{text}");
        check("4", Some(4_000));
        check("500m", Some(500));
        check("0.5", Some(500));
        check(".5", Some(500));
        check("1.5Gi", Some(1_610_612_736_000));
        check("16Gi", Some(17_179_869_184_000));
        check("2k", Some(2_000_000));
        check("1e3", Some(1_000_000));
        check("1E", Some(1_000_000_000_000_000_000_000));
        check("100n", Some(1));
        check("1u", Some(1));
        check("-2", Some(-2_000));
        check("-1u", Some(0));
        // Like Kubernetes, takes a missing number for zero.
        check("e3", Some(0));
        for bad in ["", "x", "4 Gi", "4gi", "1.2.3", "--1", "1e99"] {
            check(bad, None);
        }
    }

    /// A manifest may request any amount: one too large to add up must not stop the process.
    #[test]
    fn amounts_that_overflow_become_the_largest() {
        let huge = amounts_of(&json!({ "cpu": "99999999999999999999e14" }));
        let mut all = huge.clone();
        add(&mut all, &huge, u32::MAX);
        add(&mut all, &huge, u32::MAX);
        assert_eq!(all["cpu"], i128::MAX);
        let less = minus(&Amounts::from([("cpu".to_owned(), -2)]), &all);
        assert_eq!(less["cpu"], 0);
        assert_eq!(fits(&huge, &amounts_of(&json!({ "cpu": "1m" }))), Some(u32::MAX));
    }

    #[test]
    fn amounts_are_formatted_for_people() {
        let check = |resource: &str, number: &str, expected: &str| {
            assert_eq!(text(resource, thousandths(number).unwrap()), expected, "{number} {resource}");
        };
        check("cpu", "4", "4");
        check("cpu", "2500m", "2500m");
        check("memory", "16Gi", "16Gi");
        check("memory", "1536Mi", "1536Mi");
        check("memory", "33555000Ki", "32Gi");
        check("memory", "0", "0");
        check("pods", "110", "110");
        // Exact texts, with which other code calculates.
        assert_eq!(exact("memory", thousandths("33555000Ki").unwrap()), "33555000Ki");
        assert_eq!(exact("memory", thousandths("16384Mi").unwrap()), "16Gi");
        assert_eq!(exact("memory", thousandths("1M").unwrap()), "1000000");
    }

    #[test]
    fn an_unknown_resource_does_not_limit_what_fits() {
        let all = amounts_of(&json!({ "cpu": "10", "memory": "8Gi", "pods": 110 }));
        let free = minus(&all, &amounts_of(&json!({ "cpu": "4500m", "memory": "9Gi" })));
        assert_eq!(free, amounts_of(&json!({ "cpu": "5500m", "memory": 0, "pods": 110 })));
        let check = |each: Value, expected: Option<u32>| {
            assert_eq!(fits(&free, &amounts_of(&each)), expected, "{each}");
        };
        check(json!({ "cpu": "2" }), Some(2));
        check(json!({ "cpu": "2", "memory": "1Mi" }), Some(0));
        check(json!({ "pods": 1 }), Some(110));
        check(json!({ "gpu": 1 }), None);
        check(json!({ "gpu": 1, "cpu": 1 }), Some(5));
        check(json!({}), None);
        check(json!({ "cpu": 0 }), None);
    }
}
