//! Replaces values that differ between any two servers: uids, versions, times, and the names and addresses that a
//! server chose.

use serde_json::Value;

/// Fields that a server sets from its own state, not from the request. An explicit `None` is the user's and stays.
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
            // A controller inside kube-apiserver writes this status at an unpredictable time.
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
            // kube-apiserver validates metadata twice during an update, and then reports each cause twice.
            if let Some(Value::Array(causes)) = fields.get_mut("causes") {
                // The order of conflicts is that of a Go map: random.
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
                let is_masked = ALLOCATED.contains(&key.as_str()) || TIMES.contains(&key.as_str());
                let is_set = !value.is_null() && *value != "None" && *value != "" && *value != "0";
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
                    _ if is_masked && is_set => *value = key.as_str().into(),
                    _ => mask(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) => mask_text(text),
        _ => {}
    }
}

/// Masks the age in a table cell, which changes between two reads.
fn mask_age(cell: &mut Value) {
    let seconds = cell.as_str().and_then(|text| text.strip_suffix('s'));
    if seconds.is_some_and(|seconds| seconds.parse::<u32>().is_ok()) {
        *cell = "age".into();
    }
}

/// Masks and sorts the field managers. Servers sort them by the second of their last write, and a second may end on one
/// server before it ends on the other.
fn mask_managers(managers: &mut [Value]) {
    for manager in managers.iter_mut() {
        if manager["time"].is_string() {
            manager["time"] = "time".into();
        }
    }
    managers.sort_by_key(Value::to_string);
}

/// Masks times inside of messages.
fn mask_times(text: &mut String) {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00Z";
    let is_time = |window: &[u8]| {
        window.iter().zip(SHAPE).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            _ => byte == shape,
        })
    };
    while let Some(position) = text.as_bytes().windows(SHAPE.len()).position(is_time) {
        text.replace_range(position..position + SHAPE.len(), "time");
    }
}

/// Masks uids inside of messages.
fn mask_text(text: &mut String) {
    const LENGTH: usize = 36;
    let is_uid = |window: &[u8]| {
        window.iter().enumerate().all(|(position, byte)| match position {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    while let Some(position) = text.as_bytes().windows(LENGTH).position(is_uid) {
        text.replace_range(position..position + LENGTH, "uid");
    }
}
