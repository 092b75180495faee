//! Properties that hold for every object of a custom kind.

use openapi::codec;
use openapi::codec::Syntax;
use openapi::codec::typed::decode_tree;
use openapi::schema::prune::{prune, unknown};
use openapi::{conversion, defaulting, validation};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::ours;
use crate::record::Record;

/// Generates values of every type, and objects with fields of the definition.
fn value() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "size",
        "word",
        "ports",
        "name",
        "protocol",
        "labels",
        "open",
        "deep",
        "nested",
        "embedded",
        "apiVersion",
        "kind",
        "metadata",
        "a",
        "b",
        "either",
        "maybe",
        "noNull",
        "byName",
        "plain",
        "anything",
        "other",
        "loose",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..20).prop_map(Value::from),
        (-5.0..20.0f64).prop_map(Value::from),
        "[a-zA-Z ]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn decoding_and_defaulting_twice_changes_nothing(spec in value(), status in value(), extra in value()) {
        let record = Record::read();
        let sent = json!({
            "apiVersion": "test.example.com/v1", "kind": "Sample", "metadata": { "name": "a", "namespace": "default" },
            "spec": spec, "status": status, "extra": extra,
        });
        let row = ours::row(&sent, &record, "samples");
        let schema = row.schema().expect("it has one");
        let mut pruned = sent.clone();
        prune(&mut pruned, schema);
        prop_assert_eq!(unknown(&pruned, schema), Vec::<String>::new(), "pruning twice equals pruning once");
        // A value that is no object, in place of an embedded object, cannot be decoded.
        let Ok(read) = decode_tree(sent.clone(), schema) else { return Ok(()) };
        let mut once = read.value;
        defaulting::apply_defaults(&row, &mut once);
        let mut twice = once.clone();
        defaulting::apply_defaults(&row, &mut twice);
        prop_assert_eq!(&twice, &once, "defaulting twice equals defaulting once");
        let second = decode_tree(twice, schema).expect("the object was decoded before");
        prop_assert_eq!(second.strict_errors, vec![], "a second decoding found unknown fields");
        let stored = conversion::to_stored(&row, once.clone());
        prop_assert_eq!(conversion::from_stored(&row, stored), once.clone(), "the object is decoded as it was stored");
        // Decoding the text equals decoding the tree. An update without a change ignores all existing errors except
        // some: duplicates are ignored, errors in embedded objects and replicas are not.
        let text = codec::decode_as(sent.to_string().as_bytes(), Syntax::Json, schema).expect("the object was decoded before");
        let mut defaulted = text.value;
        defaulting::apply_defaults(&row, &mut defaulted);
        prop_assert_eq!(&defaulted, &once);
        let new = validation::validate_create(&row, &once);
        let unchanged = validation::validate_update(&row, &once, &once);
        prop_assert!(unchanged.len() <= new.len(), "{unchanged:?} of {new:?}");
        prop_assert!(unchanged.iter().all(|error| new.contains(error)), "{unchanged:?} of {new:?}");
    }
}
