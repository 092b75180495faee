//! Moves a workload from its present targets to the desired ones: make before break, one commit at a time.
//!
//! ```text
//!   recorded            desired  next record
//!   —                   A        A steady
//!   A steady            B        A leaving   B arriving        (started)
//!   A leaving  B arr.   B        … the same until everything at B is ready
//!   A leaving  B arr.   B                    B steady          (finished)
//!   A leaving  B arr.   A        A steady    B leaving         (back; the source still runs)
//! ```
//!
//! A step either marks targets as arriving and leaving, or finishes once all marked targets are ready; never both. So a
//! target is left only after a record named its successors for at least one round, and they were observed ready after
//! that. An empty choice is not a request to run nowhere: it changes nothing.

use std::collections::BTreeMap;

use api::fleet::{Role, Target};
use serde_json::Value;

use crate::status::completed;

/// The readiness of a workload at one target, as observed after the present record was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// All of its share that has readiness is ready, and its Services have ready endpoints.
    Ready,
    /// Not ready.
    Unready { why: String },
    /// The target does not report.
    Unknown,
}

/// The targets to record, and the step that leads to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationPlan {
    pub targets: Vec<Target>,
    pub step: MigrationStep,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MigrationStep {
    /// No migration. Only shares may change.
    Settled,
    /// Targets become Arriving or Leaving.
    Started,
    /// Everything is ready: leaving targets are removed from the record, and their mailbox objects are deleted.
    Finished,
    /// New targets are not ready, for these reasons. The old ones are kept.
    Waiting { on: Vec<String> },
    /// The same, for longer than the deadline.
    Overdue { on: Vec<String> },
}

/// After this time a migration is reported as overdue. Old and new targets are kept all the same.
pub const DEADLINE_S: u64 = 600;

/// Plans the next step. `desired` are the chosen clusters with their shares; `moving_s` is how long ago the present
/// migration started.
pub fn plan_migration(
    recorded: &[Target],
    desired: &[(String, Option<i64>)],
    readiness: &BTreeMap<String, Readiness>,
    moving_s: u64,
) -> MigrationPlan {
    if desired.is_empty() {
        return MigrationPlan { targets: recorded.to_vec(), step: MigrationStep::Settled };
    }
    let marked = mark(recorded, desired);
    if roles(&marked) != roles(recorded) {
        return MigrationPlan { targets: marked, step: MigrationStep::Started };
    }
    if marked.iter().all(|target| target.role == Role::Steady) {
        return MigrationPlan { targets: marked, step: MigrationStep::Settled };
    }
    let mut on = unready(&marked, readiness);
    // A target whose share grows was observed ready with a smaller one.
    on.extend(growing(recorded, &marked));
    if !on.is_empty() {
        let step =
            if moving_s > DEADLINE_S { MigrationStep::Overdue { on } } else { MigrationStep::Waiting { on } };
        return MigrationPlan { targets: marked, step };
    }
    let staying = marked.into_iter().filter(|target| target.role != Role::Leaving);
    let targets = staying.map(|target| Target { role: Role::Steady, ..target }).collect();
    MigrationPlan { targets, step: MigrationStep::Finished }
}

/// Assigns roles. Leaving targets keep their shares.
fn mark(recorded: &[Target], desired: &[(String, Option<i64>)]) -> Vec<Target> {
    let is_desired = |cluster: &str| desired.iter().any(|(name, _)| name == cluster);
    let role = |cluster: &str| match recorded.iter().find(|target| target.cluster == cluster) {
        // It is still running there.
        Some(target) if target.role == Role::Leaving => Role::Steady,
        Some(target) => target.role,
        None if recorded.is_empty() => Role::Steady,
        None => Role::Arriving,
    };
    let staying = desired.iter().map(|(cluster, share)| Target {
        cluster: cluster.clone(),
        role: role(cluster),
        share: *share,
    });
    let leaving = recorded.iter().filter(|target| !is_desired(&target.cluster));
    staying.chain(leaving.map(|target| Target { role: Role::Leaving, ..target.clone() })).collect()
}

