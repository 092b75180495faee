//! The recorded responses of a real server, and how they are recorded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::case::{Case, Verb};
use crate::cluster::{self, Cluster};
use crate::{bases, comparable, definition_cases, object_cases, ratcheting_cases};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/custom/answers.jsonl");
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// How long a server may take to serve a new definition.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Record {
    /// Definitions and objects as the server stores them.
    pub(crate) stored: BTreeMap<String, Value>,
    /// Documents and tables that it serves about them.
    pub(crate) served: BTreeMap<String, Value>,
    pub(crate) answers: BTreeMap<String, CaseResponse>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct CaseResponse {
    pub(crate) message: String,
    /// Reason, field, message.
    pub(crate) causes: Vec<Vec<String>>,
    pub(crate) warnings: Vec<String>,
    /// The object without its metadata; null if it was rejected.
    pub(crate) object: Value,
}

impl CaseResponse {
    pub(crate) fn refused(status: &Value) -> CaseResponse {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let causes = status["details"]["causes"].as_array().into_iter().flatten();
        let causes =
            causes.map(|cause| ["reason", "field", "message"].map(|field| text(&cause[field])).to_vec());
        CaseResponse {
            message: text(&status["message"]),
            causes: causes.collect(),
            ..CaseResponse::default()
        }
    }

    pub(crate) fn accepted(mut object: Value, warnings: Vec<String>) -> CaseResponse {
        if let Some(fields) = object.as_object_mut() {
            fields.remove("metadata");
        }
        CaseResponse { object, warnings, ..CaseResponse::default() }
    }

    fn of(answer: cluster::ServerResponse, with_object: bool) -> CaseResponse {
        if answer.code >= 300 {
            return CaseResponse { warnings: answer.warnings, ..CaseResponse::refused(&answer.body) };
        }
        let object = if with_object { answer.body } else { Value::Null };
        CaseResponse::accepted(object, answer.warnings)
    }
}

impl Record {
    /// Keeps the parts of a response that are compared.
    fn keep(&mut self, case: &Case, answer: CaseResponse) {
        self.answers.insert(case.line.clone(), comparable(case, answer));
    }

    pub(crate) fn read() -> Record {
        let mut record = Record::default();
        let text = std::fs::read_to_string(FILE).unwrap_or_default();
        for line in text.lines() {
            let mut row: Value = serde_json::from_str(line).expect("answers.jsonl is JSON");
            let name = |field: &str| row[field].as_str().map(str::to_owned);
            let texts = |list: &Value| -> Vec<String> {
                list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
            };
            if let Some(stored) = name("stored") {
                record.stored.insert(stored, row["object"].take());
            } else if let Some(path) = name("served") {
                record.served.insert(path, row["object"].take());
            } else if let Some(case) = name("case") {
                let answer = CaseResponse {
                    message: name("message").unwrap_or_default(),
                    causes: row["causes"].as_array().into_iter().flatten().map(texts).collect(),
                    warnings: texts(&row["warnings"]),
                    object: row["object"].take(),
                };
                record.answers.insert(case, answer);
            }
        }
        record
    }

    pub(crate) fn write(&self) {
        let stored = self.stored.iter().map(|(name, object)| json!({ "stored": name, "object": object }));
        let served = self.served.iter().map(|(path, object)| json!({ "served": path, "object": object }));
        let answers = self.answers.iter().map(|(case, answer)| {
            json!({
                "case": case, "message": answer.message, "causes": answer.causes, "warnings": answer.warnings,
                "object": answer.object,
            })
        });
        let lines: Vec<String> = stored.chain(served).chain(answers).map(|row| row.to_string()).collect();
        std::fs::write(FILE, lines.join("\n") + "\n").expect("the record can be written");
    }
}

pub(crate) fn record_from(cluster: &Cluster) -> Record {
    let mut record = Record::default();
    let bases = bases();
    for case in definition_cases().iter().filter(|case| case.verb == Verb::Create) {
        let definition = case.edited(&bases.definitions[&case.base]);
        let answer = send(cluster, "POST", &format!("{DEFINITIONS}?dryRun=All"), &definition);
        record.keep(case, CaseResponse::of(answer, false));
    }
    for (name, definition) in &bases.definitions {
        let made = send(cluster, "POST", DEFINITIONS, definition);
        assert!(made.code < 300, "{name}: {}", made.body);
        record.stored.insert(name.clone(), established(cluster, name));
    }
    for case in definition_cases().iter().filter(|case| case.verb != Verb::Create) {
        let path = format!("{DEFINITIONS}/{}.test.example.com", case.base);
        record.keep(case, update(cluster, case, &path, false));
    }
    record_objects(cluster, &mut record);
    record_documents(cluster, &mut record);
    record_ratcheting(cluster, &mut record);
    record
}

