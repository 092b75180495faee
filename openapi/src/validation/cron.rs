//! When a cron job runs: `*/5 * * * mon-fri`, `@daily`.
//!
//! Only whether a schedule can be read, and where not, in the words of the library Kubernetes reads it with.

/// The lowest, the highest, and names for some of them.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [(&'static str, u32)],
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &[
            ("jan", 1),
            ("feb", 2),
            ("mar", 3),
            ("apr", 4),
            ("may", 5),
            ("jun", 6),
            ("jul", 7),
            ("aug", 8),
            ("sep", 9),
            ("oct", 10),
            ("nov", 11),
            ("dec", 12),
        ],
    },
    Bounds {
        min: 0,
        max: 6,
        names: &[("sun", 0), ("mon", 1), ("tue", 2), ("wed", 3), ("thu", 4), ("fri", 5), ("sat", 6)],
    },
];

const DESCRIPTORS: &[&str] =
    &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// What is wrong with a schedule.
pub(super) fn fault(schedule: &str) -> Option<String> {
    // A time zone in the schedule is reported before errors in the rest of it.
    let schedule = match schedule.strip_prefix("CRON_TZ=").or_else(|| schedule.strip_prefix("TZ=")) {
        None => schedule,
        Some(zoned) => zoned.split_once(' ').map(|(_, schedule)| schedule.trim()).unwrap_or_default(),
    };
    if schedule.starts_with('@') {
        return descriptor_fault(schedule);
    }
    let fields: Vec<_> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.len();
        return Some(format!("expected exactly 5 fields, found {found}: [{}]", fields.join(" ")));
    }
    let faults = fields.iter().zip(&FIELDS).flat_map(|(field, bounds)| {
        let ranges = field.split(',').filter(|range| !range.is_empty());
        ranges.filter_map(|range| range_fault(range, bounds).err())
    });
    faults.into_iter().next()
}

fn descriptor_fault(schedule: &str) -> Option<String> {
    if DESCRIPTORS.contains(&schedule) {
        return None;
    }
    match schedule.strip_prefix("@every ") {
        None => Some(format!("unrecognized descriptor: {schedule}")),
        Some(every) if is_duration(every) => None,
        Some(every) => {
            Some(format!("failed to parse duration {schedule}: time: invalid duration \"{every}\""))
        }
    }
}

/// `1h30m`, `1.5s`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let digits = &rest[..number];
        let good = digits.bytes().any(|byte| byte.is_ascii_digit()) && digits.matches('.').count() <= 1;
        let unit = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].into_iter().find(|unit| {
            let after = rest[number..].strip_prefix(unit);
            after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphabetic()))
        });
        match unit {
            Some(unit) if good => rest = &rest[number + unit.len()..],
            _ => return false,
        }
        any = true;
    }
    any
}

/// `*`, `5`, `1-5`, `*/2`, `10-20/5`.
fn range_fault(range: &str, bounds: &Bounds) -> Result<(), String> {
    let mut parts = range.split('/');
    let span: Vec<_> = parts.next().unwrap_or_default().split('-').collect();
    let steps: Vec<_> = parts.collect();
    let (start, mut end) = match span.as_slice() {
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
                end = bounds.max;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    if start < bounds.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {range}", bounds.min));
    }
    if end > bounds.max {
        return Err(format!("end of range ({end}) above maximum ({}): {range}", bounds.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let named = bounds.names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map_or_else(|| number(text), |(_, number)| Ok(*number))
}

fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let shown = crate::meta::go::quote(text);
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {shown}: invalid syntax"
        ));
    }
    let Ok(number) = text.parse::<i64>() else {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": value out of range"
        ));
    };
    match u32::try_from(number) {
        Ok(number) => Ok(number),
        Err(_) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        // Larger than every bound, which is all the caller needs.
        Err(_) => Ok(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["* * * * *", "*/5 0-12/2 1,15 jan-MAR mon", "@daily", "@every 1h30m", "0 0 ? * ?"] {
            assert_eq!(fault(good), None, "{good}");
        }
        let rows = [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@often", "unrecognized descriptor: @often"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ];
        for (schedule, expected) in rows {
            assert_eq!(fault(schedule).as_deref(), Some(expected));
        }
    }
}
