//! Formats values as Go does.
//!
//! Clients compare error texts, and Kubernetes formats those with Go's verbs. The few rules that our texts rely on are
//! here and nowhere else.

pub(crate) use api::meta::go::{quote, quote_char};
use serde_json::Value;

/// Formats a value in a field error: plain for numbers and booleans, quoted for strings, JSON for everything else.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => quote(text),
        Value::Array(_) | Value::Object(_) => {
            // Go's JSON encoder escapes these three for the sake of old browsers. In JSON they occur only inside
            // strings, so replacing them afterwards is safe.
            value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
        }
    }
}

/// `%s` of a JSON value decoded into `interface{}`: a value that is not text is shown with its type.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={value})", type_of(value)),
        Value::String(_) | Value::Array(_) | Value::Object(_) => print(value),
    }
}

/// Returns the Go type of a JSON value decoded into `interface{}`.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        // Go's output for the type of nil.
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `%v` of a number: a whole one without a point, a very large or small one with an exponent.
pub(crate) fn number(number: &serde_json::Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) => self::float(float),
        None => number.to_string(),
    }
}

/// `%v` of a float.
pub(crate) fn float(float: f64) -> String {
    let exponent = if float == 0.0 { 0 } else { float.abs().log10().floor() as i32 };
    if (-4..21).contains(&exponent) {
        return format!("{float}");
    }
    let text = format!("{float:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `%v` of a JSON value decoded into `interface{}`, for example `map[a:1 b:[x y]]`.
pub(crate) fn print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| format!("{key}:{}", print(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// Returns the offset at which Go's strict base64 decoder fails; none for valid text.
pub(crate) fn base64_fault(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_break = |byte: u8| byte == b'\n' || byte == b'\r';
    let mut in_group = 0;
    for (index, byte) in bytes.iter().copied().enumerate() {
        match byte {
            _ if is_break(byte) => {}
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => in_group = (in_group + 1) % 4,
            b'=' => return padding_fault(bytes, index, in_group),
            _ => return Some(index),
        }
    }
    // Go reports where the unfinished group began.
    (in_group != 0).then(|| bytes.len() - in_group)
}

/// Checks the padding: one or two signs complete a group of four, and only line breaks follow.
fn padding_fault(bytes: &[u8], first: usize, in_group: usize) -> Option<usize> {
    let mut rest = (first + 1..bytes.len()).filter(|index| !b"\n\r".contains(&bytes[*index]));
    match in_group {
        2 => match rest.next() {
            None => return Some(bytes.len()),
            Some(index) if bytes[index] != b'=' => return Some(index - 1),
            Some(_) => {}
        },
        3 => {}
        _ => return Some(first),
    }
    rest.next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        for (text, expected) in [
            ("web", r#""web""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nend\t\0\u{7f}", r#""line\nend\t\x00\x7f""#),
            ("grün 世界", "\"grün 世界\""),
            ("\u{200b}\u{e0001}", r#""\u200b\U000e0001""#),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn values_are_shown_the_way_field_errors_show_them() {
        for (value, expected) in [
            (json!(7), "7"),
            (json!(true), "true"),
            (json!("x"), "\"x\""),
            (json!({"b": [1, "<&>"], "a": null}), "{\"a\":null,\"b\":[1,\"\\u003c\\u0026\\u003e\"]}"),
        ] {
            assert_eq!(show(&value), expected);
        }
        assert_eq!(print(&json!({"b": [1, "x"], "a": null})), "map[a:<nil> b:[1 x]]");
    }

    #[test]
    fn base64_is_read_strictly() {
        for (text, expected) in [
            ("", None),
            ("aGk=", None),
            ("aGVsbG8=\n", None),
            ("aG\nk=", None),
            ("YQ==", None),
            ("a", Some(0)),
            ("abc", Some(0)),
            ("abcde", Some(4)),
            ("ab=", Some(3)),
            ("a=bc", Some(1)),
            ("====", Some(0)),
            ("YQ==x", Some(4)),
            ("hello world!", Some(5)),
        ] {
            assert_eq!(base64_fault(text), expected, "{text:?}");
        }
    }
}
