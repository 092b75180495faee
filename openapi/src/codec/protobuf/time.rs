//! Converts times between text (RFC 3339, as Kubernetes writes it) and seconds since 1970.
//!
//! Both directions accept only years of four digits, because the text has no others. Parsing differs from
//! [`crate::meta::time`], which decodes what clients send as Go does: here the text is canonical or comes from an
//! object that was decoded before, so any other form is rejected without a message, and decimals are kept to the
//! nanosecond.

use crate::meta::time::{self, SECONDS_PER_DAY, civil, days_since_1970};

/// Midnight of 1 January of year 1: Go's zero time, which Kubernetes writes as `null`.
pub(super) const ZERO: i64 = -62_135_596_800;

const FIRST: i64 = -62_167_219_200; // 0000-01-01T00:00:00Z
const LAST: i64 = 253_402_300_799; // 9999-12-31T23:59:59Z

/// Formats as `2026-11-16T04:23:11Z`, with six decimals if `micros` is given.
pub(super) fn format(seconds: i64, micros: Option<u32>) -> Option<String> {
    if !(FIRST..=LAST).contains(&seconds) {
        return None;
    }
    Some(time::format(seconds, micros))
}

/// Parses a time with any offset and any number of decimals to seconds and nanoseconds.
pub(super) fn parse(text: &str) -> Option<(i64, u32)> {
    let bytes = text.as_bytes();
    let (clock, rest) = bytes.split_at_checked(19)?;
    let number = |from: usize, to: usize| digits(&clock[from..to]);
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(index, separator)| clock[*index] != *separator) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let days = days_since_1970(year, month, day);
    // A date that the calendar does not have, such as 30 February, does not survive the round trip.
    if civil(days) != (year, month, day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (nanos, rest) = decimals(rest)?;
    let local = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    let seconds = local - offset(rest)?;
    (FIRST..=LAST).contains(&seconds).then_some((seconds, nanos))
}

/// Parses the decimals to nanoseconds and returns the rest of the text. Decimals past the ninth are dropped.
fn decimals(rest: &[u8]) -> Option<(u32, &[u8])> {
    let Some((b'.', rest)) = rest.split_first() else { return Some((0, rest)) };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (decimals, rest) = rest.split_at(length);
    let padded = decimals.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanos = padded.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    (length > 0).then_some((nanos, rest))
}

/// Parses the offset from UTC to seconds, positive in the east.
fn offset(rest: &[u8]) -> Option<i64> {
    let (sign, rest) = match rest {
        b"Z" => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let [h1, h2, b':', m1, m2] = *rest else { return None };
    let (hours, minutes) = (digits(&[h1, h2])?, digits(&[m1, m2])?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes
        .iter()
        .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_seconds_agree() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (ZERO, "0001-01-01T00:00:00Z"),
            (FIRST, "0000-01-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_234_567_890, "2009-02-13T23:31:30Z"),
        ] {
            assert_eq!(format(seconds, None).as_deref(), Some(text));
            assert_eq!(parse(text), Some((seconds, 0)));
        }
        assert_eq!(format(0, Some(42)).as_deref(), Some("1970-01-01T00:00:00.000042Z"));
        assert_eq!(format(LAST + 1, None), None);
        assert_eq!(format(i64::MIN, None), None);
    }

    #[test]
    fn every_day_round_trips() {
        for day in FIRST / SECONDS_PER_DAY..=LAST / SECONDS_PER_DAY {
            let (year, month, of_month) = civil(day);
            assert!((1..=12).contains(&month) && (1..=31).contains(&of_month));
            assert_eq!(days_since_1970(year, month, of_month), day);
        }
    }

    #[test]
    fn offsets_and_decimals_are_parsed_and_invalid_text_is_rejected() {
        assert_eq!(parse("1970-01-01T01:00:00+01:00"), Some((0, 0)));
        assert_eq!(parse("1969-12-31T22:30:00.5-01:30"), Some((0, 500_000_000)));
        assert_eq!(parse("1970-01-01T00:00:00.1234567899Z"), Some((0, 123_456_789)));
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01t00:00:00Z",
            "1970-02-30T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-99-99T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+1:00",
            "0000-01-01T00:00:00+01:00",
            "1970-01-01T00:00:00Zé",
            "é970-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
