//! Cells of the built-in kinds' printer columns. `resources.json` has the names, types and order of the columns; the
//! tables here say which value of an object each column shows, as in kube-apiserver.

mod clusters;
mod network;
mod policies;
mod workloads;

use crate::catalog::printer::PrinterCell;
use api::meta::is_being_deleted;

/// A [`PrinterCell`] in a form that a constant can hold.
#[derive(Clone, Copy)]
enum CellSource {
    /// The text at the pointer, or the second text.
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

/// The columns of one resource, which is named `plural.group`.
type Columns = (&'static str, &'static [(&'static str, CellSource)]);

/// Columns with the same meaning for all kinds, unless a kind has its own entry.
const COMMON: &[(&str, CellSource)] = &[
    ("Name", CellSource::Text("/metadata/name", "")),
    ("Age", CellSource::Age("/metadata/creationTimestamp")),
    ("Created At", CellSource::Text("/metadata/creationTimestamp", "")),
];

/// Columns of the `scale` subresource.
const SCALE: &[Columns] = &[(
    "scale",
    &[
        ("Desired", CellSource::Integer("/spec/replicas")),
        ("Available", CellSource::Integer("/status/replicas")),
    ],
)];

const TABLES: &[&[Columns]] =
    &[SCALE, clusters::COLUMNS, network::COLUMNS, policies::COLUMNS, workloads::COLUMNS];

/// Returns the cell of a resource's column.
pub(super) fn cell(resource: &str, column: &str) -> Option<PrinterCell> {
    let columns_of_resource = TABLES
        .iter()
        .copied()
        .flatten()
        .find(|(key, _)| *key == resource)
        .map_or(&[][..], |(_, columns_of_resource)| columns_of_resource);
    columns_of_resource.iter().chain(COMMON).find(|(name, _)| *name == column).map(|(_, fill)| fill.cell())
}

/// Returns the key of every resource with columns of its own. The first table, of a subresource, is skipped.
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

/// Joins the first three items and adds how many more there are. Returns `nothing` for an empty list.
fn few(all: &[String], nothing: &str) -> String {
    const LISTED_MAX: usize = 3;
    match all.len() {
        0 => nothing.to_owned(),
        count if count > LISTED_MAX => {
            format!("{} + {} more...", all[..LISTED_MAX].join(","), count - LISTED_MAX)
        }
        _ => all.join(","),
    }
}

/// Returns the condition of the type `kind`.
fn condition<'a>(object: &'a serde_json::Value, pointer: &str, kind: &str) -> Option<&'a serde_json::Value> {
    crate::catalog::printer::items(object, pointer).find(|condition| condition["type"] == kind)
}

fn is_true(object: &serde_json::Value, pointer: &str, kind: &str) -> bool {
    condition(object, pointer, kind).is_some_and(|condition| condition["status"] == "True")
}
