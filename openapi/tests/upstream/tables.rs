use std::sync::Arc;

use openapi::catalog::built_in;
use openapi::catalog::printer::PrinterCell;
use openapi::catalog::resource_info::{Generation, ResourceInfo, Verb};
use serde_json::Value;

use crate::discovery::root;
use crate::server::Server;

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const MANIFESTS: &str = include_str!("manifests.yaml");

/// Returns every table that the server serves, with the objects in it.
fn tables(server: &Server) -> Vec<(Arc<ResourceInfo>, Value)> {
    let rows = built_in().iter().filter(|row| row.allows(Verb::List));
    rows.map(|row| {
        let path = format!("{}/{}?includeObject=Object", root(row), row.plural);
        (row.clone(), server.get(&path, TABLE))
    })
    .collect()
}

/// Computes cells from the object that the server sends with each row, and compares them with its cells. Not compared:
/// - ages, because they change; only whether there is one;
/// - cells after the last column (an IPAddress has an age there, and no column for it);
/// - the targets of an autoscaler in its older version, which hides all but one of them in an annotation.
pub(crate) fn cells_differ(server: &Server) -> Vec<String> {
    server.kubectl(&["apply", "-f", "-"], MANIFESTS);
    // Controllers need a moment to write statuses.
    std::thread::sleep(std::time::Duration::from_secs(5));
    let now = jiff::Timestamp::now();
    let mut found = Vec::new();
    let mut seen = 0;
    for (row, table) in tables(server) {
        for their_row in table["rows"].as_array().into_iter().flatten() {
            seen += 1;
            for (index, column) in row.columns.iter().enumerate() {
                let (ours, theirs) =
                    (column.cell.fill(&their_row["object"], now), &their_row["cells"][index]);
                let is_time = matches!(column.cell, PrinterCell::Age(_)) || is_moment(&column.name);
                let is_same = match is_time {
                    _ if &*column.name == "Targets" && &*row.version == "v1" => true,
                    true => has_time(&ours) == has_time(theirs),
                    false => ours == *theirs,
                };
                if !is_same {
                    let name = &their_row["object"]["metadata"]["name"];
                    found.push(format!("{} {name}, {}: {ours} there {theirs}", row.qualified(), column.name));
                }
            }
        }
    }
    if seen < 100 {
        found.push(format!("only {seen} rows to compare"));
    }
    found
}

fn is_moment(column: &str) -> bool {
    matches!(column, "Last Seen" | "First Seen" | "Duration" | "Last Schedule")
}

/// Returns whether a cell shows a time.
fn has_time(cell: &Value) -> bool {
    cell.as_str().is_some_and(|text| text.starts_with(|first: char| first.is_ascii_digit()))
}

/// Checks that an object has a generation exactly if the rules of its kind give it one.
pub(crate) fn generations_differ(server: &Server) -> Vec<String> {
    let mut found = Vec::new();
    for (row, table) in tables(server) {
        for their_row in table["rows"].as_array().into_iter().flatten() {
            let generation = their_row["object"]["metadata"]["generation"].as_i64();
            let is_right = match &row.generation {
                Generation::Never => generation.is_none(),
                Generation::Fixed => generation == Some(1),
                rule => generation >= rule.first(),
            };
            if !is_right {
                found.push(format!(
                    "{} {}: {generation:?}",
                    row.qualified(),
                    their_row["object"]["metadata"]["name"]
                ));
            }
        }
    }
    found
}
