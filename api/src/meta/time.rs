//! Times as objects have them: RFC 3339 in UTC. `metav1.Time` has whole seconds, `metav1.MicroTime` six digits.

use jiff::Timestamp;

/// Formats a `Time`. Fractions of a second are cut off, so it is never later than `moment`.
pub fn seconds(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a `MicroTime`, as in Leases and Events.
pub fn micros(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Returns the current time as a `Time`.
pub fn now() -> String {
    seconds(Timestamp::now())
}

/// Returns the current time as a `MicroTime`.
pub fn now_micros() -> String {
    micros(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        let moment: Timestamp = "2026-01-02T03:04:05.999999999+02:00".parse().unwrap();
        assert_eq!(seconds(moment), "2026-01-02T01:04:05Z");
        assert_eq!(micros(moment), "2026-01-02T01:04:05.999999Z");
        assert_eq!(micros("2026-01-02T03:04:05Z".parse().unwrap()), "2026-01-02T03:04:05.000000Z");
    }
}