fn roles(targets: &[Target]) -> BTreeMap<&str, u8> {
    targets.iter().map(|target| (target.cluster.as_str(), target.role as u8)).collect()
}

/// The targets that take over and are not ready, with the reason. When another target leaves, the share of a steady one
/// grows, so it takes over too.
fn unready(targets: &[Target], readiness: &BTreeMap<String, Readiness>) -> Vec<String> {
    let leaving = targets.iter().any(|target| target.role == Role::Leaving);
    let takes_over = |target: &&Target| match target.role {
        Role::Arriving => true,
        Role::Steady => leaving,
        Role::Leaving => false,
    };
    let why = |target: &Target| match readiness.get(&target.cluster) {
        Some(Readiness::Ready) => None,
        Some(Readiness::Unready { why }) => Some(format!("{}: {why}", target.cluster)),
        Some(Readiness::Unknown) | None => Some(format!("{}: no report yet", target.cluster)),
    };
    targets.iter().filter(takes_over).filter_map(why).collect()
}

/// The targets whose share grows.
fn growing(recorded: &[Target], marked: &[Target]) -> Vec<String> {
    let before = |target: &Target| recorded.iter().find(|old| old.cluster == target.cluster)?.share;
    let grows = |target: &&Target| target.share > before(target);
    marked.iter().filter(grows).map(|target| format!("{}: its share grows", target.cluster)).collect()
}

/// The targets before the present migration, to go back to.
pub fn sources(recorded: &[Target]) -> Vec<(String, Option<i64>)> {
    let old = recorded.iter().filter(|target| target.role != Role::Arriving);
    old.map(|target| (target.cluster.clone(), target.share)).collect()
}

/// Why a workload must not run on two targets at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExclusiveReason {
    Recreate,
    BarePod,
    Ordinals,
    RunningJob,
    CompletedJob,
    Volume,
}

/// Whether an object has to terminate on the old target before it starts on the new one. `once_only` tells whether a claim
/// can be mounted on one cluster only (ReadWriteOnce and ReadWriteOncePod).
pub fn exclusive(object: &Value, once_only: impl Fn(&str) -> bool) -> Option<ExclusiveReason> {
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => return Some(ExclusiveReason::BarePod),
        "StatefulSet" => return Some(ExclusiveReason::Ordinals),
        "Job" if completed::is_completed(object) => return Some(ExclusiveReason::CompletedJob),
        "Job" => return Some(ExclusiveReason::RunningJob),
        "Deployment" if object.pointer("/spec/strategy/type").is_some_and(|kind| kind == "Recreate") => {
            return Some(ExclusiveReason::Recreate);
        }
        _ => {}
    }
    let claims = crate::transform::references::claims(object);
    claims.iter().any(|claim| once_only(claim)).then_some(ExclusiveReason::Volume)
}

/// Whether a workload runs on a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    Running,
    /// Terminating.
    Stopping,
    /// Confirmed to be gone. An unknown state is not this.
    Gone,
}

/// The next step of an exclusive workload that moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handover {
    /// Keep it: its dependencies are not on the new target yet.
    Keep,
    /// Stop it on the old target.
    Stop,
    /// Wait until it has terminated.
    Await,
    /// Start it on the new target.
    Begin,
}

