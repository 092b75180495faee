//! JSON field scan: finds a field of stored JSON without parsing the rest.
//!
//! Stored JSON is canonical: no blanks, and field names in order. So the scan skips the fields before the requested
//! one, string by string, and stops where the field would have to be. It decodes, copies and validates nothing. Code
//! that needs more than a few plain strings parses a [tree](crate::objects::stored::tree).

use memchr::memchr2;

/// Returns the raw value of a field of the object at the beginning of `text`. The outer `None` means invalid JSON.
pub(crate) fn field<'a>(text: &'a [u8], name: &str) -> Option<Option<&'a [u8]>> {
    let mut rest = text.strip_prefix(b"{")?;
    if rest.first() == Some(&b'}') {
        return Some(None);
    }
    loop {
        let (quoted, after) = string(rest)?;
        let (found, after) = (&quoted[1..quoted.len() - 1], after.strip_prefix(b":")?);
        // An escaped name is ordered by its plain form, so its escaped form must not end the scan.
        if found > name.as_bytes() && !found.contains(&b'\\') {
            return Some(None);
        }
        let (value, after) = value(after)?;
        if found == name.as_bytes() {
            return Some(Some(value));
        }
        match after.split_first()? {
            (b',', next) => rest = next,
            (b'}', _) => return Some(None),
            _ => return None,
        }
    }
}

/// Returns the contents of a string without escapes. None for any other value.
pub(crate) fn text(value: &[u8]) -> Option<&str> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    std::str::from_utf8(inner).ok().filter(|inner| !inner.contains('\\'))
}

/// Splits off a string with its quotes.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = if text.first() == Some(&b'"') { 1 } else { return None };
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        match text[at] {
            b'"' => return Some(text.split_at(at + 1)),
            // Skips the escaped character, which may be a quote.
            _ => at += 2,
        }
    }
}

/// Splits off a value of any kind.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut at, mut depth) = (0, 0);
    loop {
        match text.get(at)? {
            b'"' => at += string(&text[at..])?.0.len(),
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' if depth > 0 => (at, depth) = (at + 1, depth - 1),
            _ if depth > 0 => at += 1,
            // Numbers and literals end at the next delimiter.
            b',' | b'}' | b']' => return None,
            _ => {
                let end = text[at..].iter().position(|byte| b",}]".contains(byte))?;
                return Some(text.split_at(at + end));
            }
        }
        if depth == 0 {
            return Some(text.split_at(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    /// Words that are mistaken for something else if quotes, braces or backslashes are miscounted.
    fn any_text() -> impl Strategy<Value = String> {
        const ODD: &[&str] =
            &["labels", "label", "labels\"", "a\\", "}", "{\"labels\":{", "\u{1}", "ä", "", ",", ":"];
        prop_oneof![proptest::sample::select(ODD).prop_map(str::to_owned), "[a-z{}\\[\\]\"\\\\,:]{0,8}"]
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any_text().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any_text(), inner, 0..5).prop_map(|fields| json!(fields)),
            ]
        })
    }

    proptest! {
        /// The scan finds every field of an object with its raw value, and no other field.
        #[test]
        fn the_field_scan_agrees_with_a_parser(
            fields in prop::collection::btree_map(any_text(), tree(), 0..6),
            requested in "(label|labels|lab|uid|a|z)",
        ) {
            let object = Value::Object(fields.into_iter().collect::<Map<_, _>>());
            let written = object.to_string() + ",\"labels\":1}";
            let found = field(written.as_bytes(), &requested).map(|found| found.map(<[u8]>::to_vec));
            let expected = object.get(&requested).map(|value| value.to_string().into_bytes());
            prop_assert_eq!(found, Some(expected), "{}", written);
        }

        /// Damaged JSON never causes a panic.
        #[test]
        fn truncated_json_never_panics(object in tree(), cut in 0usize..200) {
            let written = object.to_string();
            let _ = field(&written.as_bytes()[..cut.min(written.len())], "labels");
        }
    }

    #[test]
    fn only_strings_without_escapes_are_returned_as_text() {
        for (value, expected) in [
            ("\"web\"", Some("web")),
            ("\"\"", Some("")),
            ("\"a\\n\"", None),
            ("1", None),
            ("\"", None),
            ("", None),
        ] {
            assert_eq!(text(value.as_bytes()), expected, "{value}");
        }
    }
}
