//! Jobs: create pods until enough have succeeded.
//!
//! A finished pod is counted exactly once, although it may be deleted at any moment: it has a finalizer until its uid
//! is in the Job's status, and the uid is removed from there in the write that increases the count.
//!
//! ```text
//!   finished ─► uid in uncountedTerminatedPods ─► finalizer removed ─► uid removed, succeeded or failed + 1
//! ```

mod indexes;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::from_template;
use crate::cache::Cache;
use crate::clock::later;
use crate::objects::fields::{
    condition, controller_reference, count, flag, is_being_deleted, is_true, list, name, number, text, time,
    timestamp, uid,
};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::{is_finished, restarts};
use crate::plan::{Event, Plan};

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The delay before a pod is replaced after the first failure. It doubles with each further failure.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(600);
/// The default of `backoffLimit`.
const BACKOFF_LIMIT: i64 = 6;

pub(crate) fn reconcile(cache: &Cache, ns: &str, now: Timestamp, plan: &mut Plan) {
    for job in cache.list(ObjectKind::Jobs, ns) {
        let pods = cache.controlled_by(ObjectKind::Pods, job);
        match is_being_deleted(job) {
            // The pods of a deleted Job are no longer counted.
            true => pods.iter().for_each(|pod| remove_finalizer(pod, plan)),
            false => JobReconcile { job, pods, now }.reconcile(plan),
        }
    }
    // A Job that is deleted in the background is removed before its pods, and its own reconcile cannot release them.
    let jobs: BTreeSet<&str> = cache.list(ObjectKind::Jobs, ns).map(uid).collect();
    let is_orphaned =
        |pod: &&Value| controller_reference(pod).is_none_or(|owner| !jobs.contains(text(owner, "/uid")));
    cache.list(ObjectKind::Pods, ns).filter(is_orphaned).for_each(|pod| remove_finalizer(pod, plan));
}

/// A Job and its pods.
struct JobReconcile<'a> {
    job: &'a Value,
    pods: Vec<&'a Value>,
    now: Timestamp,
}

/// The counts of finished pods, and the uids of those that are recorded and not counted yet.
#[derive(Clone, Debug, Default)]
struct Tally {
    succeeded: i64,
    failed: i64,
    uncounted_succeeded: BTreeSet<String>,
    uncounted_failed: BTreeSet<String>,
    /// The completed indexes of an indexed Job.
    completed: BTreeSet<i64>,
}

/// Why a Job is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JobEnd {
    Complete,
    Failed { reason: &'static str, message: &'static str },
}

