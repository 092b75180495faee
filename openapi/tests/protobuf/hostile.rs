//! For any bytes, the result is an object or an error: no panic, no endless work, little memory.

use std::time::{Duration, Instant};

use openapi::codec::protobuf;
use openapi::codec::protobuf::Problem;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::captured;

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn field(number: usize, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len()), content.to_vec()].concat()
}

fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &types), field(2, message)].concat()
}

/// Checks that everything that was decoded can be stored, served in both forms, and stays the same.
pub(crate) fn check(body: &[u8]) {
    let Ok(decoded) = protobuf::decode_as(body, "v1", "Pod") else { return };
    let text = serde_json::to_string(&decoded.value).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), decoded.value);
    if let Ok(encoded) = protobuf::encode(&decoded.value) {
        assert_eq!(protobuf::decode(&encoded).unwrap().value, decoded.value);
    }
}

proptest! {
    // A failure found here becomes a test of its own below, not a file of seeds.
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_cause_no_panic(message in proptest::collection::vec(any::<u8>(), 0..300)) {
        check(&message);
        check(&[b"k8s\0", &message[..]].concat());
        for kind in ["Pod", "Secret", "Event", "List", "Status", "WatchEvent"] {
            check(&envelope("v1", kind, &message));
        }
        check(&envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &message));
    }

    #[test]
    fn damaged_requests_cause_no_panic(
        which in any::<Index>(),
        damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let all = captured::all();
        let mut body = which.get(&all).body.clone();
        for (index, byte) in damage {
            let index = index.index(body.len());
            body[index] = byte;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        check(&body);
    }
}

/// Returns schemas nested to this depth.
fn nested_schemas(levels: usize) -> Vec<u8> {
    let mut schema = Vec::new();
    for _ in 0..levels {
        schema = field(28, &schema); // not
    }
    let version = field(4, &field(1, &schema));
    envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &field(2, &field(7, &version)))
}

#[test]
fn depth_is_limited_to_that_of_json() {
    check(&nested_schemas(80));
    assert!(protobuf::decode(&nested_schemas(80)).is_ok());
    assert_eq!(protobuf::decode(&nested_schemas(200)).unwrap_err().problem, Problem::TooDeep);
    assert_eq!(protobuf::decode(&nested_schemas(20_000)).unwrap_err().problem, Problem::TooDeep);

    let json = |levels: usize| ["[".repeat(levels), "]".repeat(levels)].concat();
    let revision =
        |json: String| envelope("apps/v1", "ControllerRevision", &field(2, &field(1, json.as_bytes())));
    check(&revision(json(90)));
    assert_eq!(protobuf::decode(&revision(json(110))).unwrap_err().problem, Problem::TooDeep);
    assert!(protobuf::decode(&revision(json(100_000))).is_err());

    let mut event = Vec::new();
    for _ in 0..200 {
        event = envelope("v1", "WatchEvent", &field(2, &field(1, &event)));
    }
    assert_eq!(protobuf::decode(&event).unwrap_err().problem, Problem::TooDeep);
}

/// Two bytes are an empty pod, whose JSON has four objects: three megabytes would become gigabytes.
#[test]
fn few_bytes_do_not_become_many_objects() {
    let body = envelope("v1", "PodList", &[0x12, 0x00].repeat(1_500_000));
    let since = Instant::now();
    assert_eq!(protobuf::decode(&body).unwrap_err().problem, Problem::TooMany);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

/// A repeated field replaces or extends the previous value, at constant cost.
#[test]
fn repetition_costs_no_more_than_its_length() {
    let since = Instant::now();
    let metadata = field(1, &field(1, b"name")).repeat(200_000);
    let value = protobuf::decode(&envelope("v1", "Pod", &metadata)).unwrap().value;
    assert_eq!(value["metadata"]["name"], "name");

    let names: Vec<u8> = (0..100_000).flat_map(|n| field(2, &field(1, format!("{n}").as_bytes()))).collect();
    let value = protobuf::decode(&envelope("v1", "ConfigMap", &names)).unwrap().value;
    assert_eq!(value["data"].as_object().unwrap().len(), 100_000);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

/// A pointer to the zero time was once decoded as `null`, which encodes as an absent pointer.
#[test]
fn a_deletion_at_no_time_is_no_deletion() {
    let pod = envelope("v1", "Pod", &field(1, &field(9, b"")));
    assert_eq!(protobuf::decode(&pod).unwrap().value["metadata"], serde_json::json!({}));
}

/// kubelet cuts long messages at a byte, not at a character.
#[test]
fn text_that_is_no_text_is_replaced_and_not_refused() {
    let event = envelope("v1", "Event", &field(4, b"pulling caf\xc3"));
    assert_eq!(protobuf::decode(&event).unwrap().value["message"], "pulling caf\u{fffd}");
}

/// Protobuf allows a list of numbers in one packed field; Go does not write that, other languages do.
#[test]
fn packed_numbers_are_a_list() {
    let groups = |groups: &[u8]| envelope("v1", "Pod", &field(2, &field(14, &field(4, groups))));
    let context = |body: &[u8]| protobuf::decode(body).unwrap().value["spec"]["securityContext"].clone();
    assert_eq!(context(&groups(&[1, 0xac, 2])), serde_json::json!({"supplementalGroups": [1, 300]}));
    assert_eq!(context(&groups(&[])), serde_json::json!({}));
}

/// A client that is newer than our table may send unknown fields.
#[test]
fn unknown_fields_are_skipped() {
    let message = [field(1, &field(1, b"web")), field(900, b"new"), vec![0xf8, 0xff, 0x7f, 1]].concat();
    let value = protobuf::decode(&envelope("v1", "Pod", &message)).unwrap().value;
    assert_eq!(value["metadata"], serde_json::json!({"name": "web"}));
}
