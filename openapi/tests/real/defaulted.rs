//! Compares defaulting: each object of the corpus is created on the server (dry run), and defaulted and prepared here.
//! An object that the server accepts must then be valid here.
//!
//! Values that the server allocates, counts or signs are not compared; see [`forget`].

use std::collections::BTreeSet;

use api::meta::field::FieldError;
use jiff::Timestamp;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec::{Decoded, Syntax, decode_as};
use openapi::defaulting::{apply_defaults, prepare_create, prepare_status, prepare_update};
use openapi::schema::builtin;
use openapi::validation;
use serde_json::{Map, Value, json};

use super::cluster::{Cluster, ServerResponse};
use super::corpus::{Sample, samples, updates};

/// Admission plug-ins that change objects, which this test does not compare.
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
    let mut tried = BTreeSet::new();
    let mut compared = 0;
    for Sample { row, object, .. } in samples() {
        let answer = create(cluster, row, &object);
        if answer.code != 201 {
            found.push(refused(&object, &answer));
            continue;
        }
        found.extend(compare_new(row, &object, answer.body.clone()).err());
        for (location, variant) in variants(&answer.body) {
            if !tried.insert((row.qualified(), location)) {
                continue;
            }
            let answer = create(cluster, row, &variant);
            if answer.code == 201 {
                compared += 1;
                found.extend(compare_new(row, &variant, answer.body).err());
            }
        }
    }
    if compared < 1000 {
        found.push(format!("only {compared} of {} variants were accepted", tried.len()));
    }
    for sample in updates() {
        found.extend(replace(cluster, &sample));
    }
    found
}

fn create(cluster: &Cluster, row: &ResourceInfo, object: &Value) -> ServerResponse {
    let path = format!("{}?dryRun=All", collection(row));
    cluster.send("POST", &path, "application/json", &object.to_string())
}

fn refused(object: &Value, answer: &ServerResponse) -> String {
    format!("refused: {object}\n  {}", answer.message())
}

/// A new object is defaulted before the server writes its metadata, and afterwards only in places that may depend on
/// that. Defaulting the whole object again must make no difference.
#[test]
fn prepared_objects_are_completely_defaulted() {
    for Sample { row, mut object, .. } in samples().into_iter().chain(updates()) {
        // As from a client that lets the server generate the name.
        let name = object["metadata"].as_object_mut().and_then(|metadata| metadata.remove("name"));
        apply_defaults(row, &mut object);
        object["metadata"]["name"] = name.unwrap_or_else(|| "drawn".into());
        object["metadata"]["uid"] = "5f3ac1a2-0ee0-4c0b-a3b8-7f8ea5e0a1a1".into();
        object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        prepare_create(row, &mut object, Timestamp::UNIX_EPOCH);
        let once = object.clone();
        apply_defaults(row, &mut object);
        assert_eq!(once, object, "{}", row.qualified());
    }
}

// --- Replacing ---

/// Creates the object for real, replaces it in dry runs, and deletes it.
fn replace(cluster: &Cluster, sample: &Sample) -> Vec<String> {
    let Sample { row, object, replacements } = sample;
    let path = collection(row);
    let answer = cluster.send("POST", &path, "application/json", &object.to_string());
    if answer.code != 201 {
        return vec![refused(object, &answer)];
    }
    let path = format!("{path}/{}", object["metadata"]["name"].as_str().expect("a name"));
    let found =
        replacements.iter().filter_map(|next| replace_with(cluster, row, &path, next).err()).collect();
    cluster.send("DELETE", &format!("{path}?gracePeriodSeconds=0"), "application/json", "");
    found
}

