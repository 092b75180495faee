//! What fills each column of the built-in kinds' tables. Names, types and order of the columns are facts of
//! `resources.json`; what a kube-apiserver shows in them is here.

mod clusters;
mod network;
mod policies;
mod workloads;

use crate::catalog::printer::PrinterCell;

/// A cell as a constant can write it.
#[derive(Clone, Copy)]
enum CellSource {
    /// The text there, or the second.
    Text(&'static str, &'static str),
    Plain(&'static str, &'static str),
    Integer(&'static str),
    Truth(&'static str, bool),
    Count(&'static str),
    Join(&'static str, &'static str),
    JoinEach(&'static str, &'static str, &'static str),
    Ratio(&'static str, &'static str),
    Labels(&'static str),
    Selector(&'static str),
    Age(&'static str),
    Made(fn(&serde_json::Value, jiff::Timestamp) -> serde_json::Value),
}

/// One resource's columns, in the form `plural.group`.
type Columns = (&'static str, &'static [(&'static str, CellSource)]);

/// Columns that mean the same everywhere, unless a kind says otherwise.
const COMMON: &[(&str, CellSource)] = &[
    ("Name", CellSource::Text("/metadata/name", "")),
    ("Age", CellSource::Age("/metadata/creationTimestamp")),
    ("Created At", CellSource::Text("/metadata/creationTimestamp", "")),
];

/// The subresource, not a resource.
const SCALE: &[Columns] = &[(
    "scale",
    &[
        ("Desired", CellSource::Integer("/spec/replicas")),
        ("Available", CellSource::Integer("/status/replicas")),
    ],
)];

const TABLES: &[&[Columns]] =
    &[SCALE, clusters::COLUMNS, network::COLUMNS, policies::COLUMNS, workloads::COLUMNS];

/// What fills the column of this name in this resource's table.
pub(super) fn cell(resource: &str, column: &str) -> Option<PrinterCell> {
    let own =
        TABLES.iter().copied().flatten().find(|(key, _)| *key == resource).map_or(&[][..], |(_, own)| own);
    own.iter().chain(COMMON).find(|(name, _)| *name == column).map(|(_, fill)| fill.cell())
}

/// Every resource with columns of its own. The first table is about a subresource.
#[cfg(test)]
pub(super) fn mentioned() -> impl Iterator<Item = &'static str> {
    TABLES.iter().skip(1).copied().flatten().map(|(key, _)| *key)
}

impl CellSource {
    fn cell(self) -> PrinterCell {
        match self {
            CellSource::Text(pointer, absent) => PrinterCell::Text(pointer.into(), absent.into()),
            CellSource::Plain(pointer, absent) => PrinterCell::Plain(pointer.into(), absent.into()),
            CellSource::Integer(pointer) => PrinterCell::Integer(pointer.into()),
            CellSource::Truth(pointer, absent) => PrinterCell::Truth(pointer.into(), absent),
            CellSource::Count(pointer) => PrinterCell::Count(pointer.into()),
            CellSource::Join(pointer, absent) => PrinterCell::Join(pointer.into(), absent.into()),
            CellSource::JoinEach(pointer, field, absent) => {
                PrinterCell::JoinEach(pointer.into(), field.into(), absent.into())
            }
            CellSource::Ratio(have, want) => PrinterCell::Ratio(have.into(), want.into()),
            CellSource::Labels(pointer) => PrinterCell::Labels(pointer.into()),
            CellSource::Selector(pointer) => PrinterCell::Selector(pointer.into()),
            CellSource::Age(pointer) => PrinterCell::Age(pointer.into()),
            CellSource::Made(make) => PrinterCell::Made(make),
        }
    }
}

/// A list cut after the third, and how many more there are.
fn few(all: &[String], nothing: &str) -> String {
    const SHOWN: usize = 3;
    match all.len() {
        0 => nothing.to_owned(),
        count if count > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), count - SHOWN),
        _ => all.join(","),
    }
}

/// The status of the condition of this type.
fn condition<'a>(object: &'a serde_json::Value, pointer: &str, kind: &str) -> Option<&'a serde_json::Value> {
    crate::catalog::printer::items(object, pointer).find(|condition| condition["type"] == kind)
}

fn is_true(object: &serde_json::Value, pointer: &str, kind: &str) -> bool {
    condition(object, pointer, kind).is_some_and(|condition| condition["status"] == "True")
}

fn is_terminating(object: &serde_json::Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}
