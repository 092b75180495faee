//! What a node does with its pods: starts them, has them ready, starts them again, ends them, each when it is time.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::pace::{Misfortune, Pace};
use super::pod_status::{Containers, is_joined, status};
use super::stage::Stage;
use crate::clock::later;
use crate::kind::Kind;
use crate::object::{is_being_deleted, list, name, number, text, uid};
use crate::plan::{Event, Plan, Write};
use crate::world::World;

/// The first wait before a failed container is started again; it doubles each time.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);

pub(crate) fn step(world: &World, space: &str, pace: Pace, now: Timestamp, plan: &mut Plan) {
    for pod in world.all(Kind::Pods, space) {
        let node = text(pod, "/spec/nodeName");
        let is_lost = !node.is_empty() && world.get(Kind::Nodes, "", node).is_none();
        if is_lost {
            // Nobody will ever say that it has stopped.
            let is_confirmed =
                is_being_deleted(pod) && number(pod, "/metadata/deletionGracePeriodSeconds") == Some(0);
            if !is_confirmed {
                plan.remove(Kind::Pods, pod, Some(0));
            }
            continue;
        }
        let (stage, since) = world.stage(pod, now);
        Look { pod, stage, since, pace: pace.of(pod), now }.act(plan);
    }
}

/// A pod, and how long it has been as it is.
struct Look<'a> {
    pod: &'a Value,
    stage: Stage,
    since: Timestamp,
    pace: Pace,
    now: Timestamp,
}