fn replace_with(
    cluster: &Cluster,
    row: &ResourceInfo,
    path: &str,
    (next, subresource): &(Value, Option<&str>),
) -> Result<(), String> {
    let method = if subresource.is_some() { &STATUS_UPDATE } else { &WHOLE_UPDATE };
    let location = subresource.map_or_else(|| path.to_owned(), |subresource| format!("{path}/{subresource}"));
    // A controller may write in between; then retry.
    for _ in 0..5 {
        let old = cluster.get(path).body;
        let mut next = next.clone();
        next["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let answer =
            cluster.send("PUT", &format!("{location}?dryRun=All"), "application/json", &next.to_string());
        match answer.code {
            200 => return compare_changed(row, method, &old, &next, answer.body),
            409 => continue,
            _ => return Err(refused(&next, &answer)),
        }
    }
    Err(format!("never still enough to be replaced: {path}"))
}

/// How an object is replaced: as a whole, or only its status.
struct UpdateMethod {
    prepare: fn(&ResourceInfo, &Value, &mut Value, Timestamp),
    check: fn(&ResourceInfo, &Value, &Value) -> Vec<FieldError>,
}

const WHOLE_UPDATE: UpdateMethod =
    UpdateMethod { prepare: prepare_update, check: validation::validate_update };
const STATUS_UPDATE: UpdateMethod =
    UpdateMethod { prepare: prepare_status, check: validation::validate_status };

fn compare_changed(
    row: &ResourceInfo,
    method: &UpdateMethod,
    old: &Value,
    next: &Value,
    theirs: Value,
) -> Result<(), String> {
    let mut ours = read(row, next);
    apply_defaults(row, &mut ours);
    for field in ["namespace", "uid", "creationTimestamp", "generation"] {
        if let Some(value) = old["metadata"].get(field) {
            ours["metadata"][field] = value.clone();
        }
    }
    (method.prepare)(row, old, &mut ours, moment(&theirs));
    accepted(next, &(method.check)(row, old, &ours))?;
    same(next, ours, theirs, |object| forget_new(object, old))
}

/// Removes newly allocated values, which are not compared. Earlier ones must be kept, and are compared.
fn forget_new(object: &mut Value, old: &Value) {
    if object["kind"] != "Service" {
        return;
    }
    let allocated = ["clusterIP", "clusterIPs", "healthCheckNodePort"];
    let ports = old["spec"]["ports"].as_array().into_iter().flatten();
    let ports: Vec<_> = ports.filter_map(|port| port["nodePort"].as_i64()).collect();
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.retain(|name, value| {
            !allocated.contains(&name.as_str()) || old["spec"].get(name) == Some(value)
        });
    }
    forget_node_ports(object, &ports);
}

// --- Odd objects ---

/// Replaces one value after the other by something unusual. Values that the schema would reject must only not cause a
/// panic.
pub(crate) fn default_odd_objects() {
    let odd = [
        json!(null),
        json!(""),
        json!([null]),
        json!({ "a": null }),
        json!(-1),
        json!("0001-01-01T00:00:00Z"),
    ];
    let mut tried = BTreeSet::new();
    for Sample { row, object, .. } in samples() {
        check_defaulting_twice(row, object.clone());
        for pointer in pointers(&object, "") {
            for odd in
                odd.iter().filter(|odd| tried.insert((row.qualified(), pointer.clone(), odd.to_string())))
            {
                let mut object = object.clone();
                *object.pointer_mut(&pointer).expect("the pointer comes from this object") = odd.clone();
                check_defaulting_twice(row, object);
            }
        }
    }
}

fn check_defaulting_twice(row: &ResourceInfo, object: Value) {
    let now = Timestamp::UNIX_EPOCH;
    let schema = builtin::schema(&row.type_name).expect("every kind has a type");
    let read = decode_as(object.to_string().as_bytes(), Syntax::Json, schema);
    let Ok(Decoded { value: mut once, .. }) = read else {
        let mut survived = object.clone();
        apply_defaults(row, &mut survived);
        prepare_create(row, &mut survived, now);
        prepare_update(row, &object, &mut survived, now);
        prepare_status(row, &object, &mut survived, now);
        return;
    };
    apply_defaults(row, &mut once);
    let mut twice = once.clone();
    apply_defaults(row, &mut twice);
    assert_eq!(once, twice, "{object}");

    let mut new = once.clone();
    prepare_create(row, &mut new, now);
    let mut same = new.clone();
    apply_defaults(row, &mut same);
    assert_eq!(new, same, "{object}");
    prepare_update(row, &new, &mut same, now);
    assert_eq!(new, same, "an update that changes nothing: {object}");
    prepare_status(row, &new, &mut same, now);
    assert_eq!(new, same, "a status that changes nothing: {object}");
}

// --- Creating ---

/// Returns the object with one value after the other replaced by null and by the zero of its type. The server rejects
/// many of them; the results of the others must be the same here.
fn variants(object: &Value) -> Vec<(String, Value)> {
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
            if let Some(location) = variant.pointer_mut(&pointer) {
                *location = other.clone();
                variants.push((format!("{} {other}", without_indexes(&pointer)), variant));
            }
        }
    }
    variants
}

/// Replaces list indexes by stars, because the items of one list are alike.
fn without_indexes(pointer: &str) -> String {
    let steps = pointer.split('/').map(|step| if step.parse::<usize>().is_ok() { "*" } else { step });
    steps.collect::<Vec<_>>().join("/")
}

fn pointers(value: &Value, at: &str) -> Vec<String> {
    let children: Vec<_> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    let mut all = Vec::new();
    for (name, value) in
        children.into_iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"))
    {
        let pointer = format!("{at}/{name}");
        all.extend(pointers(value, &pointer));
        all.push(pointer);
    }
    all
}

