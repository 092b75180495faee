//! Rules that many tables share, with Kubernetes' error texts.

use std::net::IpAddr;

use serde_json::Value;

use api::meta::names::{
    CHARACTERS, MAX_SUBDOMAIN, dns1123_subdomain, is_dns1123_subdomain, label_value, pattern, qualified_name,
    too_long,
};
use api::meta::net;
use api::meta::selector::LabelSelector;

use super::value::{entries, get, items, quantity, text};
use crate::validation::field_path::{FieldErrors, FieldPath};

pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const POSITIVE: &str = "must be greater than zero";
pub(super) const IMMUTABLE: &str = "field is immutable";

pub(super) fn non_negative(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if value.as_i64().is_some_and(|number| number < 0) {
        found.invalid(at, value.clone(), NOT_NEGATIVE);
    }
}

pub(super) fn between(value: &Value, min: i64, max: i64, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if value.as_i64().is_none_or(|number| !(min..=max).contains(&number)) {
        found.invalid(at, value.clone(), format!("must be between {min} and {max}, inclusive"));
    }
}

pub(super) fn non_negative_quantity(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let amount = quantity(value);
    if amount.is_negative() {
        found.invalid(at, amount.to_string(), NOT_NEGATIVE);
    }
}

/// Checks keys and values of labels.
pub(super) fn labels(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (key, value) in value.as_object().into_iter().flatten() {
        found.faults(at, key, qualified_name(key));
        if let Some(value) = value.as_str() {
            found.faults(at, value, label_value(value));
        }
    }
}

pub(super) fn annotations(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let mut bytes = 0;
    for (key, value) in value.as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map(str::len).unwrap_or_default();
        found.faults(at, key, qualified_name(&key.to_lowercase()));
    }
    if bytes > api::meta::names::MAX_ANNOTATION_BYTES {
        found.too_long(at, api::meta::names::MAX_ANNOTATION_BYTES);
    }
}

