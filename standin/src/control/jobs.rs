//! Jobs: pods that come to an end, until enough have ended well.
//!
//! A pod that has ended is counted exactly once, although it may be deleted at any moment: it carries a finalizer until
//! its uid stands in the Job's status, and its uid leaves the status when the count goes up.
//!
//! ```text
//!   ended ─► uid in uncountedTerminatedPods ─► finalizer removed ─► uid gone, succeeded or failed one higher
//! ```

mod indexes;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::{is_finished, of_template, restarts};
use crate::clock::later;
use crate::kind::Kind;
use crate::object::{
    controller, count, flag, is_being_deleted, is_true, list, moment, name, number, text, time, uid,
};
use crate::plan::{Event, Plan};
use crate::world::World;

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// After a failure a new pod comes so much later, and twice that after each further one.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(600);
/// If nobody says how often to try.
const BACKOFF_LIMIT: i64 = 6;

pub(crate) fn step(world: &World, space: &str, now: Timestamp, plan: &mut Plan) {
    for job in world.all(Kind::Jobs, space) {
        let pods = world.owned(Kind::Pods, job);
        match is_being_deleted(job) {
            // Whoever deletes a Job waits for nothing to be counted.
            true => pods.iter().for_each(|pod| release(pod, plan)),
            false => Look { job, pods, now }.act(plan),
        }
    }
    // A Job that is deleted in the background is gone at once, and its pods are still to go.
    let jobs: BTreeSet<&str> = world.all(Kind::Jobs, space).map(uid).collect();
    let is_left = |pod: &&Value| controller(pod).is_none_or(|owner| !jobs.contains(text(owner, "/uid")));
    world.all(Kind::Pods, space).filter(is_left).for_each(|pod| release(pod, plan));
}

/// A Job and its pods, as they are.
struct Look<'a> {
    job: &'a Value,
    pods: Vec<&'a Value>,
    now: Timestamp,
}

/// How often pods have ended, and those whose end is noted and not counted yet.
#[derive(Clone, Debug, Default)]
struct Tally {
    succeeded: i64,
    failed: i64,
    uncounted_succeeded: BTreeSet<String>,
    uncounted_failed: BTreeSet<String>,
    /// Of an indexed Job.
    completed: BTreeSet<i64>,
}

/// Why a Job is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Complete,
    Failed { reason: &'static str, message: &'static str },
}