fn compare_new(row: &ResourceInfo, object: &Value, theirs: Value) -> Result<(), String> {
    let mut ours = read(row, object);
    apply_defaults(row, &mut ours);
    for field in ["uid", "namespace"] {
        if let Some(value) = theirs["metadata"].get(field) {
            ours["metadata"][field] = value.clone();
        }
    }
    prepare_create(row, &mut ours, moment(&theirs));
    accepted(object, &validation::validate_create(row, &ours))?;
    same(object, ours, theirs, forget_allocated)
}

/// An object that the server accepted must be accepted here, except for features that we report as not served.
fn accepted(object: &Value, errors: &[FieldError]) -> Result<(), String> {
    match errors {
        [] => Ok(()),
        [only] if only.detail.ends_with("is not served yet, use None") => Ok(()),
        _ => Err(format!("{object}\n  refused by us: {errors:#?}")),
    }
}

/// Compares our result with the server's, without values that only the server can know.
fn same(
    object: &Value,
    mut ours: Value,
    mut theirs: Value,
    forget_more: impl Fn(&mut Value),
) -> Result<(), String> {
    for object in [&mut ours, &mut theirs] {
        forget(object);
        forget_more(object);
    }
    match ours == theirs {
        true => Ok(()),
        false => Err(format!("{object}\n{}", value_differences(&ours, &theirs, "").join("\n"))),
    }
}

/// `/apis/apps/v1/namespaces/default/deployments`
fn collection(row: &ResourceInfo) -> String {
    let root = if row.group.is_empty() { "/api" } else { "/apis" };
    let namespace = if row.namespaced { "/namespaces/default" } else { "" };
    format!("{root}/{}{namespace}/{}", row.api_version(), row.plural)
}

fn read(row: &ResourceInfo, object: &Value) -> Value {
    let schema = builtin::schema(&row.type_name).expect("every kind has a type");
    decode_as(object.to_string().as_bytes(), Syntax::Json, schema)
        .expect("the server accepted the object")
        .value
}

fn moment(object: &Value) -> Timestamp {
    object["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Removes values that only the server can know. Current times may differ by a second; those in the objects are all in
/// 2020.
fn forget(object: &mut Value) {
    forget_metadata(object);
    let mut remove = |pointer: &str, names: &[&str]| {
        if let Some(Value::Object(fields)) = object.pointer_mut(pointer) {
            let is_old = |value: &Value| value.as_str().is_some_and(|time| time.starts_with("2020"));
            fields.retain(|name, value| !names.contains(&name.as_str()) || is_old(value));
        }
    };
    remove("/status", &["lastPhaseTransitionTime"]);
    for index in 0..2 {
        remove(&format!("/status/conditions/{index}"), &["lastTransitionTime", "lastUpdateTime"]);
        remove(&format!("/spec/devices/0/taints/{index}"), &["timeAdded"]);
    }
    if object["kind"] == "CertificateSigningRequest" {
        forget_fields(object, &["username", "uid", "groups", "extra"]);
    }
}

fn forget_allocated(object: &mut Value) {
    if object["kind"] != "Service" {
        return;
    }
    if object["spec"]["clusterIP"] != "None" {
        forget_fields(object, &["clusterIP", "clusterIPs", "healthCheckNodePort"]);
    }
    forget_node_ports(object, &[]);
}

fn forget_node_ports(object: &mut Value, but: &[i64]) {
    for port in object
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        port.retain(|name, value| {
            name != "nodePort" || value.as_i64().is_some_and(|port| but.contains(&port))
        });
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

/// Returns each place in which two values differ.
fn value_differences(ours: &Value, theirs: &Value, path: &str) -> Vec<String> {
    match (ours, theirs) {
        _ if ours == theirs => Vec::new(),
        (Value::Object(our), Value::Object(their)) => {
            let mut names: Vec<_> = our.keys().chain(their.keys()).collect();
            names.sort();
            names.dedup();
            let get = |fields: &Map<String, Value>, name: &String| fields.get(name).cloned();
            let differs = |name: &String| match (get(our, name), get(their, name)) {
                (Some(our), Some(their)) => value_differences(&our, &their, &format!("{path}/{name}")),
                (our, their) => vec![line(&format!("{path}/{name}"), our.as_ref(), their.as_ref())],
            };
            names.into_iter().flat_map(differs).collect()
        }
        (Value::Array(our), Value::Array(their)) if our.len() == their.len() => {
            let pairs = our.iter().zip(their).enumerate();
            pairs
                .flat_map(|(index, (our, their))| value_differences(our, their, &format!("{path}/{index}")))
                .collect()
        }
        _ => vec![line(path, Some(ours), Some(theirs))],
    }
}

fn line(path: &str, ours: Option<&Value>, theirs: Option<&Value>) -> String {
    let text = |value: Option<&Value>| value.map_or("-".to_owned(), Value::to_string);
    format!("  {path}: ours {} theirs {}", text(ours), text(theirs))
}
