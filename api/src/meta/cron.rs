//! Cron schedules as Kubernetes reads them: five fields or a descriptor such as `@daily`, and the next time they are due.
//!
//! Kubernetes reads them with a Go library whose rules differ from those of the crates there are (decision 13).

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// A parsed schedule: minutes, hours, days of the month, months and days of the week, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether days of the month or of the week were left open. If neither was, one of them is enough.
    any_day: bool,
    any_weekday: bool,
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Names of whole schedules.
const DESCRIPTORS: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// Leap years are at most eight years apart, so what is not due in that time never is.
const DAYS_MAX: usize = 366 * 8;

impl Schedule {
    /// None if it is not a schedule.
    pub fn parse(text: &str) -> Option<Schedule> {
        let word = DESCRIPTORS.iter().find(|(word, _)| *word == text.trim());
        let fields: Vec<&str> = word.map_or(text, |(_, fields)| fields).split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else { return None };
        let weekday_bits = field(weekdays, 0, 7, WEEKDAYS)?;
        Some(Schedule {
            minutes: field(minutes, 0, 59, &[])?,
            hours: field(hours, 0, 23, &[])?,
            days: field(days, 1, 31, &[])?,
            months: field(months, 1, 12, MONTHS)?,
            // Sunday has two numbers.
            weekdays: weekday_bits | (weekday_bits >> 7 & 1),
            any_day: is_open(days),
            any_weekday: is_open(weekdays),
        })
    }

    /// The first moment after this one at which something is due.
    pub fn after(&self, moment: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let begin = zone.to_datetime(moment).checked_add(1.minute()).ok()?;
        let mut at = begin.with().second(0).subsec_nanosecond(0).build().ok()?;
        for _ in 0..DAYS_MAX {
            if let Some(found) = self.on_day(at) {
                let due = zone.to_timestamp(found).ok()?;
                // A clock that is put back shows some minutes twice.
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

    /// The first moment of a day from `at` on.
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

/// Whether a field leaves its days open. `*/2` does not.
fn is_open(field: &str) -> bool {
    field.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"))
}

/// `*`, `5`, `1-5`, `*/15`, `10-40/10`, `mon-fri`, and several of them with commas.
fn field(text: &str, low: u64, high: u64, names: &[&str]) -> Option<u64> {
    let value = |text: &str| -> Option<u64> {
        let place = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        place.map(|place| place as u64 + low).or_else(|| text.parse().ok())
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let (first, last) = match range {
            "*" | "?" => (low, high),
            range => match range.split_once('-') {
                Some((first, last)) => (value(first)?, value(last)?),
                None if step.is_some() => (value(range)?, high),
                None => (value(range)?, value(range)?),
            },
        };
        let step: u64 = step.map_or(Some(1), |step| step.parse().ok())?;
        if first < low || last > high || first > last || step == 0 {
            return None;
        }
        (first..=last).step_by(step as usize).for_each(|place| bits |= 1 << place);
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_moment_is_found() {
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
        // The 3rd is no Monday, and the 5th a Monday: either is enough unless a field is open.
        check("0 0 */2 * 1", "UTC", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z");
        check("0 0 */2 * 1", "UTC", "2026-01-11T00:00:00Z", "2026-01-12T00:00:00Z");
        check("0 0 * * 1", "UTC", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z");
        check("5/20 * * * *", "UTC", "2026-01-01T00:06:00Z", "2026-01-01T00:25:00Z");
        check("@hourly", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        check("0 9 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", "2026-07-01T07:00:00Z");
    }

    #[test]
    fn what_is_no_schedule_is_none() {
        for text in ["", "* * * *", "60 * * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "x * * * *"] {
            assert_eq!(Schedule::parse(text), None, "{text}");
        }
    }
}
