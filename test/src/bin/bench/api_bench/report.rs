//! Rows of figures: a Markdown table for people, and a line of JSON each for programs.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::target::Figures;
use crate::measure::{format_figure, median};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Better {
    More,
    Less,
}

/// A figure: the median of its rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReportRow {
    id: &'static str,
    what: String,
    unit: &'static str,
    ours: f64,
    theirs: Option<f64>,
    /// How many times better Holon's figure is; below one, it is worse.
    ratio: Option<Ratio>,
    goal: Option<&'static str>,
    /// The highest number of processors that the benchmark itself kept busy while it loaded Holon.
    client_cores: Option<f64>,
}

/// The statistics of the ratios of single rounds: a ratio of two medians would compare rounds that are far apart.
#[derive(Clone, Debug, Serialize)]
struct Ratio {
    median: f64,
    least: f64,
    most: f64,
}

impl ReportRow {
    pub(crate) fn new(
        id: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        better: Better,
        rounds: &[Figures],
    ) -> ReportRow {
        let mut ours: Vec<f64> = rounds.iter().map(|(ours, _)| *ours).collect();
        let mut theirs: Vec<f64> = rounds.iter().filter_map(|(_, theirs)| *theirs).collect();
        let ratio = |(ours, theirs): &Figures| {
            theirs.map(|theirs| if better == Better::More { ours / theirs } else { theirs / ours })
        };
        let mut ratios: Vec<f64> = rounds.iter().filter_map(ratio).collect();
        ReportRow {
            id,
            what: what.into(),
            unit,
            ours: median(&mut ours),
            theirs: (!theirs.is_empty()).then(|| median(&mut theirs)),
            ratio: (!ratios.is_empty()).then(|| Ratio {
                median: median(&mut ratios),
                least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                most: ratios.iter().copied().fold(0.0, f64::max),
            }),
            goal: None,
            client_cores: None,
        }
    }

    pub(crate) fn goal(self, goal: impl Into<Option<&'static str>>) -> ReportRow {
        ReportRow { goal: goal.into(), ..self }
    }

    pub(crate) fn client_cores(self, cores: f64) -> ReportRow {
        ReportRow { client_cores: Some(cores), ..self }
    }

    fn line(&self) -> String {
        let ratio = self.ratio.as_ref().map_or(String::new(), |ratio| {
            let [median, least, most] = [ratio.median, ratio.least, ratio.most].map(format_figure);
            format!("{median}× ({least}–{most})")
        });
        let theirs = self.theirs.map_or(String::new(), format_figure);
        let (id, what, unit, ours) = (self.id, &self.what, self.unit, format_figure(self.ours));
        let goal = self.goal.unwrap_or_default();
        format!("| {id} | {what} | {unit} | {ours} | {theirs} | {ratio} | {goal} |")
    }
}

pub(crate) fn print(rows: &[ReportRow]) {
    println!("\n| id | what | unit | Holon | Kubernetes | ratio (least–most) | goal |");
    println!("|---|---|---|---:|---:|---:|---|");
    rows.iter().for_each(|row| println!("{}", row.line()));
}

/// Prints the rows as JSON lines and writes them to a file.
pub(crate) fn write(rows: &[ReportRow], file: &Path) -> Result<()> {
    let lines: Vec<_> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let text = lines.join("\n") + "\n";
    println!("\n{text}");
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(file, text)?;
    println!("figures written to {}", file.display());
    Ok(())
}
