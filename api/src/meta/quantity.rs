//! Amounts of resources, to calculate with: `500m` of `cpu`, `16Gi` of `memory`, `110` `pods`.
//!
//! Counted in thousandths, the finest that Kubernetes schedules by; finer ones are rounded up, because half a thousandth
//! of a processor is still asked for. What nobody said is absent, and absent is neither nothing nor everything.

mod notation;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fleet::{Quantities, Quantity as QuantityText};

pub use notation::{Family, Quantity, QuantityError};

/// Thousandths of each resource.
pub type Amounts = BTreeMap<String, i128>;

/// In thousandths, rounded up; none if it is not an amount.
pub fn thousandths(text: &str) -> Option<i128> {
    text.parse::<Quantity>().ok()?.thousandths()
}

/// What can be read of it. What cannot be read is not said.
pub fn amounts(quantities: &Quantities) -> Amounts {
    let read =
        |(name, quantity): (&String, &QuantityText)| Some((name.clone(), thousandths(quantity.as_str())?));
    quantities.iter().filter_map(read).collect()
}

/// The same of an object's field, such as `resources.requests`.
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

/// As a person would write it: binary units for bytes, `m` for parts. Of large numbers the first digits are enough.
pub fn text(resource: &str, thousandths: i128) -> String {
    written(resource, thousandths, |whole, size| whole % size == 0 && whole != 0 || whole.abs() >= 10 * size)
}

/// The same with nothing left out.
pub fn exact(resource: &str, thousandths: i128) -> String {
    written(resource, thousandths, |whole, size| whole % size == 0 && whole != 0)
}

/// In the largest unit that will do.
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

/// What a pod asks of a node: its containers together with those that start first and go on, or the hungriest of those that
/// start before them, whichever is more; and a place (`pods`).
pub fn asked_by(pod_spec: &Value) -> Amounts {
    let requests = |container: &Value| amounts_of(&container["resources"]["requests"]);
    let containers = |field: &str| pod_spec[field].as_array().map_or(&[][..], Vec::as_slice);
    let raise = |all: &mut Amounts, other: &Amounts| {
        for (name, amount) in other {
            let own = all.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    };
    let (mut running, mut first, mut beside) = (Amounts::new(), Amounts::new(), Amounts::new());
    containers("containers").iter().for_each(|container| add(&mut running, &requests(container), 1));
    for container in containers("initContainers") {
        let mut needs = beside.clone();
        add(&mut needs, &requests(container), 1);
        raise(&mut first, &needs);
        if container["restartPolicy"] == "Always" {
            beside = needs;
        }
    }
    add(&mut running, &beside, 1);
    raise(&mut running, &first);
    add(&mut running, &amounts_of(&pod_spec["overhead"]), 1);
    add(&mut running, &Amounts::from([("pods".to_owned(), 1000)]), 1);
    running
}

/// As they are written in an object.
pub fn quantities(amounts: &Amounts) -> Quantities {
    amounts.iter().map(|(name, amount)| (name.clone(), QuantityText::new(text(name, *amount)))).collect()
}

/// What is left of `all` after `taken`. What nothing is taken of is whole.
pub fn minus(all: &Amounts, taken: &Amounts) -> Amounts {
    let left = |(name, all): (&String, &i128)| {
        let taken = taken.get(name).copied().unwrap_or_default();
        (name.clone(), all.saturating_sub(taken).max(0))
    };
    all.iter().map(left).collect()
}

/// Adds `more` to `total`, `times` over. What is too large to be counted stays at the largest number.
pub fn add(total: &mut Amounts, more: &Amounts, times: u32) {
    for (name, amount) in more {
        let own = total.entry(name.clone()).or_default();
        *own = own.saturating_add(amount.saturating_mul(i128::from(times)));
    }
}

/// How often `each` fits into `free`; none if nothing that is asked for is known there.
pub fn fits(free: &Amounts, each: &Amounts) -> Option<u32> {
    let asked = each.iter().filter(|(_, amount)| **amount > 0);
    let times = asked.filter_map(|(name, amount)| Some(free.get(name)? / amount)).min()?;
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
        // Kubernetes takes a missing number for zero.
        check("e3", Some(0));
        for bad in ["", "x", "4 Gi", "4gi", "1.2.3", "--1", "1e99"] {
            check(bad, None);
        }
    }

    /// Anything may be asked for in a manifest: what is too large to be added up does not stop the process.
    #[test]
    fn amounts_beyond_counting_are_the_largest() {
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
    fn amounts_are_written_as_people_do() {
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
        // What is calculated with is written whole.
        assert_eq!(exact("memory", thousandths("33555000Ki").unwrap()), "33555000Ki");
        assert_eq!(exact("memory", thousandths("16384Mi").unwrap()), "16Gi");
        assert_eq!(exact("memory", thousandths("1M").unwrap()), "1000000");
    }

    #[test]
    fn unknown_is_neither_nothing_nor_everything() {
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
