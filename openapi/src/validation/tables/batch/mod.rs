//! Validation of Jobs and CronJobs.

mod status;

use api::meta::cron::Schedule;
use serde_json::Value;

use crate::validation::common;
use crate::validation::common::domain_prefixed_path;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{MaxItems, NonNegative, OneOf};
use crate::validation::rule::Rule::{Check, Field, Into};
use crate::validation::rule::{REQUIRED, Table};
use crate::validation::value::{at as path_in, get, has, int, items, same, text};
use api::meta::names::{dns1123_label, qualified_name};

use super::workloads::{not_selected, selects_template};

pub(crate) use status::validate_job_status;

pub(super) const RULES: Table = &[
    ("batch.v1.Job", &[Check(generated_selector), Into("spec"), Check(job)]),
    (
        "batch.v1.JobSpec",
        &[
            Field("parallelism", &[NonNegative]),
            Field("completions", &[NonNegative]),
            Field("activeDeadlineSeconds", &[NonNegative]),
            Field("backoffLimit", &[NonNegative]),
            Field("ttlSecondsAfterFinished", &[NonNegative]),
            Field("backoffLimitPerIndex", &[NonNegative]),
            Field("maxFailedIndexes", &[NonNegative]),
            Check(managed_by),
            Field("completionMode", &[OneOf(&["NonIndexed", "Indexed"])]),
            Check(indexed),
            Check(policies),
            Check(replacement),
            Into("template"),
            Check(ends),
        ],
    ),
    ("batch.v1.PodFailurePolicy", &[Field("rules", &[MaxItems(20)])]),
    (
        "batch.v1.CronJobSpec",
        &[
            Field("schedule", &[REQUIRED]),
            Check(schedule),
            Field("startingDeadlineSeconds", &[NonNegative]),
            Check(time_zone),
            Field("concurrencyPolicy", &[REQUIRED, OneOf(&["Allow", "Forbid", "Replace"])]),
            Into("jobTemplate"),
            Check(job_template),
            Field("successfulJobsHistoryLimit", &[NonNegative]),
            Field("failedJobsHistoryLimit", &[NonNegative]),
        ],
    ),
    (
        "batch.v1.JobStatus",
        &[
            Field("active", &[NonNegative]),
            Field("succeeded", &[NonNegative]),
            Field("failed", &[NonNegative]),
            Field("ready", &[NonNegative]),
            Field("terminating", &[NonNegative]),
        ],
    ),
];

/// Checks the selector of a Job, which is generated from its uid unless `manualSelector` is set.
fn generated_selector(job: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (spec, metadata) = (get(job, "spec"), get(job, "metadata"));
    if get(spec, "manualSelector").as_bool() == Some(true) || !has(spec, "selector") {
        return;
    }
    let (uid, name) = (text(metadata, "uid"), text(metadata, "name"));
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let labels = path_in(spec, "template.metadata.labels");
    let labels_at = at.field("spec.template.metadata.labels");
    for (key, value) in expected {
        match get(labels, key).as_str() {
            None => found.required(&labels_at.key(key), &format!("must be '{value}'")),
            Some(found_value) if found_value == value => {}
            Some(_) => found.invalid(&labels_at.key(key), labels.clone(), format!("must be '{value}'")),
        }
    }
    let expected =
        Value::Object(expected.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect());
    if common::selects(get(spec, "selector"), &expected) == Some(false) {
        let at = at.field("spec.selector");
        found.invalid(&at, get(spec, "selector").clone(), "`selector` not auto-generated");
    }
}

/// Validates a Job itself, as opposed to the template of one.
fn job(job: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (spec, spec_at) = (get(job, "spec"), at.field("spec"));
    let selector = get(spec, "selector");
    if selector.is_null() {
        found.required(&spec_at.field("selector"), "");
    }
    common::selector(selector, &spec_at.field("selector"), found);
    if selector.is_null() || selects_template(spec, selector) == Some(false) {
        not_selected(spec, &spec_at, found);
    }
    let completions = int(spec, "completions");
    if text(spec, "completionMode") == "Indexed" && completions > 0 {
        let name = path_in(job, "metadata.name").as_str().unwrap_or_default();
        let host = format!("{name}-{}", completions - 1);
        if !dns1123_label(&host).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            found.invalid(&at.field("metadata.name"), name, detail);
        }
    }
}

const MAX_MANAGED_BY: usize = 63;

fn managed_by(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let Some(name) = get(spec, "managedBy").as_str() else { return };
    let at = at.field("managedBy");
    match name {
        "" => found.required(&at, ""),
        _ => domain_prefixed_path(name, &at, found),
    }
    if name.len() > MAX_MANAGED_BY {
        found.too_long(&at, MAX_MANAGED_BY);
    }
}

const MAX_PARALLELISM: i64 = 100_000;

