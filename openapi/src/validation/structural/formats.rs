//! String formats: the values of `format` in a definition.
//!
//! They are as strict and as lenient as Kubernetes' validator, which ignores dashes in their names.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use regex::Regex;

use crate::meta::time;
use api::meta::net;

type Check = fn(&str) -> bool;

const FORMATS: &[(&str, Check)] = &[
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())),
    ("byte", base64),
    ("cidr", |text| net::sloppy_cidr(text)),
    ("creditcard", credit_card),
    ("date", date),
    ("datetime", date_time),
    ("duration", duration),
    ("email", email),
    ("hexcolor", |text| found(&HEX_COLOR, text)),
    ("hostname", hostname),
    ("ipv4", |text| text.contains('.') && net::sloppy(text).is_some()),
    ("ipv6", |text| text.contains(':') && text.parse::<Ipv6Addr>().is_ok()),
    ("isbn", |text| isbn10(text) || isbn13(text)),
    ("isbn10", isbn10),
    ("isbn13", isbn13),
    ("k8slongname", |text| text.len() <= 253 && text.split('.').all(short_name)),
    ("k8sshortname", |text| text.len() <= 63 && short_name(text)),
    ("mac", mac),
    ("password", |_| true),
    ("rgbcolor", |text| found(&RGB_COLOR, text)),
    ("ssn", |text| text.len() == 11 && found(&SSN, text)),
    ("uri", uri),
    ("uuid", |text| uuid(text, None)),
    ("uuid3", |text| uuid(text, Some('3'))),
    ("uuid4", |text| uuid(text, Some('4'))),
    ("uuid5", |text| uuid(text, Some('5'))),
];

/// Reports whether a string format is validated.
pub(in crate::validation) fn is_known(format: &str) -> bool {
    format_check(format).is_some()
}

/// Reports whether a text has a format. Every text is valid for an unknown format.
pub(in crate::validation) fn is_valid(format: &str, text: &str) -> bool {
    format_check(format).is_none_or(|check| check(text))
}

fn format_check(format: &str) -> Option<Check> {
    let name = format.replace('-', "");
    FORMATS.iter().find(|(format, _)| *format == name).map(|(_, check)| *check)
}

macro_rules! expression {
    ($name:ident, $text:literal) => {
        static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($text).expect("the expression is a constant"));
    };
}

expression!(BASE64, r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$");
expression!(
    CREDIT_CARD,
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
);
expression!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
expression!(
    HOSTNAME,
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
);
expression!(
    RGB_COLOR,
    r"^rgb\(\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*\)$"
);
expression!(SSN, r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$");
expression!(TIME_OF_DAY, r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
expression!(AMOUNT, r"([0-9]+)\s*([A-Za-zµ]+)");

fn found(expression: &Regex, text: &str) -> bool {
    expression.is_match(text)
}

fn base64(text: &str) -> bool {
    found(&BASE64, text)
}

fn date(text: &str) -> bool {
    text.len() == 10 && time::canonical(&format!("{text}T00:00:00Z"), time::Precision::Seconds).is_ok()
}

fn date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut groups = lower.split('t');
    let (Some(day), Some(rest)) = (groups.next(), groups.next()) else { return false };
    let Some(groups) = TIME_OF_DAY.captures(rest) else { return false };
    date(day) && &groups[1] <= "23" && &groups[2] <= "59" && &groups[3] <= "59"
}

/// Accepts `1h30m` as Go parses it, and also a number with the name of a unit.
fn duration(text: &str) -> bool {
    const STEMS: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    const SHORT: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    if go_duration(text) {
        return true;
    }
    let mut is_duration = false;
    for amount in AMOUNT.captures_iter(text) {
        if amount[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = amount[2].to_lowercase();
        is_duration |= SHORT.contains(&unit.as_str()) || STEMS.iter().any(|stem| unit.starts_with(stem));
    }
    is_duration
}

fn go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (digits, after) = rest.split_at(number);
        if !digits.bytes().any(|byte| byte.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return false;
        }
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        if !units.contains(&&after[..end]) {
            return false;
        }
        rest = &after[end..];
    }
    true
}

/// Accepts an address, with or without a name before it.
fn email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.split_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let special = |c: char| c.is_control() || c == ' ' || "()<>[]:;@\\,\"".contains(c);
    let atoms = |text: &str| text.split('.').all(|atom| !atom.is_empty() && !atom.contains(special));
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || atoms(local)) && atoms(domain)
}

fn hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && found(&HOSTNAME, text)
}

fn short_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if inner(*first) && inner(*last))
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}

/// Accepts pairs of digits with colons or dashes, or groups of four with dots; 6, 8 or 20 bytes.
fn mac(text: &str) -> bool {
    let hex =
        |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_grouped_hex = |separator: char, digits: usize, counts: [usize; 3]| {
        let groups: Vec<&str> = text.split(separator).collect();
        counts.contains(&groups.len()) && groups.iter().all(|part| hex(part, digits))
    };
    is_grouped_hex(':', 2, [6, 8, 20])
        || is_grouped_hex('-', 2, [6, 8, 20])
        || is_grouped_hex('.', 4, [3, 4, 10])
}

