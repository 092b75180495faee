//! The output of `holon explain`: why a cluster was chosen, and why another was not.
//!
//! ```text
//!   shop/web by the annotation holon.dev/placement=region=eu
//!
//!   CLUSTER  VERDICT   SCORE  FREE             FITS  WHY
//!   east     Chosen    600    cpu 6, memory …  12    chosen by the annotation …
//!   west     Rejected  -      unknown          -     label region=us does not match region=eu
//!                                                    → kubectl label physicalcluster west region=eu --overwrite
//! ```
//!
//! The same verdicts are in `Distribution.status`.

use api::fleet::{Role, Target, Verdict, VerdictKind};

const HEADER: [&str; 6] = ["CLUSTER", "VERDICT", "SCORE", "FREE", "FITS", "WHY"];

/// The rows, in columns. The remedy is below its row.
pub fn table(verdicts: &[Verdict]) -> String {
    let rows: Vec<[String; 6]> = verdicts.iter().map(cells).collect();
    let header = HEADER.map(str::to_owned);
    let mut widths = [0; 5];
    for row in rows.iter().chain([&header]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = line(&header, &widths);
    for (row, verdict) in rows.iter().zip(verdicts) {
        text.push_str(&line(row, &widths));
        if !verdict.remedy.is_empty() {
            let indent: usize = widths.iter().map(|width| width + 2).sum();
            text.push_str(&format!("{:indent$}→ {}\n", "", verdict.remedy));
        }
    }
    text
}

/// The targets as text: `east (6), west (4, arriving)`.
pub fn sentence(targets: &[Target]) -> String {
    let target = |target: &Target| {
        let share = target.share.map(|share| share.to_string());
        let role = match target.role {
            Role::Steady => None,
            Role::Arriving => Some("arriving".to_owned()),
            Role::Leaving => Some("leaving".to_owned()),
        };
        let details: Vec<String> = share.into_iter().chain(role).collect();
        match details.is_empty() {
            true => target.cluster.clone(),
            false => format!("{} ({})", target.cluster, details.join(", ")),
        }
    };
    match targets.is_empty() {
        true => "not placed yet".to_owned(),
        false => targets.iter().map(target).collect::<Vec<_>>().join(", "),
    }
}

fn line(row: &[String; 6], widths: &[usize; 5]) -> String {
    let mut text: String = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
    text.push_str(&row[5]);
    text.push('\n');
    text
}

fn cells(verdict: &Verdict) -> [String; 6] {
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let free = verdict.capacity.as_ref().map_or_else(
        || "unknown".to_owned(),
        |capacity| {
            let amounts =
                ["cpu", "memory"].into_iter().filter_map(|name| Some((name, capacity.free.get(name)?)));
            amounts.map(|(name, amount)| format!("{name} {}", amount.as_str())).collect::<Vec<_>>().join(", ")
        },
    );
    let kind = match verdict.verdict {
        VerdictKind::Chosen => "Chosen",
        VerdictKind::Eligible => "Eligible",
        VerdictKind::Rejected => "Rejected",
    };
    let fits = verdict.capacity.as_ref().and_then(|capacity| capacity.fits);
    [
        verdict.cluster.clone(),
        kind.to_owned(),
        number(verdict.score),
        free,
        number(fits),
        verdict.message.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_described_in_a_sentence() {
        let target = |cluster: &str, role, share| Target { cluster: cluster.to_owned(), role, share };
        let moving = [
            target("east", Role::Steady, Some(6)),
            target("west", Role::Arriving, Some(4)),
            target("old", Role::Leaving, None),
            target("still", Role::Steady, None),
        ];
        assert_eq!(sentence(&moving), "east (6), west (4, arriving), old (leaving), still");
        assert_eq!(sentence(&[]), "not placed yet");
    }
}
