//! CronJobs: a Job whenever it is time.

use api::meta::cron::Schedule;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::clock::later;
use crate::kind::Kind;
use crate::object::{
    created, flag, is_being_deleted, is_true, list, moment, name, namespace, number, reference, text, time,
    uid,
};
use crate::plan::{Event, Plan};
use crate::world::World;

/// The minute a Job stands for.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Moments that were missed and are looked at one by one. Of more only the last counts.
const MISSED_MAX: usize = 100;

pub(crate) fn step(world: &World, space: &str, now: Timestamp, plan: &mut Plan) {
    for cron in world.all(Kind::CronJobs, space) {
        if !is_being_deleted(cron) {
            look(world, cron, now, plan);
        }
    }
}

fn look(world: &World, cron: &Value, now: Timestamp, plan: &mut Plan) {
    let jobs = world.owned(Kind::Jobs, cron);
    let (over, active): (Vec<&Value>, Vec<&Value>) = jobs.iter().partition(|job| is_over(job));
    trim(cron, &over, plan);
    let mut status = cron["status"].clone();
    if status.is_null() {
        status = json!({});
    }
    let finished = over.iter().filter(|job| is_true(job, "Complete"));
    let last = finished.filter_map(|job| moment(job, "/status/completionTime")).max();
    if let Some(last) =
        last.filter(|last| moment(cron, "/status/lastSuccessfulTime").is_none_or(|old| old < *last))
    {
        status["lastSuccessfulTime"] = time(last);
    }
    let references: Vec<Value> = active.iter().map(|job| active_reference(job)).collect();
    status["active"] = references.into();
    if let Some(due) = due(cron, now, plan) {
        start(world, cron, &active, due, &mut status, plan);
    }
    plan.status(Kind::CronJobs, cron, status);
}

fn is_over(job: &Value) -> bool {
    is_true(job, "Complete") || is_true(job, "Failed")
}

fn active_reference(job: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": name(job), "namespace": namespace(job), "uid": uid(job),
    })
}

/// The last moment that is over and was not used. Asks to be woken at the next one.
fn due(cron: &Value, now: Timestamp, plan: &mut Plan) -> Option<Timestamp> {
    if flag(cron, "/spec/suspend") {
        return None;
    }
    let schedule = Schedule::parse(text(cron, "/spec/schedule"))?;
    let zone = match text(cron, "/spec/timeZone") {
        "" => TimeZone::UTC,
        zone => TimeZone::get(zone).ok()?,
    };
    let mut since = moment(cron, "/status/lastScheduleTime").unwrap_or_else(|| created(cron));
    let patience_s = number(cron, "/spec/startingDeadlineSeconds");
    if let Some(seconds) = patience_s {
        let patience = std::time::Duration::from_secs(seconds.unsigned_abs());
        since = since.max(now.checked_sub(patience).unwrap_or(since));
    }
    let mut last = None;
    for _ in 0..MISSED_MAX {
        match schedule.after(since, &zone) {
            Some(moment) if moment <= now => (last, since) = (Some(moment), moment),
            Some(moment) => {
                plan.wake(moment);
                return last;
            }
            None => return last,
        }
    }
    // After a long absence only the present matters.
    plan.wake(later(now, std::time::Duration::from_secs(60)));
    last
}

fn start(
    world: &World,
    cron: &Value,
    active: &[&Value],
    due: Timestamp,
    status: &mut Value,
    plan: &mut Plan,
) {
    let job_name = format!("{}-{}", name(cron), due.as_second() / 60);
    if world.get(Kind::Jobs, namespace(cron), &job_name).is_some() {
        status["lastScheduleTime"] = time(due);
        return;
    }
    match text(cron, "/spec/concurrencyPolicy") {
        "Forbid" if !active.is_empty() => {
            let told = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.tell(Event::new(Kind::CronJobs, cron, "JobAlreadyActive", told));
            return;
        }
        "Replace" => active.iter().for_each(|job| plan.delete(Kind::Jobs, job)),
        _ => {}
    }
    let template = &cron["spec"]["jobTemplate"];
    let mut annotations = template["metadata"]["annotations"].clone();
    annotations[SCHEDULED_AT] = time(due);
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": job_name, "namespace": namespace(cron), "annotations": annotations,
            "labels": template["metadata"]["labels"], "ownerReferences": [reference(Kind::CronJobs, cron)],
        },
        "spec": template["spec"],
    });
    plan.create(Kind::Jobs, job, Event::new(Kind::CronJobs, cron, "SuccessfulCreate", "Created job {}"));
}

/// Removes the oldest Jobs that are over, as many of each sort as are not to be kept.
fn trim(cron: &Value, over: &[&Value], plan: &mut Plan) {
    for (end, field, default) in
        [("Complete", "/spec/successfulJobsHistoryLimit", 3), ("Failed", "/spec/failedJobsHistoryLimit", 1)]
    {
        let mut jobs: Vec<&Value> =
            over.iter().filter(|job| is_true(job, end) && !is_being_deleted(job)).copied().collect();
        jobs.sort_by_key(|job| (created(job), name(job)));
        let kept = number(cron, field).unwrap_or(default).max(0) as usize;
        let surplus = jobs.len().saturating_sub(kept);
        for job in jobs.into_iter().take(surplus) {
            plan.delete(Kind::Jobs, job);
            let told = format!("Deleted job {}", name(job));
            plan.tell(Event::new(Kind::CronJobs, cron, "SuccessfulDelete", told));
        }
    }
    // An end is told once: when the Job leaves the list of those that are active.
    let listed = |job: &&&Value| {
        list(cron, "/status/active").iter().any(|active| active["uid"] == job["metadata"]["uid"])
    };
    for job in over.iter().filter(listed) {
        let end = if is_true(job, "Complete") { "Complete" } else { "Failed" };
        let told = format!("Saw completed job: {}, condition: {end}", name(job));
        plan.tell(Event::new(Kind::CronJobs, cron, "SawCompletedJob", told));
    }
}
