//! Error messages about very many fields or very long field names are limited; the decisions are not.

use serde_json::{Map, Value, json};

use super::{Story, config_map, nothing};
use crate::meta::status::{Cause, Status};

/// Returns `count` keys of this length, all with the same value.
fn data(count: usize, length: usize, value: Value) -> Value {
    (0..count).map(|n| (format!("{n:0length$}"), value.clone())).collect::<Map<_, _>>().into()
}

fn refusal(story: &mut Story, manager: &str, data: Value) -> Status {
    story.try_apply(manager, &config_map(data), false).expect_err("the request is rejected").status()
}

fn causes(status: &Status) -> &[Cause] {
    status.details.as_ref().map_or(&[], |details| &details.causes)
}

#[test]
fn the_number_of_faults_is_bounded() {
    let mut story = Story::of("", "configmaps");
    for (reported, count, length) in [(3, 3, 4), (100, 100, 4), (100, 500, 4), (7, 500, 10_000)] {
        let message = refusal(&mut story, "a", data(count, length, json!(5))).message;
        assert_eq!(message.matches("\n  .data.").count(), reported);
    }
}

#[test]
fn the_number_of_reported_conflicts_is_bounded() {
    for (reported, count, length) in [(3, 3, 4), (1000, 1000, 4), (1000, 1500, 4), (7, 500, 10_000)] {
        let mut story = Story::of("", "configmaps");
        story.apply("a", &config_map(data(count, length, json!("1"))));
        let status = refusal(&mut story, "b", data(count, length, json!("2")));
        let begin = format!("Apply failed with {count} conflicts: conflicts with \"a\":\n- .data.0");
        assert!(status.message.starts_with(&begin));
        assert_eq!((status.message.matches("\n- ").count(), causes(&status).len()), (reported, reported));
        story.try_apply("b", &config_map(data(count, length, json!("2"))), true).expect("by force");
        assert_eq!(story.owned("a"), Value::Null);
    }
}

#[test]
fn conflict_owners_are_determined_over_all_conflicts() {
    const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut applied = nothing();
    (applied["apiVersion"], applied["kind"]) = ("v1".into(), "ConfigMap".into());
    applied["data"] = data(1500, 4, json!("1"));
    let mut sent = applied.clone();
    sent["metadata"]["annotations"] = json!({ ANNOTATION: applied.to_string() });

    let mut story = Story::of("", "configmaps");
    story.update("kubectl-client-side-apply", sent);
    let before = story.live.clone();
    story.apply("kubectl", &config_map(data(1500, 4, json!("2"))));

    story.live = before;
    story.set("editor", "/data/1499", "9".into());
    let reported = refusal(&mut story, "kubectl", data(1500, 4, json!("2"))).message;
    assert_eq!(reported, "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.1499");
}
