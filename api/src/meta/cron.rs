//! Cron schedules as Kubernetes reads them: five fields or a descriptor such as `@daily`, and their next due time.
//!
//! Kubernetes uses a Go library whose rules differ from those of existing crates (decision 13). The error texts are
//! those of that library, because clients see them.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::go;

/// A parsed schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    Fields(Fields),
    /// `@every 1h30m`.
    Every(Duration),
}

/// Minutes, hours, days of the month, months and days of the week, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether all days of the month or of the week are allowed. If neither is the case, matching one of them is
    /// enough.
    any_day: bool,
    any_weekday: bool,
}

/// Why a schedule is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(String);

/// The minimum and the maximum of a field, and names for its values from the minimum on.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds { min: 1, max: 12, names: MONTHS },
    Bounds { min: 0, max: 6, names: WEEKDAYS },
];
/// Descriptors and the fields they stand for.
const DESCRIPTORS: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// Leap years are at most eight years apart, so a schedule that is not due within that time never is.
const DAYS_MAX: usize = 366 * 8;

impl Schedule {
    /// Parses a schedule. A time zone in front of it (`TZ=…`) is skipped: CronJobs have a field for that.
    pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
        let text = match text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) {
            None => text,
            Some(zoned) => zoned.split_once(' ').map(|(_, schedule)| schedule.trim()).unwrap_or_default(),
        };
        match text.starts_with('@') {
            true => Schedule::of_descriptor(text),
            false => Fields::parse(text).map(Schedule::Fields),
        }
        .map_err(ScheduleError)
    }

    fn of_descriptor(text: &str) -> Result<Schedule, String> {
        if let Some((_, fields)) = DESCRIPTORS.iter().find(|(name, _)| *name == text) {
            return Fields::parse(fields).map(Schedule::Fields);
        }
        let every = text.strip_prefix("@every ").ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
        let seconds = go::parse_duration(every);
        let seconds = seconds.map_err(|error| format!("failed to parse duration {text}: {error}"))?;
        // As in Go, an interval shorter than a second is one second.
        let delay = Duration::try_from_secs_f64(seconds.max(1.0));
        delay.map(Schedule::Every).map_err(|error| format!("failed to parse duration {text}: {error}"))
    }

    /// Returns the first due time after `moment`.
    pub fn after(&self, moment: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Schedule::Fields(fields) => fields.after(moment, zone),
            Schedule::Every(delay) => {
                let second = Timestamp::from_second(moment.as_second()).ok()?;
                second.checked_add(Duration::from_secs(delay.as_secs())).ok()
            }
        }
    }
}

impl Fields {
    fn parse(text: &str) -> Result<Fields, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        Ok(Fields {
            minutes: field(minutes, &FIELDS[0])?,
            hours: field(hours, &FIELDS[1])?,
            days: field(days, &FIELDS[2])?,
            months: field(months, &FIELDS[3])?,
            weekdays: field(weekdays, &FIELDS[4])?,
            any_day: is_open(days),
            any_weekday: is_open(weekdays),
        })
    }

    fn after(&self, moment: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        // A field of commas only is valid and never due. It must not cost a search through all minutes of eight years.
        if self.minutes == 0 || self.hours == 0 {
            return None;
        }
        let begin = zone.to_datetime(moment).checked_add(1.minute()).ok()?;
        let mut at = begin.with().second(0).subsec_nanosecond(0).build().ok()?;
        for _ in 0..DAYS_MAX {
            if let Some(found) = self.on_day(at) {
                let due = zone.to_timestamp(found).ok()?;
                // When clocks are set back, some minutes occur twice.
                if due > moment {
                    return Some(due);
                }
                at = found.checked_add(1.minute()).ok()?;
                continue;
            }
            at = at.date().tomorrow().ok()?.to_datetime(jiff::civil::Time::midnight());
        }
        None
    }

    /// Returns the first due time of a day, from `at` on.
    fn on_day(&self, at: DateTime) -> Option<DateTime> {
        let has = |bits: u64, place: i8| bits >> place & 1 == 1;
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        let is_day = if self.any_day || self.any_weekday { day && weekday } else { day || weekday };
        if !is_day || !has(self.months, at.month()) {
            return None;
        }
        let from = i32::from(at.hour()) * 60 + i32::from(at.minute());
        let minute = (from..24 * 60)
            .find(|minute| has(self.hours, (minute / 60) as i8) && has(self.minutes, (minute % 60) as i8))?;
        at.with().hour((minute / 60) as i8).minute((minute % 60) as i8).build().ok()
    }
}