fn indexed(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let failures = get(spec, "maxFailedIndexes");
    if !failures.is_null() && !has(spec, "backoffLimitPerIndex") {
        found.required(&at.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    match text(spec, "completionMode") {
        "Indexed" => {
            if !has(spec, "completions") {
                found.required(&at.field("completions"), "when completion mode is Indexed");
            }
            let parallelism = int(spec, "parallelism");
            if parallelism > MAX_PARALLELISM {
                let detail = format!(
                    "must be less than or equal to {MAX_PARALLELISM} when completion mode is Indexed"
                );
                found.invalid(&at.field("parallelism"), parallelism, detail);
            }
            if has(spec, "completions") && int(spec, "maxFailedIndexes") > int(spec, "completions") {
                let detail = "must be less than or equal to completions";
                found.invalid(&at.field("maxFailedIndexes"), failures.clone(), detail);
            }
        }
        "NonIndexed" | "" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if has(spec, field) {
                    found.invalid(
                        &at.field(field),
                        get(spec, field).clone(),
                        "requires indexed completion mode",
                    );
                }
            }
            if has(spec, "successPolicy") {
                let policy = get(spec, "successPolicy").clone();
                found.invalid(&at.field("successPolicy"), policy, "requires indexed completion mode");
            }
        }
        _ => {}
    }
}

/// Validates the pod failure policy and the success policy.
fn policies(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let rules = items(get(spec, "podFailurePolicy"), "rules");
    let rules_at = at.field("podFailurePolicy.rules");
    let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
    for (index, rule) in rules.iter().enumerate() {
        let item = rules_at.index(index);
        let (action, action_at) = (text(rule, "action"), item.field("action"));
        match action {
            "" => {
                found.required(&action_at, "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]")
            }
            "FailIndex" if !has(spec, "backoffLimitPerIndex") => {
                found.invalid(&action_at, action, "requires the backoffLimitPerIndex to be set");
            }
            _ if actions.contains(&action) => {}
            _ => found.not_supported(&action_at, action, &actions),
        }
        let (codes, conditions) = (get(rule, "onExitCodes"), items(rule, "onPodConditions"));
        if !codes.is_null() {
            exit_codes(spec, codes, &item.field("onExitCodes"), found);
        }
        pod_conditions(conditions, &item.field("onPodConditions"), found);
        if !codes.is_null() && !conditions.is_empty() {
            let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
            found.invalid_unshown(&item, detail);
        }
        if codes.is_null() && conditions.is_empty() {
            let detail = "specifying one of OnExitCodes and OnPodConditions is required";
            found.invalid_unshown(&item, detail);
        }
    }
}

const MAX_EXIT_CODES: usize = 255;

fn exit_codes(spec: &Value, codes: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let operator = text(codes, "operator");
    match operator {
        "" => found.required(&at.field("operator"), "valid values: [\"In\" \"NotIn\"]"),
        "In" | "NotIn" => {}
        _ => found.not_supported(&at.field("operator"), operator, &["In", "NotIn"]),
    }
    if let Some(name) = get(codes, "containerName").as_str() {
        let pod = path_in(spec, "template.spec");
        let mut containers = items(pod, "containers").iter().chain(items(pod, "initContainers"));
        if !containers.any(|container| text(container, "name") == name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            found.invalid(&at.field("containerName"), name, detail);
        }
    }
    let (values, values_at) = (items(codes, "values"), at.field("values"));
    if values.is_empty() {
        found.invalid(&values_at, get(codes, "values").clone(), "at least one value is required");
    } else if values.len() > MAX_EXIT_CODES {
        found.too_many(&values_at, values.len(), MAX_EXIT_CODES);
    }
    for (index, value) in values.iter().enumerate() {
        if operator == "In" && value.as_i64() == Some(0) {
            found.invalid(&values_at.index(index), 0, "must not be 0 for the In operator");
        }
        if values[..index].contains(value) {
            found.duplicate(&values_at.index(index), value.clone());
        }
    }
    if !values.is_sorted_by_key(|value| value.as_i64()) {
        found.invalid(&values_at, values.to_vec(), "must be ordered");
    }
}

const MAX_CONDITIONS: usize = 20;

fn pod_conditions(conditions: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    if conditions.len() > MAX_CONDITIONS {
        found.too_many(at, conditions.len(), MAX_CONDITIONS);
    }
    for (index, condition) in conditions.iter().enumerate() {
        let item = at.index(index);
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        found.faults(&item.field("type"), kind, qualified_name(kind));
        let statuses = ["False", "True", "Unknown"];
        match status {
            "" => found.required(&item.field("status"), "valid values: [\"False\" \"True\" \"Unknown\"]"),
            _ if statuses.contains(&status) => {}
            _ => found.not_supported(&item.field("status"), status, &statuses),
        }
    }
}

