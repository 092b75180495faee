//! The examples that Kubernetes publishes with its Go module: every kind with every field set, as JSON and as protobuf.
//!
//! They are read from Go's module cache, never copied here.

use std::path::{Path, PathBuf};
use std::process::Command;

use openapi::codec::protobuf;
use serde_json::Value;

const MODULE: &str = "k8s.io/api@v0.36.4";

/// Examples that are not reproduced, and why.
const EXCEPTIONS: &[(&str, &str)] = &[(
    "core.v1.WatchEvent",
    "an envelope without a type, which no client sends: events travel in frames; it is decoded but not encoded",
)];

/// Returns the examples in Go's module cache; a test downloads nothing.
fn examples() -> PathBuf {
    let mut go = Command::new("go");
    go.args(["list", "-m", "-f", "{{.Dir}}", MODULE]).current_dir(std::env::temp_dir());
    go.envs([("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GOWORK", "off")]);
    let output = go.output().expect("go is installed");
    let module = String::from_utf8(output.stdout).expect("a path in UTF-8");
    let directory = Path::new(module.trim()).join("testdata/HEAD");
    assert!(directory.is_dir(), "{MODULE} is not in Go's cache; run go mod download {MODULE}");
    directory
}

/// Returns `apps.v1.Deployment` for every example of a GA version.
fn names(directory: &Path) -> Vec<String> {
    let files =
        std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = files.filter_map(|file| file.strip_suffix(".pb").map(str::to_owned));
    let is_ga = |name: &String| {
        let version = name.rsplit('.').nth(1).unwrap_or_default();
        version[1..].bytes().all(|byte| byte.is_ascii_digit()) && !name.contains(".after_roundtrip")
    };
    let mut names: Vec<_> = names.filter(is_ga).collect();
    names.sort();
    names
}

fn difference(name: &str, bytes: &[u8], expected: &Value) -> Option<String> {
    let exception = EXCEPTIONS.iter().any(|(exception, _)| *exception == name);
    let decoded = match protobuf::decode_as(bytes, "v1", name.rsplit('.').next().unwrap_or_default()) {
        Ok(decoded) => decoded,
        Err(error) => return Some(format!("{name} is not decoded: {error}")),
    };
    if decoded.value != *expected {
        return Some(format!("{name} is decoded as {:#} and not {expected:#}", decoded.value));
    }
    match protobuf::encode(expected) {
        _ if exception => None,
        Ok(encoded) if encoded == bytes => None,
        Ok(encoded) => Some(format!("{name} is encoded as {encoded:02x?} and not {bytes:02x?}")),
        Err(error) => Some(format!("{name} is not encoded: {error}")),
    }
}

#[test]
#[ignore = "needs the Go module k8s.io/api"]
fn every_published_example_is_decoded_and_encoded_exactly() {
    let directory = examples();
    let names = names(&directory);
    assert!(names.len() > 80, "{names:?}");
    let mut differences = Vec::new();
    for name in &names {
        let read = |extension: &str| std::fs::read(directory.join(format!("{name}.{extension}"))).unwrap();
        let expected = serde_json::from_slice(&read("json")).unwrap();
        differences.extend(difference(name, &read("pb"), &expected));
    }
    let (count, of) = (differences.len(), names.len());
    assert!(differences.is_empty(), "{count} of {of} examples differ:\n{}", differences.join("\n"));
    println!("{of} examples, {} exceptions", EXCEPTIONS.len());
}

/// Every kind with a wrong byte in some places.
#[test]
#[ignore = "needs the Go module k8s.io/api"]
fn damaged_examples_cause_no_panic() {
    let directory = examples();
    for (start, name) in names(&directory).iter().enumerate() {
        let mut bytes = std::fs::read(directory.join(format!("{name}.pb"))).unwrap();
        // A prime step, so that different kinds are damaged in different bytes of the metadata they share.
        for index in (start % 307..bytes.len()).step_by(307) {
            let good = bytes[index];
            for bad in [0, 0xff, good ^ 1] {
                bytes[index] = bad;
                super::hostile::check(&bytes);
            }
            bytes[index] = good;
        }
    }
}

/// The generated table is up to date and was not edited by hand.
#[test]
#[ignore = "needs Python and the Go module k8s.io/api"]
fn the_table_agrees_with_the_go_modules() {
    let generator = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/protobuf-facts");
    let output = Command::new(generator).arg("--check").env("GOPROXY", "off").output();
    let output = output.expect("python3 is installed");
    // The program itself would download a module that is missing.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "hack/protobuf-facts --check, without downloads: {stderr}");
}
