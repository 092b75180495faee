//! The status of a pod, as a kubelet writes it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{count, generation, is_true, list, name, text, time, uid};

/// What all containers of a pod are doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Containers {
    Creating,
    /// The image does not come.
    Stuck,
    Running {
        ready: bool,
        restarts: i64,
    },
    /// Failed, and waiting to be started again.
    Backoff {
        restarts: i64,
        wait_s: u64,
    },
    Ended {
        exit: i64,
    },
}

impl Containers {
    fn phase(self) -> &'static str {
        match self {
            Containers::Creating | Containers::Stuck => "Pending",
            Containers::Running { .. } | Containers::Backoff { .. } => "Running",
            Containers::Ended { exit: 0 } => "Succeeded",
            Containers::Ended { .. } => "Failed",
        }
    }

    fn is_ready(self) -> bool {
        matches!(self, Containers::Running { ready: true, .. })
    }

    fn is_made(self) -> bool {
        !matches!(self, Containers::Creating | Containers::Stuck)
    }
}

/// The status of a pod whose containers do this.
pub(crate) fn status(pod: &Value, containers: Containers, now: Timestamp) -> Value {
    let mut status = pod["status"].clone();
    status["phase"] = containers.phase().into();
    status["observedGeneration"] = generation(pod).into();
    if status["startTime"].is_null() {
        status["startTime"] = time(now);
    }
    let host = address(192, 168, text(pod, "/spec/nodeName"));
    status["hostIP"] = host.as_str().into();
    status["hostIPs"] = json!([{ "ip": host }]);
    if containers.is_made() {
        let own = match pod["spec"]["hostNetwork"] == true {
            true => host,
            false => address(10, 0, uid(pod)),
        };
        status["podIP"] = own.as_str().into();
        status["podIPs"] = json!([{ "ip": own }]);
    }
    status["conditions"] = conditions(pod, containers, now);
    let one = |container: &Value| container_status(pod, container, containers, now);
    status["containerStatuses"] = list(pod, "/spec/containers").iter().map(one).collect();
    if !list(pod, "/spec/initContainers").is_empty() {
        let one = |container: &Value| init_status(pod, container, containers, now);
        status["initContainerStatuses"] = list(pod, "/spec/initContainers").iter().map(one).collect();
    }
    if !list(pod, "/spec/ephemeralContainers").is_empty() {
        let one = |container: &Value| ephemeral_status(pod, container, now);
        status["ephemeralContainerStatuses"] =
            list(pod, "/spec/ephemeralContainers").iter().map(one).collect();
    }
    status
}

/// Whether somebody has put a container into a running pod that is not there yet.
pub(crate) fn is_joined(pod: &Value) -> bool {
    let there = list(pod, "/status/ephemeralContainerStatuses").len();
    list(pod, "/spec/ephemeralContainers").len() > there
}

fn conditions(pod: &Value, containers: Containers, now: Timestamp) -> Value {
    let names: Vec<&str> =
        list(pod, "/spec/containers").iter().filter_map(|container| container["name"].as_str()).collect();
    let unready = format!("containers with unready status: [{}]", names.join(" "));
    let (ready, why, told) = match containers {
        _ if containers.is_ready() => (true, "", ""),
        Containers::Ended { exit: 0 } => (false, "PodCompleted", ""),
        Containers::Ended { .. } => (false, "PodFailed", ""),
        _ => (false, "ContainersNotReady", unready.as_str()),
    };
    let gate = list(pod, "/spec/readinessGates")
        .iter()
        .map(|gate| text(gate, "/conditionType"))
        .find(|gate| !is_true(pod, gate));
    let gated =
        gate.map(|gate| format!("corresponding condition of pod readiness gate {gate:?} does not exist."));
    let is_made = containers.is_made();
    let rows = [
        ("PodReadyToStartContainers", is_made, "", ""),
        ("Initialized", true, "", ""),
        match &gated {
            Some(told) if ready => ("Ready", false, "ReadinessGatesNotReady", told.as_str()),
            _ => ("Ready", ready, why, told),
        },
        ("ContainersReady", ready, why, told),
        ("PodScheduled", true, "", ""),
    ];
    let mut conditions: Vec<Value> = list(pod, "/status/conditions").to_vec();
    for (kind, is_so, reason, message) in rows {
        let word = if is_so { "True" } else { "False" };
        let old = conditions.iter().position(|condition| condition["type"] == kind);
        let old = old.map(|place| conditions.remove(place));
        let since = old.filter(|old| old["status"] == word).map(|old| old["lastTransitionTime"].clone());
        let mut condition = json!({
            "type": kind, "status": word, "lastProbeTime": null,
            "lastTransitionTime": since.unwrap_or_else(|| time(now)), "observedGeneration": generation(pod),
        });
        if !reason.is_empty() {
            condition["reason"] = reason.into();
        }
        if !message.is_empty() {
            condition["message"] = message.into();
        }
        conditions.push(condition);
    }
    conditions.into()
}

