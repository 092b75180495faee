//! The stage of a pod's life, read from its status.
//!
//! ```text
//!   Unscheduled ─► Bound ─► Creating ─► Running ─► Ready ─► Finished
//!                              │  ▲        └─► CrashLoopBackOff ─► Running …
//!                              ▼  │
//!                         ImagePullBackOff         and from every stage ─► Terminating
//! ```

use serde_json::Value;

use super::fields::{flag, is_being_deleted, list, text};
use super::pods::{is_finished, restarts};

/// The stage of a pod. All containers of a simulated pod change their state together, so a pod has one stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PodStage {
    Unscheduled,
    /// Bound to a node whose kubelet has not reported a status yet.
    Bound,
    Creating,
    ImagePullBackOff,
    /// The containers run and are not ready. The number is the restart count, as in the next two stages.
    Running(i64),
    Ready(i64),
    CrashLoopBackOff(i64),
    /// Succeeded or Failed.
    Finished,
    /// Deleted: within its grace period, or held by a finalizer.
    Terminating,
}

impl PodStage {
    pub(crate) fn of(pod: &Value) -> PodStage {
        if is_being_deleted(pod) {
            return PodStage::Terminating;
        }
        if is_finished(pod) {
            return PodStage::Finished;
        }
        if text(pod, "/spec/nodeName").is_empty() {
            return PodStage::Unscheduled;
        }
        let Some(first) = list(pod, "/status/containerStatuses").first() else { return PodStage::Bound };
        match text(first, "/state/waiting/reason") {
            "CrashLoopBackOff" => PodStage::CrashLoopBackOff(restarts(pod)),
            "ErrImagePull" | "ImagePullBackOff" => PodStage::ImagePullBackOff,
            "" if flag(first, "/ready") => PodStage::Ready(restarts(pod)),
            "" => PodStage::Running(restarts(pod)),
            _ => PodStage::Creating,
        }
    }
}