fn record_objects(cluster: &Cluster, record: &mut Record) {
    let bases = bases();
    for case in object_cases().iter().filter(|case| case.verb == Verb::Create) {
        let object = case.edited(&bases.objects[&case.base]);
        let path = format!("{}?dryRun=All", path(&bases.objects[&case.base]));
        record.keep(case, CaseResponse::of(send(cluster, "POST", &path, &object), true));
    }
    for (name, object) in &bases.objects {
        let made = send(cluster, "POST", &path(object), object);
        assert!(made.code < 300, "{name}: {}", made.body);
        record.stored.insert(name.clone(), current(cluster, &one(object)));
    }
    for case in object_cases().iter().filter(|case| case.verb != Verb::Create) {
        let path = one(&bases.objects[&case.base]);
        record.keep(case, update(cluster, case, &path, true));
    }
    // An object that was written in one version and is read in the other.
    for (name, version) in [("pair", "v1beta1"), ("oldpair", "v1")] {
        let path = format!("/apis/test.example.com/{version}/pairs/{name}");
        let object = current(cluster, &path);
        record.served.insert(path, object);
    }
}

fn record_ratcheting(cluster: &Cluster, record: &mut Record) {
    let (tighten, cases) = ratcheting_cases();
    let path = format!("{DEFINITIONS}/samples.test.example.com");
    let tight = send(cluster, "PUT", &path, &tighten.edited(&current(cluster, &path)));
    assert!(tight.code < 300, "{}", tight.body);
    let sample = &bases().objects["sample"];
    let until = Instant::now() + SERVED_WITHIN;
    while send(cluster, "POST", &format!("{}?dryRun=All", self::path(sample)), sample).code != 422 {
        assert!(Instant::now() < until, "the server does not enforce the tightened definition");
        std::thread::sleep(Duration::from_millis(100));
    }
    record.stored.insert("tight".to_owned(), current(cluster, &path));
    for case in &cases {
        record.keep(case, update(cluster, case, &one(&bases().objects[&case.base]), true));
    }
}

fn record_documents(cluster: &Cluster, record: &mut Record) {
    let ours = |object: &Value| -> Value {
        let named = object.as_object().into_iter().flatten();
        named
            .filter(|(name, _)| name.starts_with("com.example"))
            .map(|(name, it)| (name.clone(), it.clone()))
            .collect()
    };
    let until = Instant::now() + SERVED_WITHIN;
    loop {
        let document = cluster.get("/openapi/v2").body;
        let definitions = ours(&document["definitions"]);
        if definitions.as_object().is_some_and(|them| them.len() >= 6) || Instant::now() > until {
            record.served.insert("/openapi/v2".to_owned(), definitions);
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    for version in ["v1", "v1beta1"] {
        let path = format!("/openapi/v3/apis/test.example.com/{version}");
        let document = cluster.get(&path).body;
        record.served.insert(path, ours(&document["components"]["schemas"]));
        let path = format!("/apis/test.example.com/{version}");
        record.served.insert(path.clone(), cluster.get(&path).body);
    }
    for kind in ["samples", "pairs"] {
        let path = format!("/apis/test.example.com/v1/{kind}?includeObject=Object");
        record.served.insert(kind.to_owned(), cluster.get_as(&path, TABLE));
    }
    let groups = cluster.get_as("/apis", AGGREGATED);
    let mut groups = groups["items"].as_array().into_iter().flatten();
    let own = groups.find(|group| group["metadata"]["name"] == "test.example.com").cloned();
    record.served.insert("aggregated".to_owned(), own.unwrap_or_default());
    let group = "/apis/test.example.com";
    record.served.insert(group.to_owned(), cluster.get(group).body);
}

fn established(cluster: &Cluster, name: &str) -> Value {
    let path = format!("{DEFINITIONS}/{name}.test.example.com");
    let until = Instant::now() + SERVED_WITHIN;
    loop {
        let definition = current(cluster, &path);
        let is_served = cluster.get(&format!("/apis/test.example.com/v1/{name}")).code == 200;
        if is_served && definition["status"]["conditions"].as_array().is_some_and(|all| all.len() == 2) {
            return definition;
        }
        assert!(Instant::now() < until, "{name} is not served: {definition}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn update(cluster: &Cluster, case: &Case, path: &str, with_object: bool) -> CaseResponse {
    let suffix = if case.verb == Verb::Status { "/status" } else { "" };
    let edited = case.edited(&current(cluster, path));
    CaseResponse::of(send(cluster, "PUT", &format!("{path}{suffix}?dryRun=All"), &edited), with_object)
}

fn current(cluster: &Cluster, path: &str) -> Value {
    let mut object = cluster.get(path).body;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

fn send(cluster: &Cluster, method: &str, path: &str, object: &Value) -> cluster::ServerResponse {
    cluster.send(method, path, "application/json", &object.to_string())
}

fn path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().expect("a version");
    match object["kind"].as_str() {
        Some("Sample") => format!("/apis/{version}/namespaces/default/samples"),
        _ => format!("/apis/{version}/pairs"),
    }
}

fn one(object: &Value) -> String {
    format!("{}/{}", path(object), object["metadata"]["name"].as_str().expect("a name"))
}
