use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::samples::deployment;

fn json_text(body: &str) -> Result<Decoded, String> {
    decode(body.as_bytes(), Syntax::Json).map_err(|error| error.to_string())
}

#[test]
fn integers_stay_integers() {
    let body = r#"{"max": 9223372036854775807, "min": -9223372036854775808, "f": 1.5, "e": 1e3, "huge": 18446744073709551615}"#;
    let value = json_text(body).expect("JSON").value;
    assert_eq!(value["max"].as_i64(), Some(i64::MAX));
    assert_eq!(value["min"].as_i64(), Some(i64::MIN));
    assert!(value["f"].is_f64() && value["e"].is_f64() && value["huge"].is_f64());
}

#[test]
fn duplicates_are_reported_in_the_order_of_the_document() {
    let body = r#"{"b": 1, "b": 2, "a": {"x": [{"y": 1, "y": 2}], "x": []}, "b": 3}"#;
    let read = json_text(body).expect("JSON");
    let messages: Vec<_> = read.strict_errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        ["duplicate field \"b\"", "duplicate field \"a.x[0].y\"", "duplicate field \"a.x\""]
    );
    assert_eq!(read.value, json!({"b": 3, "a": {"x": []}}));
}

#[test]
fn unknown_and_duplicate_fields_of_a_kind_are_in_order_too() {
    let body = br#"{"spec": {"replicas": 1, "zzz": 1, "replicas": 2, "aaa": {"b": 1, "b": 2}}, "metadata": {"labels": {"a": "1", "a": "2"}}}"#;
    let read = decode_as(body, Syntax::Json, &deployment()).expect("a deployment");
    let messages: Vec<_> = read.strict_errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "unknown field \"spec.zzz\"",
            "duplicate field \"spec.replicas\"",
            "unknown field \"spec.aaa\"",
            "duplicate field \"metadata.labels.a\"",
        ]
    );
    assert_eq!(read.value, json!({"spec": {"replicas": 2}, "metadata": {"labels": {"a": "2"}}}));
}

#[test]
fn yaml_decodes_to_the_same_and_reports_duplicates_in_one_error() {
    let body = b"spec:\n  zzz: 1\n  replicas: 1\n  replicas: 2\nmetadata:\n  labels: {a: yes}\n";
    let refused = decode_as(body, Syntax::Yaml, &deployment()).expect_err("a label is true");
    let message =
        "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string";
    assert_eq!(refused.to_string(), message);

    let body = b"spec:\n  zzz: 1\n  replicas: 1\n  replicas: 2\n";
    let read = decode_as(body, Syntax::Yaml, &deployment()).expect("a deployment");
    assert_eq!(read.value, json!({"spec": {"replicas": 2}}));
    let duplicate = "yaml: unmarshal errors:\n  line 4: key \"replicas\" already set in map";
    let messages: Vec<_> = read.strict_errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, [duplicate, "unknown field \"spec.zzz\""]);
    let warnings = FieldValidation::Warn.enforce(&read.strict_errors).expect("only warnings");
    assert_eq!(warnings, ["line 4: key \"replicas\" already set in map", "unknown field \"spec.zzz\""]);
}

