//! Columns of pods: ready containers, status, restarts.
//!
//! All three columns come from one pass over the container statuses: init containers in order up to the first that has
//! not completed; then, if all have, the containers. The first container with a reason determines the status.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{is_being_deleted, is_true};
use crate::catalog::printer::{duration, items, seconds_between, text, time};

pub(super) fn ready(pod: &Value, _: Timestamp) -> Value {
    let summary = PodSummary::of(pod);
    format!("{}/{}", summary.ready, summary.containers).into()
}

pub(super) fn status(pod: &Value, _: Timestamp) -> Value {
    PodSummary::of(pod).reason.into()
}

pub(super) fn restarts(pod: &Value, now: Timestamp) -> Value {
    let Restarts { count, last } = PodSummary::of(pod).restarts;
    match last.filter(|_| count > 0) {
        Some(last) => format!("{count} ({} ago)", duration(seconds_between(last, now))).into(),
        None => count.to_string().into(),
    }
}

pub(super) fn readiness_gates(pod: &Value, _: Timestamp) -> Value {
    let gates: Vec<String> =
        items(pod, "/spec/readinessGates").map(|gate| text(gate, "/conditionType")).collect();
    if gates.is_empty() {
        return json!("<none>");
    }
    let open = gates.iter().filter(|gate| is_true(pod, "/status/conditions", gate)).count();
    format!("{open}/{}", gates.len()).into()
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += container["restartCount"].as_i64().unwrap_or(0);
        self.last = self.last.max(time(container, "/lastState/terminated/finishedAt"));
    }
}

struct PodSummary {
    containers: usize,
    ready: usize,
    reason: String,
    restarts: Restarts,
}

impl PodSummary {
    fn of(pod: &Value) -> PodSummary {
        let sidecars: Vec<&Value> =
            items(pod, "/spec/initContainers").filter(|one| is_sidecar(one)).collect();
        let mut summary = PodSummary {
            containers: items(pod, "/spec/containers").count() + sidecars.len(),
            ready: 0,
            reason: phase(pod),
            restarts: Restarts::default(),
        };
        let (all, of_sidecars, is_held_up) = summary.read_init_containers(pod, &sidecars);
        summary.restarts = all;
        if !is_held_up || is_true(pod, "/status/conditions", "Initialized") {
            summary.restarts = of_sidecars;
            summary.read_containers(pod);
        }
        if is_being_deleted(pod) {
            let is_over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
            match pod["status"]["reason"].as_str() {
                Some("NodeLost") => summary.reason = "Unknown".into(),
                _ if !is_over => summary.reason = "Terminating".into(),
                _ => {}
            }
        }
        summary
    }

    /// Returns the restarts of all init containers, the restarts of sidecars, and whether one blocks the pod's start.
    fn read_init_containers(&mut self, pod: &Value, sidecars: &[&Value]) -> (Restarts, Restarts, bool) {
        let (mut all, mut of_sidecars) = (Restarts::default(), Restarts::default());
        let total = items(pod, "/spec/initContainers").count();
        for (index, container) in items(pod, "/status/initContainerStatuses").enumerate() {
            let is_sidecar = sidecars.iter().any(|sidecar| sidecar["name"] == container["name"]);
            all.add(container);
            if is_sidecar {
                of_sidecars.add(container);
            }
            let state = &container["state"];
            if state["terminated"]["exitCode"] == 0 {
                continue;
            }
            if is_sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waiting = text(state, "/waiting/reason");
            self.reason = match () {
                () if state["terminated"].is_object() => format!("Init:{}", ending(&state["terminated"])),
                () if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                () => format!("Init:{index}/{total}"),
            };
            return (all, of_sidecars, true);
        }
        (all, of_sidecars, false)
    }

    fn read_containers(&mut self, pod: &Value) {
        let statuses: Vec<&Value> = items(pod, "/status/containerStatuses").collect();
        let mut is_running = false;
        let mut failure = None;
        // From last to first, so that the reason of the first container remains.
        for container in statuses.into_iter().rev() {
            self.restarts.add(container);
            let state = &container["state"];
            let waiting = text(state, "/waiting/reason");
            if !waiting.is_empty() {
                self.reason = waiting;
            } else if state["terminated"].is_object() {
                self.reason = ending(&state["terminated"]);
                if state["terminated"]["exitCode"].as_i64().unwrap_or(0) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container["ready"] == true && state["running"].is_object() {
                is_running = true;
                self.ready += 1;
            }
        }
        // A pod of which only some containers have completed is not completed.
        if self.reason == "Completed" {
            let is_ready = is_true(pod, "/status/conditions", "Ready");
            match (is_running, failure) {
                (true, _) if is_ready => self.reason = "Running".into(),
                (_, Some(failure)) => self.reason = failure,
                (true, None) => self.reason = "NotReady".into(),
                (false, None) => {}
            }
        }
    }
}

/// Reports whether an init container keeps running beside the others.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn phase(pod: &Value) -> String {
    let is_gated = items(pod, "/status/conditions")
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    match text(pod, "/status/reason") {
        _ if is_gated => "SchedulingGated".to_owned(),
        reason if reason.is_empty() => text(pod, "/status/phase"),
        reason => reason,
    }
}

/// Returns why a container terminated.
fn ending(terminated: &Value) -> String {
    let number = |field: &str| terminated[field].as_i64().unwrap_or(0);
    match text(terminated, "/reason") {
        reason if !reason.is_empty() => reason,
        _ if number("signal") != 0 => format!("Signal:{}", number("signal")),
        _ => format!("ExitCode:{}", number("exitCode")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_shows_its_readiness_status_and_restarts() {
        let now: Timestamp = "2026-11-16T00:05:00Z".parse().unwrap();
        let check = |pod: Value, expected: [&str; 3]| {
            let cells = [ready(&pod, now), status(&pod, now), restarts(&pod, now)];
            assert_eq!(cells, expected.map(Value::from), "{pod}");
        };
        let running = json!({ "ready": true, "state": { "running": {} } });
        let done = json!({ "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } });
        check(
            json!({ "spec": { "containers": [{}] }, "status": { "phase": "Pending" } }),
            ["0/1", "Pending", "0"],
        );
        check(
            json!({ "spec": { "containers": [{}, {}] },
                "status": { "phase": "Running", "containerStatuses": [running, done],
                    "conditions": [{ "type": "Ready", "status": "True" }] } }),
            ["1/2", "Running", "0"],
        );
        check(
            json!({ "spec": { "containers": [{}, {}] },
                "status": { "phase": "Running", "containerStatuses": [done, running] } }),
            ["1/2", "NotReady", "0"],
        );
        check(
            json!({ "spec": { "containers": [{}] }, "status": { "phase": "Running", "containerStatuses": [{
                "restartCount": 4, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                "lastState": { "terminated": { "finishedAt": "2026-11-16T00:00:00Z" } } }] } }),
            ["0/1", "CrashLoopBackOff", "4 (5m ago)"],
        );
        check(
            json!({ "spec": { "containers": [{}], "initContainers": [{ "name": "a" }, { "name": "b" }] },
                "status": { "phase": "Pending", "initContainerStatuses": [
                    { "name": "a", "state": { "terminated": { "exitCode": 0 } } },
                    { "name": "b", "state": { "running": {} } }] } }),
            ["0/1", "Init:1/2", "0"],
        );
        check(
            json!({ "metadata": { "deletionTimestamp": "2026-11-16T00:00:00Z" },
                "spec": { "containers": [{}] }, "status": { "phase": "Running" } }),
            ["0/1", "Terminating", "0"],
        );
    }
}
