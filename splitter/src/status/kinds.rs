//! How the status of each kind is aggregated, as data. Other fields follow the general rule.

use serde_json::Value;

use super::{Report, UserObject, deployment, job, services_and_budgets};
use crate::transform::group_kind;

/// How the status of one kind is aggregated.
#[derive(Debug)]
pub(super) struct KindRules {
    group: &'static str,
    kind: &'static str,
    /// Counters that are added up.
    pub(super) sums: &'static [&'static str],
    /// Counters that are added up over the staying targets with the current template.
    pub(super) updated: &'static [&'static str],
    pub(super) greatest: &'static [&'static str],
    /// Times: the earliest or the latest is taken.
    pub(super) earliest: &'static [&'static str],
    pub(super) latest: &'static [&'static str],
    /// It is on one target at a time, whose status is copied.
    pub(super) exact: bool,
    /// Whether its schema has conditions.
    pub(super) has_conditions: bool,
    /// Whether its controller always sets `observedGeneration`.
    pub(super) observes_generation: bool,
    /// The counter of available replicas, and the expected number.
    pub(super) availability: Option<(&'static str, ExpectedNumber)>,
    /// Its phase without a target.
    pub(super) phase_without_targets: Option<&'static str>,
    /// Code for rules that the table cannot express.
    pub(super) finish: Option<FinishStatus>,
}

/// The number that the available counter is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExpectedNumber {
    /// The requested replicas.
    Replicas,
    /// Another counter.
    Counter(&'static str),
}

/// Sets further fields of a status.
pub(super) type FinishStatus = fn(&UserObject, &[&Report], &mut Value);

const PLAIN: KindRules = KindRules {
    group: "",
    kind: "",
    sums: &[],
    updated: &[],
    greatest: &[],
    earliest: &[],
    latest: &[],
    exact: false,
    has_conditions: false,
    observes_generation: false,
    availability: None,
    phase_without_targets: None,
    finish: None,
};

const KINDS: &[KindRules] = &[
    KindRules {
        group: "apps",
        kind: "Deployment",
        sums: &[
            "replicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
        ],
        updated: &["updatedReplicas"],
        greatest: &["collisionCount"],
        has_conditions: true,
        observes_generation: true,
        availability: Some(("availableReplicas", ExpectedNumber::Replicas)),
        finish: Some(deployment::finish),
        ..PLAIN
    },
    KindRules {
        group: "apps",
        kind: "ReplicaSet",
        sums: &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "terminatingReplicas",
        ],
        has_conditions: true,
        observes_generation: true,
        availability: Some(("availableReplicas", ExpectedNumber::Replicas)),
        ..PLAIN
    },
    KindRules {
        group: "apps",
        kind: "StatefulSet",
        sums: &["replicas", "readyReplicas", "availableReplicas", "currentReplicas"],
        updated: &["updatedReplicas"],
        greatest: &["collisionCount"],
        has_conditions: true,
        observes_generation: true,
        availability: Some(("availableReplicas", ExpectedNumber::Replicas)),
        finish: Some(deployment::revisions),
        ..PLAIN
    },
    KindRules {
        group: "apps",
        kind: "DaemonSet",
        sums: &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "numberAvailable",
            "numberUnavailable",
        ],
        updated: &["updatedNumberScheduled"],
        greatest: &["collisionCount"],
        has_conditions: true,
        observes_generation: true,
        availability: Some(("numberAvailable", ExpectedNumber::Counter("desiredNumberScheduled"))),
        ..PLAIN
    },
    KindRules {
        group: "",
        kind: "ReplicationController",
        sums: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        has_conditions: true,
        observes_generation: true,
        availability: Some(("availableReplicas", ExpectedNumber::Replicas)),
        ..PLAIN
    },
    KindRules {
        group: "batch",
        kind: "Job",
        sums: &["active", "ready", "succeeded", "failed", "terminating"],
        earliest: &["startTime"],
        has_conditions: true,
        finish: Some(job::finish),
        ..PLAIN
    },
    KindRules {
        group: "batch",
        kind: "CronJob",
        latest: &["lastScheduleTime", "lastSuccessfulTime"],
        ..PLAIN
    },
    KindRules {
        group: "",
        kind: "Service",
        has_conditions: true,
        finish: Some(services_and_budgets::load_balancer),
        ..PLAIN
    },
    KindRules {
        group: "networking.k8s.io",
        kind: "Ingress",
        finish: Some(services_and_budgets::load_balancer),
        ..PLAIN
    },
    KindRules {
        group: "",
        kind: "PersistentVolumeClaim",
        exact: true,
        phase_without_targets: Some("Pending"),
        has_conditions: true,
        ..PLAIN
    },
    KindRules {
        group: "",
        kind: "PersistentVolume",
        exact: true,
        phase_without_targets: Some("Pending"),
        ..PLAIN
    },
    KindRules {
        group: "",
        kind: "Pod",
        exact: true,
        phase_without_targets: Some("Pending"),
        has_conditions: true,
        ..PLAIN
    },
    KindRules {
        group: "policy",
        kind: "PodDisruptionBudget",
        sums: &["currentHealthy", "desiredHealthy", "expectedPods"],
        has_conditions: true,
        observes_generation: true,
        finish: Some(services_and_budgets::budget),
        ..PLAIN
    },
    KindRules {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        sums: &["currentReplicas", "desiredReplicas"],
        latest: &["lastScaleTime"],
        has_conditions: true,
        ..PLAIN
    },
];

/// Returns the available replicas of an object. Kubernetes omits a counter that is zero, so only a custom kind without
/// that counter reports its ready ones instead.
pub(crate) fn available(object: &Value) -> u32 {
    let reported =
        |name: &str| object["status"][name].as_u64().map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    match of(object).availability {
        Some((name, _)) => reported(name),
        None => reported("availableReplicas").or_else(|| reported("readyReplicas")),
    }
    .unwrap_or_default()
}

pub(super) fn of(object: &Value) -> &'static KindRules {
    let (group, kind) = group_kind(object);
    KINDS.iter().find(|row| row.group == group && row.kind == kind).unwrap_or(&PLAIN)
}
