//! Validation of CertificateSigningRequests, their approval and their certificates.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::Rule::Check;
use crate::validation::rule::Table;
use crate::validation::value::{get, items, same, text};
use api::meta::go;

pub(super) const RULES: Table = &[("certificates.v1.CertificateSigningRequestSpec", &[Check(certificate)])];

/// Conditions that can only be true and cannot be removed.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];
/// Of these, the conditions that only an approver sets.
const JUDGEMENTS: [&str; 2] = ["Approved", "Denied"];
const CERTIFICATE: &str = "status.certificate";

/// Validates a write to `approval`: it sets conditions, but no certificate.
pub(crate) fn validate_approval(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (old, new) = (get(old, "status"), get(new, "status"));
    conditions(old, new, found);
    if text(old, "certificate") != text(new, "certificate") {
        found.forbidden(&FieldPath::TOP.field(CERTIFICATE), "updates may not set certificate content");
    }
}

/// Validates a write to `status`: it sets the certificate once, but does not approve.
pub(crate) fn validate_status(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (old, new) = (get(old, "status"), get(new, "status"));
    let (before, after) = (text(old, "certificate"), text(new, "certificate"));
    conditions(old, new, found);
    if before != after && is_certificate(before).is_ok() {
        let placeholder = "<certificate data>";
        let error = is_certificate(after).err();
        error.into_iter().for_each(|why| found.invalid(&FieldPath::TOP.field(CERTIFICATE), placeholder, why));
    }
    let at = FieldPath::TOP.field("status.conditions");
    for kind in JUDGEMENTS {
        let (before, after) = (of_kind(old, kind), of_kind(new, kind));
        if after.len() > before.len() {
            found.forbidden(&at, format!("updates may not add a condition of type {kind:?}"));
        } else if after.len() == before.len()
            && !after.iter().zip(&before).all(|(one, other)| same(one, other))
        {
            found.forbidden(&at, format!("updates may not modify a condition of type {kind:?}\n"));
        }
    }
    if before != after && !before.is_empty() {
        found.forbidden(
            &FieldPath::TOP.field(CERTIFICATE),
            "updates may not modify existing certificate content",
        );
    }
}

fn of_kind<'v>(status: &'v Value, kind: &str) -> Vec<&'v Value> {
    items(status, "conditions").iter().filter(|condition| text(condition, "type") == kind).collect()
}

/// Checks that each condition type occurs once and has a status. Errors of the old object may stay.
fn conditions(old: &Value, new: &Value, found: &mut FieldErrors) {
    let at = FieldPath::TOP.field("status.conditions");
    let old_conditions = items(old, "conditions");
    let may_be_nameless = old_conditions.iter().any(|condition| text(condition, "type").is_empty());
    let may_repeat = repeats(old_conditions);
    let may_be_both = JUDGEMENTS.iter().all(|kind| !of_kind(old, kind).is_empty());
    let mut seen = HashSet::new();
    for (index, condition) in items(new, "conditions").iter().enumerate() {
        let (item, kind, status) = (at.index(index), text(condition, "type"), text(condition, "status"));
        if kind.is_empty() && !may_be_nameless {
            found.required(&item.field("type"), "");
        }
        let allowed: &[&str] =
            if LASTING.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        match status {
            "" => found.required(&item.field("status"), ""),
            status if !allowed.contains(&status) => {
                found.not_supported(&item.field("status"), status, allowed)
            }
            _ => {}
        }
        let other = JUDGEMENTS.iter().find(|other| JUDGEMENTS.contains(&kind) && **other != kind);
        if !may_be_both && other.is_some_and(|other| seen.contains(other)) {
            found.invalid(&at, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if !seen.insert(kind) && !may_repeat {
            found.duplicate(&item.field("type"), kind);
        }
    }
    for kind in LASTING {
        if of_kind(new, kind).len() < of_kind(old, kind).len() {
            found.forbidden(&at, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
}

fn repeats(conditions: &[Value]) -> bool {
    let mut seen = HashSet::new();
    !conditions.iter().all(|condition| seen.insert(text(condition, "type")))
}

/// Checks that a text is base64 of PEM with nothing but certificates. An empty text is valid.
fn is_certificate(base64: &str) -> Result<(), String> {
    let pem = STANDARD.decode(base64).unwrap_or_default();
    let pem = String::from_utf8_lossy(&pem);
    let mut blocks = 0;
    let mut lines = pem.lines().map(str::trim_end);
    while let Some(label) = lines.find_map(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")) {
        if label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {}", go::quote(label)));
        }
        let inside: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("-----END ")).collect();
        if inside.iter().any(|line| line.contains(':')) {
            return Err("no PEM block headers are permitted".to_owned());
        }
        let der = STANDARD.decode(inside.concat()).unwrap_or_default();
        if !is_sequence(&der) {
            return Err("x509: malformed certificate".to_owned());
        }
        blocks += 1;
    }
    match blocks == 0 && !base64.is_empty() {
        true => Err("must contain at least one CERTIFICATE PEM block".to_owned()),
        false => Ok(()),
    }
}

/// Reports whether bytes are one DER sequence. Its content is not parsed.
fn is_sequence(der: &[u8]) -> bool {
    let [0x30, first, rest @ ..] = der else { return false };
    let (length, inside) = match usize::from(*first) {
        short if short < 0x80 => (short, rest),
        long if (0x81..=0x84).contains(&long) && rest.len() >= long - 0x80 => {
            let (length, inside) = rest.split_at(long - 0x80);
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), inside)
        }
        _ => return false,
    };
    inside.len() == length
}

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn certificate(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let request = text(spec, "request");
    if !is_request(request) {
        found.invalid(&at.field("request"), request, "PEM block type must be CERTIFICATE REQUEST");
    }
    let usages = items(spec, "usages");
    if usages.is_empty() {
        found.required(&at.field("usages"), "");
    }
    for (index, usage) in usages.iter().enumerate() {
        let list = at.field("usages");
        let name = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&name) {
            found.not_supported(&list.index(index), name, USAGES);
        }
        if usages[..index].contains(usage) {
            found.duplicate(&list.index(index), name);
        }
    }
    signer(text(spec, "signerName"), &at.field("signerName"), found);
    let seconds = get(spec, "expirationSeconds");
    if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        found.invalid(&at.field("expirationSeconds"), seconds.clone(), detail);
    }
}