fn uuid(text: &str, version: Option<char>) -> bool {
    // Longer texts are invalid, and the code below takes time quadratic in the length.
    const LENGTH_MAX: usize = 36;
    if text.len() > LENGTH_MAX {
        return false;
    }
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let dashes: Vec<usize> =
        text.match_indices('-').map(|(at, _)| text[..at].replace('-', "").len()).collect();
    let has_hyphens =
        dashes.iter().all(|at| [8, 12, 16, 20].contains(at)) && dashes.windows(2).all(|two| two[0] < two[1]);
    let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let at = |index: usize| digits.chars().nth(index).unwrap_or_default().to_ascii_lowercase();
    let versioned = version.is_none_or(|version| {
        at(12) == version && (version == '3' || matches!(at(16), '8' | '9' | 'a' | 'b'))
    });
    has_hyphens && is_hex && versioned
}

/// Accepts an absolute path, or a scheme and anything after it.
fn uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let rest = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => {
            if !rest.starts_with('/') {
                return true;
            }
            rest
        }
        _ if text.starts_with('/') => text,
        _ => return false,
    };
    let escaped = rest.split('?').next().unwrap_or_default();
    let (authority, path) = match escaped.strip_prefix("//") {
        Some(after) if rest.len() != text.len() => after.split_at(after.find('/').unwrap_or(after.len())),
        _ => ("", escaped),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map_or("", |(_, port)| port);
    let host_is_fine = !host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}'])
        && port.bytes().all(|byte| byte.is_ascii_digit());
    host_is_fine && escapes_are_fine(path)
}

fn escapes_are_fine(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

fn credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(index, digit)| {
            let digit = u32::from(digit - b'0') * if index % 2 == 1 { 2 } else { 1 };
            digit / 10 + digit % 10
        })
        .sum();
    found(&CREDIT_CARD, &digits) && sum.is_multiple_of(10)
}

fn isbn_digits(text: &str, count: usize) -> Option<Vec<u32>> {
    let bare: Vec<char> = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let last = bare.len().checked_sub(1)?;
    let digit = |(index, c): (usize, &char)| match c {
        'X' if count == 10 && index == last => Some(10),
        _ => c.to_digit(10),
    };
    bare.iter().enumerate().map(digit).collect::<Option<Vec<u32>>>().filter(|digits| digits.len() == count)
}

fn isbn10(text: &str) -> bool {
    isbn_digits(text, 10).is_some_and(|digits| {
        digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum::<u32>() % 11 == 0
    })
}

fn isbn13(text: &str) -> bool {
    isbn_digits(text, 13).is_some_and(|digits| {
        digits.iter().zip([1, 3].iter().cycle()).map(|(digit, factor)| digit * factor).sum::<u32>() % 10 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_match_their_formats() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            (
                "date-time",
                &["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5+01:00"],
                &["2020-01-01", "2020-13-01T00:00:00Z", "x"],
            ),
            ("date", &["2020-02-29"], &["2021-02-29", "2020-2-9", ""]),
            ("duration", &["1h30m", "22 ns", "3 days", "0", "-1.5s"], &["", "5", "soon", "1x"]),
            (
                "uuid",
                &["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"],
                &["123e", "123e4567-e89b-12d3-a456-42661417400g"],
            ),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("ipv4", &["1.2.3.4", "01.2.3.4"], &["1.2.3", "::1", "1.2.3.400"]),
            ("ipv6", &["::1", "fe80::1"], &["1.2.3.4", ":::"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
            ("byte", &["aGk=", "aGVs"], &["", "a", "aGk"]),
            ("mac", &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23:45", "zz:23:45:67:89:ab"]),
            ("email", &["a@b", "A <a@b.c>", "\"q q\"@b"], &["a", "a@", "a b@c"]),
            ("uri", &["http://a/b?c", "/path", "mailto:x", "*"], &["", "a/b", "http://a b/", "/%zz"]),
            ("hostname", &["a", "a-b.example.com"], &["-a", "a..b", "a_b"]),
            ("hexcolor", &["#fff", "a1b2c3"], &["#ffff", "red"]),
            ("isbn10", &["0321751043"], &["0321751044"]),
            ("isbn13", &["978-0321751041"], &["978-0321751042"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
            ("k8s-short-name", &["a", "a-1"], &["", "a.b", "A", "a-"]),
            ("k8s-long-name", &["a.b-c"], &["a..b", ""]),
            ("password", &["anything"], &[]),
            ("something-else", &["anything"], &[]),
        ];
        for (format, good, bad) in rows {
            good.iter().for_each(|text| assert!(is_valid(format, text), "{text:?} is {format}"));
            bad.iter().for_each(|text| assert!(!is_valid(format, text), "{text:?} is no {format}"));
        }
    }

    /// The validation of this text in quadratic time would take hours.
    #[test]
    fn a_million_dashes_are_no_uuid() {
        assert!(!is_valid("uuid", &"-".repeat(1_000_000)));
    }
}
