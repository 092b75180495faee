//! Strings as Go's `fmt` prints them, for error texts that equal those of Kubernetes.

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
