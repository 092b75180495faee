//! The recorded responses of a real server, and how they are recorded.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Base;
use crate::case::{Case, Verb};
use crate::cluster::Cluster;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check/answers.jsonl");

/// How often a write is retried with the newest version after a conflict with a controller.
const ATTEMPTS: usize = 10;

#[derive(Default)]
pub(crate) struct Record {
    pub(crate) bases: BTreeMap<String, RecordedBase>,
    pub(crate) answers: BTreeMap<String, CaseResponse>,
}

/// A base as the server returns it, before and after it is stored.
pub(crate) struct RecordedBase {
    pub(crate) created: Value,
    pub(crate) stored: Value,
}

/// The response to a case; empty if the server accepted it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct CaseResponse {
    pub(crate) message: String,
    /// Reason, field, message.
    pub(crate) causes: Vec<Vec<String>>,
}

impl CaseResponse {
    pub(crate) fn from_status(status: &Value) -> CaseResponse {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let causes = status["details"]["causes"].as_array().into_iter().flatten();
        let causes = causes
            .map(|cause| ["reason", "field", "message"].iter().map(|field| text(&cause[field])).collect());
        CaseResponse { message: text(&status["message"]), causes: causes.collect() }
    }

    fn to_json(&self) -> Value {
        json!({ "message": self.message, "causes": self.causes })
    }

    fn from_json(value: &Value) -> CaseResponse {
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let causes = value["causes"].as_array().into_iter().flatten().map(texts).collect();
        CaseResponse { message: value["message"].as_str().unwrap_or_default().to_owned(), causes }
    }
}

impl Record {
    pub(crate) fn read() -> Record {
        let mut record = Record::default();
        let text = std::fs::read_to_string(FILE).unwrap_or_default();
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).expect("answers.jsonl is JSON");
            let name = |field: &str| row[field].as_str().map(str::to_owned);
            if let Some(base) = name("base") {
                let recorded_base =
                    RecordedBase { created: row["created"].clone(), stored: row["stored"].clone() };
                record.bases.insert(base, recorded_base);
            }
            if let Some(case) = name("case") {
                record.answers.insert(case, CaseResponse::from_json(&row));
            }
        }
        record
    }

    pub(crate) fn write(&self) {
        let mut lines = Vec::new();
        for (base, recorded_base) in &self.bases {
            lines.push(
                json!({ "base": base, "created": recorded_base.created, "stored": recorded_base.stored })
                    .to_string(),
            );
        }
        for (case, answer) in &self.answers {
            let mut row = answer.to_json();
            row["case"] = json!(case);
            lines.push(row.to_string());
        }
        std::fs::write(FILE, lines.join("\n") + "\n").expect("the record can be written");
    }
}

/// Creates come first: once the bases exist, their names and addresses are taken.
pub(crate) fn record_from(cluster: &Cluster, bases: &BTreeMap<String, Base>, cases: &[Case]) -> Record {
    let mut record = Record::default();
    for (name, base) in bases {
        let created = send(cluster, "POST", &format!("{}?dryRun=All", path(base)), &base.object);
        let created = created.unwrap_or_else(|refused| panic!("{name}: {refused:#}"));
        record.bases.insert(name.clone(), RecordedBase { created: stripped(created), stored: Value::Null });
    }
    for case in cases.iter().filter(|case| case.verb == Verb::Create) {
        let object = case.edited(&record.bases[&case.base].created);
        let answer = send(cluster, "POST", &format!("{}?dryRun=All", path(&bases[&case.base])), &object);
        record.answers.insert(case.line.clone(), answer_to(case, answer));
    }
    let needed = |name: &&String| cases.iter().any(|case| case.verb != Verb::Create && case.base == **name);
    for name in bases.keys().filter(needed) {
        let (base, object) = (&bases[name], &bases[name].object);
        send(cluster, "POST", &path(base), object).unwrap_or_else(|refused| panic!("{name}: {refused:#}"));
        record.bases.get_mut(name).expect("just made").stored = current(cluster, base);
    }
    for case in cases.iter().filter(|case| case.verb != Verb::Create) {
        let answer = update(cluster, &bases[&case.base], case);
        record.answers.insert(case.line.clone(), answer_to(case, answer));
    }
    record
}

fn update(cluster: &Cluster, base: &Base, case: &Case) -> Result<Value, Value> {
    let suffix = if case.verb == Verb::Status { "/status" } else { "" };
    let path = format!("{}/{}{suffix}?dryRun=All", path(base), name(base));
    let mut answer = Ok(Value::Null);
    for _ in 0..ATTEMPTS {
        answer = send(cluster, "PUT", &path, &case.edited(&current(cluster, base)));
        match &answer {
            Err(status) if status["reason"] == "Conflict" => {}
            _ => break,
        }
    }
    answer
}

fn answer_to(case: &Case, answer: Result<Value, Value>) -> CaseResponse {
    match answer {
        Ok(_) => CaseResponse::default(),
        Err(status) if status["reason"] == "Invalid" => CaseResponse::from_status(&status),
        Err(other) => panic!("{}: {other:#}", case.line),
    }
}

fn current(cluster: &Cluster, base: &Base) -> Value {
    let answer = cluster.get(&format!("{}/{}", path(base), name(base)));
    let mut object = answer.body;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

fn send(cluster: &Cluster, method: &str, path: &str, object: &Value) -> Result<Value, Value> {
    let answer = cluster.send(method, path, "application/json", &object.to_string());
    if answer.code < 300 { Ok(answer.body) } else { Err(answer.body) }
}

fn name(base: &Base) -> &str {
    base.object["metadata"]["name"].as_str().expect("a name")
}

fn path(base: &Base) -> String {
    let row = base.row;
    let group = if row.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", row.group) };
    let namespace = if row.namespaced { "/namespaces/default" } else { "" };
    format!("{group}/{}{namespace}/{}", row.version, row.plural)
}

/// Returns an object without values that the server sets again, or that were only temporary, such as the address of a
/// service in a dry run.
fn stripped(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "creationTimestamp", "managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if object["kind"] == "Service"
        && object["spec"]["clusterIP"] != "None"
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    object
}
