use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn values_are_parsed_as_in_go() {
    for (text, expected) in [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("\"yes\"", json!("yes")),
        ("!!str yes", json!("yes")),
        ("nope", json!("nope")),
        ("~", json!(null)),
        ("", json!(null)),
        ("12", json!(12)),
        ("-12", json!(-12)),
        ("+12", json!(12)),
        ("1_000", json!(1000)),
        ("0x1F", json!(31)),
        ("0777", json!(511)),
        ("0o17", json!(15)),
        ("0b101", json!(5)),
        ("08", json!(8)),
        ("0", json!(0)),
        ("9223372036854775807", json!(i64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("18446744073709551615", json!(18446744073709551615.0)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1e3", json!(1000)),
        ("1.0", json!(1)),
        ("1.2.3", json!("1.2.3")),
        ("-", json!([null])),
        ("2024-01-02", json!("2024-01-02")),
        ("12:30", json!("12:30")),
        ("1Gi", json!("1Gi")),
        ("'1'", json!("1")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
        ("{a: 1, 2: b, y: c}", json!({"a": 1, "2": "b", "true": "c"})),
        ("a: 1\n---\nb: 2\n", json!({"a": 1})),
    ] {
        assert_eq!(parse(text).expect(text).value, expected, "{text:?}");
    }
}

#[test]
fn anchors_are_copied_and_explicit_keys_override_merges() {
    let text = "base: &b {v: 1, w: 2}\nsame: *b\nmore: {<<: *b, w: 3, <<: [{z: 4}, {v: 9}]}\n";
    let expected = json!({
        "base": {"v": 1, "w": 2}, "same": {"v": 1, "w": 2}, "more": {"v": 1, "w": 3, "z": 4},
    });
    assert_eq!(parse(text).expect("valid").value, expected);
}

#[test]
fn invalid_documents_are_refused() {
    let deep = "[".repeat(200);
    let bomb: String = (1..30).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)).collect();
    let bomb = format!("a0: &a0 x\n{bomb}");
    let wide = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(9));
    for (text, expected) in [
        (deep.as_str(), "yaml: line 1: exceeded max depth of 127"),
        (bomb.as_str(), "yaml: document contains excessive aliasing"),
        (wide.as_str(), "yaml: document contains excessive aliasing"),
        ("a: &a [*a]", "yaml: line 1: anchor value contains itself"),
        ("? [1]\n: 2", "yaml: line 1: unsupported map key: [1]"),
        ("a: .nan", "json: unsupported value: NaN"),
        ("<<: 1", "yaml: line 1: map merge requires map or sequence of maps as the value"),
    ] {
        assert_eq!(parse(text).expect_err(text).to_string(), expected);
    }
    assert!(parse("a: [").expect_err("unfinished").to_string().starts_with("yaml: line "));
}

/// The results of a real kube-apiserver.
#[test]
fn a_trailing_block_keeps_its_line_breaks() {
    for (block, expected) in [
        ("|\n    abc", "abc"),
        ("|\n    abc\n", "abc\n"),
        ("|+\n    abc", "abc"),
        (">\n    abc", "abc"),
        ("|\n    abc\n  ", "abc\n"),
        ("|\n    abc\n\n", "abc\n"),
        ("|\n    äbc # z", "äbc # z"),
        ("|-\n    abc", "abc"),
        ("|\n    abc\n  y: z", "abc\n"),
        ("|\n    abc\n# z", "abc\n"),
    ] {
        let text = format!("d:\n  x: {block}");
        assert_eq!(parse(&text).expect(block).value["d"]["x"], expected, "{block:?}");
    }
}

#[test]
fn repeated_keys_are_reported_with_their_lines() {
    let document = parse("a: 1\nb: 2\na: 3\n9: x\n9: z\n").expect("valid");
    assert_eq!(document.value, json!({"a": 3, "b": 2, "9": "z"}));
    let messages: Vec<String> = document.duplicates().iter().map(ToString::to_string).collect();
    let expected =
        "yaml: unmarshal errors:\n  line 3: key \"a\" already set in map\n  line 5: key 9 already set in map";
    assert_eq!(messages, [expected]);
}

fn trees() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_is_yaml(tree in trees()) {
        prop_assert_eq!(parse(&tree.to_string()).expect("JSON").value, tree);
    }

    #[test]
    fn arbitrary_text_causes_no_panic(text in "[-a-c0-9:{}\\[\\]&*!?|>'\"<~#,. \\n]{0,40}") {
        let _ = parse(&text);
    }
}
