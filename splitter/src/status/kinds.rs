//! How the status of each kind is put together, as data. Fields that are not named here follow the general rule.

use serde_json::Value;

use super::{Report, UserObject, deployment, job, services_and_budgets};
use crate::transform::group_kind;

/// What is special about a kind.
#[derive(Debug)]
pub(super) struct KindRules {
    group: &'static str,
    kind: &'static str,
    /// Added up.
    pub(super) sums: &'static [&'static str],
    /// Added up over targets that run what is wanted now and are to stay.
    pub(super) updated: &'static [&'static str],
    pub(super) greatest: &'static [&'static str],
    /// Times.
    pub(super) earliest: &'static [&'static str],
    pub(super) latest: &'static [&'static str],
    /// It is in one place at a time.
    pub(super) exact: bool,
    /// Whether its schema has conditions.
    pub(super) has_conditions: bool,
    /// Whether its controller always says which generation it has observed.
    pub(super) observes_generation: bool,
    /// The counter that says how many are available, and what it is compared with.
    pub(super) availability: Option<(&'static str, Expected)>,
    /// Its phase when it runs nowhere.
    pub(super) phase_nowhere: Option<&'static str>,
    /// What no table can say.
    pub(super) finish: Option<Finish>,
}

/// How many are to be available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// As many replicas as were asked for.
    Replicas,
    /// As many as another counter says.
    Counter(&'static str),
}

/// Puts the last fields into a status.
pub(super) type Finish = fn(&UserObject, &[&Report], &mut Value);

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
    phase_nowhere: None,
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
        availability: Some(("availableReplicas", Expected::Replicas)),
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
        availability: Some(("availableReplicas", Expected::Replicas)),
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
        availability: Some(("availableReplicas", Expected::Replicas)),
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
        availability: Some(("numberAvailable", Expected::Counter("desiredNumberScheduled"))),
        ..PLAIN
    },
    KindRules {
        group: "",
        kind: "ReplicationController",
        sums: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        has_conditions: true,
        observes_generation: true,
        availability: Some(("availableReplicas", Expected::Replicas)),
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
        phase_nowhere: Some("Pending"),
        has_conditions: true,
        ..PLAIN
    },
    KindRules { group: "", kind: "PersistentVolume", exact: true, phase_nowhere: Some("Pending"), ..PLAIN },
    KindRules {
        group: "",
        kind: "Pod",
        exact: true,
        phase_nowhere: Some("Pending"),
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

pub(super) fn of(object: &Value) -> &'static KindRules {
    let (group, kind) = group_kind(object);
    KINDS.iter().find(|row| row.group == group && row.kind == kind).unwrap_or(&PLAIN)
}
