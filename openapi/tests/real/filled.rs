//! What is filled in, compared: each object of the corpus is created there (dry run), and filled and prepared here.
//!
//! Whatever is allocated, counted or signed by the server is not compared; see [`forget`].

use jiff::Timestamp;
use openapi::builtin;
use openapi::decode::{Syntax, decode_as};
use openapi::fill::{fill, prepare_create};
use openapi::resource::Resource;
use serde_json::{Map, Value, json};

use super::cluster::{Answer, Cluster};
use super::corpus::{Sample, samples};

/// What others add to objects. It is not what we compare.
const ADMISSION: [&str; 9] = [
    "ServiceAccount",
    "DefaultTolerationSeconds",
    "Priority",
    "StorageObjectInUseProtection",
    "DefaultStorageClass",
    "DefaultIngressClass",
    "TaintNodesByCondition",
    "LimitRanger",
    "RuntimeClass",
];

pub(crate) fn without_admission() -> String {
    format!("--disable-admission-plugins={}", ADMISSION.join(","))
}

pub(crate) fn differences(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for Sample { row, object } in samples() {
        let answer = create(cluster, row, &object);
        if answer.code != 201 {
            found.push(format!("refused: {object}\n  {}", answer.message()));
            continue;
        }
        found.extend(compare(row, &object, answer.body.clone()).err());
        for variant in variants(&answer.body) {
            let answer = create(cluster, row, &variant);
            if answer.code == 201 {
                found.extend(compare(row, &variant, answer.body).err());
            }
        }
    }
    found
}

fn create(cluster: &Cluster, row: &Resource, object: &Value) -> Answer {
    let path = format!("{}?dryRun=All", collection(row));
    cluster.send("POST", &path, "application/json", &object.to_string())
}

/// The object with one value after the other replaced by null and by the zero of its type. Many of them are refused;
/// what is accepted must look the same here.
fn variants(object: &Value) -> Vec<Value> {
    let mut variants = Vec::new();
    for pointer in pointers(object, "") {
        let Some(value) = object.pointer(&pointer) else { continue };
        let zero = match value {
            Value::Bool(_) => json!(false),
            Value::Number(_) => json!(0),
            Value::String(_) => json!(""),
            Value::Array(_) => json!([]),
            _ => json!({}),
        };
        for other in [Value::Null, zero].into_iter().filter(|other| other != value) {
            let mut variant = object.clone();
            forget_metadata(&mut variant);
            if let Some(place) = variant.pointer_mut(&pointer) {
                *place = other;
                variants.push(variant);
            }
        }
    }
    variants
}

fn pointers(value: &Value, at: &str) -> Vec<String> {
    let below: Vec<_> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.replace('~', "~0").replace('/', "~1"), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    let mut all = Vec::new();
    for (name, value) in below.into_iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata")) {
        let pointer = format!("{at}/{name}");
        all.extend(pointers(value, &pointer));
        all.push(pointer);
    }
    all
}

fn compare(row: &Resource, object: &Value, mut theirs: Value) -> Result<(), String> {
    let mut ours = read(row, object);
    fill(row, &mut ours);
    for given in ["uid", "namespace"] {
        if let Some(value) = theirs["metadata"].get(given) {
            ours["metadata"][given] = value.clone();
        }
    }
    prepare_create(row, &mut ours, moment(&theirs));
    forget(&mut ours);
    forget(&mut theirs);
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{object}\n{}", told(&ours, &theirs, "").join("\n")))
}

/// `/apis/apps/v1/namespaces/default/deployments`
fn collection(row: &Resource) -> String {
    let root = if row.group.is_empty() { "/api" } else { "/apis" };
    let namespace = if row.namespaced { "/namespaces/default" } else { "" };
    format!("{root}/{}{namespace}/{}", row.api_version(), row.plural)
}

fn read(row: &Resource, object: &Value) -> Value {
    let schema = builtin::schema(&row.type_name).expect("every kind has a type");
    decode_as(object.to_string().as_bytes(), Syntax::Json, schema).expect("the server understood it").value
}

fn moment(object: &Value) -> Timestamp {
    object["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What only the server knows, and what it is about to allocate. Times that are now may be a second apart.
fn forget(object: &mut Value) {
    forget_metadata(object);
    let mut remove = |pointer: &str, names: &[&str]| {
        if let Some(Value::Object(fields)) = object.pointer_mut(pointer) {
            fields.retain(|name, _| !names.contains(&name.as_str()));
        }
    };
    remove("/status", &["lastPhaseTransitionTime"]);
    for index in 0..2 {
        remove(&format!("/status/conditions/{index}"), &["lastTransitionTime"]);
        remove(&format!("/spec/ports/{index}"), &["nodePort"]);
        remove(&format!("/spec/devices/0/taints/{index}"), &["timeAdded"]);
    }
    match object["kind"].as_str() {
        Some("Service") if object["spec"]["clusterIP"] != "None" => {
            forget_fields(object, &["clusterIP", "clusterIPs", "healthCheckNodePort"]);
        }
        Some("CertificateSigningRequest") => forget_fields(object, &["username", "uid", "groups", "extra"]),
        _ => {}
    }
}

fn forget_metadata(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
            metadata.remove(name);
        }
    }
}

fn forget_fields(object: &mut Value, names: &[&str]) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.retain(|name, _| !names.contains(&name.as_str()));
    }
}

/// Each place where two values differ.
fn told(ours: &Value, theirs: &Value, path: &str) -> Vec<String> {
    match (ours, theirs) {
        _ if ours == theirs => Vec::new(),
        (Value::Object(our), Value::Object(their)) => {
            let mut names: Vec<_> = our.keys().chain(their.keys()).collect();
            names.sort();
            names.dedup();
            let get = |fields: &Map<String, Value>, name: &String| fields.get(name).cloned();
            let differs = |name: &String| match (get(our, name), get(their, name)) {
                (Some(our), Some(their)) => told(&our, &their, &format!("{path}/{name}")),
                (our, their) => vec![line(&format!("{path}/{name}"), our.as_ref(), their.as_ref())],
            };
            names.into_iter().flat_map(differs).collect()
        }
        (Value::Array(our), Value::Array(their)) if our.len() == their.len() => {
            let pairs = our.iter().zip(their).enumerate();
            pairs.flat_map(|(index, (our, their))| told(our, their, &format!("{path}/{index}"))).collect()
        }
        _ => vec![line(path, Some(ours), Some(theirs))],
    }
}

fn line(path: &str, ours: Option<&Value>, theirs: Option<&Value>) -> String {
    let shown = |value: Option<&Value>| value.map_or("-".to_owned(), Value::to_string);
    format!("  {path}: ours {} theirs {}", shown(ours), shown(theirs))
}
