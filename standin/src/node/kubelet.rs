//! The kubelets: start the pods of their nodes, report them ready, restart and stop them, each after its delay.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::delays::{Delays, PodFailure};
use super::pod_status::{ContainerState, has_new_ephemeral_container, status};
use crate::cache::Cache;
use crate::clock::later;
use crate::objects::fields::{is_being_deleted, list, name, namespace, number, text, uid};
use crate::objects::kind::ObjectKind;
use crate::objects::pod_stage::PodStage;
use crate::objects::pods::is_finished;
use crate::plan::{Event, Plan, Write};

/// The first restart delay of a failed container. It doubles each time.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);

pub(crate) fn reconcile(cache: &Cache, ns: &str, delays: Delays, now: Timestamp, plan: &mut Plan) {
    for pod in cache.list(ObjectKind::Pods, ns) {
        let node = text(pod, "/spec/nodeName");
        let is_lost = !node.is_empty() && cache.get(ObjectKind::Nodes, "", node).is_none();
        if is_lost {
            // The node no longer exists, so no kubelet will confirm that the pod has stopped: deletes it by force.
            let is_confirmed =
                is_being_deleted(pod) && number(pod, "/metadata/deletionGracePeriodSeconds") == Some(0);
            if !is_confirmed {
                plan.delete_with_grace(ObjectKind::Pods, pod, Some(0));
            }
            continue;
        }
        let (stage, since) = cache.pod_stage(pod, now);
        PodSync { pod, stage, since, delays: delays.for_pod(pod), now }.sync(plan);
    }
}

/// A pod, and when it entered its stage.
struct PodSync<'a> {
    pod: &'a Value,
    stage: PodStage,
    since: Timestamp,
    delays: Delays,
    now: Timestamp,
}