/// Reports whether the first PEM block is a certificate request. The signer parses its content.
fn is_request(base64: &str) -> bool {
    let pem = STANDARD.decode(base64).unwrap_or_default();
    let pem = String::from_utf8_lossy(&pem);
    let label = |line: &str, mark: &str| -> Option<String> {
        Some(line.trim_end().strip_prefix(mark)?.strip_suffix("-----")?.to_owned())
    };
    let mut lines = pem.lines();
    let begun = lines.find_map(|line| label(line, "-----BEGIN "));
    let ended = lines.find_map(|line| label(line, "-----END "));
    begun.as_deref() == Some("CERTIFICATE REQUEST") && begun == ended
}

/// Checks `example.com/signer`.
fn signer(name: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if name.is_empty() {
        return found.required(at, "");
    }
    let segments: Vec<_> = name.split('/').collect();
    match segments.as_slice() {
        [domain, path] => {
            if domain.len() > 253 {
                found.too_long(at, 253);
            }
            let faults = api::meta::names::dns1123_subdomain(domain);
            if !faults.is_empty() {
                found.invalid(at, *domain, faults.join(","));
            } else if domain.split('.').count() < 2 {
                let detail = "should be a domain with at least two segments separated by dots";
                found.invalid(at, *domain, detail);
            }
            if path.is_empty() {
                let detail = "validating label \"\": a lowercase RFC 1123 subdomain must consist of lower case \
                              alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
                found.invalid(at, "", detail);
            }
        }
        _ => {
            let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            found.invalid(at, name, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_signed_certificate_must_be_pem_of_certificates() {
        let validate = |pem: &str, expected: Result<(), &str>| {
            assert_eq!(is_certificate(&STANDARD.encode(pem)), expected.map_err(str::to_owned), "{pem}");
        };
        let block =
            |label: &str, inside: &str| format!("-----BEGIN {label}-----\n{inside}\n-----END {label}-----\n");
        let der = STANDARD.encode([0x30, 0x03, 0x02, 0x01, 0x05]);
        validate("", Ok(()));
        validate(&block("CERTIFICATE", &der), Ok(()));
        validate("x", Err("must contain at least one CERTIFICATE PEM block"));
        validate(
            &block("PRIVATE KEY", &der),
            Err("only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\""),
        );
        validate(&block("CERTIFICATE", "AAAA"), Err("x509: malformed certificate"));
        // A length beyond the end, and lengths of more bytes than there are.
        for odd in
            [&[0x30, 0x05, 0x02][..], &[0x30, 0x84, 0xff][..], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff][..]]
        {
            validate(&block("CERTIFICATE", &STANDARD.encode(odd)), Err("x509: malformed certificate"));
        }
    }

    /// Regression: a signer could approve a request by writing its status.
    #[test]
    fn a_signer_does_not_approve() {
        let with = |conditions: Value| json!({ "status": { "conditions": conditions } });
        let approved = json!([{ "type": "Approved", "status": "True" }]);
        let errors =
            |validate: fn(&Value, &Value, &mut FieldErrors), old: Value, new: Value| -> Vec<String> {
                let mut found = FieldErrors::default();
                validate(&with(old), &with(new), &mut found);
                found.errors.iter().map(|error| error.body()).collect()
            };
        assert_eq!(errors(validate_approval, json!([]), approved.clone()), [""; 0]);
        let added = ["Forbidden: updates may not add a condition of type \"Approved\""];
        assert_eq!(errors(validate_status, json!([]), approved.clone()), added);
        let removed = ["Forbidden: updates may not remove a condition of type \"Approved\""];
        assert_eq!(errors(validate_approval, approved.clone(), json!([])), removed);
        assert_eq!(errors(validate_status, approved, json!([])), removed);
    }
}
