//! How far a pod has come, as its status says.
//!
//! ```text
//!   Unbound ─► Bound ─► Creating ─► Running ─► Ready ─► Done
//!                          │  ▲        └─► Backoff ─► Running …
//!                          ▼  │
//!                          Stuck          and from everywhere ─► Leaving
//! ```

use serde_json::Value;

use crate::control::pods::{is_finished, restarts};
use crate::object::{flag, is_being_deleted, list, text};

/// A stage of a pod's life. Containers of a pod go through it together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// On no node yet.
    Unbound,
    /// On a node that has not looked at it.
    Bound,
    /// Containers are being made.
    Creating,
    /// The image does not come.
    Stuck,
    /// Containers run and are not ready; so many times they have been started again.
    Running(i64),
    Ready(i64),
    /// Containers have failed and wait for their next start.
    Backoff(i64),
    /// Succeeded or failed.
    Done,
    /// Deleted, and still there.
    Leaving,
}

impl Stage {
    pub(crate) fn of(pod: &Value) -> Stage {
        if is_being_deleted(pod) {
            return Stage::Leaving;
        }
        if is_finished(pod) {
            return Stage::Done;
        }
        if text(pod, "/spec/nodeName").is_empty() {
            return Stage::Unbound;
        }
        let Some(first) = list(pod, "/status/containerStatuses").first() else { return Stage::Bound };
        match text(first, "/state/waiting/reason") {
            "CrashLoopBackOff" => Stage::Backoff(restarts(pod)),
            "ErrImagePull" | "ImagePullBackOff" => Stage::Stuck,
            "" if flag(first, "/ready") => Stage::Ready(restarts(pod)),
            "" => Stage::Running(restarts(pod)),
            _ => Stage::Creating,
        }
    }
}