/// Checks a label selector.
pub(super) fn selector(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    labels(get(value, "matchLabels"), &at.field("matchLabels"), found);
    for (index, requirement) in items(value, "matchExpressions").iter().enumerate() {
        let list = at.field("matchExpressions");
        let at = list.index(index);
        let values = items(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                found.required(&at.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => found.forbidden(
                &at.field("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            operator => found.invalid(&at.field("operator"), operator, "not a valid selector operator"),
        }
        let key = text(requirement, "key");
        found.faults(&at.field("key"), key, qualified_name(key));
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            found.faults(&at.field("values").index(index), value, label_value(value));
        }
    }
}

/// Reports whether a selector matches these labels; none if the selector is invalid.
pub(super) fn selects(selector: &Value, labels: &Value) -> Option<bool> {
    let selector = LabelSelector::from_value(selector)?;
    Some(selector.matches(|key| get(labels, key).as_str()))
}

pub(super) fn is_empty_selector(selector: &Value) -> bool {
    entries(selector, "matchLabels").next().is_none() && items(selector, "matchExpressions").is_empty()
}

/// Checks the name of a port.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut faults = too_long(name, 15, CHARACTERS);
    let letter = |byte: u8| byte.is_ascii_lowercase();
    if name.is_empty() || !name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit() || byte == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(letter) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// Checks a port, which is a number or a name.
pub(super) fn port(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    match value.as_str() {
        Some(name) => found.faults(at, name, port_name(name)),
        None if value.is_null() => between(&0.into(), 1, 65535, at, found),
        None => between(value, 1, 65535, at, found),
    }
}

pub(super) fn env_name(name: &str) -> Vec<String> {
    match name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        true => Vec::new(),
        false => vec![
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        ],
    }
}

/// Checks a key of a ConfigMap or Secret, which becomes a file name.
pub(super) fn config_key(key: &str) -> Vec<String> {
    let mut faults = too_long(key, MAX_SUBDOMAIN, CHARACTERS);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        let words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        faults.push(pattern(words, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match key {
        "." | ".." => faults.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

pub(super) fn header_name(name: &str) -> Vec<String> {
    match !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Vec::new(),
        false => {
            let words = "a valid HTTP header must consist of alphanumeric characters or '-'";
            vec![pattern(words, "[-A-Za-z0-9]+", &["X-Header-Name"])]
        }
    }
}

/// Checks `*.example.com`.
pub(super) fn wildcard_subdomain(host: &str) -> Vec<String> {
    let mut faults = too_long(host, MAX_SUBDOMAIN, CHARACTERS);
    if !host.strip_prefix("*.").is_some_and(is_dns1123_subdomain) {
        let words = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
                     must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric \
                     character";
        let shape = "\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
        faults.push(pattern(words, shape, &["*.example.com"]));
    }
    faults
}

/// Checks a subdomain, with or without `*.` before it.
pub(super) fn host(host: &str) -> Vec<String> {
    match host.contains('*') {
        true => wildcard_subdomain(host),
        false => dns1123_subdomain(host),
    }
}

/// Checks a search domain of a pod's DNS configuration.
pub(super) fn search_domain(domain: &str) -> Vec<String> {
    if domain == "." {
        return Vec::new();
    }
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    let mut faults = too_long(domain, MAX_SUBDOMAIN, CHARACTERS);
    let is_valid = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        label.bytes().all(|byte| plain(byte) || byte == b'-' || byte == b'_')
            && label.bytes().next().is_some_and(plain)
            && label.bytes().next_back().is_some_and(plain)
    };
    if !domain.split('.').all(is_valid) {
        let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
                     '.', and must start and end with an alphanumeric character";
        faults.push(pattern(words, &format!("{label}(\\.{label})*"), &["example.com"]));
    }
    faults
}

/// Checks `acme.io/foo`.
pub(super) fn domain_prefixed_path(path: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    match path.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            found.faults(at, host, dns1123_subdomain(host));
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(is_allowed) {
                let shape = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
                found.invalid(at, path, format!("Invalid path (regex used for validation is '{shape}')"));
            }
        }
        _ => found.invalid(at, path, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

/// Checks that no path segment is `..`.
pub(super) fn no_backsteps(path: &str) -> Vec<String> {
    match path.split('/').any(|segment| segment == "..") {
        true => vec!["must not contain '..'".to_owned()],
        false => Vec::new(),
    }
}

/// Checks for a relative path without `..`.
pub(super) fn descending_path(path: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if path.starts_with('/') {
        faults.push("must be a relative path".to_owned());
    }
    faults.extend(no_backsteps(path));
    faults
}

/// Checks for a relative path that does not start with `..`, as `..data` is where volumes keep their versions.
pub(super) fn relative_path(path: &str) -> Vec<String> {
    let mut faults = descending_path(path);
    if path.starts_with("..") && !path.starts_with("../") {
        faults.push("must not start with '..'".to_owned());
    }
    faults
}

pub(super) fn absolute_path(path: &str) -> Vec<String> {
    match path.starts_with('/') {
        true => Vec::new(),
        false => vec!["must be an absolute path".to_owned()],
    }
}

/// Checks the name of a driver: a short subdomain in upper or lower case.
pub(super) fn driver_name(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let name = value.as_str().unwrap_or_default();
    if name.is_empty() {
        return found.required(at, "");
    }
    if name.len() > 63 {
        found.too_long(at, 63);
    }
    found.faults(at, name, dns1123_subdomain(&name.to_lowercase()));
}

/// Returns 25 for `25%`.
pub(super) fn percent(value: &Value) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Returns the number of a number or a percentage. Another text is parsed as Go does.
pub(super) fn int_or_percent(value: &Value) -> i64 {
    let number = || value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    percent(value).or_else(number).unwrap_or_default()
}

pub(super) fn positive_int_or_percent(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    match value {
        Value::String(_) if percent(value).is_none() => {
            let words = "a valid percent string must be a numeric string followed by an ending '%'";
            found.invalid(at, value.clone(), pattern(words, "[0-9]+%", &["1%", "93%"]));
        }
        _ => non_negative(value, at, found),
    }
}

pub(super) fn at_most_all(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if percent(value).is_some_and(|percent| percent > 100) {
        found.invalid(at, value.clone(), "must not be greater than 100%");
    }
}

/// Rejects addresses that cannot be reached from other hosts.
pub(super) fn endpoint_ip(text: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let Some(address) = net::sloppy(text) else {
        return found.invalid(at, text, "must be a valid IP address");
    };
    if address.is_unspecified() {
        found.invalid(at, text, format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        found.invalid(at, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        found.invalid(at, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_local_multicast {
        found.invalid(at, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks only what is valid. The full texts are compared with a real server.
    #[test]
    fn rules_accept_valid_and_refuse_invalid_text() {
        type TextRule = fn(&str) -> Vec<String>;
        let rows: &[(&str, TextRule, &[&str], &[&str])] = &[
            (
                "port",
                port_name,
                &["http", "a-1", "0a"],
                &["", "80", "-a", "a--b", "Http", "abcdefghijklmnop"],
            ),
            ("env", env_name, &["A", "a b", "1", "."], &["A=B", "ä", "\n"]),
            ("key", config_key, &["a", "A_b.c-d", ".a"], &["", "a/b", ".", "..", "..a"]),
            ("header", header_name, &["X-A"], &["", "X_A"]),
            ("wildcard", wildcard_subdomain, &["*.a.b"], &["*", "*.", "a.*.b", "*.*.a"]),
            ("search", search_domain, &[".", "a.b.", "_tcp.a_b"], &["", "A", "__a", "a..b"]),
            ("relative path", relative_path, &["a/b", ".a"], &["/a", "..data", "a/../b"]),
        ];
        for (name, rule, good, bad) in rows {
            for text in *good {
                assert_eq!(rule(text), Vec::<String>::new(), "{name} {text}");
            }
            for text in *bad {
                assert!(!rule(text).is_empty(), "{name} {text}");
            }
        }
    }

    #[test]
    fn percentages() {
        let rows = [("25%", Some(25)), ("0%", Some(0)), ("%", None), ("-1%", None), ("25", None)];
        for (text, expected) in rows {
            assert_eq!(percent(&text.into()), expected, "{text}");
        }
    }
}
