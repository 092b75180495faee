use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::samples::{deployment, list, object, open, secret, string};

fn strict_errors(tree: Value) -> Vec<String> {
    let decoded = decode_tree(tree, &deployment()).expect("types are right");
    decoded.strict_errors.iter().map(ToString::to_string).collect()
}

fn mismatch(tree: Value) -> String {
    decode_tree(tree, &deployment()).expect_err("a type is wrong").to_string()
}

#[test]
fn unknown_fields_are_reported_with_their_path_and_dropped() {
    let tree = json!({"metadata": {"name": "web", "nme": "x"}, "bogus": {"deep": {"deeper": 1}},
        "spec": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "b", "foo": 1}]}}}});
    let messages = [
        "unknown field \"bogus\"",
        "unknown field \"metadata.nme\"",
        "unknown field \"spec.template.spec.containers[1].foo\"",
    ];
    assert_eq!(strict_errors(tree.clone()), messages);
    let decoded = decode_tree(tree, &deployment()).expect("types are right");
    let expected = json!({"metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}}});
    assert_eq!(decoded.value, expected);
}

/// The error texts of a real kube-apiserver for the same strategic merge patches.
#[test]
fn the_result_of_a_strategic_merge_patch_is_converted_to_its_types() {
    for (tree, messages) in [
        (json!({"metadata": {"labels": {"a": 1}}}), "cannot convert int64 to string"),
        (json!({"metadata": {"labels": {"a": 1.5}}}), "unrecognized type: string"),
        (json!({"metadata": {"labels": {"a": true}}}), "unrecognized type: string"),
        (json!({"metadata": {"labels": {"a": []}}}), "unrecognized type: string"),
        (json!({"metadata": {"labels": []}}), "cannot restore map from slice"),
        (json!({"metadata": {"finalizers": "a"}}), "cannot restore slice from string"),
        (json!({"metadata": []}), "cannot restore struct from: slice"),
        (json!({"metadata": {"finalizers": [1]}}), "cannot convert int64 to string"),
        (json!({"spec": {"replicas": "3"}}), "unrecognized type: int32"),
        (json!({"spec": {"replicas": 1.5}}), "cannot convert float64 to int32"),
        (json!({"spec": {"template": {"spec": {"containers": {}}}}}), "cannot restore slice from map"),
    ] {
        let refused = convert_tree(tree.clone(), &deployment()).expect_err("a type is wrong");
        assert_eq!(refused.to_string(), messages, "{tree}");
    }
    let tree = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(convert_tree(tree.clone(), &deployment()), decode_tree(tree, &deployment()));
}

#[test]
fn untyped_fields_are_kept_unchanged() {
    let tree = json!({"raw": {"any": [{"thing": null}]}, "metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        decode_tree(tree.clone(), &deployment()),
        Ok(Decoded { value: tree, strict_errors: Vec::new() })
    );
    let tree = json!({"known": "a", "other": {"x": null}});
    assert_eq!(decode_tree(tree.clone(), &open(&[("known", string())])).expect("fits").value, tree);
}

#[test]
fn nulls_are_absent_in_objects_and_zero_elsewhere() {
    let tree = json!({"metadata": {"name": null, "labels": {"a": null}, "finalizers": ["x", null]},
        "spec": {"template": {"spec": {"containers": [null], "nodeSelector": null}}}});
    let expected = json!({"metadata": {"labels": {"a": ""}, "finalizers": ["x", ""]},
        "spec": {"template": {"spec": {"containers": [{}]}}}});
    assert_eq!(decode_tree(tree, &deployment()).expect("fits").value, expected);
}

#[test]
fn quantities_become_canonical() {
    let limits = |value: Value| json!({"spec": {"template": {"spec": {"containers": [{"limits": value}]}}}});
    let decoded =
        decode_tree(limits(json!({"cpu": 0.5, "memory": "1024Mi", "gpu": 2})), &deployment()).expect("fits");
    assert_eq!(decoded.value, limits(json!({"cpu": "500m", "memory": "1Gi", "gpu": "2"})));
    for wrong in [json!("many"), json!(true), json!({}), json!([1])] {
        let messages = mismatch(limits(json!({"cpu": wrong})));
        assert!(messages.starts_with("quantities must match the regular expression"), "{messages}");
    }
}

#[test]
fn wrong_types_are_reported_with_the_messages_of_go() {
    for (tree, expected) in [
        (
            json!({"spec": {"replicas": "3"}}),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"spec": {"replicas": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"spec": {"replicas": 3000000000u64}}),
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"metadata": {"labels": {"a": 1}}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            json!({"metadata": {"labels": ["a"]}}),
            "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": [{"name": true}]}}}}),
            "json: cannot unmarshal bool into Go struct field Container.spec.template.spec.containers.name of type string",
        ),
        (
            json!({"spec": [1]}),
            "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec",
        ),
        (
            json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": true}}}}),
            "json: cannot unmarshal bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
        ),
        (json!("web"), "json: cannot unmarshal string into Go value of type v1.Deployment"),
    ] {
        assert_eq!(mismatch(tree), expected);
    }
}