/// `dependencies_ready`: its dependencies, such as ConfigMaps and volumes, are on the new target.
pub fn hand_over(old: Presence, dependencies_ready: bool) -> Handover {
    match (old, dependencies_ready) {
        (Presence::Gone, _) => Handover::Begin,
        (Presence::Stopping, _) => Handover::Await,
        (Presence::Running, true) => Handover::Stop,
        (Presence::Running, false) => Handover::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// `A` steady, `+A` arriving, `-A` leaving.
    fn record(text: &str) -> Vec<Target> {
        let target = |word: &str| {
            let (role, cluster) = match word.split_at(1) {
                ("+", cluster) => (Role::Arriving, cluster),
                ("-", cluster) => (Role::Leaving, cluster),
                _ => (Role::Steady, word),
            };
            Target { cluster: cluster.to_owned(), role, share: None }
        };
        text.split_whitespace().map(target).collect()
    }

    fn written(targets: &[Target]) -> String {
        let word = |target: &Target| match target.role {
            Role::Steady => target.cluster.clone(),
            Role::Arriving => format!("+{}", target.cluster),
            Role::Leaving => format!("-{}", target.cluster),
        };
        targets.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn desired_shares(text: &str) -> Vec<(String, Option<i64>)> {
        text.split_whitespace().map(|cluster| (cluster.to_owned(), None)).collect()
    }

    fn ready(text: &str) -> BTreeMap<String, Readiness> {
        text.split_whitespace().map(|cluster| (cluster.to_owned(), Readiness::Ready)).collect()
    }

    #[test]
    fn each_commit_makes_one_migration_step() {
        let check =
            |recorded: &str, desired: &str, observed_ready: &str, expected: &str, step: MigrationStep| {
                let next =
                    plan_migration(&record(recorded), &desired_shares(desired), &ready(observed_ready), 0);
                assert_eq!(
                    (written(&next.targets).as_str(), &next.step),
                    (expected, &step),
                    "{recorded} -> {desired}"
                );
            };
        let wait = |on: &[&str]| MigrationStep::Waiting {
            on: on.iter().map(|on| format!("{on}: no report yet")).collect(),
        };
        check("", "A", "", "A", MigrationStep::Started);
        check("", "A B", "", "A B", MigrationStep::Started);
        check("A", "A", "", "A", MigrationStep::Settled);
        check("A", "B", "A", "+B -A", MigrationStep::Started);
        // A report from before the record does not count: the same commit never starts and finishes a migration.
        check("A", "B", "A B", "+B -A", MigrationStep::Started);
        check("+B -A", "B", "A", "+B -A", wait(&["B"]));
        check("+B -A", "B", "A B", "B", MigrationStep::Finished);
        check("A", "A B", "", "A +B", MigrationStep::Started);
        check("A +B", "A B", "B", "A B", MigrationStep::Finished);
        // A's share grows when B leaves: A must be ready with it.
        check("A B", "A", "A B", "A -B", MigrationStep::Started);
        check("A -B", "A", "", "A -B", wait(&["A"]));
        check("A -B", "A", "A", "A", MigrationStep::Finished);
        // The placement changes during the migration.
        check("+B -A", "C", "", "+C -B -A", MigrationStep::Started);
        check("+C -B -A", "C", "C", "C", MigrationStep::Finished);
        check("+B -A", "A", "", "A -B", MigrationStep::Started);
        check("A -B", "A", "A", "A", MigrationStep::Finished);
        // No target to choose is no request to run nowhere. kcp (2041, 2671) and Karmada (6098, 5406) took an empty
        // choice for one, and deleted running workloads.
        check("A B", "", "A B", "A B", MigrationStep::Settled);
        check("+B -A", "", "A B", "+B -A", MigrationStep::Settled);
    }

    /// Four of six replicas fit, and then all of them: ready with four was taken for ready with six, and the old target
    /// was left with two missing.
    #[test]
    fn an_arriving_target_that_grows_must_be_ready_with_its_new_share() {
        let at = |cluster: &str, role, share| Target { cluster: cluster.into(), role, share: Some(share) };
        let leaving = at("A", Role::Leaving, 6);
        let desired = [("B".to_owned(), Some(6))];
        let first = plan_migration(&[at("B", Role::Arriving, 4), leaving.clone()], &desired, &ready("B"), 0);
        assert_eq!(first.step, MigrationStep::Waiting { on: vec!["B: its share grows".into()] });
        assert_eq!(first.targets, [at("B", Role::Arriving, 6), leaving]);
        let then = plan_migration(&first.targets, &desired, &ready("B"), 0);
        assert_eq!((then.step, then.targets), (MigrationStep::Finished, vec![at("B", Role::Steady, 6)]));
    }

    #[test]
    fn an_overdue_move_keeps_its_targets_and_is_reported() {
        let unready = [("B".to_owned(), Readiness::Unready { why: "0 of 3 available".into() })].into();
        let at = |moving_s| plan_migration(&record("+B -A"), &desired_shares("B"), &unready, moving_s);
        assert_eq!(at(DEADLINE_S).step, MigrationStep::Waiting { on: vec!["B: 0 of 3 available".into()] });
        assert_eq!(
            at(DEADLINE_S + 1).step,
            MigrationStep::Overdue { on: vec!["B: 0 of 3 available".into()] }
        );
        assert_eq!(written(&at(DEADLINE_S + 1).targets), "+B -A");
        assert_eq!(sources(&record("+B -A C")), desired_shares("A C"));
    }

    #[test]
    fn exclusive_workloads_are_recognized() {
        let check = |object: Value, expected: Option<ExclusiveReason>| {
            assert_eq!(exclusive(&object, |claim| claim == "data"), expected, "{object}");
        };
        let mounts = |claim: &str| json!({ "template": { "spec": { "containers": [], "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }] } } });
        check(json!({ "kind": "Pod" }), Some(ExclusiveReason::BarePod));
        check(json!({ "kind": "StatefulSet" }), Some(ExclusiveReason::Ordinals));
        check(json!({ "kind": "Job" }), Some(ExclusiveReason::RunningJob));
        let done = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
        check(
            json!({ "apiVersion": "batch/v1", "kind": "Job", "status": done }),
            Some(ExclusiveReason::CompletedJob),
        );
        check(
            json!({ "kind": "Deployment", "spec": { "strategy": { "type": "Recreate" } } }),
            Some(ExclusiveReason::Recreate),
        );
        check(json!({ "kind": "Deployment", "spec": mounts("data") }), Some(ExclusiveReason::Volume));
        check(json!({ "kind": "Deployment", "spec": mounts("shared") }), None);
        check(json!({ "kind": "ConfigMap" }), None);
    }

    #[test]
    fn exclusive_workloads_stop_before_they_start_elsewhere() {
        let check = |old, ready, expected| assert_eq!(hand_over(old, ready), expected, "{old:?} {ready}");
        check(Presence::Running, false, Handover::Keep);
        check(Presence::Running, true, Handover::Stop);
        check(Presence::Stopping, true, Handover::Await);
        check(Presence::Gone, true, Handover::Begin);
        check(Presence::Gone, false, Handover::Begin);
    }

    proptest! {
        /// For all placements and reports in any order: a target is dropped only while all that stay are ready, and the
        /// record never becomes empty.
        #[test]
        fn no_target_is_dropped_before_the_others_are_ready(
            acts in prop::collection::vec((prop::collection::btree_set(0..4_usize, 0..4), prop::collection::btree_set(0..4_usize, 0..4)), 1..40),
        ) {
            const NAMES: [&str; 4] = ["A", "B", "C", "D"];
            let text = |set: &std::collections::BTreeSet<usize>| set.iter().map(|at| NAMES[*at]).collect::<Vec<_>>().join(" ");
            let mut recorded = record("");
            for (desired, observed_ready) in acts {
                let (desired, seen) = (desired_shares(&text(&desired)), ready(&text(&observed_ready)));
                let next = plan_migration(&recorded, &desired, &seen, 0);
                let kept = |target: &&Target| next.targets.iter().any(|other| other.cluster == target.cluster);
                let dropped = recorded.iter().filter(|target| !kept(target)).count();
                prop_assert!(dropped == 0 || next.targets.iter().all(|target| seen.contains_key(&target.cluster)));
                prop_assert!(recorded.is_empty() || !next.targets.is_empty());
                let added = next.targets.iter().any(|target| !recorded.iter().any(|old| old.cluster == target.cluster));
                prop_assert!(!(added && dropped > 0), "a step adds or drops targets, never both");
                recorded = next.targets;
            }
        }
    }
}
