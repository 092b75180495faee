//! Objects on one target, or on none.

use super::*;

#[test]
fn the_status_of_one_target_is_copied_except_generations() {
    let check = |observed: i64, before: i64, expected: i64| {
        let status = |observed: i64| {
            json!({ "phase": "Odd", "list": [3, 1], "observedGeneration": observed,
                    "parents": [{ "conditions": [{ "type": "Ready", "observedGeneration": observed }] }] })
        };
        let object = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "status": { "observedGeneration": before } });
        let downstream = status(observed);
        assert_eq!(
            aggregate(&user_object(&object), &[report("east", &downstream)], None).status,
            status(expected)
        );
    };
    check(7, 2, 3);
    check(8, 2, 3);
    // The target has not observed the latest generation: the observed generation does not change.
    check(6, 2, 2);
    // Two edits in a row, neither observed: the first is not observed either.
    check(5, 1, 1);
    check(6, 9, 2);
}

#[test]
fn an_unplaced_claim_is_pending_and_never_bound() {
    let claim =
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": { "phase": "Bound" } });
    assert_eq!(aggregate(&user_object(&claim), &[], None).status, json!({ "phase": "Pending" }));
    // During a move, the status is that of the new target, once it reports one.
    let (bound, lost, silent) = (json!({ "phase": "Bound" }), json!({ "phase": "Lost" }), Value::Null);
    let old = Report { role: Role::Leaving, ..report("a", &lost) };
    let of = |new: &Value| aggregate(&user_object(&claim), &[old.clone(), report("b", new)], None).status;
    assert_eq!(of(&bound), bound);
    assert_eq!(of(&silent), lost);
}

#[test]
fn an_unplaced_object_has_a_condition_with_the_reason() {
    let web =
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": {} });
    let nowhere =
        UserObject { unplaced: Some("there is no physical cluster yet; join one"), ..user_object(&web) };
    let rows = condition_rows(&aggregate(&nowhere, &[], None).status);
    assert_eq!(rows, [row("Placed", "False", "NoTarget", "there is no physical cluster yet; join one")]);
}
