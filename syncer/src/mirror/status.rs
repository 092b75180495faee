//! The status of a placed object in the mailbox: the downstream status with the mailbox's generations.
//!
//! A generation counts the changes on one server, so the generation that a controller downstream observed has no meaning
//! in the mailbox. It is translated: either the current generation of the mailbox, or an earlier one.

use serde_json::Value;

const OBSERVED: &str = "observedGeneration";

/// The generations of the mailbox object and the downstream object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generations {
    pub mailbox: i64,
    pub downstream: i64,
    /// Whether the downstream object has the fields that the mailbox object requests.
    pub in_sync: bool,
}

impl Generations {
    fn mapped(self, observed: i64) -> i64 {
        match self.in_sync && observed >= self.downstream {
            true => self.mailbox,
            // Any earlier generation means the same.
            false => (self.mailbox - 1).max(0),
        }
    }
}

/// Returns the status that the mailbox object should have.
pub fn upstream_status(downstream: &Value, generations: Generations) -> Option<Value> {
    let mut status = downstream.get("status").filter(|status| !status.is_null())?.clone();
    map_observed_generation(&mut status, generations);
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        map_observed_generation(condition, generations);
    }
    Some(status)
}

fn map_observed_generation(object: &mut Value, generations: Generations) {
    if let Some(observed) = object.get_mut(OBSERVED)
        && let Some(number) = observed.as_i64()
    {
        *observed = generations.mapped(number).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_is_exact_but_for_generations() {
        let check = |observed: i64, in_sync: bool, expected: i64| {
            let status = |number: i64| {
                json!({
                    "replicas": 3, "observedGeneration": number, "deep": { "observedGeneration": 99 },
                    "conditions": [{ "type": "Ready", "observedGeneration": number }, { "type": "Other" }],
                })
            };
            let downstream = json!({ "metadata": { "generation": 7 }, "status": status(observed) });
            let generations = Generations { mailbox: 4, downstream: 7, in_sync };
            assert_eq!(upstream_status(&downstream, generations), Some(status(expected)));
        };
        check(7, true, 4);
        check(6, true, 3);
        check(7, false, 3);
        check(8, true, 4);
    }

    #[test]
    fn no_status_is_no_status() {
        let generations = Generations { mailbox: 0, downstream: 1, in_sync: true };
        assert_eq!(upstream_status(&json!({}), generations), None);
        assert_eq!(upstream_status(&json!({ "status": null }), generations), None);
        assert_eq!(upstream_status(&json!({ "status": {} }), generations), Some(json!({})));
        let observed = json!({ "status": { "observedGeneration": 0 } });
        assert_eq!(upstream_status(&observed, generations), Some(json!({ "observedGeneration": 0 })));
    }
}