impl PodSync<'_> {
    fn sync(&self, plan: &mut Plan) {
        let failure = PodFailure::of(self.pod);
        match self.stage {
            PodStage::Unscheduled | PodStage::Finished => {}
            PodStage::Bound if self.delays.start > Duration::ZERO => {
                self.write_status(ContainerState::Creating, plan)
            }
            PodStage::Bound | PodStage::Creating | PodStage::ImagePullBackOff => self.start(failure, plan),
            PodStage::Running(restarts) if has_new_ephemeral_container(self.pod) => {
                self.start_ephemeral(false, restarts, plan)
            }
            PodStage::Ready(restarts) if has_new_ephemeral_container(self.pod) => {
                self.start_ephemeral(true, restarts, plan)
            }
            PodStage::Running(restarts) => self.sync_running(failure, restarts, plan),
            PodStage::Ready(restarts) => self.sync_ready(failure, restarts, plan),
            PodStage::CrashLoopBackOff(restarts) => {
                if self.is_due(backoff(restarts), plan) {
                    self.run(restarts + 1, failure, plan);
                }
            }
            PodStage::Terminating => self.stop(plan),
        }
    }

    /// Returns whether the pod has been in its stage for this long. If not, requeues it for that time.
    fn is_due(&self, after: Duration, plan: &mut Plan) -> bool {
        let due = later(self.since, after);
        if due > self.now {
            plan.requeue_at(due);
        }
        due <= self.now
    }

    fn start(&self, failure: Option<PodFailure>, plan: &mut Plan) {
        match failure {
            Some(PodFailure::ImagePull) if self.stage == PodStage::ImagePullBackOff => {}
            _ if self.stage == PodStage::Creating && !self.is_due(self.delays.start, plan) => {}
            Some(PodFailure::ImagePull) => {
                self.write_status(ContainerState::ImagePullBackOff, plan);
                for container in list(self.pod, "/spec/containers") {
                    let image = text(container, "/image");
                    self.record(
                        container,
                        true,
                        "Failed",
                        format!("Failed to pull image {image:?}: not found"),
                        plan,
                    );
                    self.record(container, true, "Failed", "Error: ErrImagePull".to_owned(), plan);
                    self.record(
                        container,
                        false,
                        "BackOff",
                        format!("Back-off pulling image {image:?}"),
                        plan,
                    );
                }
            }
            _ => self.run(0, failure, plan),
        }
    }

    /// Starts the containers. If there is no delay, the same write reports them ready.
    fn run(&self, restarts: i64, failure: Option<PodFailure>, plan: &mut Plan) {
        let ready = self.delays.ready == Duration::ZERO && !is_never_ready(failure);
        self.write_status(ContainerState::Running { ready, restarts }, plan);
        for container in list(self.pod, "/spec/containers") {
            let (image, container_name) = (text(container, "/image"), text(container, "/name"));
            let message = format!("Container image {image:?} already present on machine");
            self.record(container, false, "Pulled", message, plan);
            self.record(container, false, "Created", format!("Created container: {container_name}"), plan);
            self.record(container, false, "Started", format!("Started container {container_name}"), plan);
            self.write_log(
                container,
                restarts,
                format!("{image} starts on {}", text(self.pod, "/spec/nodeName")),
                plan,
            );
            if ready {
                self.write_log(container, restarts, "ready".to_owned(), plan);
            }
        }
    }

    /// Starts ephemeral containers that were added to a running pod.
    fn start_ephemeral(&self, ready: bool, restarts: i64, plan: &mut Plan) {
        let started = list(self.pod, "/status/ephemeralContainerStatuses").len();
        self.write_status(ContainerState::Running { ready, restarts }, plan);
        for container in &list(self.pod, "/spec/ephemeralContainers")[started..] {
            let line =
                format!("{} starts on {}", text(container, "/image"), text(self.pod, "/spec/nodeName"));
            self.write_log(container, 0, line, plan);
        }
    }

    /// Makes a running pod ready or fails it.
    fn sync_running(&self, failure: Option<PodFailure>, restarts: i64, plan: &mut Plan) {
        if failure == Some(PodFailure::NotReady) || !self.is_due(self.delays.ready, plan) {
            return;
        }
        if failure == Some(PodFailure::CrashLoop) {
            return self.crash(restarts, plan);
        }
        self.write_status(ContainerState::Running { ready: true, restarts }, plan);
        for container in list(self.pod, "/spec/containers") {
            self.write_log(container, restarts, "ready".to_owned(), plan);
        }
    }

    /// Completes or fails a ready pod. With restart policy Always it does not complete.
    fn sync_ready(&self, failure: Option<PodFailure>, restarts: i64, plan: &mut Plan) {
        match failure {
            Some(PodFailure::CrashLoop) => return self.crash(restarts, plan),
            Some(PodFailure::NotReady) => {
                return self.write_status(ContainerState::Running { ready: false, restarts }, plan);
            }
            _ => {}
        }
        let completes = text(self.pod, "/spec/restartPolicy") != "Always";
        if completes && self.is_due(self.delays.run, plan) {
            self.write_status(ContainerState::Terminated { exit: 0 }, plan);
            for container in list(self.pod, "/spec/containers") {
                self.write_log(container, restarts, "done".to_owned(), plan);
            }
        } else if !list(self.pod, "/spec/readinessGates").is_empty() {
            // The condition of a readiness gate may have changed.
            self.write_status(ContainerState::Running { ready: true, restarts }, plan);
        }
    }

    fn crash(&self, restarts: i64, plan: &mut Plan) {
        let containers = match text(self.pod, "/spec/restartPolicy") {
            "Never" => ContainerState::Terminated { exit: 1 },
            _ => ContainerState::CrashLoopBackOff { restarts, wait_s: backoff(restarts).as_secs() },
        };
        self.write_status(containers, plan);
        for container in list(self.pod, "/spec/containers") {
            self.write_log(container, restarts, "injected failure; exit code 1".to_owned(), plan);
            if matches!(containers, ContainerState::CrashLoopBackOff { .. }) {
                let failed = format!(
                    "{} in pod {}_{}({})",
                    text(container, "/name"),
                    name(self.pod),
                    namespace(self.pod),
                    uid(self.pod)
                );
                self.record(
                    container,
                    true,
                    "BackOff",
                    format!("Back-off restarting failed container {failed}"),
                    plan,
                );
            }
        }
    }

    /// Stops a deleted pod within its grace period, and then deletes it by force.
    fn stop(&self, plan: &mut Plan) {
        let grace_s = number(self.pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(30);
        let has_run = !list(self.pod, "/status/containerStatuses").is_empty();
        let is_finished = is_finished(self.pod);
        if grace_s == 0 {
            // The kubelet has finished; only a finalizer still holds the pod.
            return;
        }
        let grace = Duration::from_secs(grace_s.unsigned_abs());
        if has_run && !is_finished && !self.is_due(self.delays.stop.min(grace), plan) {
            return;
        }
        plan.delete_with_grace(ObjectKind::Pods, self.pod, Some(0));
        for container in list(self.pod, "/spec/containers").iter().filter(|_| has_run && !is_finished) {
            self.record(
                container,
                false,
                "Killing",
                format!("Stopping container {}", text(container, "/name")),
                plan,
            );
        }
    }

    fn write_status(&self, containers: ContainerState, plan: &mut Plan) {
        plan.status(ObjectKind::Pods, self.pod, status(self.pod, containers, self.now));
    }

    fn write_log(&self, container: &Value, restarts: i64, line: String, plan: &mut Plan) {
        let container = text(container, "/name").to_owned();
        plan.writes.push(Write::Log { pod: uid(self.pod).to_owned(), container, restarts, line });
    }

    fn record(
        &self,
        container: &Value,
        is_warning: bool,
        reason: &'static str,
        message: String,
        plan: &mut Plan,
    ) {
        let mut event = Event::new(ObjectKind::Pods, self.pod, reason, message);
        event.is_warning = is_warning;
        event.field_path = format!("spec.containers{{{}}}", text(container, "/name"));
        event.host = text(self.pod, "/spec/nodeName").to_owned();
        plan.record(event);
    }
}

/// Returns whether containers with this failure never become ready.
fn is_never_ready(failure: Option<PodFailure>) -> bool {
    matches!(failure, Some(PodFailure::CrashLoop | PodFailure::NotReady))
}

fn backoff(restarts: i64) -> Duration {
    BACKOFF.saturating_mul(1 << restarts.clamp(0, 16)).min(BACKOFF_MAX)
}
