//! The verdict on every cluster: the rule that decided, the message, and the smallest change that would make it eligible.

use api::fleet::{Capacity, Compare, GroupKind, Requirement, Source, Taint, Verdict, VerdictKind};
use api::meta::quantity::{quantities, text};

use super::evaluate::EvaluatedCluster;
use super::{ClaimLocation, Extent, PlacementRequest, pick};
use crate::division::pick::{Pick, ShareLimit};
use crate::policy::EffectivePlacement;
use crate::policy::select::{self, Selected};

/// Why a cluster is not chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rejection {
    NotSelected(Selected),
    NotGranted,
    Dedicated {
        to: String,
    },
    Cordoned,
    Drained,
    Leaving,
    Failed {
        why: String,
    },
    Tainted(Taint),
    NeverReported,
    NotReady {
        status: String,
        message: String,
    },
    KindNotServed(GroupKind),
    /// The physical cluster is a logical cluster, of this server if the path is known, whose own objects could be placed
    /// there again.
    Circular {
        is: Option<String>,
    },
    /// The fields that the Pod Security Standard of the cluster does not allow.
    PodSecurity(Vec<String>),
    DataElsewhere(ClaimLocation),
    NoWeight,
    /// A bound, or a quota, in thousandths.
    Exceeded {
        quota: Option<String>,
        resource: String,
        most: i128,
        used: i128,
        requested: i128,
    },
}

impl Rejection {
    /// Whether workloads there keep exactly their share. A bound lets them shrink, and a selector does not apply to
    /// them.
    pub(super) fn freezes(&self) -> bool {
        use Rejection::{
            Circular, Cordoned, Dedicated, NeverReported, NotGranted, NotReady, PodSecurity, Tainted,
        };
        matches!(
            self,
            Circular { .. }
                | Cordoned
                | Dedicated { .. }
                | NeverReported
                | NotGranted
                | NotReady { .. }
                | PodSecurity(_)
                | Tainted(_)
        )
    }

