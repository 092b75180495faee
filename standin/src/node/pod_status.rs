//! The status of a pod, as a kubelet writes it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::objects::fields::{count, generation, is_true, list, name, namespace, text, time, uid};

/// The state that all containers of a pod share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ContainerState {
    Creating,
    ImagePullBackOff,
    Running {
        ready: bool,
        restarts: i64,
    },
    /// Failed, and waiting for the next restart.
    CrashLoopBackOff {
        restarts: i64,
        wait_s: u64,
    },
    Terminated {
        exit: i64,
    },
}

impl ContainerState {
    fn phase(self) -> &'static str {
        match self {
            ContainerState::Creating | ContainerState::ImagePullBackOff => "Pending",
            ContainerState::Running { .. } | ContainerState::CrashLoopBackOff { .. } => "Running",
            ContainerState::Terminated { exit: 0 } => "Succeeded",
            ContainerState::Terminated { .. } => "Failed",
        }
    }

    fn is_ready(self) -> bool {
        matches!(self, ContainerState::Running { ready: true, .. })
    }

    fn has_sandbox(self) -> bool {
        !matches!(self, ContainerState::Creating | ContainerState::ImagePullBackOff)
    }
}

/// Returns the status of a pod whose containers are in this state.
pub(crate) fn status(pod: &Value, containers: ContainerState, now: Timestamp) -> Value {
    let mut status = pod["status"].clone();
    status["phase"] = containers.phase().into();
    status["observedGeneration"] = generation(pod).into();
    if status["startTime"].is_null() {
        status["startTime"] = time(now);
    }
    let host = address(192, 168, text(pod, "/spec/nodeName"));
    status["hostIP"] = host.as_str().into();
    status["hostIPs"] = json!([{ "ip": host }]);
    if containers.has_sandbox() {
        let pod_ip = match pod["spec"]["hostNetwork"] == true {
            true => host,
            false => address(10, 0, uid(pod)),
        };
        status["podIP"] = pod_ip.as_str().into();
        status["podIPs"] = json!([{ "ip": pod_ip }]);
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

/// Returns whether an ephemeral container was added that has no status yet.
pub(crate) fn has_new_ephemeral_container(pod: &Value) -> bool {
    let started = list(pod, "/status/ephemeralContainerStatuses").len();
    list(pod, "/spec/ephemeralContainers").len() > started
}

fn conditions(pod: &Value, containers: ContainerState, now: Timestamp) -> Value {
    let names: Vec<&str> =
        list(pod, "/spec/containers").iter().filter_map(|container| container["name"].as_str()).collect();
    let unready = format!("containers with unready status: [{}]", names.join(" "));
    let (ready, reason, message) = match containers {
        _ if containers.is_ready() => (true, "", ""),
        ContainerState::Terminated { exit: 0 } => (false, "PodCompleted", ""),
        ContainerState::Terminated { .. } => (false, "PodFailed", ""),
        _ => (false, "ContainersNotReady", unready.as_str()),
    };
    let gate = list(pod, "/spec/readinessGates")
        .iter()
        .map(|gate| text(gate, "/conditionType"))
        .find(|gate| !is_true(pod, gate));
    let gate_message =
        gate.map(|gate| format!("corresponding condition of pod readiness gate {gate:?} does not exist."));
    let has_sandbox = containers.has_sandbox();
    let updates = [
        ("PodReadyToStartContainers", has_sandbox, "", ""),
        ("Initialized", true, "", ""),
        match &gate_message {
            Some(message) if ready => ("Ready", false, "ReadinessGatesNotReady", message.as_str()),
            _ => ("Ready", ready, reason, message),
        },
        ("ContainersReady", ready, reason, message),
        ("PodScheduled", true, "", ""),
    ];
    let mut conditions: Vec<Value> = list(pod, "/status/conditions").to_vec();
    for (kind, is_met, reason, message) in updates {
        let condition_status = if is_met { "True" } else { "False" };
        let old = conditions.iter().position(|condition| condition["type"] == kind);
        let old = old.map(|index| conditions.remove(index));
        let since =
            old.filter(|old| old["status"] == condition_status).map(|old| old["lastTransitionTime"].clone());
        let mut condition = json!({
            "type": kind, "status": condition_status, "lastProbeTime": null,
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

fn container_status(pod: &Value, container: &Value, containers: ContainerState, now: Timestamp) -> Value {
    let container_name = text(container, "/name");
    let old = list(pod, "/status/containerStatuses").iter().find(|old| old["name"] == container["name"]);
    let old = old.cloned().unwrap_or_default();
    let restarts = match containers {
        ContainerState::Running { restarts, .. } | ContainerState::CrashLoopBackOff { restarts, .. } => {
            restarts
        }
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
        ContainerState::Creating => json!({ "waiting": { "reason": "ContainerCreating" } }),
        ContainerState::ImagePullBackOff => {
            waiting("ImagePullBackOff", format!("Back-off pulling image {image:?}"))
        }
        ContainerState::Running { .. } => json!({ "running": { "startedAt": started } }),
        ContainerState::Terminated { exit } => ended(exit),
        ContainerState::CrashLoopBackOff { wait_s, .. } => {
            last = ended(1);
            let pod_id = format!("{}_{}({})", name(pod), namespace(pod), uid(pod));
            waiting(
                "CrashLoopBackOff",
                format!("back-off {wait_s}s restarting failed container={container_name} pod={pod_id}"),
            )
        }
    };
    json!({
        "name": container_name, "image": image, "imageID": if containers.has_sandbox() { format!("standin://{image}") } else { String::new() },
        "containerID": if containers.has_sandbox() { id } else { String::new() },
        "ready": containers.is_ready(), "started": matches!(containers, ContainerState::Running { .. }),
        "restartCount": restarts, "state": state, "lastState": if last.is_null() { json!({}) } else { last },
    })
}

/// Returns the status of an init container. Init containers have completed by the time the others run; sidecars
/// (restart policy Always) keep running.
fn init_status(pod: &Value, container: &Value, containers: ContainerState, now: Timestamp) -> Value {
    let mut status = container_status(pod, container, containers, now);
    let is_sidecar = text(container, "/restartPolicy") == "Always";
    if containers.has_sandbox() && !is_sidecar {
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

/// Returns the status of an ephemeral container, which runs until the pod ends and is never ready.
fn ephemeral_status(pod: &Value, container: &Value, now: Timestamp) -> Value {
    let old = list(pod, "/status/ephemeralContainerStatuses").iter();
    if let Some(old) = old.into_iter().find(|old| old["name"] == container["name"]) {
        return old.clone();
    }
    let mut status =
        container_status(pod, container, ContainerState::Running { ready: false, restarts: 0 }, now);
    if let Some(fields) = status.as_object_mut() {
        fields.remove("started");
    }
    status
}

/// Returns a stable IP address derived from a name or uid.
pub(crate) fn address(first: u8, second: u8, seed: &str) -> String {
    let hash = xxhash_rust::xxh3::xxh3_64(seed.as_bytes()).to_le_bytes();
    let second = if second == 0 { hash[2] } else { second };
    format!("{first}.{second}.{}.{}", hash[0], hash[1] % 254 + 1)
}
