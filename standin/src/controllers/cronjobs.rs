//! CronJobs: create a Job at each scheduled time.

use api::meta::cron::Schedule;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::clock::later;
use crate::objects::fields::{
    creation_time, flag, is_being_deleted, is_true, list, name, namespace, number, owner_reference, text,
    time, timestamp, uid,
};
use crate::objects::kind::ObjectKind;
use crate::plan::{Event, Plan};

/// The scheduled time of a Job.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// How many missed schedule times are examined one by one. If there are more, only the last counts.
const MISSED_MAX: usize = 100;

pub(crate) fn reconcile(cache: &Cache, ns: &str, now: Timestamp, plan: &mut Plan) {
    for cron in cache.list(ObjectKind::CronJobs, ns) {
        if !is_being_deleted(cron) {
            reconcile_cron_job(cache, cron, now, plan);
        }
    }
}

fn reconcile_cron_job(cache: &Cache, cron: &Value, now: Timestamp, plan: &mut Plan) {
    let jobs = cache.controlled_by(ObjectKind::Jobs, cron);
    let (finished, active): (Vec<&Value>, Vec<&Value>) = jobs.iter().partition(|job| is_finished(job));
    delete_old_jobs(cron, &finished, plan);
    record_completed(cron, &finished, plan);
    let mut status = cron["status"].clone();
    if status.is_null() {
        status = json!({});
    }
    let completed = finished.iter().filter(|job| is_true(job, "Complete"));
    let last = completed.filter_map(|job| timestamp(job, "/status/completionTime")).max();
    if let Some(last) =
        last.filter(|last| timestamp(cron, "/status/lastSuccessfulTime").is_none_or(|old| old < *last))
    {
        status["lastSuccessfulTime"] = time(last);
    }
    let references: Vec<Value> = active.iter().map(|job| active_reference(job)).collect();
    status["active"] = references.into();
    if let Some(due) = last_missed(cron, now, plan) {
        create_job(cache, cron, &active, due, &mut status, plan);
    }
    plan.status(ObjectKind::CronJobs, cron, status);
}

fn is_finished(job: &Value) -> bool {
    is_true(job, "Complete") || is_true(job, "Failed")
}

fn active_reference(job: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": name(job), "namespace": namespace(job), "uid": uid(job),
    })
}

/// Returns the last scheduled time that has passed without a Job. Requeues for the next one.
fn last_missed(cron: &Value, now: Timestamp, plan: &mut Plan) -> Option<Timestamp> {
    if flag(cron, "/spec/suspend") {
        return None;
    }
    let schedule = Schedule::parse(text(cron, "/spec/schedule")).ok()?;
    let zone = match text(cron, "/spec/timeZone") {
        "" => TimeZone::UTC,
        zone => TimeZone::get(zone).ok()?,
    };
    let mut since = timestamp(cron, "/status/lastScheduleTime").unwrap_or_else(|| creation_time(cron));
    let deadline_s = number(cron, "/spec/startingDeadlineSeconds");
    if let Some(seconds) = deadline_s {
        let deadline = std::time::Duration::from_secs(seconds.unsigned_abs());
        since = since.max(now.checked_sub(deadline).unwrap_or(since));
    }
    let mut last = None;
    for _ in 0..MISSED_MAX {
        match schedule.after(since, &zone) {
            Some(at) if at <= now => (last, since) = (Some(at), at),
            Some(at) => {
                plan.requeue_at(at);
                return last;
            }
            None => return last,
        }
    }
    // Too many times were missed, so the next one is not known: checks again in a minute.
    plan.requeue_at(later(now, std::time::Duration::from_secs(60)));
    last
}

fn create_job(
    cache: &Cache,
    cron: &Value,
    active: &[&Value],
    due: Timestamp,
    status: &mut Value,
    plan: &mut Plan,
) {
    let job_name = format!("{}-{}", name(cron), due.as_second() / 60);
    if cache.get(ObjectKind::Jobs, namespace(cron), &job_name).is_some() {
        status["lastScheduleTime"] = time(due);
        return;
    }
    match text(cron, "/spec/concurrencyPolicy") {
        "Forbid" if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.record(Event::new(ObjectKind::CronJobs, cron, "JobAlreadyActive", message));
            return;
        }
        "Replace" => active.iter().for_each(|job| plan.delete(ObjectKind::Jobs, job)),
        _ => {}
    }
    let template = &cron["spec"]["jobTemplate"];
    let mut annotations = template["metadata"]["annotations"].clone();
    annotations[SCHEDULED_AT] = time(due);
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": job_name, "namespace": namespace(cron), "annotations": annotations,
            "labels": template["metadata"]["labels"], "ownerReferences": [owner_reference(ObjectKind::CronJobs, cron)],
        },
        "spec": template["spec"],
    });
    plan.create(
        ObjectKind::Jobs,
        job,
        Event::new(ObjectKind::CronJobs, cron, "SuccessfulCreate", "Created job {}"),
    );
}

/// Deletes the oldest finished Jobs beyond the history limits.
fn delete_old_jobs(cron: &Value, finished: &[&Value], plan: &mut Plan) {
    for (end, field, default) in
        [("Complete", "/spec/successfulJobsHistoryLimit", 3), ("Failed", "/spec/failedJobsHistoryLimit", 1)]
    {
        let mut jobs: Vec<&Value> =
            finished.iter().filter(|job| is_true(job, end) && !is_being_deleted(job)).copied().collect();
        jobs.sort_by_key(|job| (creation_time(job), name(job)));
        let limit = number(cron, field).unwrap_or(default).max(0) as usize;
        let surplus = jobs.len().saturating_sub(limit);
        for job in jobs.into_iter().take(surplus) {
            plan.delete(ObjectKind::Jobs, job);
            let message = format!("Deleted job {}", name(job));
            plan.record(Event::new(ObjectKind::CronJobs, cron, "SuccessfulDelete", message));
        }
    }
}

/// Records an Event for each listed active Job that has finished.
fn record_completed(cron: &Value, finished: &[&Value], plan: &mut Plan) {
    let listed = |job: &&&Value| {
        list(cron, "/status/active").iter().any(|active| active["uid"] == job["metadata"]["uid"])
    };
    for job in finished.iter().filter(listed) {
        let end = if is_true(job, "Complete") { "Complete" } else { "Failed" };
        let message = format!("Saw completed job: {}, condition: {end}", name(job));
        plan.record(Event::new(ObjectKind::CronJobs, cron, "SawCompletedJob", message));
    }
}