fn replacement(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (policy, at) = (text(spec, "podReplacementPolicy"), at.field("podReplacementPolicy"));
    let allowed: &[&str] =
        if has(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !policy.is_empty() && !allowed.contains(&policy) {
        found.not_supported(&at, policy, allowed);
    }
}

/// Checks that the pods of a Job are not always restarted.
fn ends(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let policy = path_in(spec, "template.spec.restartPolicy").as_str().unwrap_or_default();
    let at = at.field("template.spec.restartPolicy");
    match policy {
        "Always" | "" => found.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if has(spec, "podFailurePolicy") => {
            found.invalid(&at, policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => found.not_supported(&at, policy, &["OnFailure", "Never"]),
    }
}

fn schedule(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (schedule, at) = (text(spec, "schedule"), at.field("schedule"));
    if schedule.is_empty() {
        return;
    }
    if let Err(error) = Schedule::parse(schedule) {
        found.invalid(&at, schedule, error.to_string());
    }
    if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        found.invalid(&at, schedule, detail);
    }
}

fn time_zone(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let Some(zone) = get(spec, "timeZone").as_str() else { return };
    let at = at.field("timeZone");
    if zone.is_empty() {
        return found.invalid(&at, zone, "timeZone must be nil or non-empty string");
    }
    let is_valid = |segment: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
        (1..=14).contains(&segment.len())
            && segment.bytes().all(is_allowed)
            && !segment.starts_with('-')
            && segment != "."
            && segment != ".."
    };
    if !zone.split('/').all(is_valid) {
        return found.invalid(&at, zone, format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        found.invalid(&at, zone, detail);
    } else if jiff::tz::db().get(zone).is_err() {
        found.invalid(&at, zone, format!("unknown time zone {zone}"));
    }
}

/// Checks that a Job template has no selector, because it is generated for each Job.
fn job_template(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (job, at) = (path_in(spec, "jobTemplate.spec"), at.field("jobTemplate.spec"));
    if has(job, "selector") {
        let selector = get(job, "selector").clone();
        found.invalid(&at.field("selector"), selector, "`selector` will be auto-generated");
    }
    if get(job, "manualSelector").as_bool() == Some(true) {
        found.not_supported(&at.field("manualSelector"), true, &["nil", "false"]);
    }
}

const MAX_CRON_NAME: usize = 52;

/// Checks the length of a CronJob's name, from which the names of its Jobs are made.
pub(crate) fn validate_create_cron(object: &Value, found: &mut FieldErrors) {
    let name = path_in(object, "metadata.name").as_str().unwrap_or_default();
    if name.len() > MAX_CRON_NAME {
        let detail = format!("must be no more than {MAX_CRON_NAME} characters");
        found.invalid(&FieldPath::TOP.field("metadata.name"), name, detail);
    }
}

/// Fields of a Job's pod template that may change while the Job is suspended.
const TEMPLATE_MUTABLE: [&str; 3] = ["nodeSelector", "tolerations", "schedulingGates"];

/// Checks that only the mutable fields of a Job change, such as its parallelism.
pub(crate) fn validate_update_job(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (old, new, at) = (get(old, "spec"), get(new, "spec"), FieldPath::TOP.field("spec"));
    let mut fixed = |field: &str, old: &Value, new: &Value| {
        if !same(old, new) {
            found.invalid(&at.field(field), new.clone(), common::IMMUTABLE);
        }
    };
    let is_indexed = text(new, "completionMode") == "Indexed";
    let completions = get(new, "completions");
    if !is_indexed {
        fixed("completions", get(old, "completions"), completions);
    }
    fixed("selector", get(old, "selector"), get(new, "selector"));
    let suspended = get(old, "suspend").as_bool() == Some(true);
    let template = get(new, "template");
    match suspended {
        false => fixed("template", get(old, "template"), template),
        true => fixed("template", &rescheduled(get(old, "template"), template), template),
    }
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        fixed(field, get(old, field), get(new, field));
    }
    let changed = !same(get(old, "completions"), completions) && !completions.is_null();
    if is_indexed && changed && completions != get(new, "parallelism") {
        let detail = "can only be modified in tandem with spec.parallelism";
        found.invalid(&at.field("completions"), completions.clone(), detail);
    }
}

/// Returns the old template with the mutable fields of the new one.
fn rescheduled(old: &Value, new: &Value) -> Value {
    let mut template = old.clone();
    let take = |into: &mut Value, from: &Value, field: &str| {
        if let Some(fields) = into.as_object_mut() {
            match get(from, field) {
                Value::Null => drop(fields.remove(field)),
                value => drop(fields.insert(field.to_owned(), value.clone())),
            }
        }
    };
    take(&mut template, new, "metadata");
    let from = get(new, "spec");
    if let Some(spec) = template.get_mut("spec") {
        for field in TEMPLATE_MUTABLE {
            take(spec, from, field);
        }
        for list in ["containers", "initContainers"] {
            let into = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            for (into, from) in into.zip(items(from, list)) {
                take(into, from, "resources");
            }
        }
        let mut affinity = get(spec, "affinity").clone();
        if affinity.is_null() {
            affinity = Value::Object(serde_json::Map::new());
        }
        take(&mut affinity, get(from, "affinity"), "nodeAffinity");
        if let Some(fields) = spec.as_object_mut() {
            fields.insert("affinity".to_owned(), affinity);
        }
    }
    template
}
