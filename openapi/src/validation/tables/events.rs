//! Validation of Events.
//!
//! Events are served in two API groups whose fields have different names. Kubernetes reports errors with the names of
//! core Events, except for the reporter. An event with an `eventTime` is of the newer form and has more required
//! fields. An event written through `events.k8s.io` must be of the newer form, without values in the deprecated fields.

use serde_json::Value;

use crate::validation::common::IMMUTABLE;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::Rule::Check;
use crate::validation::rule::Table;
use crate::validation::value::{at as path_in, get, has, int, is_empty, same, text};
use api::meta::names::qualified_name;

pub(super) const RULES: Table = &[
    ("core.v1.Event", &[Check(|event, at, found| validate(event, &CORE, at, found))]),
    ("events.v1.Event", &[Check(|event, at, found| validate(event, &EVENTS, at, found))]),
];

/// The names of the fields that differ between the API groups.
struct Names {
    about: &'static str,
    message: &'static str,
    reporter: &'static str,
}

const CORE: Names = Names { about: "involvedObject", message: "message", reporter: "reportingComponent" };
const EVENTS: Names = Names { about: "regarding", message: "note", reporter: "reportingController" };

fn validate(event: &Value, names: &Names, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let namespace = path_in(event, "metadata.namespace").as_str().unwrap_or_default();
    let about = text(get(event, names.about), "namespace");
    let is_new = has(event, "eventTime");
    let agrees = match about {
        // The event is about a cluster-scoped object.
        "" => namespace == "default" || (is_new && namespace == "kube-system"),
        _ => is_new || namespace == about,
    };
    if !agrees {
        found.invalid(&at.field("involvedObject.namespace"), about, "does not match event.namespace");
    }
    if is_new {
        validate_new(event, names, at, found);
    }
}

fn validate_new(event: &Value, names: &Names, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (reporter, reporter_at) = (text(event, names.reporter), at.field(names.reporter));
    if reporter.is_empty() {
        found.required(&reporter_at, "");
    }
    found.faults(&reporter_at, reporter, qualified_name(reporter));
    for field in ["reportingInstance", "action", "reason"] {
        if text(event, field).is_empty() {
            found.required(&at.field(field), "");
        }
        at_most(128, text(event, field), &at.field(field), found);
    }
    at_most(1024, text(event, names.message), &at.field("message"), found);
}

/// Checks the length of a text, without repeating the text.
fn at_most(bytes: usize, text: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if text.len() > bytes {
        found.invalid(at, "", format!("can have at most {bytes} characters"));
    }
}

/// Validates a new event of `events.k8s.io`.
pub(crate) fn validate_create(event: &Value, found: &mut FieldErrors) {
    let top = FieldPath::TOP;
    validate_series(event, found);
    if !has(event, "eventTime") {
        found.required(&top.field("eventTime"), "");
    }
    let kind = text(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        found.invalid(&top.field("type"), "", format!("has invalid value: {kind}"));
    }
    for (field, reported_field) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ] {
        if !is_empty(get(event, field)) {
            found.invalid(&top.field(reported_field), "", "needs to be unset");
        }
    }
}

fn validate_series(event: &Value, found: &mut FieldErrors) {
    let series = get(event, "series");
    if series.is_null() {
        return;
    }
    if int(series, "count") < 2 {
        found.invalid(&FieldPath::TOP.field("series.count"), "", "should be at least 2");
    }
    if !has(series, "lastObservedTime") {
        found.required(&FieldPath::TOP.field("series.lastObservedTime"), "");
    }
}

/// Checks that only the series of an event of `events.k8s.io` changes.
pub(crate) fn validate_update(old: &Value, new: &Value, found: &mut FieldErrors) {
    if !same(get(old, "series"), get(new, "series")) {
        validate_series(new, found);
    }
    for (field, reported_field) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let (before, after) = (get(old, field), get(new, field));
        if !same(before, after) {
            found.invalid(&FieldPath::TOP.field(reported_field), after.clone(), IMMUTABLE);
        }
    }
}
