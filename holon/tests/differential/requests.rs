//! The tables of requests, and the corpus as requests.
//!
//! A table is a story: its requests are sent in order, in a namespace of their own. A line is a request:
//!
//! ```text
//! @at /api/v1/namespaces/{ns}/configmaps      the path that `.` stands for
//! @base {"metadata": {"name": "a"}}           the body into which `+ {…}` is merged, as a merge patch
//! POST . {"metadata": {"name": "b"}}          method, path, literal body
//! POST .?dryRun=All + {"data": {"x": 1}}      a body made from the base
//! PATCH:merge ./a {"data": null}              json, merge, strategic or apply
//! @type text/plain                            for the next request only; so is @accept
//! @hex 6b387300                               the body of the next request
//! @until /status/phase Ready                  repeat the next request until its response has this value at this pointer
//! ```
//!
//! `{ns}` is the namespace; `{uid}` and `{rv}` are those of the last object in the same server's responses; `{text:N}`
//! is N letters and `{deep:N}` N nested objects.

use std::path::{Path, PathBuf};

use openapi::catalog;
use openapi::codec::{Syntax, decode};
use serde_json::Value;

use crate::comparison::RequestStep;
use crate::comparison::request_step::{JSON, media_type};

pub(crate) struct Story {
    pub(crate) name: String,
    pub(crate) steps: Vec<RequestStep>,
}

/// Reads every table in a directory except the one of exceptions.
pub(crate) fn tables(directory: &Path) -> Vec<Story> {
    let files = files(directory, "txt").into_iter().filter(|file| !file.ends_with("exceptions.txt"));
    files.map(|file| read(&stem(&file), &std::fs::read_to_string(&file).unwrap())).collect()
}

fn read(name: &str, text: &str) -> Story {
    let (mut at, mut base) = (String::new(), Value::Null);
    let (mut content_type, mut accept, mut body, mut until) = (None, None, None, None);
    let mut steps = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "@at" => rest.clone_into(&mut at),
            "@base" => {
                base = serde_json::from_str(rest).unwrap_or_else(|error| panic!("{name}: {error}: {rest}"))
            }
            "@type" => content_type = Some(rest.to_owned()),
            "@accept" => accept = Some(rest.to_owned()),
            "@hex" => body = Some(from_hex(rest)),
            "@until" => {
                until = rest.split_once(' ').map(|(pointer, text)| (pointer.to_owned(), text.to_owned()))
            }
            _ => {
                let (path, sent) = rest.split_once(' ').unwrap_or((rest, ""));
                let (method, patch) = word.split_once(':').unwrap_or((word, ""));
                let sent = match sent.strip_prefix("+ ") {
                    Some(change) => merged(&base, change).to_string(),
                    None => sent.to_owned(),
                };
                let hex: String = body.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
                let media = [("as", &content_type), ("for", &accept)];
                let media = media.map(|(word, media)| media.as_ref().map(|media| format!("{word} {media}")));
                let words = [line.to_owned(), hex].into_iter().chain(media.into_iter().flatten());
                let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
                steps.push(RequestStep {
                    summary: words.join(" "),
                    method: method.to_owned(),
                    path: path.strip_prefix('.').map_or(path.to_owned(), |rest| format!("{at}{rest}")),
                    content_type: content_type.take().unwrap_or_else(|| media_type(patch).to_owned()),
                    accept: accept.take().unwrap_or_else(|| JSON.to_owned()),
                    user_agent: String::new(),
                    body: body.take().unwrap_or_else(|| expand(&sent).into_bytes()),
                    until: until.take(),
                });
            }
        }
    }
    Story { name: name.to_owned(), steps }
}

fn merged(base: &Value, change: &str) -> Value {
    let change = serde_json::from_str(change).unwrap_or_else(|error| panic!("{error}: {change}"));
    let mut merged = base.clone();
    merge(&mut merged, change);
    merged
}

fn merge(into: &mut Value, change: Value) {
    let Value::Object(change) = change else { return *into = change };
    if !into.is_object() {
        *into = Value::Object(Default::default());
    }
    let into = into.as_object_mut().expect("just made so");
    for (key, value) in change {
        if value.is_null() {
            into.remove(&key);
        } else {
            merge(into.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Expands the placeholders for large bodies.
fn expand(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some((before, rest)) = text.split_once("{text:") {
        let (count, after) = rest.split_once('}').expect("{text:N}");
        text = format!("{before}{}{after}", "a".repeat(count.parse().expect("a number")));
    }
    while let Some((before, rest)) = text.split_once("{deep:") {
        let (count, after) = rest.split_once('}').expect("{deep:N}");
        let count = count.parse().expect("a number");
        text = format!("{before}{}1{}{after}", "{\"a\":".repeat(count), "}".repeat(count));
    }
    text
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}

/// Returns the requests that create every object of every manifest, replace it by itself, and finally delete it.
pub(crate) fn corpus(directory: &Path) -> Vec<Story> {
    let files = files(directory, "yaml").into_iter();
    files
        .map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            let documents = text.split_inclusive("\n---\n").filter_map(|text| {
                let text = text.strip_suffix("---\n").unwrap_or(text);
                let object = decode(text.as_bytes(), Syntax::Yaml).ok()?.value;
                Some((text.to_owned(), object)).filter(|(_, object)| object["kind"].is_string())
            });
            let (creates, deletes): (Vec<_>, Vec<_>) =
                documents.filter_map(|(text, object)| lifetime(&text, &object)).unzip();
            let steps = creates.into_iter().flatten().chain(deletes.into_iter().rev()).collect();
            Story { name: stem(&file), steps }
        })
        .collect()
}

/// Returns the requests that create an object and replace it by itself, and the one that deletes it.
fn lifetime(text: &str, object: &Value) -> Option<([RequestStep; 2], RequestStep)> {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let (group, bare_version) = version.split_once('/').unwrap_or(("", version));
    // A List is never sent: kubectl splits it.
    let resource = catalog::find_kind(group, bare_version, kind)?;
    let root = if group.is_empty() { "api" } else { "apis" };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("{ns}");
    let namespace = if resource.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    let collection = format!("/{root}/{version}{namespace}/{}", resource.plural);
    let name = object["metadata"]["name"].as_str().unwrap();
    let step = |method: &str, path: String, body: &str| RequestStep {
        summary: format!("{method} {kind} {name}"),
        method: method.to_owned(),
        path,
        content_type: "application/yaml".to_owned(),
        accept: JSON.to_owned(),
        user_agent: String::new(),
        body: body.as_bytes().to_vec(),
        until: None,
    };
    let created = step("POST", format!("{collection}?fieldValidation=Strict"), text);
    let replaced = step("PUT", format!("{collection}/{name}?dryRun=All"), text);
    Some(([created, replaced], step("DELETE", format!("{collection}/{name}"), "")))
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_str().unwrap().to_owned()
}
