//! The objects in `corpus.txt` and `updates.txt`.

use std::sync::Arc;

use openapi::catalog;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec::{Syntax, decode};
use serde_json::{Value, json};

const CORPUS: &str = include_str!("corpus.txt");
const UPDATES: &str = include_str!("updates.txt");

pub(crate) struct Sample {
    pub(crate) row: &'static Arc<ResourceInfo>,
    pub(crate) object: Value,
    /// The objects that replace it, and the subresource of each replacement.
    pub(crate) replacements: Vec<(Value, Option<&'static str>)>,
}

pub(crate) fn samples() -> Vec<Sample> {
    parse(CORPUS)
}

pub(crate) fn updates() -> Vec<Sample> {
    parse(UPDATES)
}

fn parse(text: &str) -> Vec<Sample> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let mut row = None;
    let mut samples: Vec<Sample> = Vec::new();
    for entry in lines.replace("\n ", " ").lines() {
        if let Some(kind) = entry.strip_prefix("= ") {
            row = Some(resource_of(kind));
            continue;
        }
        let row = row.expect("an object follows its kind");
        let next = entry.strip_prefix("-> ").map(|next| (next, None));
        match next.or_else(|| entry.strip_prefix("status-> ").map(|next| (next, Some("status")))) {
            Some((next, subresource)) => {
                let sample = samples.last_mut().expect("something to replace");
                sample.replacements.push((object(row, next), subresource));
            }
            None => samples.push(Sample { row, object: object(row, entry), replacements: Vec::new() }),
        }
    }
    samples
}

fn resource_of(kind: &str) -> &'static Arc<ResourceInfo> {
    let (api_version, kind) = kind.split_once(' ').expect("a version and a kind");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    catalog::find_kind(group, version, kind).unwrap_or_else(|| panic!("no {kind} in {api_version}"))
}

fn object(row: &ResourceInfo, yaml: &str) -> Value {
    let read = decode(yaml.as_bytes(), Syntax::Yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
    let mut object = read.value;
    object["apiVersion"] = row.api_version().into();
    object["kind"] = json!(&*row.kind);
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = "x".into();
    }
    object
}