    /// The rule, as one word.
    pub fn rule(&self) -> &'static str {
        match self {
            Rejection::NotSelected(Selected::NotNamed) => "NotNamed",
            Rejection::NotSelected(Selected::Label { .. }) => "LabelMismatch",
            Rejection::NotSelected(Selected::InvalidExpression { .. }) => "InvalidExpression",
            Rejection::NotSelected(_) => "ExpressionFalse",
            Rejection::NotGranted => "UseNotGranted",
            Rejection::Dedicated { .. } => "Dedicated",
            Rejection::Cordoned => "NotSchedulable",
            Rejection::Drained => "Draining",
            Rejection::Leaving => "Leaving",
            Rejection::Failed { .. } => "Failed",
            Rejection::Tainted(_) => "UntoleratedTaint",
            Rejection::NeverReported => "NeverReported",
            Rejection::NotReady { .. } => "NotReady",
            Rejection::KindNotServed(_) => "KindNotServed",
            Rejection::Circular { .. } => "Circular",
            Rejection::PodSecurity(_) => "PodSecurity",
            Rejection::DataElsewhere(_) => "DataElsewhere",
            Rejection::NoWeight => "NoWeight",
            Rejection::Exceeded { quota: None, .. } => "BoundExceeded",
            Rejection::Exceeded { .. } => "QuotaExceeded",
        }
    }

    /// The message for users.
    pub fn evidence(&self) -> String {
        match self {
            Rejection::NotSelected(selected) => unselected(selected),
            Rejection::NotGranted => "this logical cluster may not use the physical cluster".to_owned(),
            Rejection::Dedicated { to } => format!("the physical cluster is dedicated to logical cluster {to}"),
            Rejection::Cordoned => "the physical cluster is cordoned: spec.schedulable is false".to_owned(),
            Rejection::Drained => "the physical cluster is being drained".to_owned(),
            Rejection::Leaving => "the physical cluster is being deleted".to_owned(),
            Rejection::Failed { why } => why.clone(),
            Rejection::Tainted(taint) => {
                format!("the physical cluster has the untolerated taint {}", tainted(taint))
            }
            Rejection::NeverReported => "the syncer of the physical cluster has not reported yet".to_owned(),
            Rejection::NotReady { status, message } => {
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                format!("condition Ready is {status}{message}")
            }
            Rejection::KindNotServed(kind) => format!("the physical cluster does not serve the kind {}", kind_name(kind)),
            Rejection::Circular { is: Some(path) } => {
                format!(
                    "the physical cluster is logical cluster {path} of this server, so its own objects could be placed on it again"
                )
            }
            Rejection::Circular { is: None } => {
                "this namespace came through the mailbox of the physical cluster, so its objects would be sent in a cycle".to_owned()
            }
            Rejection::PodSecurity(violations) => format!(
                "the physical cluster enforces the Pod Security Standard baseline, which does not allow {}",
                violations.join(", ")
            ),
            Rejection::DataElsewhere(ClaimLocation { name, at }) => {
                format!("the data of PersistentVolumeClaim {name} is on {at}")
            }
            Rejection::NoWeight => "the weight of the physical cluster is 0".to_owned(),
            Rejection::Exceeded { quota, resource, most, used, requested } => {
                let (most, used, requested) =
                    (text(resource, *most), text(resource, *used), text(resource, *requested));
                let limit = match quota {
                    None => format!("spec.bounds.{resource}"),
                    Some(quota) => format!("{resource} of ResourceQuota {quota}"),
                };
                format!("{limit} is {most}, of which {used} are used; {requested} are requested")
            }
        }
    }

    /// The message with its remedy, for an object that is recorded there and cannot be sent.
    pub fn message_with_remedy(&self, cluster: &str) -> String {
        format!("{}; {}", self.evidence(), self.remedy(cluster, &EffectivePlacement::default_choice()))
    }

    /// The smallest change that would make it eligible.
    pub fn remedy(&self, cluster: &str, effective: &EffectivePlacement) -> String {
        let policy = policy(effective);
        match self {
            Rejection::NotSelected(selected) => select_it(selected, cluster, effective),
            Rejection::NotGranted => {
                format!("grant the verb use on physicalclusters {cluster} to this logical cluster")
            }
            Rejection::Dedicated { .. } => format!("remove spec.dedicatedTo from PhysicalCluster {cluster}"),
            Rejection::Cordoned => format!("set spec.schedulable of PhysicalCluster {cluster} to true"),
            Rejection::Drained => format!("set spec.drain of PhysicalCluster {cluster} to false"),
            Rejection::Leaving => "join the cluster under another name".to_owned(),
            Rejection::Failed { .. } => "wait until the workload recovers there".to_owned(),
            Rejection::Tainted(taint) => match effective.by.source {
                Source::Placement => format!("add a toleration of {} to {policy}", tainted(taint)),
                _ => format!("add a Placement that tolerates {}, or remove the taint", tainted(taint)),
            },
            Rejection::NeverReported => {
                format!("check that the syncer of {cluster} runs: it has not reported to mailbox-{cluster}")
            }
            Rejection::NotReady { .. } => {
                format!("check the syncer of {cluster}; after two heartbeats the cluster is used again")
            }
            Rejection::KindNotServed(kind) => {
                format!("install the CustomResourceDefinition of {} on {cluster}", kind_name(kind))
            }
            Rejection::Circular { .. } => {
                format!("join another cluster as {cluster}, or place this elsewhere")
            }
            Rejection::PodSecurity(_) => {
                format!("set spec.podSecurity of PhysicalCluster {cluster} to privileged")
            }
            Rejection::DataElsewhere(ClaimLocation { name, at }) => {
                format!("place the object on {at}, or delete PersistentVolumeClaim {name} and its data")
            }
            Rejection::NoWeight => format!("set a weight above 0 in spec.shares of {policy}"),
            Rejection::Exceeded { quota, resource, used, requested, .. } => {
                let enough = text(resource, used + requested);
                match quota {
                    None => format!("raise spec.bounds.{resource} of PhysicalCluster {cluster} to {enough}"),
                    Some(quota) => format!("raise {resource} of ResourceQuota {quota} to {enough}"),
                }
            }
        }
    }
}

