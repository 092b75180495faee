//! The status of a placed object, as its mailbox shows it: exact, but for generations.
//!
//! A generation counts changes on one server, so the one a controller below has observed says nothing here. What it says
//! there, whether the present state was observed, is said in the mailbox's own generations.

use serde_json::Value;

const OBSERVED: &str = "observedGeneration";

/// How far both sides are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generations {
    pub mailbox: i64,
    pub below: i64,
    /// What is in the mailbox is what is below.
    pub settled: bool,
}

impl Generations {
    fn mapped(self, observed: i64) -> i64 {
        match self.settled && observed >= self.below {
            true => self.mailbox,
            // Something earlier. Which one nobody asks.
            false => (self.mailbox - 1).max(0),
        }
    }
}

/// What the status in the mailbox should be.
pub fn raised(below: &Value, generations: Generations) -> Option<Value> {
    let mut status = below.get("status").filter(|status| !status.is_null())?.clone();
    map(&mut status, generations);
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        map(condition, generations);
    }
    Some(status)
}

fn map(holder: &mut Value, generations: Generations) {
    if let Some(observed) = holder.get_mut(OBSERVED)
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
        let check = |observed: i64, settled: bool, expected: i64| {
            let status = |number: i64| {
                json!({
                    "replicas": 3, "observedGeneration": number, "deep": { "observedGeneration": 99 },
                    "conditions": [{ "type": "Ready", "observedGeneration": number }, { "type": "Other" }],
                })
            };
            let below = json!({ "metadata": { "generation": 7 }, "status": status(observed) });
            let generations = Generations { mailbox: 4, below: 7, settled };
            assert_eq!(raised(&below, generations), Some(status(expected)));
        };
        check(7, true, 4);
        check(6, true, 3);
        check(7, false, 3);
        check(8, true, 4);
    }

    #[test]
    fn no_status_is_no_status() {
        let generations = Generations { mailbox: 0, below: 1, settled: true };
        assert_eq!(raised(&json!({}), generations), None);
        assert_eq!(raised(&json!({ "status": null }), generations), None);
        assert_eq!(raised(&json!({ "status": {} }), generations), Some(json!({})));
        let observed = json!({ "status": { "observedGeneration": 0 } });
        assert_eq!(raised(&observed, generations), Some(json!({ "observedGeneration": 0 })));
    }
}