impl JobReconcile<'_> {
    fn is_indexed(&self) -> bool {
        text(self.job, "/spec/completionMode") == "Indexed"
    }

    fn active(&self) -> Vec<&Value> {
        self.pods.iter().filter(|pod| !is_finished(pod) && !is_being_deleted(pod)).copied().collect()
    }

    fn reconcile(&self, plan: &mut Plan) {
        if let Some(end) = ["Complete", "Failed"].into_iter().find(|end| is_true(self.job, end)) {
            self.pods.iter().for_each(|pod| remove_finalizer(pod, plan));
            return self.expire(end, plan);
        }
        let tally = self.count(plan);
        let active = self.active();
        let end = self.recorded_end().or_else(|| self.end(&tally, active.len()));
        let is_suspended = flag(self.job, "/spec/suspend");
        if end.is_some() || is_suspended {
            active.iter().for_each(|pod| plan.delete(ObjectKind::Pods, pod));
        } else {
            self.scale(&tally, &active, plan);
        }
        let status = self.status(&tally, end, is_suspended, plan);
        plan.status(ObjectKind::Jobs, self.job, status);
    }

    /// Records finished pods, removes the finalizer of recorded ones, and counts those without it.
    fn count(&self, plan: &mut Plan) -> Tally {
        let recorded = |field: &str| -> BTreeSet<String> {
            let pointer = format!("/status/uncountedTerminatedPods/{field}");
            list(self.job, &pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut tally = Tally {
            succeeded: count(self.job, "/status/succeeded"),
            failed: count(self.job, "/status/failed"),
            uncounted_succeeded: recorded("succeeded"),
            uncounted_failed: recorded("failed"),
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
            let is_recorded =
                tally.uncounted_succeeded.contains(uid(pod)) || tally.uncounted_failed.contains(uid(pod));
            match text(pod, "/status/phase") {
                _ if is_recorded => remove_finalizer(pod, plan),
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

    /// A succeeded pod of an indexed Job is recorded by its index. The finalizer is removed once the index is stored.
    fn complete(&self, pod: &Value, tally: &mut Tally, plan: &mut Plan) {
        let Some(index) = indexes::of(pod) else { return };
        let is_stored = tally.completed.contains(&index)
            && indexes::parse(text(self.job, "/status/completedIndexes")).contains(&index);
        if is_stored {
            remove_finalizer(pod, plan);
        }
        tally.completed.insert(index);
    }

    /// Returns the end that the status already records. It does not change while pods terminate.
    fn recorded_end(&self) -> Option<JobEnd> {
        if is_true(self.job, "SuccessCriteriaMet") {
            return Some(JobEnd::Complete);
        }
        let target = condition(self.job, "FailureTarget")?;
        FAILURES
            .iter()
            .find(|(reason, _)| target["reason"] == *reason)
            .map(|(reason, message)| JobEnd::Failed { reason, message })
    }

    fn end(&self, tally: &Tally, active: usize) -> Option<JobEnd> {
        let succeeded = tally.succeeded + tally.uncounted_succeeded.len() as i64;
        let is_complete = match number(self.job, "/spec/completions") {
            Some(completions) => succeeded >= completions,
            None => succeeded > 0 && active == 0,
        };
        if is_complete {
            return Some(JobEnd::Complete);
        }
        let failed = |at: usize| Some(JobEnd::Failed { reason: FAILURES[at].0, message: FAILURES[at].1 });
        let limit = number(self.job, "/spec/backoffLimit").unwrap_or(BACKOFF_LIMIT);
        let container_restarts: i64 = self.active().into_iter().map(restarts).sum();
        let container_restarts = match text(self.job, "/spec/template/spec/restartPolicy") {
            "OnFailure" => container_restarts,
            _ => 0,
        };
        let tries = tally.failed + tally.uncounted_failed.len() as i64 + container_restarts;
        if tries > limit {
            return failed(0);
        }
        self.deadline()
            .filter(|due| *due <= self.now && !flag(self.job, "/spec/suspend"))
            .and_then(|_| failed(1))
    }

    fn deadline(&self) -> Option<Timestamp> {
        let seconds = number(self.job, "/spec/activeDeadlineSeconds")?;
        Some(later(timestamp(self.job, "/status/startTime")?, Duration::from_secs(seconds.unsigned_abs())))
    }

    /// Creates missing pods, and deletes surplus ones.
    fn scale(&self, tally: &Tally, active: &[&Value], plan: &mut Plan) {
        if let Some(due) = self.deadline() {
            plan.requeue_at(due);
        }
        let parallelism = number(self.job, "/spec/parallelism").unwrap_or(1);
        let succeeded = tally.succeeded + tally.uncounted_succeeded.len() as i64;
        let desired = match number(self.job, "/spec/completions") {
            Some(completions) => parallelism.min(completions - succeeded),
            // A Job without `completions` creates no pod after the first success.
            None if succeeded > 0 => (active.len() as i64).min(parallelism),
            None => parallelism,
        };
        let missing = desired.max(0) - active.len() as i64;
        if missing < 0 {
            active
                .iter()
                .take(missing.unsigned_abs() as usize)
                .for_each(|pod| plan.delete(ObjectKind::Pods, pod));
        }
        if missing <= 0 {
            return;
        }
        match self.backoff(tally) {
            Some(due) if due > self.now => plan.requeue_at(due),
            _ => self.create_pods(tally, active, missing as usize, plan),
        }
    }

    /// Returns when the next pod may be created after failures.
    fn backoff(&self, tally: &Tally) -> Option<Timestamp> {
        let failures = tally.failed + tally.uncounted_failed.len() as i64;
        let failed = self.pods.iter().filter(|pod| text(pod, "/status/phase") == "Failed");
        let last = failed
            .filter_map(|pod| timestamp(pod, "/status/containerStatuses/0/state/terminated/finishedAt"))
            .max()?;
        let wait = BACKOFF.saturating_mul(1 << (failures - 1).clamp(0, 16)).min(BACKOFF_MAX);
        Some(later(last, wait))
    }

    fn create_pods(&self, tally: &Tally, active: &[&Value], missing: usize, plan: &mut Plan) {
        let taken: BTreeSet<i64> = active.iter().filter_map(|pod| indexes::of(pod)).collect();
        let all = 0..number(self.job, "/spec/completions").unwrap_or(i64::MAX);
        let mut free = all.filter(|index| !tally.completed.contains(index) && !taken.contains(index));
        for _ in 0..missing {
            let mut pod = from_template(ObjectKind::Jobs, self.job, &self.job["spec"]["template"]);
            pod["metadata"]["finalizers"] = json!([FINALIZER]);
            pod["metadata"]["generateName"] = format!("{}-", name(self.job)).into();
            if self.is_indexed() {
                let Some(index) = free.next() else { return };
                indexes::set(&mut pod, name(self.job), index);
            }
            plan.create(
                ObjectKind::Pods,
                pod,
                Event::new(ObjectKind::Jobs, self.job, "SuccessfulCreate", "Created pod: {}"),
            );
        }
    }

    fn status(&self, tally: &Tally, end: Option<JobEnd>, is_suspended: bool, plan: &mut Plan) -> Value {
        let running: Vec<&Value> = if end.is_some() || is_suspended { Vec::new() } else { self.active() };
        let terminating = self.pods.iter().filter(|pod| is_being_deleted(pod) && !is_finished(pod)).count();
        let old = &self.job["status"];
        let started = if is_suspended { Value::Null } else { old["startTime"].clone() };
        let mut status = json!({
            "startTime": if started.is_null() && !is_suspended { time(self.now) } else { started },
            "active": running.len(),
            "ready": running.iter().filter(|pod| is_true(pod, "Ready")).count(),
            "succeeded": tally.succeeded,
            "failed": tally.failed,
            "terminating": terminating,
            "uncountedTerminatedPods": {
                "succeeded": tally.uncounted_succeeded, "failed": tally.uncounted_failed,
            },
        });
        if self.is_indexed() {
            status["completedIndexes"] = indexes::print(&tally.completed).into();
        }
        let mut conditions = list(self.job, "/status/conditions").to_vec();
        if is_suspended || conditions.iter().any(|condition| condition["type"] == "Suspended") {
            self.set_suspended(is_suspended, &mut conditions, plan);
        }
        // Finished only when every pod is counted and none runs.
        let is_finished = self.active().is_empty()
            && terminating == 0
            && tally.uncounted_succeeded.is_empty()
            && tally.uncounted_failed.is_empty()
            && self.pods.iter().all(|pod| !is_tracked(pod));
        if let Some(end) = end {
            self.set_end(end, is_finished, &mut conditions, &mut status, plan);
        }
        status["conditions"] = conditions.into();
        status
    }

    fn set_suspended(&self, is_suspended: bool, conditions: &mut Vec<Value>, plan: &mut Plan) {
        let (status, reason, message) = match is_suspended {
            true => ("True", "JobSuspended", "Job suspended"),
            false => ("False", "JobResumed", "Job resumed"),
        };
        if !conditions.iter().any(|old| old["type"] == "Suspended" && old["status"] == status) {
            conditions.retain(|old| old["type"] != "Suspended");
            conditions.push(self.new_condition("Suspended", status, reason, message));
            let reason = if is_suspended { "Suspended" } else { "Resumed" };
            plan.record(Event::new(ObjectKind::Jobs, self.job, reason, message));
        }
    }

    fn set_end(
        &self,
        end: JobEnd,
        is_finished: bool,
        conditions: &mut Vec<Value>,
        status: &mut Value,
        plan: &mut Plan,
    ) {
        let (first, last, reason, message) = match end {
            JobEnd::Complete => (
                "SuccessCriteriaMet",
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            ),
            JobEnd::Failed { reason, message } => ("FailureTarget", "Failed", reason, message),
        };
        if !conditions.iter().any(|old| old["type"] == first) {
            conditions.push(self.new_condition(first, "True", reason, message));
        }
        if !is_finished {
            return;
        }
        conditions.push(self.new_condition(last, "True", reason, message));
        match end {
            JobEnd::Complete => {
                status["completionTime"] = time(self.now);
                plan.record(Event::new(ObjectKind::Jobs, self.job, "Completed", "Job completed"));
            }
            JobEnd::Failed { reason, message } => {
                plan.record(Event::new(ObjectKind::Jobs, self.job, reason, message).warning());
            }
        }
    }

    fn new_condition(&self, kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastProbeTime": time(self.now), "lastTransitionTime": time(self.now),
        })
    }

    /// Deletes a finished Job after `ttlSecondsAfterFinished`.
    fn expire(&self, end: &str, plan: &mut Plan) {
        let Some(seconds) = number(self.job, "/spec/ttlSecondsAfterFinished") else { return };
        let finished = condition(self.job, end).and_then(|end| timestamp(end, "/lastTransitionTime"));
        let Some(finished) = finished else { return };
        match later(finished, Duration::from_secs(seconds.unsigned_abs())) {
            due if due <= self.now => plan.delete(ObjectKind::Jobs, self.job),
            due => plan.requeue_at(due),
        }
    }
}

/// The reasons and messages of failed Jobs.
const FAILURES: &[(&str, &str)] = &[
    ("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    ("DeadlineExceeded", "Job was active longer than specified deadline"),
];

/// Returns whether the pod has the finalizer of its Job.
fn is_tracked(pod: &Value) -> bool {
    list(pod, "/metadata/finalizers").iter().any(|finalizer| finalizer == FINALIZER)
}

/// Removes the finalizer of its Job from a pod.
fn remove_finalizer(pod: &Value, plan: &mut Plan) {
    if is_tracked(pod) {
        let mut released = pod.clone();
        let remaining = list(pod, "/metadata/finalizers").iter().filter(|finalizer| **finalizer != FINALIZER);
        released["metadata"]["finalizers"] = remaining.cloned().collect::<Vec<_>>().into();
        plan.update(ObjectKind::Pods, pod, released);
    }
}
