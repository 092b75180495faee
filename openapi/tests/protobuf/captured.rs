//! Requests of a real kubectl, byte for byte.

use openapi::codec::protobuf;
use openapi::codec::protobuf::Problem;
use serde_json::{Value, json};

pub(crate) struct Captured {
    pub(crate) command: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) value: Value,
}

pub(crate) fn all() -> Vec<Captured> {
    let lines =
        include_str!("captured.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<_> = lines.collect();
    let rows = lines.chunks_exact(3).map(|row| Captured {
        command: row[0],
        body: bytes(row[1]),
        value: serde_json::from_str(row[2]).unwrap(),
    });
    rows.collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks_exact(2).map(|pair| digit(&pair[0]) << 4 | digit(&pair[1])).collect()
}

#[test]
fn protobuf_sent_by_kubectl_decodes_to_the_objects_it_prints() {
    let all = all();
    assert_eq!(all.len(), 16);
    for captured in all {
        let decoded = protobuf::decode(&captured.body).unwrap();
        assert_eq!(decoded.value, captured.value, "{}", captured.command);
        assert!(protobuf::knows(&decoded.api_version, &decoded.kind));
    }
}

#[test]
fn objects_printed_by_kubectl_encode_to_the_protobuf_it_sends() {
    for captured in all() {
        assert_eq!(protobuf::encode(&captured.value).unwrap(), captured.body, "{}", captured.command);
    }
}

#[test]
fn an_object_without_a_type_has_the_kind_of_its_path() {
    let with_type = protobuf::encode(&json!({"apiVersion": "v1", "kind": "Secret", "type": "x"})).unwrap();
    // The type is the first field of the envelope: a byte of key, a byte of length.
    let without_type = [b"k8s\0", &with_type[6 + usize::from(with_type[5])..]].concat();

    assert_eq!(protobuf::decode(&without_type).unwrap_err().problem, Problem::NoType);
    let placed = protobuf::decode_as(&without_type, "v1", "Secret").unwrap();
    assert_eq!(placed.value, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "type": "x"}));
    // A type in the envelope takes precedence.
    assert_eq!(protobuf::decode_as(&with_type, "v1", "ConfigMap").unwrap().kind, "Secret");
}

#[test]
fn options_belong_to_every_api_version() {
    let options = json!({"apiVersion": "batch/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    let decoded = protobuf::decode(&protobuf::encode(&options).unwrap()).unwrap();
    assert_eq!(decoded.value, options, "zero seconds differ from an absent value");
}

#[test]
fn kinds_without_field_numbers_are_unknown() {
    for (api_version, kind, expected) in [
        ("apps/v1", "Deployment", true),
        ("v1", "PodList", true),
        ("v1", "Status", true),
        ("meta.k8s.io/v1", "PartialObjectMetadataList", true),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", true),
        ("apiregistration.k8s.io/v1", "APIService", true),
        ("apps/v1", "Pod", false),
        ("apps/v1beta1", "Deployment", false),
        ("meta.k8s.io/v1", "Table", false),
        ("shop.example/v1", "Order", false),
    ] {
        assert_eq!(protobuf::knows(api_version, kind), expected, "{api_version} {kind}");
    }
    let order = json!({"apiVersion": "shop.example/v1", "kind": "Order"});
    let message = protobuf::encode(&order).unwrap_err().to_string();
    assert_eq!(message, r#"kind "Order" in "shop.example/v1" has no protobuf encoding"#);
}

#[test]
fn an_error_names_the_path_of_its_field() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": 7}]}});
    assert_eq!(protobuf::encode(&pod).unwrap_err().to_string(), "spec.containers.name: expected a string");
    let service = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 1_u64 << 40}]}});
    let message = protobuf::encode(&service).unwrap_err().to_string();
    assert_eq!(message, "spec.ports.port: expected a number of 32 bits");
    assert_eq!(protobuf::decode(b"{}").unwrap_err().problem, Problem::NotAnEnvelope);
}

/// The response of a real kube-apiserver to the same bytes.
#[test]
fn an_invalid_body_is_rejected_with_the_message_of_kubernetes() {
    let unrecognized =
        |why: &str| format!("the object provided is unrecognized (must be of type ConfigMap): {why}");
    let envelope = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap";
    for (body, message) in [
        (b"".to_vec(), unrecognized("empty data (<empty>)")),
        (
            b"{}".to_vec(),
            unrecognized(
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})",
            ),
        ),
        (b"k8s\0".to_vec(), unrecognized("empty body (6b387300)")),
        (b"k8s\0\xff".to_vec(), unrecognized("unexpected EOF (6b387300ff)")),
        (
            [envelope, &b"\x12\x02\x0a\x0a"[..]].concat(),
            r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF"#.to_owned(),
        ),
    ] {
        let error = protobuf::decode_as(&body, "v1", "ConfigMap").unwrap_err();
        assert_eq!(error.message(("ConfigMap", "v1"), &body), message);
    }
}

/// Schemas have all unusual types: a field that is a list, object or boolean, arbitrary JSON, fractions.
#[test]
fn a_custom_resource_definition_keeps_its_schema() {
    let schema = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": false,
        "additionalProperties": {"type": "string"},
        "properties": {
            "a": {"type": "array", "items": {"type": "integer", "minimum": 1, "multipleOf": 0.5}},
            "b": {"items": [{"$ref": "#/x"}, {"not": {}}], "additionalItems": false},
            "c": {"additionalProperties": true, "default": {"deep": [1, null, {"x": 1.5}]}, "enum": ["x", 1, null]},
            "d": {"dependencies": {"e": ["f", "g"], "h": {"type": "null"}}},
            "e": {"x-kubernetes-validations": [{"rule": "self > 0", "reason": "FieldValueInvalid"}]},
        },
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "orders.shop.example"},
        "spec": {
            "group": "shop.example",
            "names": {"plural": "orders", "kind": "Order"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
        "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null},
    });
    let decoded = protobuf::decode(&protobuf::encode(&definition).unwrap()).unwrap();
    assert_eq!(decoded.value, definition);
}
