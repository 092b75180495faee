//! How fast things happen, and what goes wrong on request.
//!
//! A stand-in has a pace; a pod may bring its own, and its own misfortune, in annotations of its template:
//!
//! | Annotation | Value | Meaning |
//! |---|---|---|
//! | `standin.holon.dev/fail` | `CrashLoop`, `ImagePull`, `Unschedulable`, `NotReady` | what goes wrong |
//! | `standin.holon.dev/schedule`, `start`, `ready`, `run`, `stop` | `250ms`, `2s`, `1m` | how long that takes |

use std::time::Duration;

use serde_json::Value;

use crate::object::annotation;

/// How long things take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Until a pod is put on a node.
    pub schedule: Duration,
    /// Until its containers run: pulling, creating.
    pub start: Duration,
    /// From running to ready. A container that fails does so after as long.
    pub ready: Duration,
    /// From ready to a good end, for pods that end.
    pub run: Duration,
    /// From being asked to stop to having stopped, within the period of grace.
    pub stop: Duration,
}

impl Pace {
    /// Everything at once.
    pub const INSTANT: Pace = Pace {
        schedule: Duration::ZERO,
        start: Duration::ZERO,
        ready: Duration::ZERO,
        run: Duration::ZERO,
        stop: Duration::ZERO,
    };
    /// Fast enough to wait for, slow enough to watch.
    pub const LIVELY: Pace = Pace {
        schedule: Duration::from_millis(50),
        start: Duration::from_millis(600),
        ready: Duration::from_millis(600),
        run: Duration::from_secs(3),
        stop: Duration::from_millis(500),
    };

    /// The pace of one pod.
    pub(crate) fn of(self, pod: &Value) -> Pace {
        let own = |what: &str, usual: Duration| {
            let said = annotation(pod, &format!("{PREFIX}{what}")).and_then(duration);
            said.unwrap_or(usual)
        };
        Pace {
            schedule: own("schedule", self.schedule),
            start: own("start", self.start),
            ready: own("ready", self.ready),
            run: own("run", self.run),
            stop: own("stop", self.stop),
        }
    }
}

const PREFIX: &str = "standin.holon.dev/";

/// What goes wrong with a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misfortune {
    CrashLoop,
    ImagePull,
    Unschedulable,
    NotReady,
}

impl Misfortune {
    pub(crate) fn of(pod: &Value) -> Option<Misfortune> {
        match annotation(pod, "standin.holon.dev/fail")? {
            "CrashLoop" => Some(Misfortune::CrashLoop),
            "ImagePull" => Some(Misfortune::ImagePull),
            "Unschedulable" => Some(Misfortune::Unschedulable),
            "NotReady" => Some(Misfortune::NotReady),
            _ => None,
        }
    }
}

/// `250ms`, `2s`, `1m`, `1h`.
fn duration(text: &str) -> Option<Duration> {
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
    fn a_pod_may_have_a_pace_of_its_own() {
        let check = |value: &str, expected: Duration| {
            let pod = json!({"metadata": {"annotations": {"standin.holon.dev/ready": value}}});
            assert_eq!(Pace::INSTANT.of(&pod), Pace { ready: expected, ..Pace::INSTANT }, "{value}");
        };
        check("250ms", Duration::from_millis(250));
        check("2m", Duration::from_secs(120));
        check("soon", Duration::ZERO);
        check("", Duration::ZERO);
    }
}