impl Look<'_> {
    fn act(&self, plan: &mut Plan) {
        let misfortune = Misfortune::of(self.pod);
        match self.stage {
            Stage::Unbound | Stage::Done => {}
            Stage::Bound if self.pace.start > Duration::ZERO => self.write(Containers::Creating, plan),
            Stage::Bound | Stage::Creating | Stage::Stuck => self.start(misfortune, plan),
            Stage::Running(restarts) if is_joined(self.pod) => self.join(false, restarts, plan),
            Stage::Ready(restarts) if is_joined(self.pod) => self.join(true, restarts, plan),
            Stage::Running(restarts) => self.ripen(misfortune, restarts, plan),
            Stage::Ready(restarts) => self.last(misfortune, restarts, plan),
            Stage::Backoff(restarts) => {
                if self.is_due(backoff(restarts), plan) {
                    self.run(restarts + 1, misfortune, plan);
                }
            }
            Stage::Leaving => self.stop(plan),
        }
    }

    /// Whether so much time has passed in this stage. If not, asks to be woken when it has.
    fn is_due(&self, after: Duration, plan: &mut Plan) -> bool {
        let due = later(self.since, after);
        if due > self.now {
            plan.wake(due);
        }
        due <= self.now
    }

    fn start(&self, misfortune: Option<Misfortune>, plan: &mut Plan) {
        match misfortune {
            Some(Misfortune::ImagePull) if self.stage == Stage::Stuck => {}
            _ if self.stage == Stage::Creating && !self.is_due(self.pace.start, plan) => {}
            Some(Misfortune::ImagePull) => {
                self.write(Containers::Stuck, plan);
                for container in list(self.pod, "/spec/containers") {
                    let image = text(container, "/image");
                    self.tell(
                        container,
                        true,
                        "Failed",
                        format!("Failed to pull image {image:?}: not found"),
                        plan,
                    );
                    self.tell(container, true, "Failed", "Error: ErrImagePull".to_owned(), plan);
                    self.tell(container, false, "BackOff", format!("Back-off pulling image {image:?}"), plan);
                }
            }
            _ => self.run(0, misfortune, plan),
        }
    }

    /// Starts the containers. What is ready at once is written at once.
    fn run(&self, restarts: i64, misfortune: Option<Misfortune>, plan: &mut Plan) {
        let ready = self.pace.ready == Duration::ZERO && !spoils_readiness(misfortune);
        self.write(Containers::Running { ready, restarts }, plan);
        for container in list(self.pod, "/spec/containers") {
            let (image, who) = (text(container, "/image"), text(container, "/name"));
            let told = format!("Container image {image:?} already present on machine");
            self.tell(container, false, "Pulled", told, plan);
            self.tell(container, false, "Created", format!("Created container: {who}"), plan);
            self.tell(container, false, "Started", format!("Started container {who}"), plan);
            self.log(
                container,
                restarts,
                format!("{image} starts on {}", text(self.pod, "/spec/nodeName")),
                plan,
            );
            if ready {
                self.log(container, restarts, "ready".to_owned(), plan);
            }
        }
    }

    /// Starts what was put into the pod while it runs.
    fn join(&self, ready: bool, restarts: i64, plan: &mut Plan) {
        let there = list(self.pod, "/status/ephemeralContainerStatuses").len();
        self.write(Containers::Running { ready, restarts }, plan);
        for container in &list(self.pod, "/spec/ephemeralContainers")[there..] {
            let line =
                format!("{} starts on {}", text(container, "/image"), text(self.pod, "/spec/nodeName"));
            self.log(container, 0, line, plan);
        }
    }

    /// Running: becomes ready, or fails.
    fn ripen(&self, misfortune: Option<Misfortune>, restarts: i64, plan: &mut Plan) {
        if misfortune == Some(Misfortune::NotReady) || !self.is_due(self.pace.ready, plan) {
            return;
        }
        if misfortune == Some(Misfortune::CrashLoop) {
            return self.crash(restarts, plan);
        }
        self.write(Containers::Running { ready: true, restarts }, plan);
        for container in list(self.pod, "/spec/containers") {
            self.log(container, restarts, "ready".to_owned(), plan);
        }
    }

    /// Ready: stays so, or ends if it is one that ends.
    fn last(&self, misfortune: Option<Misfortune>, restarts: i64, plan: &mut Plan) {
        match misfortune {
            Some(Misfortune::CrashLoop) => return self.crash(restarts, plan),
            Some(Misfortune::NotReady) => {
                return self.write(Containers::Running { ready: false, restarts }, plan);
            }
            _ => {}
        }
        let ends = text(self.pod, "/spec/restartPolicy") != "Always";
        if ends && self.is_due(self.pace.run, plan) {
            self.write(Containers::Ended { exit: 0 }, plan);
            for container in list(self.pod, "/spec/containers") {
                self.log(container, restarts, "done".to_owned(), plan);
            }
        } else if !list(self.pod, "/spec/readinessGates").is_empty() {
            // A gate may have opened or closed meanwhile.
            self.write(Containers::Running { ready: true, restarts }, plan);
        }
    }

    fn crash(&self, restarts: i64, plan: &mut Plan) {
        let containers = match text(self.pod, "/spec/restartPolicy") {
            "Never" => Containers::Ended { exit: 1 },
            _ => Containers::Backoff { restarts, wait_s: backoff(restarts).as_secs() },
        };
        self.write(containers, plan);
        for container in list(self.pod, "/spec/containers") {
            self.log(container, restarts, "failed as asked to; exit code 1".to_owned(), plan);
            if matches!(containers, Containers::Backoff { .. }) {
                let who = format!(
                    "{} in pod {}_{}({})",
                    text(container, "/name"),
                    name(self.pod),
                    crate::object::namespace(self.pod),
                    uid(self.pod)
                );
                self.tell(
                    container,
                    true,
                    "BackOff",
                    format!("Back-off restarting failed container {who}"),
                    plan,
                );
            }
        }
    }

    /// Deleted: stops within the period of grace, and is then gone.
    fn stop(&self, plan: &mut Plan) {
        let grace_s = number(self.pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(30);
        let ran = !list(self.pod, "/status/containerStatuses").is_empty();
        let is_over = crate::control::pods::is_finished(self.pod);
        if grace_s == 0 {
            // It is gone as far as its node is concerned; what still holds it is somebody's finalizer.
            return;
        }
        let patience = Duration::from_secs(grace_s.unsigned_abs());
        if ran && !is_over && !self.is_due(self.pace.stop.min(patience), plan) {
            return;
        }
        plan.remove(Kind::Pods, self.pod, Some(0));
        for container in list(self.pod, "/spec/containers").iter().filter(|_| ran && !is_over) {
            self.tell(
                container,
                false,
                "Killing",
                format!("Stopping container {}", text(container, "/name")),
                plan,
            );
        }
    }

    fn write(&self, containers: Containers, plan: &mut Plan) {
        plan.status(Kind::Pods, self.pod, status(self.pod, containers, self.now));
    }

    fn log(&self, container: &Value, restarts: i64, line: String, plan: &mut Plan) {
        let container = text(container, "/name").to_owned();
        plan.writes.push(Write::Log { pod: uid(self.pod).to_owned(), container, restarts, line });
    }

    fn tell(
        &self,
        container: &Value,
        is_warning: bool,
        reason: &'static str,
        message: String,
        plan: &mut Plan,
    ) {
        let mut event = Event::new(Kind::Pods, self.pod, reason, message);
        event.is_warning = is_warning;
        event.field = format!("spec.containers{{{}}}", text(container, "/name"));
        event.host = text(self.pod, "/spec/nodeName").to_owned();
        plan.tell(event);
    }
}

/// Whether containers with this misfortune are never ready.
fn spoils_readiness(misfortune: Option<Misfortune>) -> bool {
    matches!(misfortune, Some(Misfortune::CrashLoop | Misfortune::NotReady))
}

fn backoff(restarts: i64) -> Duration {
    BACKOFF.saturating_mul(1 << restarts.clamp(0, 16)).min(BACKOFF_MAX)
}