#[test]
fn the_first_wrong_type_is_reported_except_in_self_decoding_types() {
    let both = json!({"metadata": {"name": 1}, "spec": {"replicas": "x"}});
    assert!(mismatch(both).contains("ObjectMeta.metadata.name"));
    let quantity = json!({"metadata": {"name": 1},
        "spec": {"template": {"spec": {"containers": [{"limits": {"cpu": "?"}}]}}}});
    assert!(mismatch(quantity).starts_with("quantities must match"));
}

#[test]
fn times_become_utc() {
    let created = |value: Value| json!({"metadata": {"creationTimestamp": value}});
    let decoded = decode_tree(created(json!("2020-01-01T01:00:00+01:00")), &deployment()).expect("fits");
    assert_eq!(decoded.value, created(json!("2020-01-01T00:00:00Z")));
    assert_eq!(
        decode_tree(created(json!(null)), &deployment()).expect("fits").value,
        json!({"metadata": {}})
    );
    let wrong = mismatch(created(json!("yesterday")));
    assert!(
        wrong.starts_with("parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse"),
        "{wrong}"
    );
    let expected = "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string";
    assert_eq!(mismatch(created(json!(5))), expected);
}

#[test]
fn bytes_are_base64() {
    let messages = |text: &str| {
        decode_tree(json!({"data": {"a": text}}), &secret()).map_err(|error| error.to_string()).err()
    };
    assert_eq!(messages("aGk="), None);
    assert_eq!(messages("h i").as_deref(), Some("illegal base64 data at input byte 1"));
}

#[test]
fn the_number_of_strict_errors_is_bounded() {
    let many: Value = (0..500).map(|n| (format!("f{n}"), json!(1))).collect::<Map<_, _>>().into();
    assert_eq!(decode_tree(many, &object(&[])).expect("fits").strict_errors.len(), MAX_STRICT_ERRORS);
}

fn trees() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z0-9]{0,4}".prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "metadata",
        "name",
        "labels",
        "spec",
        "replicas",
        "template",
        "containers",
        "limits",
        "strategy",
        "bogus",
    ]);
    leaf.prop_recursive(6, 60, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..5).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn a_second_decoding_changes_nothing(tree in trees()) {
        if let Ok(decoded) = decode_tree(tree, &deployment()) {
            let second = decode_tree(decoded.value.clone(), &deployment()).expect("the object was decoded before");
            prop_assert_eq!(second, Decoded { value: decoded.value, strict_errors: Vec::new() });
        }
    }

    #[test]
    fn arbitrary_trees_are_decoded_or_rejected(tree in trees()) {
        let _ = decode_tree(tree, &list(deployment()));
    }
}
