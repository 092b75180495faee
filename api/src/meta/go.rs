//! Values as Go prints them, and durations as Go reads them.
//!
//! Clients compare error texts, and Kubernetes formats those with Go's verbs. The few rules that our texts rely on are
//! here and nowhere else.

use serde_json::Value;

/// `%q` of a string: in quotes, with escapes for unprintable characters.
pub fn quote(text: &str) -> String {
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

/// Formats one byte as Go's JSON scanner does: in single quotes.
pub fn quote_char(byte: u8) -> String {
    let mut out = String::from("'");
    match byte {
        b'\'' => out.push_str("\\'"),
        // The scanner works on bytes, and shows each as the character with that number.
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
        // `escape_debug` leaves exactly the printable characters unchanged.
        _ if c.escape_debug().len() == 1 => out.push(c),
        '\0'..='\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
}

/// The units of Go durations in seconds. Longer names come first.
const UNITS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Parses a duration as Go does, to seconds: `32s`, `1m30s`, `1.5h`, `-2ms`, `0`. Errors have Go's text.
pub fn parse_duration(text: &str) -> Result<f64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0.0);
    }
    let mut total = 0.0;
    loop {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().map_err(|_| invalid())?;
        rest = &rest[end..];
        let end = rest.find(is_number).unwrap_or(rest.len());
        let unit = &rest[..end];
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, size) =
            known.ok_or_else(|| format!("time: unknown unit {} in duration {}", quote(unit), quote(text)))?;
        total += number * size;
        rest = &rest[end..];
        if rest.is_empty() {
            return Ok(sign * total);
        }
    }
}

/// Formats a value in a field error: plain for numbers and booleans, quoted for strings, JSON for everything else.
pub fn show(value: &Value) -> String {
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
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={value})", type_of(value)),
        Value::String(_) | Value::Array(_) | Value::Object(_) => print(value),
    }
}

/// Returns the Go type of a JSON value decoded into `interface{}`.
pub fn type_of(value: &Value) -> &'static str {
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
pub fn number(number: &serde_json::Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) => self::float(float),
        None => number.to_string(),
    }
}

/// `%v` of a float.
pub fn float(float: f64) -> String {
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
pub fn print(value: &Value) -> String {
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
pub fn base64_fault(text: &str) -> Option<usize> {
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
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in
            [("0", 0.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("-2ms", -0.002), ("+3us", 3e-6), ("1s20ms", 1.02)]
        {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        let rows = [
            ("", "invalid duration \"\""),
            ("1y", "unknown unit \"y\" in duration \"1y\""),
            ("1h0", "missing unit in duration \"1h0\""),
            (".s", "invalid duration \".s\""),
            ("1.2.3s", "invalid duration \"1.2.3s\""),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_duration(text), Err(format!("time: {expected}")));
        }
    }

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
    fn values_are_formatted_as_in_field_errors() {
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
