//! How Go would print it.
//!
//! Clients compare error texts, and Kubernetes makes those texts with Go's formatting verbs. The few rules our texts
//! rely on are here and nowhere else.

use serde_json::Value;

/// `%q` of a string: quotes, and escapes for what cannot be shown.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            _ => push_escaped(&mut out, c),
        }
    }
    out.push('"');
    out
}

/// One character the way Go's JSON scanner names it: in single quotes.
pub(crate) fn quote_char(byte: u8) -> String {
    let mut out = String::from("'");
    match byte {
        b'\'' => out.push_str("\\'"),
        // The scanner sees bytes, and shows each as the character with that number.
        _ => push_escaped(&mut out, char::from(byte)),
    }
    out.push('\'');
    out
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\u{07}' => out.push_str("\\a"),
        '\u{08}' => out.push_str("\\b"),
        '\u{0c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{0b}' => out.push_str("\\v"),
        ' '..='~' => out.push(c),
        '\0'..='\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        // `escape_debug` leaves alone exactly what can be shown.
        _ if c.escape_debug().len() == 1 => out.push(c),
        '\0'..='\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
}

/// A value inside a field error: plain for numbers and booleans, quoted for strings, JSON for everything else.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => quote(text),
        Value::Array(_) | Value::Object(_) => {
            // Go's encoder keeps these three out of JSON for the sake of old browsers. Inside a JSON text they can
            // only be part of a string, so replacing them afterwards is safe.
            value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
        }
    }
}

/// `%s` of a JSON value read into Go's untyped form: what is no text is told with its type.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={value})", type_of(value)),
        Value::String(_) | Value::Array(_) | Value::Object(_) => print(value),
    }
}

/// The type that Go's untyped form of a JSON value has.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        // What Go prints for the type of nothing.
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

/// The same of a float.
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

/// `%v` of a JSON value read into Go's untyped form, for example `map[a:1 b:[x y]]`.
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

/// Where Go's strict base64 reader stumbles; none if it does not.
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
    // It points to where the unfinished group began.
    (in_group != 0).then(|| bytes.len() - in_group)
}

/// One or two signs end a group of four, and nothing but line ends follows.
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
