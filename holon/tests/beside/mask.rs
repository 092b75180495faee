//! What no two servers say alike, made alike: uids, versions, times, names and addresses they chose.

use serde_json::Value;

/// Fields a server fills in from what it has, not from what it was sent. An explicit `None` is the user's.
const ALLOCATED: &[&str] =
    &["clusterIP", "nodePort", "healthCheckNodePort", "uid", "resourceVersion", "continue", "serverAddress"];
const TIMES: &[&str] = &[
    "creationTimestamp",
    "deletionTimestamp",
    "lastPhaseTransitionTime",
    "lastTransitionTime",
    "lastUpdateTime",
];

pub(crate) fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(managers)) = fields.get_mut("managedFields") {
                mask_managers(managers);
            }
            // A controller inside kube-apiserver writes this status, sooner or later.
            if fields.get("kind").is_some_and(|kind| kind == "FlowSchema") {
                fields.remove("status");
                let entries =
                    fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields"));
                if let Some(Value::Array(entries)) = entries {
                    entries.retain(|entry| entry.get("subresource").is_none());
                }
            }
            if let Some(prefix) = fields.get("generateName").cloned()
                && let Some(name) = fields.get_mut("name")
            {
                *name = prefix;
            }
            // kube-apiserver looks at metadata twice on its way to an update, and then says twice what is wrong.
            if let Some(Value::Array(causes)) = fields.get_mut("causes") {
                // Conflicts are told in the order of a Go map.
                if causes.iter().all(|cause| cause["reason"] == "FieldManagerConflict") {
                    causes.sort_by_key(Value::to_string);
                }
                let mut seen = Vec::new();
                causes.retain(|cause| {
                    !seen.contains(cause) && {
                        seen.push(cause.clone());
                        true
                    }
                });
            }
            for (key, value) in fields.iter_mut() {
                let chosen = ALLOCATED.contains(&key.as_str()) || TIMES.contains(&key.as_str());
                let said = !value.is_null() && *value != "None" && *value != "" && *value != "0";
                match value {
                    Value::Array(addresses) if key == "clusterIPs" => {
                        addresses.iter_mut().filter(|address| **address != "None").for_each(|address| {
                            *address = "clusterIPs".into();
                        });
                    }
                    Value::Array(cells) if key == "cells" => cells.iter_mut().for_each(mask_age),
                    Value::String(text) if key == "message" => {
                        mask_text(text);
                        mask_times(text);
                    }
                    _ if chosen && said => *value = key.as_str().into(),
                    _ => mask(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) => mask_text(text),
        _ => {}
    }
}

/// A table says how old an object is, and that differs while one looks.
fn mask_age(cell: &mut Value) {
    let seconds = cell.as_str().and_then(|text| text.strip_suffix('s'));
    if seconds.is_some_and(|seconds| seconds.parse::<u32>().is_ok()) {
        *cell = "age".into();
    }
}

/// Who owns which fields. They are sorted by when they last did something, and one server's second may have ended when
/// the other's had not.
fn mask_managers(managers: &mut [Value]) {
    for manager in managers.iter_mut() {
        if manager["time"].is_string() {
            manager["time"] = "time".into();
        }
    }
    managers.sort_by_key(Value::to_string);
}

/// When somebody last did something, inside of messages.
fn mask_times(text: &mut String) {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00Z";
    let is_time = |piece: &[u8]| {
        piece.iter().zip(SHAPE).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            _ => byte == shape,
        })
    };
    while let Some(at) = text.as_bytes().windows(SHAPE.len()).position(is_time) {
        text.replace_range(at..at + SHAPE.len(), "time");
    }
}

/// Uids inside of messages.
fn mask_text(text: &mut String) {
    const LENGTH: usize = 36;
    let is_uid = |piece: &[u8]| {
        piece.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    while let Some(at) = text.as_bytes().windows(LENGTH).position(is_uid) {
        text.replace_range(at..at + LENGTH, "uid");
    }
}
