//! Validation of ConfigMaps and Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::codec::{Syntax, decode};
use crate::validation::common::config_key;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::Rule::Check;
use crate::validation::rule::Table;
use crate::validation::value::{at as path_in, entries, get, has, same, text};

/// Maximum size of all values together.
const MAX_BYTES: usize = 1024 * 1024;

pub(super) const RULES: Table =
    &[("core.v1.ConfigMap", &[Check(config_map)]), ("core.v1.Secret", &[Check(secret)])];

fn config_map(map: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let mut bytes = 0;
    for (key, value) in entries(map, "data") {
        let list = at.field("data");
        found.faults(&list.key(key), key, config_key(key));
        if has(get(map, "binaryData"), key) {
            found.invalid(&list.key(key), key.as_str(), "duplicate of key present in binaryData");
        }
        bytes += value.as_str().map(str::len).unwrap_or_default();
    }
    for (key, value) in entries(map, "binaryData") {
        found.faults(&at.field("binaryData").key(key), key, config_key(key));
        bytes += decoded_bytes(value);
    }
    if bytes > MAX_BYTES {
        // Kubernetes uses this path for the whole object.
        found.too_long(&at.field("[]"), MAX_BYTES);
    }
}

/// Returns the length of the bytes that a base64 text encodes.
fn decoded_bytes(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default().as_bytes();
    let digits = text.iter().filter(|byte| !matches!(byte, b'=' | b'\r' | b'\n')).count();
    digits * 3 / 4
}

/// Keys that a Secret of a type must have.
const KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

const ACCOUNT: &str = "kubernetes.io/service-account.name";

fn secret(secret: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (data, list) = (get(secret, "data"), at.field("data"));
    let mut bytes = 0;
    for (key, value) in entries(secret, "data") {
        found.faults(&list.key(key), key, config_key(key));
        bytes += decoded_bytes(value);
    }
    if bytes > MAX_BYTES {
        found.too_long(&list, MAX_BYTES);
    }
    let kind = text(secret, "type");
    for key in KEYS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, keys)| *keys) {
        if data.get(key).is_none() {
            found.required(&list.key(key), "");
        } else if kind.contains("docker")
            && let Some(fault) = json_fault(get(data, key))
        {
            found.invalid(&list.key(key), "<secret contents redacted>", fault);
        }
    }
    match kind {
        "kubernetes.io/service-account-token" => {
            let annotations = path_in(secret, "metadata.annotations");
            if text(annotations, ACCOUNT).is_empty() {
                found.required(&at.field("metadata.annotations").key(ACCOUNT), "");
            }
        }
        "kubernetes.io/basic-auth" => {
            let keys = ["username", "password"];
            if keys.iter().all(|key| data.get(key).is_none()) {
                keys.iter().for_each(|key| found.required(&list.key(key), ""));
            }
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            found.required(&list.key("ssh-privatekey"), "");
        }
        _ => {}
    }
}

/// Returns why a value is not a JSON object, in Go's words.
fn json_fault(value: &Value) -> Option<String> {
    let text = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    let kind = match decode(&text, Syntax::Json) {
        Err(error) => return Some(error.to_string()),
        Ok(decoded) => match decoded.value {
            Value::Object(_) | Value::Null => return None,
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
        },
    };
    Some(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
}

const SEALED: &str = "field is immutable when `immutable` is set";

/// Checks that an immutable ConfigMap or Secret stays immutable and unchanged.
pub(crate) fn validate_update(old: &Value, new: &Value, found: &mut FieldErrors) {
    if get(old, "immutable").as_bool() != Some(true) {
        return;
    }
    if get(new, "immutable").as_bool() != Some(true) {
        found.forbidden(&FieldPath::TOP.field("immutable"), SEALED);
    }
    for field in ["data", "binaryData"] {
        if !same(get(old, field), get(new, field)) {
            found.forbidden(&FieldPath::TOP.field(field), SEALED);
        }
    }
}