/// The value of an unknown field is skipped without recursion, but only up to a maximum depth.
#[test]
fn too_deep_json_is_refused_even_in_unknown_fields() {
    let read = |levels: usize, end: &str| {
        let body = format!(r#"{{"bogus": {}1{end}"#, r#"["}]\"]", {"a": "#.repeat(levels / 2));
        decode_as(body.as_bytes(), Syntax::Json, &deployment()).map_err(|error| error.to_string())
    };
    assert!(read(9_998, &("}]".repeat(4_999) + "}")).is_ok());
    let refused = Err("invalid character '{' exceeded max depth".to_owned());
    assert_eq!(read(10_000, &("}]".repeat(5_000) + "}")), refused);
    assert_eq!(read(1_000_000, ""), refused);
    let deep_known_field =
        format!(r#"{{"metadata": {{"managedFields": [{{"fieldsV1": {}"#, r#"{"a":"#.repeat(20_000));
    assert!(decode_as(deep_known_field.as_bytes(), Syntax::Json, &deployment()).is_err());
    let refused = Err("invalid character '[' exceeded max depth".to_owned());
    assert_eq!(json_text(&"[".repeat(128)), refused);
}

#[test]
fn syntax_errors_have_the_messages_of_go() {
    for (body, expected) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("{\"a\"", "unexpected end of JSON input"),
        ("{\"a\": \"b", "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("{a}", "invalid character 'a' looking for beginning of object key string"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        ("{\"a\": 1 \"b\"}", "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("{\"a\": }", "invalid character '}' looking for beginning of value"),
        ("{\"a\": \"\\q\"}", "invalid character 'q' in string escape code"),
        ("{\"a\": 1,}", "invalid character '}' looking for beginning of object key string"),
        ("{\"a\": 1.}", "invalid character '}' after decimal point in numeric literal"),
        ("{\"a\": 1e}", "invalid character '}' in exponent of numeric literal"),
        ("{\"a\": -}", "invalid character '}' in numeric literal"),
        ("{\"a\": \"\n\"}", "invalid character '\\n' in string literal"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
    ] {
        assert_eq!(json_text(body), Err(expected.to_owned()), "{body}");
        // The same where the field is unknown and its value is skipped.
        let skipped = decode_as(body.as_bytes(), Syntax::Json, &crate::samples::object(&[]));
        if body.starts_with('{') {
            assert_eq!(skipped.map_err(|error| error.to_string()).err().as_deref(), Some(expected), "{body}");
        }
    }
}

#[test]
fn depth_is_bounded() {
    let nest = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for syntax in [Syntax::Json, Syntax::Yaml] {
        assert!(decode(nest(MAX_DEPTH).as_bytes(), syntax).is_ok(), "{syntax:?}");
        assert!(decode(nest(MAX_DEPTH + 1).as_bytes(), syntax).is_err(), "{syntax:?}");
        assert!(decode(nest(200_000).as_bytes(), syntax).is_err(), "{syntax:?}");
        assert!(decode("[{\"a\":".repeat(100_000).as_bytes(), syntax).is_err(), "{syntax:?}");
    }
    let ignored = format!("{{\"unknown\": {}}}", nest(200_000));
    let _ = decode_as(ignored.as_bytes(), Syntax::Json, &deployment());
}

#[test]
fn invalid_utf8_becomes_the_replacement_character() {
    let read = decode(b"{\"a\": \"\xff\"}", Syntax::Json).expect("read like Go");
    assert_eq!(read.value, json!({"a": "\u{fffd}"}));
}

#[test]
fn decoding_errors_have_the_messages_of_kubernetes() {
    let message = |body: &str| {
        let refused = decode_as(body.as_bytes(), Syntax::Json, &deployment()).expect_err("refused");
        refused.message(("Deployment", "v1"), body.as_bytes(), Syntax::Json)
    };
    let mismatch =
        "json: cannot unmarshal number into Go struct field Deployment.spec of type v1.DeploymentSpec";
    for (body, expected) in [
        (
            r#"{"spec": 1}"#,
            format!("Deployment in version \"v1\" cannot be handled as a Deployment: {mismatch}"),
        ),
        (
            r#"{"kind": "Pod", "apiVersion": "apps/v1beta1", "spec": 1}"#,
            format!("Pod in version \"v1beta1\" cannot be handled as a Deployment: {mismatch}"),
        ),
    ] {
        assert_eq!(message(body), expected);
    }
    let go_struct = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    for (body, why, excerpt) in [
        ("nonsense", "invalid character 'o' in literal null (expecting 'u')", "6e6f6e73656e7365"),
        ("", "unexpected end of JSON input", "<empty>"),
        (
            "{\"kind\": \"Deployment\", \"apiVersion\"",
            "unexpected end of JSON input",
            "{\"kind\": \"Deployment\", \"apiVer ...",
        ),
        (
            "{\"kind\": 5}",
            "json: cannot unmarshal number into Go struct field .kind of type string",
            "{\"kind\": 5}",
        ),
        ("[]", &format!("json: cannot unmarshal array into Go value of type {go_struct}"), "5b5d"),
    ] {
        let start =
            "the object provided is unrecognized (must be of type Deployment): couldn't get version/kind";
        assert_eq!(message(body), format!("{start}; json parse error: {why} ({excerpt})"));
    }
}

#[test]
fn field_validation_decides_about_unknown_and_duplicate_fields() {
    let strict_errors = [
        StrictDecodingError::UnknownField("spec.foo".to_owned()),
        StrictDecodingError::DuplicateField("a".to_owned()),
    ];
    assert_eq!(FieldValidation::Ignore.enforce(&strict_errors), Ok(vec![]));
    assert_eq!(
        FieldValidation::Warn.enforce(&strict_errors),
        Ok(vec!["unknown field \"spec.foo\"".to_owned(), "duplicate field \"a\"".to_owned()])
    );
    let refused = "strict decoding error: unknown field \"spec.foo\", duplicate field \"a\"";
    assert_eq!(FieldValidation::Strict.enforce(&strict_errors), Err(refused.to_owned()));
    assert_eq!(FieldValidation::Strict.enforce(&[]), Ok(vec![]));
    assert_eq!(FieldValidation::parse("Loud"), None);
    assert_eq!(FieldValidation::parse(""), Some(FieldValidation::Warn));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_decoded_or_rejected(body in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = decode(&body, Syntax::Json);
        let _ = decode_as(&body, Syntax::Yaml, &deployment());
    }

    #[test]
    fn invalid_json_is_rejected_with_a_message(cut in 0usize..60) {
        let body = br#"{"a": [1, true, null, "x\n", {"b": -1.5e3}], "c": {"d": []}}"#;
        let broken = &body[..cut.min(body.len() - 1)];
        let message = decode(broken, Syntax::Json).expect_err("cut short").to_string();
        prop_assert_eq!(message, "unexpected end of JSON input");
    }
}
