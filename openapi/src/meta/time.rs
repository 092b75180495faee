//! Times in the formats of Kubernetes: RFC 3339, in UTC, to the second or the microsecond.
//!
//! [`api::meta::time`] formats the times that our own code writes. It cannot stand in here: a `jiff::Timestamp` ends on
//! 9999-12-30, while clients may write `9999-12-31T23:59:59Z`, and it parses neither with Go's leniency (an hour of one
//! digit, a comma before the decimals) nor with Go's error texts.

use api::meta::go;

/// The precision of a time type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precision {
    Seconds,
    Micros,
}

/// Returns the time in the form Kubernetes writes, or a parse error in Go's words.
pub(crate) fn canonical(text: &str, precision: Precision) -> Result<String, String> {
    let mut reader = TimeParser { text, rest: text, precision };
    let moment = reader.moment()?;
    Ok(format(moment.seconds, (precision == Precision::Micros).then_some(moment.micros)))
}

/// Formats seconds since 1970 as `2026-11-16T04:23:11Z`, with six decimals if `micros` is given.
pub(crate) fn format(seconds: i64, micros: Option<u32>) -> String {
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let decimals = micros.map_or_else(String::new, |micros| format!(".{micros:06}"));
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{decimals}Z")
}

pub(crate) const SECONDS_PER_DAY: i64 = 86_400;

struct ParsedTime {
    /// Since 1970.
    seconds: i64,
    micros: u32,
}

struct TimeParser<'t> {
    text: &'t str,
    rest: &'t str,
    precision: Precision,
}

