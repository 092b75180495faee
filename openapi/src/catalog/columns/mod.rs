//! What fills each column of the built-in kinds' tables. Names, types and order of the columns are facts of
//! `resources.json`; what a kube-apiserver shows in them is here.

mod clusters;
mod network;
mod policies;
mod workloads;

use crate::catalog::printer::Cell;

/// A cell as a constant can write it.
#[derive(Clone, Copy)]
enum Fill {
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
type Columns = (&'static str, &'static [(&'static str, Fill)]);

/// Columns that mean the same everywhere, unless a kind says otherwise.
const COMMON: &[(&str, Fill)] = &[
    ("Name", Fill::Text("/metadata/name", "")),
    ("Age", Fill::Age("/metadata/creationTimestamp")),
    ("Created At", Fill::Text("/metadata/creationTimestamp", "")),
];

/// The subresource, not a resource.
const SCALE: &[Columns] = &[(
    "scale",
    &[("Desired", Fill::Integer("/spec/replicas")), ("Available", Fill::Integer("/status/replicas"))],
)];

const TABLES: &[&[Columns]] =
    &[SCALE, clusters::COLUMNS, network::COLUMNS, policies::COLUMNS, workloads::COLUMNS];

/// What fills the column of this name in this resource's table.
pub(super) fn cell(resource: &str, column: &str) -> Option<Cell> {
    let own =
        TABLES.iter().copied().flatten().find(|(key, _)| *key == resource).map_or(&[][..], |(_, own)| own);
    own.iter().chain(COMMON).find(|(name, _)| *name == column).map(|(_, fill)| fill.cell())
}

/// Every resource with columns of its own. The first table is about a subresource.
#[cfg(test)]
pub(super) fn mentioned() -> impl Iterator<Item = &'static str> {
    TABLES.iter().skip(1).copied().flatten().map(|(key, _)| *key)
}

impl Fill {
    fn cell(self) -> Cell {
        match self {
            Fill::Text(pointer, absent) => Cell::Text(pointer.into(), absent.into()),
            Fill::Plain(pointer, absent) => Cell::Plain(pointer.into(), absent.into()),
            Fill::Integer(pointer) => Cell::Integer(pointer.into()),
            Fill::Truth(pointer, absent) => Cell::Truth(pointer.into(), absent),
            Fill::Count(pointer) => Cell::Count(pointer.into()),
            Fill::Join(pointer, absent) => Cell::Join(pointer.into(), absent.into()),
            Fill::JoinEach(pointer, field, absent) => {
                Cell::JoinEach(pointer.into(), field.into(), absent.into())
            }
            Fill::Ratio(have, want) => Cell::Ratio(have.into(), want.into()),
            Fill::Labels(pointer) => Cell::Labels(pointer.into()),
            Fill::Selector(pointer) => Cell::Selector(pointer.into()),
            Fill::Age(pointer) => Cell::Age(pointer.into()),
            Fill::Made(make) => Cell::Made(make),
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
