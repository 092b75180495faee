//! One object in every form that a client can request.

use openapi::codec;
use openapi::codec::Syntax;
use openapi::codec::protobuf;
use serde_json::{Value, json};
use testkit::Server;

use crate::common::HOLON;
use crate::wire::{JSON, PROTOBUF, WireClient, WireResponse};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const META: &str = "g=meta.k8s.io;v=v1";

fn decoded(answer: &WireResponse) -> Value {
    assert_eq!(answer.media_type, PROTOBUF, "{}", answer.text());
    protobuf::decode(&answer.body).unwrap().value
}

/// Removes nulls: whether protobuf has a null where JSON has nothing depends on the kind, not on the object.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        leaf => leaf.clone(),
    }
}

#[test]
fn built_in_kinds_have_the_same_content_in_protobuf() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "labels": { "x": "y" } }, "data": { "k": "v" } });
    let body = protobuf::encode(&map).unwrap();
    let created = client.send("POST", MAPS, (PROTOBUF, &body), PROTOBUF);
    assert_eq!(created.code, 201);
    let plain = client.get(&format!("{MAPS}/a")).json();
    assert_eq!(without_nulls(&decoded(&created)), plain);
    assert_eq!(without_nulls(&decoded(&client.get_as(&format!("{MAPS}/a"), PROTOBUF))), plain);
    client.create(MAPS, &json!({ "metadata": { "name": "b" } }));

    let list = decoded(&client.get_as(MAPS, PROTOBUF));
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    let plain = client.get(MAPS).json();
    assert_eq!(list["metadata"]["resourceVersion"], plain["metadata"]["resourceVersion"]);
    assert_eq!(without_nulls(&list["items"]), plain["items"]);

    let missing = client.get_as(&format!("{MAPS}/c"), PROTOBUF);
    let status = decoded(&missing);
    assert_eq!((missing.code, &status["reason"]), (404, &json!("NotFound")));
    let deleted = client.send("DELETE", &format!("{MAPS}/b"), (JSON, b""), PROTOBUF);
    assert_eq!(decoded(&deleted)["status"], "Success");
}

#[test]
fn a_watch_in_protobuf_is_a_sequence_of_frames() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    client.create(MAPS, &json!({ "metadata": { "name": "a" } }));
    let begin = "fieldSelector=metadata.name%3Da&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let answer = client.get_as(&format!("{MAPS}?{begin}"), PROTOBUF);
    assert_eq!(answer.media_type, "application/vnd.kubernetes.protobuf;stream=watch");
    let (mut rest, mut frames) = (answer.body.as_slice(), Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (frame, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        frames.push(String::from_utf8_lossy(frame).into_owned());
        rest = tail;
    }
    assert!(frames[0].contains("ADDED") && frames[0].contains("ConfigMap"), "{frames:?}");
    assert!(frames[1].contains("BOOKMARK") && frames[1].contains("k8s.io/initial-events-end"), "{frames:?}");
    // A bookmark before the end has the version from which to continue.
    assert!(frames.len() == 3 && frames[2].contains("BOOKMARK"), "{frames:?}");
}

#[test]
fn representations_and_encodings_combine_where_supported() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    client.create(
        MAPS,
        &json!({ "metadata": { "name": "a", "annotations": { "note": "yes" } }, "data": { "k": "0777" } }),
    );
    let plain = client.get(&format!("{MAPS}/a")).json();
    let yaml = client.get_as(&format!("{MAPS}/a"), "application/yaml");
    assert_eq!(yaml.media_type, "application/yaml");
    assert_eq!(codec::decode(&yaml.body, Syntax::Yaml).unwrap().value, plain, "{}", yaml.text());
    let yaml = client.get_as(MAPS, "application/yaml");
    let list = client.get(MAPS).json();
    assert_eq!(codec::decode(&yaml.body, Syntax::Yaml).unwrap().value, list, "{}", yaml.text());

    let partial =
        decoded(&client.get_as(&format!("{MAPS}/a"), &format!("{PROTOBUF};as=PartialObjectMetadata;{META}")));
    assert_eq!(
        (&partial["kind"], &partial["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("a"))
    );
    let list = decoded(&client.get_as(MAPS, &format!("{PROTOBUF};as=PartialObjectMetadataList;{META}")));
    assert_eq!(list["items"][0]["metadata"]["annotations"], json!({ "note": "yes" }));
    // Tables have no protobuf form, so the next alternative is used.
    let table = client.get_as(MAPS, &format!("{PROTOBUF};as=Table;{META},{JSON};as=Table;{META}"));
    assert_eq!((table.media_type.as_str(), &table.json()["rows"][0]["cells"][0]), (JSON, &json!("a")));
    // Holon's own kinds have no protobuf form either, but their metadata has.
    let clusters = "/apis/holon.dev/v1alpha1/logicalclusters";
    assert_eq!(client.get_as(clusters, &format!("{PROTOBUF},{JSON}")).media_type, JSON);
    let list = client.get_as(clusters, &format!("{PROTOBUF};as=PartialObjectMetadataList;{META}"));
    assert_eq!(decoded(&list)["kind"], "PartialObjectMetadataList");
}

#[test]
fn unsupported_media_types_are_not_acceptable() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    client.create(MAPS, &json!({ "metadata": { "name": "a" } }));
    let check = |path: &str, accept: &str, expected: &str| {
        let answer = client.get_as(path, accept);
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!((answer.code, message.as_str()), (406, expected), "{accept}");
    };
    let one = format!("{MAPS}/a");
    let supported = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    check(&one, "text/html", &format!("406: Not Acceptable\n\nAvailable representations: {supported}"));
    let only = format!("only the following media types are accepted: {supported}");
    check(&one, &format!("{JSON};as=Other;{META}"), &only);
    check(&one, &format!("{JSON};as=Table;g=meta.k8s.io;v=v9"), &only);
    check(
        &one,
        &format!("{JSON};as=PartialObjectMetadataList;{META}"),
        "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
    );
    check(
        MAPS,
        &format!("{JSON};as=PartialObjectMetadata;{META}"),
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
    );
    assert_eq!(client.get_as(&format!("{MAPS}?watch=1"), "application/yaml").code, 406);
}
