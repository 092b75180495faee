//! Columns of pods and of the kinds that create pods.

mod pods;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::CellSource::*;
use super::{Columns, is_being_deleted, is_true};
use crate::catalog::printer::{duration, items, seconds_between, text, time};

const NAMES: &str = "/spec/template/spec/containers";

pub(super) const COLUMNS: &[Columns] = &[
    (
        "pods",
        &[
            ("Ready", Made(pods::ready)),
            ("Status", Made(pods::status)),
            ("Restarts", Made(pods::restarts)),
            ("IP", Text("/status/podIPs/0/ip", "<none>")),
            ("Node", Text("/spec/nodeName", "<none>")),
            ("Nominated Node", Text("/status/nominatedNodeName", "<none>")),
            ("Readiness Gates", Made(pods::readiness_gates)),
        ],
    ),
    (
        "podtemplates",
        &[
            ("Containers", JoinEach("/template/spec/containers", "/name", "")),
            ("Images", JoinEach("/template/spec/containers", "/image", "")),
            ("Pod Labels", Labels("/template/metadata/labels")),
        ],
    ),
    (
        "replicationcontrollers",
        &[
            ("Desired", Integer("/spec/replicas")),
            ("Current", Integer("/status/replicas")),
            ("Ready", Integer("/status/readyReplicas")),
            ("Containers", JoinEach(NAMES, "/name", "")),
            ("Images", JoinEach(NAMES, "/image", "")),
            ("Selector", Labels("/spec/selector")),
        ],
    ),
    (
        "replicasets.apps",
        &[
            ("Desired", Integer("/spec/replicas")),
            ("Current", Integer("/status/replicas")),
            ("Ready", Integer("/status/readyReplicas")),
            ("Containers", JoinEach(NAMES, "/name", "")),
            ("Images", JoinEach(NAMES, "/image", "")),
            ("Selector", Selector("/spec/selector")),
        ],
    ),
    (
        "deployments.apps",
        &[
            ("Ready", Ratio("/status/readyReplicas", "/spec/replicas")),
            ("Up-to-date", Integer("/status/updatedReplicas")),
            ("Available", Integer("/status/availableReplicas")),
            ("Containers", JoinEach(NAMES, "/name", "")),
            ("Images", JoinEach(NAMES, "/image", "")),
            ("Selector", Selector("/spec/selector")),
        ],
    ),
    (
        "statefulsets.apps",
        &[
            ("Ready", Ratio("/status/readyReplicas", "/spec/replicas")),
            ("Containers", JoinEach(NAMES, "/name", "")),
            ("Images", JoinEach(NAMES, "/image", "")),
        ],
    ),
    (
        "daemonsets.apps",
        &[
            ("Desired", Integer("/status/desiredNumberScheduled")),
            ("Current", Integer("/status/currentNumberScheduled")),
            ("Ready", Integer("/status/numberReady")),
            ("Up-to-date", Integer("/status/updatedNumberScheduled")),
            ("Available", Integer("/status/numberAvailable")),
            ("Node Selector", Labels("/spec/template/spec/nodeSelector")),
            ("Containers", JoinEach(NAMES, "/name", "")),
            ("Images", JoinEach(NAMES, "/image", "")),
            ("Selector", Selector("/spec/selector")),
        ],
    ),
    ("controllerrevisions.apps", &[("Controller", Made(controller)), ("Revision", Integer("/revision"))]),
    (
        "jobs.batch",
        &[
            ("Status", Made(job_status)),
            ("Completions", Made(job_completions)),
            ("Duration", Made(job_duration)),
            ("Containers", JoinEach(NAMES, "/name", "")),
            ("Images", JoinEach(NAMES, "/image", "")),
            ("Selector", Selector("/spec/selector")),
        ],
    ),
    (
        "cronjobs.batch",
        &[
            ("Schedule", Text("/spec/schedule", "")),
            ("Timezone", Text("/spec/timeZone", "<none>")),
            ("Suspend", Made(is_suspended)),
            ("Active", Count("/status/active")),
            ("Last Schedule", Made(last_schedule)),
            ("Containers", JoinEach("/spec/jobTemplate/spec/template/spec/containers", "/name", "")),
            ("Images", JoinEach("/spec/jobTemplate/spec/template/spec/containers", "/image", "")),
            ("Selector", Selector("/spec/jobTemplate/spec/selector")),
        ],
    ),
    (
        "horizontalpodautoscalers.autoscaling",
        &[
            ("Reference", Made(scale_target)),
            ("Targets", Made(super::policies::autoscaler_targets)),
            ("MinPods", Text("/spec/minReplicas", "<unset>")),
            ("MaxPods", Integer("/spec/maxReplicas")),
            ("Replicas", Integer("/status/currentReplicas")),
        ],
    ),
];

/// Returns the controller owner, as `statefulset.apps/web`.
fn controller(object: &Value, _: Timestamp) -> Value {
    let Some(owner) = items(object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true)
    else {
        return json!("<none>");
    };
    let kind = text(owner, "/kind").to_lowercase();
    let api_version = text(owner, "/apiVersion");
    let group = api_version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    format!("{kind}{group}/{}", text(owner, "/name")).into()
}

fn job_status(job: &Value, _: Timestamp) -> Value {
    let is = |kind: &str| is_true(job, "/status/conditions", kind);
    let status = match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if is_being_deleted(job) => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    status.into()
}

fn job_completions(job: &Value, _: Timestamp) -> Value {
    let succeeded = job["status"]["succeeded"].as_i64().unwrap_or(0);
    if let Some(completions) = job["spec"]["completions"].as_i64() {
        return format!("{succeeded}/{completions}").into();
    }
    match job["spec"]["parallelism"].as_i64() {
        Some(parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}").into(),
        _ => format!("{succeeded}/1").into(),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> Value {
    match time(job, "/status/startTime") {
        Some(start) => {
            duration(seconds_between(start, time(job, "/status/completionTime").unwrap_or(now))).into()
        }
        None => json!(""),
    }
}

fn is_suspended(job: &Value, _: Timestamp) -> Value {
    match job["spec"]["suspend"].as_bool() {
        Some(true) => json!("True"),
        Some(false) => json!("False"),
        None => json!("<unset>"),
    }
}

fn last_schedule(job: &Value, now: Timestamp) -> Value {
    match time(job, "/status/lastScheduleTime") {
        Some(then) => duration(seconds_between(then, now)).into(),
        None => json!("<none>"),
    }
}

fn scale_target(autoscaler: &Value, _: Timestamp) -> Value {
    let target = &autoscaler["spec"]["scaleTargetRef"];
    format!("{}/{}", text(target, "/kind"), text(target, "/name")).into()
}
