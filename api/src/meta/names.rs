//! Validation of names: objects, labels, annotations, finalizers.
//!
//! Each check returns the errors with the text of Kubernetes; an empty list means a valid name. The texts quote the
//! pattern, but the code does not use it: these checks run on every label of every write.

use std::collections::BTreeMap;

use crate::meta::field::FieldError;

/// Maximum size of all annotations of one object, keys and values.
pub const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

const MAX_LABEL: usize = 63;
pub const MAX_SUBDOMAIN: usize = 253;

/// Units in error texts. Kubernetes counts bytes in both cases; the unit in the text depends on which of its two
/// libraries checks the name.
pub const CHARACTERS: &str = "characters";
const BYTES: &str = "bytes";

const LABEL_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035_PATTERN: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE_PATTERN: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// The rule for names of a kind's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameRule {
    /// Lower-case words, separated by dots: most kinds.
    Subdomain,
    /// One lower-case word: namespaces, services, stateful sets.
    Label,
    /// One lower-case word that starts with a letter.
    Label1035,
    /// Anything that is valid as a segment of a path: RBAC kinds.
    PathSegment,
    /// An IP address in canonical form.
    Address,
    /// A subdomain whose error text counts bytes: kinds whose validation Kubernetes generates.
    GeneratedSubdomain,
}

impl NameRule {
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            NameRule::Subdomain => dns1123_subdomain(name),
            NameRule::Label => dns1123_label(name),
            NameRule::Label1035 => dns1035_label(name),
            NameRule::PathSegment => path_segment(name),
            NameRule::Address => crate::meta::net::strict_ip(name),
            NameRule::GeneratedSubdomain => subdomain(name, BYTES),
        }
    }

    /// Checks a `generateName`, to which a suffix will be added: it may end in a dash.
    pub fn check_prefix(self, prefix: &str) -> Vec<String> {
        match (self, prefix.strip_suffix('-')) {
            (NameRule::PathSegment, _) => path_segment_prefix(prefix),
            (NameRule::Address, _) => self.check(prefix),
            // Kubernetes replaces the last two characters by an `a`, and so never checks the last but one.
            (_, Some(rest)) if !rest.is_empty() => {
                let mut chars = rest.chars();
                chars.next_back();
                self.check(&format!("{}a", chars.as_str()))
            }
            _ => self.check(prefix),
        }
    }
}

/// Checks for one lower-case word of letters, digits and dashes.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut faults = too_long(name, MAX_LABEL, CHARACTERS);
    if !is_dns1123_label(name) {
        faults.push(match is_dns1123_subdomain(name) {
            true => "must not contain dots".to_owned(),
            false => pattern(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                LABEL_PATTERN,
                &["my-name", "123-abc"],
            ),
        });
    }
    faults
}

/// Checks for labels separated by dots.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    subdomain(name, CHARACTERS)
}

fn subdomain(name: &str, unit: &str) -> Vec<String> {
    let mut faults = too_long(name, MAX_SUBDOMAIN, unit);
    if !is_dns1123_subdomain(name) {
        faults.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            SUBDOMAIN_PATTERN,
            &["example.com"],
        ));
    }
    faults
}

/// Checks for one lower-case word that starts with a letter.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut faults = too_long(name, MAX_LABEL, CHARACTERS);
    if !(is_dns1123_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())) {
        faults.push(pattern(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            LABEL_1035_PATTERN,
            &["my-name", "abc-123"],
        ));
    }
    faults
}

/// Checks for a valid segment of a path.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_segment_prefix(name),
    }
}

fn path_segment_prefix(name: &str) -> Vec<String> {
    let contained = ["/", "%"].into_iter().filter(|text| name.contains(text));
    contained.map(|text| format!("may not contain '{text}'")).collect()
}

/// Checks `name` or `prefix.example/name`: keys of labels and annotations, finalizers, conditions.
pub fn qualified_name(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            let optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {optional}", key_rule())];
        }
        Some((prefix, name)) => {
            match prefix {
                "" => faults.push("prefix part must be non-empty".to_owned()),
                _ => {
                    faults.extend(subdomain(prefix, BYTES).iter().map(|fault| format!("prefix part {fault}")))
                }
            }
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(too_long(name, MAX_LABEL, BYTES).iter().map(|fault| format!("name part {fault}")));
    if !is_key_part(name) {
        faults.push(format!("name part {}", key_rule()));
    }
    faults
}

fn key_rule() -> String {
    let rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character";
    pattern(rule, KEY_PATTERN, &["MyName", "my.name", "123-abc"])
}

/// Checks the value of a label, which may be empty.
pub fn label_value(value: &str) -> Vec<String> {
    let mut faults = too_long(value, MAX_LABEL, BYTES);
    if !(value.is_empty() || is_key_part(value)) {
        faults.push(pattern(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            VALUE_PATTERN,
            &["MyValue", "my_value", "12345"],
        ));
    }
    faults
}

/// Checks the labels at `path` (`metadata.labels`).
pub fn labels(labels: &BTreeMap<String, String>, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        errors.extend(
            qualified_name(key).into_iter().map(|fault| FieldError::invalid(path, key.as_str(), fault)),
        );
        errors.extend(
            label_value(value).into_iter().map(|fault| FieldError::invalid(path, value.as_str(), fault)),
        );
    }
    errors
}