/// Reports whether a field allows all days. `*/2` does not.
fn is_open(field: &str) -> bool {
    field.split(',').any(|item| matches!(item, "*" | "?" | "*/1" | "?/1"))
}

/// Parses `*`, `5`, `1-5`, `*/15`, `10-40/10`, `mon-fri`, and several of them with commas.
fn field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let mut bits = 0;
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (first, last, step) = range(item, bounds)?;
        (first..=last).step_by(step as usize).for_each(|place| bits |= 1 << place);
    }
    Ok(bits)
}

/// Parses one range. Returns its first and last value and its step, all within the bounds.
fn range(range: &str, bounds: &Bounds) -> Result<(u32, u32, u32), String> {
    let mut range_and_step = range.split('/');
    let span: Vec<_> = range_and_step.next().unwrap_or_default().split('-').collect();
    let steps: Vec<_> = range_and_step.collect();
    let (first, mut last) = match span.as_slice() {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [one] => (number_or_name(one, bounds)?, number_or_name(one, bounds)?),
        [low, high] => (number_or_name(low, bounds)?, number_or_name(high, bounds)?),
        _ => {
            number_or_name(span.first().copied().unwrap_or_default(), bounds)?;
            return Err(format!("too many hyphens: {range}"));
        }
    };
    let step = match steps.as_slice() {
        [] => 1,
        [step] => {
            if span.len() == 1 {
                last = bounds.max;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    if first < bounds.min {
        return Err(format!("beginning of range ({first}) below minimum ({}): {range}", bounds.min));
    }
    if last > bounds.max {
        return Err(format!("end of range ({last}) above maximum ({}): {range}", bounds.max));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok((first, last, step))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let place = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    place
        .and_then(|place| u32::try_from(place).ok())
        .map_or_else(|| number(text), |place| Ok(bounds.min + place))
}

fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let unparsed = |why: &str| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", go::quote(text))
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(unparsed("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| unparsed("value out of range"))?;
    match u32::try_from(number) {
        Ok(number) => Ok(number),
        Err(_) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        // Too large for the type, and so above every bound.
        Err(_) => Ok(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_scheduled_time_is_found() {
        let check = |schedule: &str, zone: &str, after: &str, expected: &str| {
            let zone = TimeZone::get(zone).unwrap();
            let next = Schedule::parse(schedule).unwrap().after(after.parse().unwrap(), &zone);
            assert_eq!(next, Some(expected.parse().unwrap()), "{schedule} after {after}");
        };
        check("* * * * *", "UTC", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z");
        check("*/15 * * * *", "UTC", "2026-01-01T00:45:00Z", "2026-01-01T01:00:00Z");
        check("0 9 * * mon-fri", "UTC", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z");
        check("30 2 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2028-02-29T02:30:00Z");
        check("0 0 13 * 5", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        // 3 January is no Monday, and 12 January is one: either is enough unless a field allows all days.
        check("0 0 */2 * 1", "UTC", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z");
        check("0 0 */2 * 1", "UTC", "2026-01-11T00:00:00Z", "2026-01-12T00:00:00Z");
        check("0 0 * * 1", "UTC", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z");
        check("5/20 * * * *", "UTC", "2026-01-01T00:06:00Z", "2026-01-01T00:25:00Z");
        check("@hourly", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        check("0 9 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", "2026-07-01T07:00:00Z");
        check("@every 1h30m", "UTC", "2026-01-01T00:00:00.5Z", "2026-01-01T01:30:00Z");
        check("@every 10ms", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    }

    #[test]
    fn invalid_schedules_are_refused_with_the_text_of_the_library() {
        for good in
            ["* * * * *", "*/5 0-12/2 1,15 jan-MAR mon", "@daily", "@every 1h30m", "@every 1.5s", "0 0 ? * ?"]
        {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        let rows = [
            ("", "expected exactly 5 fields, found 0: []"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every 1y", "failed to parse duration @every 1y: time: unknown unit \"y\" in duration \"1y\""),
            ("@every 1h0", "failed to parse duration @every 1h0: time: missing unit in duration \"1h0\""),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ];
        for (schedule, expected) in rows {
            assert_eq!(
                Schedule::parse(schedule).map_err(|error| error.to_string()),
                Err(expected.to_owned())
            );
        }
    }
    /// Kubernetes accepts these schedules. Each search for the next time of the first one cost four million steps.
    #[test]
    fn schedules_that_are_never_due() {
        let moment: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for text in [", * * * *", "* , * * *", "0 0 30 2 *"] {
            assert_eq!(Schedule::parse(text).unwrap().after(moment, &TimeZone::UTC), None, "{text}");
        }
    }
}