fn limit_remedy(limit: ShareLimit, cluster: &str, effective: &EffectivePlacement) -> String {
    match limit {
        ShareLimit::Maximum => format!("raise max in spec.shares of {}", policy(effective)),
        ShareLimit::Bound => format!("raise spec.bounds of PhysicalCluster {cluster}"),
        ShareLimit::Quota => format!("raise the quota of the namespace on {cluster}"),
        ShareLimit::Estimate | ShareLimit::FreeCapacity => format!("add nodes to {cluster}"),
    }
}

fn kind_name(kind: &GroupKind) -> String {
    if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) }
}

fn tainted(taint: &Taint) -> String {
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{:?}", taint.key, taint.effect)
}

/// The source of the placement, in a message.
fn policy(effective: &EffectivePlacement) -> String {
    match effective.by.source {
        Source::Placement => format!("Placement {}", effective.by.name),
        Source::Annotation => format!("the annotation holon.dev/placement={}", effective.by.name),
        Source::Dependency => format!("its dependent {}", effective.by.name),
        Source::Default => "the default".to_owned(),
    }
}

fn unselected(selected: &Selected) -> String {
    match selected {
        Selected::Yes => String::new(),
        Selected::NotNamed => "the selector names other physical clusters".to_owned(),
        Selected::Label { requirement, found: Some(found) } => {
            format!(
                "label {}={found} does not match {}",
                requirement.key,
                select::requirement_text(requirement)
            )
        }
        Selected::Label { requirement, found: None } => {
            format!(
                "label {} is missing, {} is required",
                requirement.key,
                select::requirement_text(requirement)
            )
        }
        Selected::Expression { text } => format!("expression {text:?} is false"),
        Selected::InvalidExpression { text, error } => format!("expression {text:?} failed: {error}"),
    }
}

fn select_it(selected: &Selected, cluster: &str, effective: &EffectivePlacement) -> String {
    match selected {
        Selected::NotNamed => match effective.by.source {
            Source::Annotation => {
                format!("set the annotation holon.dev/placement={},{cluster}", effective.by.name)
            }
            _ => format!("add {cluster} to spec.clusterSelector.names of {}", policy(effective)),
        },
        Selected::Label { requirement, .. } => {
            format!("kubectl label physicalcluster {cluster} {}", labelled(requirement))
        }
        Selected::InvalidExpression { .. } => format!("fix the expression in {}", policy(effective)),
        Selected::Expression { .. } | Selected::Yes => {
            format!("change the expression in {}", policy(effective))
        }
    }
}

/// The argument of `kubectl label` that fulfils a requirement.
fn labelled(requirement: &Requirement) -> String {
    let Requirement { key, operator, values } = requirement;
    match operator {
        Compare::In => {
            format!("{key}={} --overwrite", values.first().map(String::as_str).unwrap_or_default())
        }
        Compare::Exists => format!("{key}=true"),
        Compare::NotIn | Compare::DoesNotExist => format!("{key}-"),
    }
}

/// A row for every cluster, and for every name in the selector that no cluster has.
pub(super) fn for_clusters(
    effective: &EffectivePlacement,
    request: &PlacementRequest,
    evaluated: &[EvaluatedCluster],
    picks: &[Pick],
) -> Vec<Verdict> {
    let picked = |name: &str| picks.iter().find(|pick| pick.cluster == name);
    let mut rows: Vec<Verdict> = evaluated
        .iter()
        .map(|one| row(effective, request, one, picked(one.name()), evaluated, picks))
        .collect();
    let names = &effective.spec.cluster_selector.names;
    let absent = names.iter().filter(|name| !evaluated.iter().any(|one| one.name() == **name));
    rows.extend(absent.map(|name| missing(name)));
    rows.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    rows
}