impl TimeParser<'_> {
    fn moment(&mut self) -> Result<ParsedTime, String> {
        let year = self.digits("2006", 4, 4)?;
        self.literal("-")?;
        let month = self.digits("01", 2, 2)?;
        self.within(month, 1..=12, "month")?;
        self.literal("-")?;
        let day = self.digits("02", 2, 2)?;
        self.literal("T")?;
        // Like Go, and unlike the standard, accepts an hour of one digit.
        let hour = self.digits("15", 1, 2)?;
        self.within(hour, 0..=23, "hour")?;
        self.literal(":")?;
        let minute = self.digits("04", 2, 2)?;
        self.within(minute, 0..=59, "minute")?;
        self.literal(":")?;
        let second = self.digits("05", 2, 2)?;
        self.within(second, 0..=59, "second")?;
        let micros = self.fraction()?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(format!(
                "parsing time {}: extra text: {}",
                go::quote(self.text),
                go::quote(self.rest)
            ));
        }
        self.within(day, 1..=days_in(year, month), "day")?;
        let seconds =
            days_since_1970(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
        Ok(ParsedTime { seconds, micros })
    }

    fn unreadable(&self, element: &str) -> String {
        let layout = match self.precision {
            Precision::Seconds => "2006-01-02T15:04:05Z07:00",
            Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
        };
        let (text, rest) = (go::quote(self.text), go::quote(self.rest));
        format!("parsing time {text} as \"{layout}\": cannot parse {rest} as \"{element}\"")
    }

    fn within(
        &self,
        number: i64,
        range: std::ops::RangeInclusive<i64>,
        element_name: &str,
    ) -> Result<(), String> {
        match range.contains(&number) {
            true => Ok(()),
            false => Err(format!("parsing time {}: {element_name} out of range", go::quote(self.text))),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.unreadable(literal))?;
        Ok(())
    }

    fn digits(&mut self, element: &str, min: usize, max: usize) -> Result<i64, String> {
        let found = self.rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
        if found < min {
            return Err(self.unreadable(element));
        }
        let (digits, rest) = self.rest.split_at(found);
        self.rest = rest;
        digits.parse().map_err(|_| self.unreadable(element))
    }

    /// Parses microseconds. A type with microseconds requires exactly six digits; one without skips any number.
    fn fraction(&mut self) -> Result<u32, String> {
        let after = self.rest.strip_prefix(['.', ',']);
        let length = after.map_or(0, |after| after.bytes().take_while(u8::is_ascii_digit).count());
        let (digits, rest) = match (self.precision, after) {
            (Precision::Seconds, Some(after)) if length > 0 => after.split_at(length),
            (Precision::Seconds, _) => return Ok(0),
            (Precision::Micros, Some(after)) if length >= 6 => after.split_at(6),
            (Precision::Micros, _) => return Err(self.unreadable(".000000")),
        };
        self.rest = rest;
        Ok(digits.bytes().take(6).fold(0, |micros, digit| micros * 10 + u32::from(digit - b'0')))
    }

    /// Parses the offset from UTC to seconds, positive in the east.
    fn offset(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let (sign, hour, minute) = match bytes {
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..]
                if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) =>
            {
                let number = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
                (if *sign == b'+' { 1 } else { -1 }, number(*h1, *h2), number(*m1, *m2))
            }
            _ => return Err(self.unreadable("Z07:00")),
        };
        self.within(hour, 0..=24, "time zone offset hour")?;
        self.within(minute, 0..=60, "time zone offset minute")?;
        self.rest = &self.rest[6..];
        Ok(sign * (hour * 3600 + minute * 60))
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days since 1970 of a date. It counts in eras of 400 years that begin on 1 March, so leap days come last.
pub(crate) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Returns year, month and day of a number of days since 1970.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_written_in_utc() {
        for (text, expected) in [
            ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
            ("2020-01-01T00:00:00+01:00", "2019-12-31T23:00:00Z"),
            ("2020-02-28T23:30:00-00:30", "2020-02-29T00:00:00Z"),
            ("2020-01-01T00:00:00.999Z", "2020-01-01T00:00:00Z"),
            ("2020-01-01T0:00:00,5Z", "2020-01-01T00:00:00Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(canonical(text, Precision::Seconds).as_deref(), Ok(expected));
        }
        let micros = canonical("2020-01-01T01:00:00.123456+01:00", Precision::Micros);
        assert_eq!(micros.as_deref(), Ok("2020-01-01T00:00:00.123456Z"));
    }

    #[test]
    fn other_texts_are_rejected_with_the_messages_of_go() {
        let layout = "2006-01-02T15:04:05Z07:00";
        for (text, rest, element) in [
            ("2020", "", "-"),
            ("yesterday", "yesterday", "2006"),
            ("2020-1-01T00:00:00Z", "1-01T00:00:00Z", "01"),
            ("2020-01-01 00:00:00Z", " 00:00:00Z", "T"),
            ("2020-01-01T00:00:00", "", "Z07:00"),
            ("2020-01-01T00:00:00z", "z", "Z07:00"),
        ] {
            let expected =
                format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}");
            assert_eq!(canonical(text, Precision::Seconds), Err(expected));
        }
        let layout = "2006-01-02T15:04:05.000000Z07:00";
        for (text, rest, element) in [
            ("2020-01-01T00:00:00Z", "Z", ".000000"),
            ("2020-01-01T00:00:00.5Z", ".5Z", ".000000"),
            ("2020-01-01T00:00:00.123456789Z", "789Z", "Z07:00"),
        ] {
            let expected =
                format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}");
            assert_eq!(canonical(text, Precision::Micros), Err(expected));
        }
        for (text, element_name) in [
            ("2020-13-01T00:00:00Z", "month out of range"),
            ("2021-02-29T00:00:00Z", "day out of range"),
            ("2020-01-01T25:00:00Z", "hour out of range"),
            ("2020-01-01T00:61:00Z", "minute out of range"),
            ("2020-01-01T00:00:61Z", "second out of range"),
            ("2020-01-01T00:00:00+25:00", "time zone offset hour out of range"),
            ("2020-01-01T00:00:00Zx", "extra text: \"x\""),
        ] {
            assert_eq!(
                canonical(text, Precision::Seconds),
                Err(format!("parsing time {text:?}: {element_name}"))
            );
        }
    }

    proptest! {
        #[test]
        fn days_and_dates_agree(days in -700_000i64..3_000_000) {
            let (year, month, day) = civil(days);
            prop_assert!((1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day));
            prop_assert_eq!(days_since_1970(year, month, day), days);
        }

        #[test]
        fn arbitrary_text_causes_no_panic(text in "[0-9:TZ.+-]{0,30}|.{0,20}") {
            let _ = canonical(&text, Precision::Micros);
        }
    }
}
