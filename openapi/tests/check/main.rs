//! Compares the results of validation with those of a real kube-apiserver.
//!
//! `bases.json` has a valid object per name. A line of `cases.txt` is a verb, a base and a few edits; the edited object
//! is sent to a server (dry run), and the causes in its response must equal ours, word for word and in order.
//! `answers.jsonl` records the server's responses, so that the comparison takes a moment and needs no server. The test
//! that needs one, `the_record_equals_the_answers_of_a_real_server`, compares the record with it; with `HOLON_RECORD=1`
//! it writes the record again.

mod case;
#[path = "../real/cluster.rs"]
#[allow(dead_code, reason = "the other test asks more of it")]
mod cluster;
mod pointers;
mod record;

use std::collections::{BTreeMap, HashSet};

use api::meta::field::FieldError;
use case::{Case, Verb};
use openapi::catalog;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::Status;
use openapi::validation;
use pointers::collect_pointers;
use record::{CaseResponse, Record};
use serde_json::{Value, json};

/// A valid object and its kind.
pub(crate) struct Base {
    pub(crate) row: &'static ResourceInfo,
    pub(crate) object: Value,
}

pub(crate) fn bases() -> BTreeMap<String, Base> {
    let objects: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("bases.json")).expect("bases.json is JSON");
    let base = |(name, object): (String, Value)| {
        let text = |field: &str| object[field].as_str().expect("a text").to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let row = catalog::find_kind(group, version, &kind).unwrap_or_else(|| panic!("no kind {kind}"));
        (name, Base { row, object })
    };
    objects.into_iter().map(base).collect()
}

fn cases() -> Vec<Case> {
    case::read(include_str!("cases.txt"))
}

#[test]
fn validation_errors_equal_those_of_a_real_server() {
    let (bases, record) = (bases(), Record::read());
    let cases = cases();
    assert!(cases.len() >= 250, "{} cases", cases.len());
    let mut differences = Vec::new();
    for case in &cases {
        let base = bases.get(&case.base).unwrap_or_else(|| panic!("no base {}", case.base));
        let Some(theirs) = record.answers.get(&case.line) else {
            differences.push(format!("{}\n  is not recorded", case.line));
            continue;
        };
        let ours = ours(base, case, &record);
        let (left, right) = (comparable(case, &ours), comparable(case, theirs));
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
    let fresh = record::record_from(&cluster, &bases(), &cases());
    if std::env::var_os("HOLON_RECORD").is_some() {
        fresh.write();
        return;
    }
    let recorded = Record::read();
    let mut differences = Vec::new();
    for case in cases() {
        let answer = |record: &Record| record.answers.get(&case.line).map(|answer| comparable(&case, answer));
        if answer(&fresh) != answer(&recorded) {
            differences.push(case.line.clone());
        }
    }
    assert!(differences.is_empty(), "the server now answers otherwise: {differences:#?}");
}

/// Values of the wrong type in any place cause an error, and no panic.
#[test]
fn strange_values_cause_no_panic() {
    let strange = [json!(null), json!([]), json!({}), json!(-1), json!("\u{e4} *")];
    let bases = bases();
    for (name, recorded_base) in Record::read().bases {
        let row = bases[&name].row;
        let mut pointers = Vec::new();
        collect_pointers(&recorded_base.created, String::new(), &mut pointers);
        // Two strange values at each place, in turn.
        for (index, pointer) in pointers.into_iter().enumerate() {
            for value in strange.iter().cycle().skip(index).take(2) {
                let mut object = recorded_base.created.clone();
                *object.pointer_mut(&pointer).expect("the pointer comes from this object") = value.clone();
                validation::validate_create(row, &object);
                validation::validate_update(row, &recorded_base.created, &object);
                validation::validate_update(row, &object, &recorded_base.created);
                validation::validate_status(row, &object, &recorded_base.created);
            }
        }
    }
}

fn ours(base: &Base, case: &Case, record: &Record) -> CaseResponse {
    let recorded_base = &record.bases[&case.base];
    let (errors, object) = match case.verb {
        Verb::Create => {
            let mut object = case.edited(&recorded_base.created);
            if base.row.namespaced && object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = json!("default");
            }
            (validation::validate_create(base.row, &object), object)
        }
        Verb::Update => {
            let object = case.edited(&recorded_base.stored);
            (validation::validate_update(base.row, &recorded_base.stored, &object), object)
        }
        Verb::Status => {
            let object = case.edited(&recorded_base.stored);
            (validation::validate_status(base.row, &recorded_base.stored, &object), object)
        }
    };
    answer(base.row, &object, &errors)
}

fn answer(row: &ResourceInfo, object: &Value, errors: &[FieldError]) -> CaseResponse {
    if errors.is_empty() {
        return CaseResponse::default();
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let status = Status::invalid(row.group_kind(), name, errors);
    CaseResponse::from_status(&serde_json::to_value(&status).expect("a status is JSON"))
}

/// Returns the parts of a response that are compared. The message for an immutable pod or volume ends with a dump of Go
/// structs, so only its first line counts. A cause counts once, however often Kubernetes reports it; and where
/// Kubernetes iterates over a map, or its rules run in another order than ours, only the set of causes counts.
fn comparable(case: &Case, answer: &CaseResponse) -> CaseResponse {
    let first_line = |text: &String| text.split('\n').next().unwrap_or_default().to_owned();
    let mut seen = HashSet::new();
    let causes = answer.causes.iter().map(|cause| cause.iter().map(first_line).collect::<Vec<_>>());
    let causes = causes.filter(|cause| seen.insert(cause.clone())).collect();
    let mut answer = CaseResponse { message: first_line(&answer.message), causes };
    if case.go_named {
        let bare = |text: &mut String| {
            if let (Some(start), Some(end)) = (text.find('{'), text.rfind('}')) {
                text.replace_range(start..=end, "{}");
            }
        };
        bare(&mut answer.message);
        answer.causes.iter_mut().flatten().for_each(bare);
    }
    if case.unordered {
        answer.causes.sort();
        answer.message.clear();
    }
    answer
}