/// A row for every cluster, if the annotation is invalid: why it is rejected whatever the annotation means, or that only
/// the annotation is missing.
pub(super) fn of_invalid_annotation(
    anywhere: &EffectivePlacement,
    request: &PlacementRequest,
    evaluated: &[EvaluatedCluster],
    picks: &[Pick],
    why: &str,
) -> Vec<Verdict> {
    let kept = || "kept on its current target".to_owned();
    let row = |one: &EvaluatedCluster| {
        let is_picked = picks.iter().any(|pick| pick.cluster == one.name());
        let judgement = match (is_picked, &one.rejection) {
            (true, Some(but)) => {
                let message = format!("{}, although {}", kept(), but.evidence());
                (VerdictKind::Chosen, but.rule(), message, String::new())
            }
            (true, None) => (VerdictKind::Chosen, "", kept(), String::new()),
            (false, Some(but)) => {
                (VerdictKind::Rejected, but.rule(), but.evidence(), but.remedy(one.name(), anywhere))
            }
            (false, None) => {
                let remedy = "fix the annotation holon.dev/placement".to_owned();
                (VerdictKind::Eligible, "InvalidAnnotation", why.to_owned(), remedy)
            }
        };
        with_capacity(request, one, judgement)
    };
    evaluated.iter().map(row).collect()
}

fn missing(name: &str) -> Verdict {
    Verdict {
        cluster: name.to_owned(),
        verdict: VerdictKind::Rejected,
        rule: "NotVisible".to_owned(),
        message: "no physical cluster of this name is visible from this logical cluster".to_owned(),
        score: None,
        capacity: None,
        remedy: format!("create PhysicalCluster {name} in this logical cluster or one above it"),
    }
}

fn row(
    effective: &EffectivePlacement,
    request: &PlacementRequest,
    one: &EvaluatedCluster,
    pick: Option<&Pick>,
    all: &[EvaluatedCluster],
    picks: &[Pick],
) -> Verdict {
    let name = one.name();
    let judgement = match (pick, &one.rejection) {
        (Some(_), Some(why)) => {
            let message = format!("kept on its current target, although {}", why.evidence());
            (VerdictKind::Chosen, why.rule(), message, String::new())
        }
        (Some(pick), None) => {
            let remedy = one.limit.map(|limit| limit_remedy(limit, name, effective)).unwrap_or_default();
            (VerdictKind::Chosen, "", chosen(effective, one, pick), remedy)
        }
        (None, Some(why)) => (VerdictKind::Rejected, why.rule(), why.evidence(), why.remedy(name, effective)),
        (None, None) => passed_over(effective, request, one, all, picks),
    };
    with_capacity(request, one, judgement)
}

/// Adds the capacity and the score.
fn with_capacity(
    request: &PlacementRequest,
    one: &EvaluatedCluster,
    judgement: (VerdictKind, &str, String, String),
) -> Verdict {
    let (verdict, rule, message, remedy) = judgement;
    let capacity = one.free.as_ref().map(|free| Capacity {
        free: quantities(free),
        each: quantities(&request.each),
        fits: one.fits.map(i64::from),
    });
    let (rule, score) = (rule.to_owned(), one.score.and_then(|score| i64::try_from(score).ok()));
    Verdict { cluster: one.name().to_owned(), verdict, rule, message, score, capacity, remedy }
}

fn chosen(effective: &EffectivePlacement, one: &EvaluatedCluster, pick: &Pick) -> String {
    let capacity_note = if one.free.is_none() { "; its free capacity is unknown" } else { "" };
    let group = match pick.tier.checked_sub(1).and_then(|group| effective.spec.fallback_groups.get(group)) {
        Some(group) => {
            format!(", as fallback group {}, because the groups before it lack capacity", group.name)
        }
        None => String::new(),
    };
    let verb = if one.current_share.is_some() { "kept on its current target" } else { "chosen" };
    let most = pick.limit_message().map(|most| format!("; {most}")).unwrap_or_default();
    format!("{verb} by {}{group}{capacity_note}{most}", policy(effective))
}