impl Look<'_> {
    fn is_indexed(&self) -> bool {
        text(self.job, "/spec/completionMode") == "Indexed"
    }

    fn active(&self) -> Vec<&Value> {
        self.pods.iter().filter(|pod| !is_finished(pod) && !is_being_deleted(pod)).copied().collect()
    }

    fn act(&self, plan: &mut Plan) {
        if let Some(end) = ["Complete", "Failed"].into_iter().find(|end| is_true(self.job, end)) {
            self.pods.iter().for_each(|pod| release(pod, plan));
            return self.expire(end, plan);
        }
        let tally = self.count(plan);
        let active = self.active();
        let end = self.decided().or_else(|| self.end(&tally, active.len()));
        let is_suspended = flag(self.job, "/spec/suspend");
        if end.is_some() || is_suspended {
            active.iter().for_each(|pod| plan.delete(Kind::Pods, pod));
        } else {
            self.fill(&tally, &active, plan);
        }
        let status = self.status(&tally, end, is_suspended, plan);
        plan.status(Kind::Jobs, self.job, status);
    }

    /// Notes new ends, lets noted pods go, and counts those that are gone.
    fn count(&self, plan: &mut Plan) -> Tally {
        let noted = |field: &str| -> BTreeSet<String> {
            let pointer = format!("/status/uncountedTerminatedPods/{field}");
            list(self.job, &pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut tally = Tally {
            succeeded: count(self.job, "/status/succeeded"),
            failed: count(self.job, "/status/failed"),
            uncounted_succeeded: noted("succeeded"),
            uncounted_failed: noted("failed"),
            completed: indexes::parse(text(self.job, "/status/completedIndexes")),
        };
        let tracked: BTreeSet<&str> =
            self.pods.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(pod)).collect();
        for (uncounted, sum) in [
            (&mut tally.uncounted_succeeded, &mut tally.succeeded),
            (&mut tally.uncounted_failed, &mut tally.failed),
        ] {
            let before = uncounted.len();
            uncounted.retain(|uid| tracked.contains(uid.as_str()));
            *sum += (before - uncounted.len()) as i64;
        }
        for pod in self.pods.iter().filter(|pod| is_tracked(pod)) {
            let is_noted =
                tally.uncounted_succeeded.contains(uid(pod)) || tally.uncounted_failed.contains(uid(pod));
            match text(pod, "/status/phase") {
                _ if is_noted => release(pod, plan),
                "Succeeded" if self.is_indexed() => self.complete(pod, &mut tally, plan),
                "Succeeded" => drop(tally.uncounted_succeeded.insert(uid(pod).to_owned())),
                "Failed" => drop(tally.uncounted_failed.insert(uid(pod).to_owned())),
                _ if is_being_deleted(pod) => drop(tally.uncounted_failed.insert(uid(pod).to_owned())),
                _ => {}
            }
        }
        if self.is_indexed() {
            tally.succeeded = tally.completed.len() as i64;
        }
        tally
    }

    /// The index of a pod that ended well is its own note; the pod may go once that is written.
    fn complete(&self, pod: &Value, tally: &mut Tally, plan: &mut Plan) {
        let Some(index) = indexes::of(pod) else { return };
        let is_written = tally.completed.contains(&index)
            && indexes::parse(text(self.job, "/status/completedIndexes")).contains(&index);
        if is_written {
            release(pod, plan);
        }
        tally.completed.insert(index);
    }

    /// What was decided before: it stands, while pods are still leaving.
    fn decided(&self) -> Option<End> {
        if is_true(self.job, "SuccessCriteriaMet") {
            return Some(End::Complete);
        }
        let target = crate::object::condition(self.job, "FailureTarget")?;
        FAILURES
            .iter()
            .find(|(reason, _)| target["reason"] == *reason)
            .map(|(reason, message)| End::Failed { reason, message })
    }

    fn end(&self, tally: &Tally, active: usize) -> Option<End> {
        let succeeded = tally.succeeded + tally.uncounted_succeeded.len() as i64;
        let is_complete = match number(self.job, "/spec/completions") {
            Some(wanted) => succeeded >= wanted,
            None => succeeded > 0 && active == 0,
        };
        if is_complete {
            return Some(End::Complete);
        }
        let failed = |at: usize| Some(End::Failed { reason: FAILURES[at].0, message: FAILURES[at].1 });
        let limit = number(self.job, "/spec/backoffLimit").unwrap_or(BACKOFF_LIMIT);
        let again: i64 = self.active().into_iter().map(restarts).sum();
        let again =
            if text(self.job, "/spec/template/spec/restartPolicy") == "OnFailure" { again } else { 0 };
        let tries = tally.failed + tally.uncounted_failed.len() as i64 + again;
        if tries > limit {
            return failed(0);
        }
        self.deadline()
            .filter(|due| *due <= self.now && !flag(self.job, "/spec/suspend"))
            .and_then(|_| failed(1))
    }

    fn deadline(&self) -> Option<Timestamp> {
        let seconds = number(self.job, "/spec/activeDeadlineSeconds")?;
        Some(later(moment(self.job, "/status/startTime")?, Duration::from_secs(seconds.unsigned_abs())))
    }

    /// Makes pods that are missing, and deletes those too many.
    fn fill(&self, tally: &Tally, active: &[&Value], plan: &mut Plan) {
        if let Some(due) = self.deadline() {
            plan.wake(due);
        }
        let parallelism = number(self.job, "/spec/parallelism").unwrap_or(1);
        let succeeded = tally.succeeded + tally.uncounted_succeeded.len() as i64;
        let wanted = match number(self.job, "/spec/completions") {
            Some(completions) => parallelism.min(completions - succeeded),
            // Where any success is enough, nothing new is begun after the first.
            None if succeeded > 0 => (active.len() as i64).min(parallelism),
            None => parallelism,
        };
        let missing = wanted.max(0) - active.len() as i64;
        if missing < 0 {
            active.iter().take(missing.unsigned_abs() as usize).for_each(|pod| plan.delete(Kind::Pods, pod));
        }
        if missing <= 0 {
            return;
        }
        match self.backoff(tally) {
            Some(due) if due > self.now => plan.wake(due),
            _ => self.make(tally, active, missing as usize, plan),
        }
    }

    /// When the next pod may come after failures.
    fn backoff(&self, tally: &Tally) -> Option<Timestamp> {
        let failures = tally.failed + tally.uncounted_failed.len() as i64;
        let failed = self.pods.iter().filter(|pod| text(pod, "/status/phase") == "Failed");
        let last = failed
            .filter_map(|pod| moment(pod, "/status/containerStatuses/0/state/terminated/finishedAt"))
            .max()?;
        let wait = BACKOFF.saturating_mul(1 << (failures - 1).clamp(0, 16)).min(BACKOFF_MAX);
        Some(later(last, wait))
    }

    fn make(&self, tally: &Tally, active: &[&Value], missing: usize, plan: &mut Plan) {
        let taken: BTreeSet<i64> = active.iter().filter_map(|pod| indexes::of(pod)).collect();
        let all = 0..number(self.job, "/spec/completions").unwrap_or(i64::MAX);
        let mut free = all.filter(|index| !tally.completed.contains(index) && !taken.contains(index));
        for _ in 0..missing {
            let mut pod = of_template(Kind::Jobs, self.job, &self.job["spec"]["template"]);
            pod["metadata"]["finalizers"] = json!([FINALIZER]);
            pod["metadata"]["generateName"] = format!("{}-", name(self.job)).into();
            if self.is_indexed() {
                let Some(index) = free.next() else { return };
                indexes::mark(&mut pod, name(self.job), index);
            }
            plan.create(
                Kind::Pods,
                pod,
                Event::new(Kind::Jobs, self.job, "SuccessfulCreate", "Created pod: {}"),
            );
        }
    }

    fn status(&self, tally: &Tally, end: Option<End>, is_suspended: bool, plan: &mut Plan) -> Value {
        let stays: Vec<&Value> = if end.is_some() || is_suspended { Vec::new() } else { self.active() };
        let leaving = self.pods.iter().filter(|pod| is_being_deleted(pod) && !is_finished(pod)).count();
        let old = &self.job["status"];
        let started = if is_suspended { Value::Null } else { old["startTime"].clone() };
        let mut status = json!({
            "startTime": if started.is_null() && !is_suspended { time(self.now) } else { started },
            "active": stays.len(),
            "ready": stays.iter().filter(|pod| is_true(pod, "Ready")).count(),
            "succeeded": tally.succeeded,
            "failed": tally.failed,
            "terminating": leaving,
            "uncountedTerminatedPods": {
                "succeeded": tally.uncounted_succeeded, "failed": tally.uncounted_failed,
            },
        });
        if self.is_indexed() {
            status["completedIndexes"] = indexes::print(&tally.completed).into();
        }
        let mut conditions = list(self.job, "/status/conditions").to_vec();
        if is_suspended || conditions.iter().any(|condition| condition["type"] == "Suspended") {
            self.say_suspended(is_suspended, &mut conditions, plan);
        }
        // Over only when everything is counted and nothing runs any more.
        let is_over = self.active().is_empty()
            && leaving == 0
            && tally.uncounted_succeeded.is_empty()
            && tally.uncounted_failed.is_empty()
            && self.pods.iter().all(|pod| !is_tracked(pod));
        if let Some(end) = end {
            self.say_end(end, is_over, &mut conditions, &mut status, plan);
        }
        status["conditions"] = conditions.into();
        status
    }

    fn say_suspended(&self, is_suspended: bool, conditions: &mut Vec<Value>, plan: &mut Plan) {
        let (status, reason, message) = match is_suspended {
            true => ("True", "JobSuspended", "Job suspended"),
            false => ("False", "JobResumed", "Job resumed"),
        };
        if !conditions.iter().any(|old| old["type"] == "Suspended" && old["status"] == status) {
            conditions.retain(|old| old["type"] != "Suspended");
            conditions.push(self.condition("Suspended", status, reason, message));
            let reason = if is_suspended { "Suspended" } else { "Resumed" };
            plan.tell(Event::new(Kind::Jobs, self.job, reason, message));
        }
    }

    fn say_end(
        &self,
        end: End,
        is_over: bool,
        conditions: &mut Vec<Value>,
        status: &mut Value,
        plan: &mut Plan,
    ) {
        let (first, last, reason, message) = match end {
            End::Complete => (
                "SuccessCriteriaMet",
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            ),
            End::Failed { reason, message } => ("FailureTarget", "Failed", reason, message),
        };
        if !conditions.iter().any(|old| old["type"] == first) {
            conditions.push(self.condition(first, "True", reason, message));
        }
        if !is_over {
            return;
        }
        conditions.push(self.condition(last, "True", reason, message));
        match end {
            End::Complete => {
                status["completionTime"] = time(self.now);
                plan.tell(Event::new(Kind::Jobs, self.job, "Completed", "Job completed"));
            }
            End::Failed { reason, message } => {
                plan.tell(Event::new(Kind::Jobs, self.job, reason, message).warning());
            }
        }
    }

    fn condition(&self, kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastProbeTime": time(self.now), "lastTransitionTime": time(self.now),
        })
    }

    /// Removes a Job that is over, after as long as it says.
    fn expire(&self, end: &str, plan: &mut Plan) {
        let Some(seconds) = number(self.job, "/spec/ttlSecondsAfterFinished") else { return };
        let over = crate::object::condition(self.job, end).and_then(|end| moment(end, "/lastTransitionTime"));
        let Some(over) = over else { return };
        match later(over, Duration::from_secs(seconds.unsigned_abs())) {
            due if due <= self.now => plan.delete(Kind::Jobs, self.job),
            due => plan.wake(due),
        }
    }
}

/// Ways to fail, as people are told of them.
const FAILURES: &[(&str, &str)] = &[
    ("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    ("DeadlineExceeded", "Job was active longer than specified deadline"),
];

/// Whether the end of a pod is still to be counted.
fn is_tracked(pod: &Value) -> bool {
    list(pod, "/metadata/finalizers").iter().any(|finalizer| finalizer == FINALIZER)
}

/// Lets a pod go as far as its Job is concerned.
fn release(pod: &Value, plan: &mut Plan) {
    if is_tracked(pod) {
        let mut released = pod.clone();
        let kept = list(pod, "/metadata/finalizers").iter().filter(|finalizer| **finalizer != FINALIZER);
        released["metadata"]["finalizers"] = kept.cloned().collect::<Vec<_>>().into();
        plan.update(Kind::Pods, pod, released);
    }
}
