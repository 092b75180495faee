//! The delays of scheduling, starting and stopping pods, and the injected failures.
//!
//! A stand-in has default delays for all pods. Annotations of a pod template override them, and can inject a failure:
//!
//! | Annotation | Value | Meaning |
//! |---|---|---|
//! | `standin.holon.dev/fail` | `CrashLoop`, `ImagePull`, `Unschedulable`, `NotReady` | the failure to inject |
//! | `standin.holon.dev/schedule`, `start`, `ready`, `run`, `stop` | `250ms`, `2s`, `1m` | how long this takes |

use std::time::Duration;

use serde_json::Value;

use crate::objects::fields::annotation;

/// How long each step of a pod's life takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delays {
    /// Until a pod is bound to a node.
    pub schedule: Duration,
    /// From bound to running: pulling the image, creating containers.
    pub start: Duration,
    /// From running to ready, or to an injected crash.
    pub ready: Duration,
    /// From ready to completion, for pods whose restart policy is not Always.
    pub run: Duration,
    /// From the deletion until the containers have stopped, at most the grace period.
    pub stop: Duration,
}

impl Delays {
    /// No delays.
    pub const NONE: Delays = Delays {
        schedule: Duration::ZERO,
        start: Duration::ZERO,
        ready: Duration::ZERO,
        run: Duration::ZERO,
        stop: Duration::ZERO,
    };
    /// Short enough to wait for, long enough to watch.
    pub const SHORT: Delays = Delays {
        schedule: Duration::from_millis(50),
        start: Duration::from_millis(600),
        ready: Duration::from_millis(600),
        run: Duration::from_secs(3),
        stop: Duration::from_millis(500),
    };

    /// Returns the delays of one pod.
    pub(crate) fn for_pod(self, pod: &Value) -> Delays {
        let delay_of = |step: &str, default: Duration| {
            let annotated = annotation(pod, &format!("{PREFIX}{step}")).and_then(parse_duration);
            annotated.unwrap_or(default)
        };
        Delays {
            schedule: delay_of("schedule", self.schedule),
            start: delay_of("start", self.start),
            ready: delay_of("ready", self.ready),
            run: delay_of("run", self.run),
            stop: delay_of("stop", self.stop),
        }
    }
}

const PREFIX: &str = "standin.holon.dev/";

/// An injected failure of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PodFailure {
    CrashLoop,
    ImagePull,
    Unschedulable,
    NotReady,
}

impl PodFailure {
    pub(crate) fn of(pod: &Value) -> Option<PodFailure> {
        match annotation(pod, "standin.holon.dev/fail")? {
            "CrashLoop" => Some(PodFailure::CrashLoop),
            "ImagePull" => Some(PodFailure::ImagePull),
            "Unschedulable" => Some(PodFailure::Unschedulable),
            "NotReady" => Some(PodFailure::NotReady),
            _ => None,
        }
    }
}

/// Parses `250ms`, `2s`, `1m` and `1h`.
fn parse_duration(text: &str) -> Option<Duration> {
    let end = text.find(|letter: char| !letter.is_ascii_digit())?;
    let number: u64 = text[..end].parse().ok()?;
    match &text[end..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(3600)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_annotation_overrides_the_delays_of_a_pod() {
        let check = |value: &str, expected: Duration| {
            let pod = json!({"metadata": {"annotations": {"standin.holon.dev/ready": value}}});
            assert_eq!(Delays::NONE.for_pod(&pod), Delays { ready: expected, ..Delays::NONE }, "{value}");
        };
        check("250ms", Duration::from_millis(250));
        check("2m", Duration::from_secs(120));
        check("soon", Duration::ZERO);
        check("", Duration::ZERO);
    }
}