/// Checks the annotations at `path`. The prefix of a key may have upper-case letters, and the total size is limited.
pub fn annotations(annotations: &BTreeMap<String, String>, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in annotations.keys() {
        let faults = qualified_name(&key.to_lowercase());
        errors.extend(faults.into_iter().map(|fault| FieldError::invalid(path, key.as_str(), fault)));
    }
    if annotations.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > MAX_ANNOTATION_BYTES {
        errors.push(FieldError::too_long(path, MAX_ANNOTATION_BYTES));
    }
    errors
}

fn is_dns1123_label(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    delimited(name, alphanumeric) && name.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
}

pub fn is_dns1123_subdomain(name: &str) -> bool {
    name.split('.').all(is_dns1123_label)
}

fn is_key_part(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_alphanumeric();
    delimited(name, alphanumeric) && name.bytes().all(|byte| alphanumeric(byte) || b"-_.".contains(&byte))
}

/// Reports whether the first and the last byte are both allowed.
fn delimited(name: &str, good: impl Fn(u8) -> bool) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(|byte| good(*byte)) && bytes.last().is_some_and(|byte| good(*byte))
}

pub fn too_long(name: &str, max: usize, unit: &str) -> Vec<String> {
    match name.len() > max {
        true => vec![format!("must be no more than {max} {unit}")],
        false => Vec::new(),
    }
}

pub fn pattern(rule: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each error's beginning. An empty list expects no error.
    fn check(found: Vec<String>, expected: &[&str]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (fault, start) in found.iter().zip(expected) {
            assert!(fault.starts_with(start), "{fault} does not start with {start}");
        }
    }

    #[test]
    fn names_of_objects() {
        let long = "a".repeat(254);
        let long = long.as_str();
        let rows: &[(NameRule, &str, &[&str])] = &[
            (NameRule::Subdomain, "web", &[]),
            (NameRule::Subdomain, "a.b-c.0", &[]),
            (NameRule::Subdomain, "", &["a lowercase RFC 1123 subdomain must"]),
            (NameRule::Subdomain, "Web", &["a lowercase RFC 1123 subdomain must"]),
            (NameRule::Subdomain, "a..b", &["a lowercase RFC 1123 subdomain must"]),
            (NameRule::Subdomain, "-a", &["a lowercase RFC 1123 subdomain must"]),
            (NameRule::Subdomain, "ä", &["a lowercase RFC 1123 subdomain must"]),
            (NameRule::Subdomain, long, &["must be no more than 253 characters"]),
            (NameRule::GeneratedSubdomain, long, &["must be no more than 253 bytes"]),
            (NameRule::Label, "0-web", &[]),
            (NameRule::Label, "a.b", &["must not contain dots"]),
            (NameRule::Label, &long[..64], &["must be no more than 63 characters"]),
            (NameRule::Label1035, "a-0", &[]),
            (NameRule::Label1035, "0-a", &["a DNS-1035 label must"]),
            (NameRule::PathSegment, "system:node", &[]),
            (NameRule::PathSegment, "..", &["may not be '..'"]),
            (NameRule::PathSegment, "a/b%", &["may not contain '/'", "may not contain '%'"]),
        ];
        for (rule, name, expected) in rows {
            check(rule.check(name), expected);
        }
    }

    #[test]
    fn prefixes_of_names() {
        check(NameRule::Subdomain.check_prefix("web-"), &[]);
        check(NameRule::Subdomain.check_prefix("-"), &["a lowercase"]);
        check(NameRule::Subdomain.check_prefix("web_-"), &[]);
        check(NameRule::Subdomain.check_prefix("we_b-"), &["a lowercase"]);
        check(NameRule::Subdomain.check_prefix("ä-"), &[]);
        check(NameRule::PathSegment.check_prefix("."), &[]);
    }

    #[test]
    fn an_error_quotes_the_pattern() {
        assert_eq!(
            dns1123_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
              and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
    }

    #[test]
    fn keys_and_values_of_labels() {
        let long = "k".repeat(64);
        let rows: &[(&str, &[&str])] = &[
            ("app", &[]),
            ("app.kubernetes.io/name", &[]),
            ("a_b.C-d", &[]),
            ("", &["name part must be non-empty", "name part must consist"]),
            ("/a", &["prefix part must be non-empty"]),
            ("x/", &["name part must be non-empty", "name part must consist"]),
            ("Ex/a", &["prefix part a lowercase RFC 1123 subdomain"]),
            ("a/b/c", &["a valid label key must consist"]),
            (&long, &["name part must be no more than 63 bytes"]),
            ("a b", &["name part must consist"]),
        ];
        for (key, expected) in rows {
            check(qualified_name(key), expected);
        }
        check(label_value(""), &[]);
        check(label_value("v1.2_x-y"), &[]);
        check(label_value("-"), &["a valid label must be an empty string"]);
        check(label_value(&long), &["must be no more than 63 bytes"]);
    }

    #[test]
    fn labels_and_annotations_of_an_object() {
        let map =
            |rows: &[(&str, &str)]| rows.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let errors = labels(&map(&[("ok", "fine"), ("b d", "no no")]), "metadata.labels");
        let starts: Vec<_> = errors.iter().map(|error| error.to_string()[..36].to_owned()).collect();
        assert_eq!(
            starts,
            ["metadata.labels: Invalid value: \"b d", "metadata.labels: Invalid value: \"no "]
        );

        assert_eq!(annotations(&map(&[("Example.COM/Key", "anything\n")]), "metadata.annotations"), []);
        let big = "x".repeat(MAX_ANNOTATION_BYTES);
        let errors = annotations(&map(&[("a", &big)]), "metadata.annotations");
        assert_eq!(
            errors[0].to_string(),
            "metadata.annotations: Too long: may not be more than 262144 bytes"
        );
    }
}
