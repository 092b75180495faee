//! Strings as Go prints them, and durations as Go reads them. Clients see both in error texts of Kubernetes.

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

#[cfg(test)]
mod tests {
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
}