fn container_status(pod: &Value, container: &Value, containers: Containers, now: Timestamp) -> Value {
    let container_name = text(container, "/name");
    let old = list(pod, "/status/containerStatuses").iter().find(|old| old["name"] == container["name"]);
    let old = old.cloned().unwrap_or_default();
    let restarts = match containers {
        Containers::Running { restarts, .. } | Containers::Backoff { restarts, .. } => restarts,
        _ => count(&old, "/restartCount"),
    };
    let id = format!("standin://{}/{container_name}/{restarts}", uid(pod));
    let started = match old["state"]["running"]["startedAt"].clone() {
        Value::Null => time(now),
        started => started,
    };
    let ended = |exit: i64| {
        let reason = if exit == 0 { "Completed" } else { "Error" };
        json!({ "terminated": {
            "exitCode": exit, "reason": reason, "startedAt": started, "finishedAt": time(now), "containerID": id,
        } })
    };
    let waiting =
        |reason: &str, message: String| json!({ "waiting": { "reason": reason, "message": message } });
    let image = text(container, "/image");
    let mut last = old["lastState"].clone();
    let state = match containers {
        Containers::Creating => json!({ "waiting": { "reason": "ContainerCreating" } }),
        Containers::Stuck => waiting("ImagePullBackOff", format!("Back-off pulling image {image:?}")),
        Containers::Running { .. } => json!({ "running": { "startedAt": started } }),
        Containers::Ended { exit } => ended(exit),
        Containers::Backoff { wait_s, .. } => {
            last = ended(1);
            let who = format!("{}_{}({})", name(pod), crate::object::namespace(pod), uid(pod));
            waiting(
                "CrashLoopBackOff",
                format!("back-off {wait_s}s restarting failed container={container_name} pod={who}"),
            )
        }
    };
    json!({
        "name": container_name, "image": image, "imageID": if containers.is_made() { format!("standin://{image}") } else { String::new() },
        "containerID": if containers.is_made() { id } else { String::new() },
        "ready": containers.is_ready(), "started": matches!(containers, Containers::Running { .. }),
        "restartCount": restarts, "state": state, "lastState": if last.is_null() { json!({}) } else { last },
    })
}

/// Containers that run before the others have ended by the time those run; those that stay run along.
fn init_status(pod: &Value, container: &Value, containers: Containers, now: Timestamp) -> Value {
    let mut status = container_status(pod, container, containers, now);
    let stays = text(container, "/restartPolicy") == "Always";
    if containers.is_made() && !stays {
        let since = pod["status"]["startTime"].as_str().map_or_else(|| time(now), Value::from);
        status["state"] = json!({ "terminated": {
            "exitCode": 0, "reason": "Completed", "startedAt": since, "finishedAt": since, "containerID": status["containerID"],
        } });
        status["lastState"] = json!({});
        status["restartCount"] = 0.into();
        status["ready"] = true.into();
        status["started"] = false.into();
    }
    status
}

/// Such a container runs from when it was put there to when the pod ends, and is never ready for anything.
fn ephemeral_status(pod: &Value, container: &Value, now: Timestamp) -> Value {
    let old = list(pod, "/status/ephemeralContainerStatuses").iter();
    if let Some(old) = old.into_iter().find(|old| old["name"] == container["name"]) {
        return old.clone();
    }
    let mut status = container_status(pod, container, Containers::Running { ready: false, restarts: 0 }, now);
    if let Some(fields) = status.as_object_mut() {
        fields.remove("started");
    }
    status
}

/// An address of one's own, made of one's name.
pub(crate) fn address(first: u8, second: u8, whose: &str) -> String {
    let hash = xxhash_rust::xxh3::xxh3_64(whose.as_bytes()).to_le_bytes();
    let second = if second == 0 { hash[2] } else { second };
    format!("{first}.{second}.{}.{}", hash[0], hash[1] % 254 + 1)
}
