//! Quantities as objects have them, not calculated with.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Quantities by resource: `cpu`, `memory`, `pods`, `nvidia.com/gpu`.
pub type Quantities = BTreeMap<String, QuantityText>;

/// A quantity as Kubernetes writes it: `4`, `500m`, `16Gi`. [`super::Quantity`] is its numeric value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(transparent)]
pub struct QuantityText(String);

impl QuantityText {
    pub fn new(text: impl Into<String>) -> QuantityText {
        QuantityText(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Accepts `pods: 100` and `cpu: "4"`.
impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<QuantityText, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(i64),
        }
        Ok(QuantityText(match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_may_be_written_as_numbers() {
        let amounts: Quantities =
            serde_json::from_str(r#"{ "pods": 100, "cpu": "4", "memory": "16Gi" }"#).unwrap();
        let texts: Vec<_> = amounts.values().map(QuantityText::as_str).collect();
        assert_eq!(texts, ["4", "16Gi", "100"]);
    }
}
