//! Custom kinds, compared with a real kube-apiserver: which definitions it accepts, and how it treats their objects.
//!
//! `bases.json` has valid definitions and objects. A line of `definitions.txt` or `objects.txt` is a verb, a base and a
//! few edits; the edited object is sent to a server (dry run), and its response must equal ours: causes word for word,
//! warnings, and the resulting object. `answers.jsonl` records the server's responses, so that the comparison takes a
//! moment and needs no server. The test that needs one, `the_record_equals_the_answers_of_a_real_server`, compares the
//! record with it; with `HOLON_RECORD=1` it writes the record again.

#[path = "../check/case.rs"]
mod case;
#[path = "../real/cluster.rs"]
#[allow(dead_code, reason = "the other test asks more of it")]
mod cluster;
mod hostile;
mod ours;
#[path = "../check/pointers.rs"]
mod pointers;
mod properties;
mod published;
mod record;

use std::collections::{BTreeMap, HashSet};

use case::Case;
use record::{CaseResponse, Record};
use serde_json::Value;

/// Valid definitions and objects by name.
pub(crate) struct Bases {
    pub(crate) definitions: BTreeMap<String, Value>,
    pub(crate) objects: BTreeMap<String, Value>,
}

pub(crate) fn bases() -> Bases {
    let mut json: Value = serde_json::from_str(include_str!("bases.json")).expect("bases.json is JSON");
    let mut named =
        |part: &str| serde_json::from_value(json[part].take()).expect("bases.json has objects by name");
    Bases { definitions: named("definitions"), objects: named("objects") }
}

pub(crate) fn definition_cases() -> Vec<Case> {
    case::read(include_str!("definitions.txt"))
}

pub(crate) fn object_cases() -> Vec<Case> {
    case::read(include_str!("objects.txt"))
}

/// Returns the cases about objects in bases.json that are invalid under a stricter definition of samples: the first
/// line is that definition.
pub(crate) fn ratcheting_cases() -> (Case, Vec<Case>) {
    let mut cases = case::read(include_str!("ratcheting.txt"));
    (cases.remove(0), cases)
}

#[test]
fn definitions_are_accepted_and_refused_as_by_a_real_server() {
    compare(&definition_cases(), 60, ours::definition);
}

#[test]
fn objects_are_decoded_defaulted_and_rejected_as_by_a_real_server() {
    compare(&object_cases(), 80, ours::object);
}

#[test]
fn unchanged_invalid_values_are_accepted_as_by_a_real_server() {
    compare(&ratcheting_cases().1, 10, ours::ratcheting);
}

fn compare(cases: &[Case], at_least: usize, ours: fn(&Case, &Record) -> CaseResponse) {
    assert!(cases.len() >= at_least, "{} cases", cases.len());
    let record = Record::read();
    let mut differences = Vec::new();
    for case in cases {
        let Some(theirs) = record.answers.get(&case.line) else {
            differences.push(format!("{}\n  is not recorded", case.line));
            continue;
        };
        let (left, right) = (comparable(case, ours(case, &record)), comparable(case, theirs.clone()));
        if left != right {
            differences.push(format!("{}\n  theirs {right:#?}\n  ours   {left:#?}", case.line));
        }
    }
    let (count, total) = (differences.len(), cases.len());
    assert!(count == 0, "{count} of {total} differ:\n{}", differences.join("\n"));
}

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn the_record_equals_the_answers_of_a_real_server() {
    let cluster = cluster::Cluster::start(&[]);
    let fresh = record::record_from(&cluster);
    if std::env::var_os("HOLON_RECORD").is_some() {
        fresh.write();
        return;
    }
    let recorded = Record::read();
    let mut differences = Vec::new();
    for case in definition_cases().iter().chain(&object_cases()).chain(&ratcheting_cases().1) {
        let answer =
            |record: &Record| record.answers.get(&case.line).map(|answer| comparable(case, answer.clone()));
        if answer(&fresh) != answer(&recorded) {
            differences.push(case.line.clone());
        }
    }
    assert!(differences.is_empty(), "the server now answers otherwise: {differences:#?}");
}

/// Returns the parts of a response that are compared. Where Kubernetes iterates over a map, only the set of causes
/// counts; where it prints a value as a Go struct, the text in braces does not count.
pub(crate) fn comparable(case: &Case, mut answer: CaseResponse) -> CaseResponse {
    if case.go_named {
        let bare = |text: &mut String| {
            if let (Some(start), Some(end)) = (text.find(['{', '[']), text.rfind(['}', ']'])) {
                text.replace_range(start..=end, "");
            }
        };
        answer.causes.iter_mut().flatten().for_each(bare);
        answer.message.clear();
    }
    // A cause counts once, however often Kubernetes reports it.
    let mut seen = HashSet::new();
    answer.causes.retain(|cause| seen.insert(cause.clone()));
    if case.unordered {
        answer.causes.sort();
        answer.message.clear();
    }
    answer
}