/// Why an eligible cluster was not chosen.
fn passed_over(
    effective: &EffectivePlacement,
    request: &PlacementRequest,
    one: &EvaluatedCluster,
    all: &[EvaluatedCluster],
    picks: &[Pick],
) -> (VerdictKind, &'static str, String, String) {
    let spec = &effective.spec;
    let labels = &one.candidate.cluster.metadata.labels;
    if let Some(spread) = spec.spread.iter().find(|spread| !labels.contains_key(&spread.label)) {
        let message =
            format!("the physical cluster has no label {}, which spec.spread requires", spread.label);
        let remedy = format!("kubectl label physicalcluster {} {}=…", one.name(), spread.label);
        return (VerdictKind::Rejected, "NoSpreadLabel", message, remedy);
    }
    let last = picks.iter().map(|pick| pick.tier).max();
    if let Some(tier) = one.tier.filter(|tier| last.is_some_and(|last| *tier > last)) {
        let group = spec.fallback_groups.get(tier - 1).map(|group| group.name.as_str()).unwrap_or_default();
        let message =
            format!("fallback group {group} is not needed: the groups before it have enough capacity");
        return (VerdictKind::Eligible, "FallbackUnused", message, "none needed".to_owned());
    }
    let number = pick::number(spec, request);
    if picks.len() >= number {
        let taken = |one: &&EvaluatedCluster| picks.iter().any(|pick| pick.cluster == one.name());
        let others: Vec<&EvaluatedCluster> = all.iter().filter(taken).collect();
        let here = others.iter().all(|other| other.current_share.is_some());
        let names = others.iter().map(|other| other.name()).collect::<Vec<_>>().join(", ");
        let few = match request.extent {
            Extent::Single => "the object can run on one physical cluster only".to_owned(),
            _ => format!("the placement chooses {number}"),
        };
        let message = match here {
            true => format!("{few}, and the object is already on {names}"),
            false => format!("{few}, and {names} ranked higher by free capacity or by the tie-break"),
        };
        let remedy = match effective.by.source {
            Source::Placement if request.extent != Extent::Single => {
                format!("set spec.numberOfClusters of {} to {}", policy(effective), number + 1)
            }
            _ => format!("annotate the namespace with holon.dev/placement={}", one.name()),
        };
        return (VerdictKind::Eligible, "NumberOfClusters", message, remedy);
    }
    let message = "another physical cluster of its group would violate spec.spread".to_owned();
    let remedy = format!("raise maxGroups or maxSkew in spec.spread of {}", policy(effective));
    (VerdictKind::Rejected, "Spread", message, remedy)
}

/// Why no cluster could be chosen.
pub(super) fn why_none(effective: &EffectivePlacement, evaluated: &[EvaluatedCluster]) -> String {
    let names = &effective.spec.cluster_selector.names;
    if let Some(name) = names.iter().find(|name| !evaluated.iter().any(|one| one.name() == **name)) {
        return format!(
            "{}: physical cluster {name} is not visible from this logical cluster",
            policy(effective)
        );
    }
    if evaluated.is_empty() {
        return "no physical cluster is visible from this logical cluster; join one".to_owned();
    }
    if evaluated.iter().any(EvaluatedCluster::is_open) {
        let spread =
            effective.spec.spread.iter().map(|spread| spread.label.as_str()).collect::<Vec<_>>().join(", ");
        return format!("{}: not enough groups to spread over {spread}", policy(effective));
    }
    // Only clusters that the placement selects: the others are rejected for one reason.
    let selected = evaluated.iter().filter(|one| one.tier.is_some());
    let reasons: Vec<String> = selected.filter_map(reason).collect();
    match reasons.is_empty() {
        true => format!("{} selects none of {} physical clusters", policy(effective), evaluated.len()),
        false => format!("{}: {}", policy(effective), reasons.join("; ")),
    }
}

fn reason(one: &EvaluatedCluster) -> Option<String> {
    Some(format!("{}: {}", one.name(), one.rejection.as_ref()?.evidence()))
}
