//! Values that are strings in JSON, or strings and numbers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number, or a percentage of a number that is known later: `25%`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Portion {
    Number(i64),
    Percent(String),
}

/// A duration: `90s`, `10m`, `1h30m`. It is written as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    text: String,
    length: Duration,
}

/// The units from the largest to the smallest.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Span {
    pub fn length(&self) -> Duration {
        self.length
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpanError(String);

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} must be numbers with units h, m, s or ms, as in 1h30m", self.0)
    }
}

impl std::error::Error for SpanError {}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Span, SpanError> {
        let malformed = || SpanError(text.to_owned());
        let (mut rest, mut length_ms) = (text, 0u64);
        while !rest.is_empty() {
            let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(malformed)?;
            let (number, unit_and_rest) = rest.split_at(digits);
            let unit_end = unit_and_rest.find(|letter: char| letter.is_ascii_digit());
            let (unit, next) = unit_and_rest.split_at(unit_end.unwrap_or(unit_and_rest.len()));
            let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
            let component_ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit_ms));
            length_ms =
                component_ms.and_then(|component| component.checked_add(length_ms)).ok_or_else(malformed)?;
            rest = next;
        }
        match text.is_empty() {
            true => Err(malformed()),
            false => Ok(Span { text: text.to_owned(), length: Duration::from_millis(length_ms) }),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_numbers_with_units() {
        let check = |text: &str, expected_ms: Option<u64>| {
            let length = text.parse::<Span>().ok().map(|span| span.length().as_millis() as u64);
            assert_eq!(length, expected_ms, "{text:?}");
        };
        check("90s", Some(90_000));
        check("1h30m", Some(5_400_000));
        check("10m", Some(600_000));
        check("250ms", Some(250));
        check("0s", Some(0));
        for bad in
            ["", "10", "m", "-1s", "1.5h", "1d", "1h m", "99999999999999999999s", "9999999999999999999h"]
        {
            check(bad, None);
        }
    }
}
