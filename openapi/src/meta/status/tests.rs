use serde_json::json;

use super::*;

const PODS: GroupResource<'_> = GroupResource { group: "", name: "pods" };
const DEPLOYMENTS: GroupResource<'_> = GroupResource { group: "apps", name: "deployments" };

fn check(status: Status, expected: serde_json::Value) {
    let mut expected_status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"});
    for (key, value) in expected.as_object().expect("expectations are objects") {
        expected_status[key] = value.clone();
    }
    assert_eq!(serde_json::to_value(&status).expect("a status is JSON"), expected_status);
}

#[test]
fn an_absent_object() {
    check(
        Status::not_found(DEPLOYMENTS, "web"),
        json!({"code": 404, "reason": "NotFound", "message": "deployments.apps \"web\" not found",
               "details": {"name": "web", "group": "apps", "kind": "deployments"}}),
    );
    check(
        Status::unknown_path(),
        json!({"code": 404, "reason": "NotFound", "details": {},
               "message": "the server could not find the requested resource"}),
    );
}

#[test]
fn an_object_that_exists() {
    check(
        Status::modified(PODS, "a"),
        json!({"code": 409, "reason": "Conflict", "details": {"name": "a", "kind": "pods"},
               "message": "Operation cannot be fulfilled on pods \"a\": the object has been modified; please apply \
                your changes to the latest version and try again"}),
    );
    check(
        Status::already_exists(PODS, "a"),
        json!({"code": 409, "reason": "AlreadyExists", "message": "pods \"a\" already exists",
               "details": {"name": "a", "kind": "pods"}}),
    );
}

#[test]
fn an_invalid_object_names_its_kind_and_every_cause() {
    let errors =
        [FieldError::required("spec.selector", ""), FieldError::invalid("spec.replicas", -1, "too small")];
    check(
        Status::invalid(GroupResource::new("apps", "Deployment"), "web", &errors),
        json!({"code": 422, "reason": "Invalid",
        "message": "Deployment.apps \"web\" is invalid: [spec.selector: Required value, \
         spec.replicas: Invalid value: -1: too small]",
        "details": {"name": "web", "group": "apps", "kind": "Deployment", "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"},
            {"reason": "FieldValueInvalid", "message": "Invalid value: -1: too small", "field": "spec.replicas"},
        ]}}),
    );
}

#[test]
fn forbidden_and_unauthorized_requests() {
    check(
        Status::forbidden(PODS, "", "no"),
        json!({"code": 403, "reason": "Forbidden", "message": "pods is forbidden: no", "details": {"kind": "pods"}}),
    );
    check(
        Status::forbidden(PODS, "a", "no"),
        json!({"code": 403, "reason": "Forbidden", "message": "pods \"a\" is forbidden: no",
               "details": {"name": "a", "kind": "pods"}}),
    );
    check(Status::unauthorized(), json!({"code": 401, "reason": "Unauthorized", "message": "Unauthorized"}));
}

#[test]
fn a_resource_version_in_the_future() {
    check(
        Status::version_too_large(9, 7),
        json!({"code": 504, "reason": "Timeout", "message": "Timeout: Too large resource version: 9, current: 7",
               "details": {"retryAfterSeconds": 1, "causes": [
                   {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}}),
    );
}

#[test]
fn an_expired_list_has_a_continue_token() {
    let mut status = Status::expired("The resourceVersion for the provided list is too old.");
    status.metadata.continue_token = Some("next".to_owned());
    check(
        status,
        json!({"code": 410, "reason": "Expired", "metadata": {"continue": "next"},
               "message": "The resourceVersion for the provided list is too old."}),
    );
}

#[test]
fn fields_of_others_are_listed_by_owner() {
    let field = |owner: &str, path: &str| OwnedField { path: path.to_owned(), owner: owner.to_owned() };
    let one = Status::apply_conflict(&[field("\"helm\" using apps/v1", ".spec.replicas")], 1);
    assert_eq!(
        one.message,
        "Apply failed with 1 conflict: conflict with \"helm\" using apps/v1: .spec.replicas"
    );
    let many = [field("\"b\"", ".x"), field("\"a\"", ".y"), field("\"b\"", ".z")];
    let many = Status::apply_conflict(&many, 3);
    let expected =
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .y\nconflicts with \"b\":\n- .x\n- .z";
    assert_eq!(many.message, expected);
    assert_eq!(many.details.expect("causes").causes[1].field, ".y");
}

#[test]
fn success_has_no_reason() {
    check(
        Status::deleted(PODS, "a", "u-1"),
        json!({"status": "Success", "details": {"name": "a", "kind": "pods", "uid": "u-1"}}),
    );
}

#[test]
fn the_rest_of_the_table() {
    let rows = [
        (Status::bad_request("x"), 400, "x"),
        (
            Status::method_not_allowed(PODS, "deletecollection"),
            405,
            "deletecollection is not supported on resources of kind \"pods\"",
        ),
        (Status::wrong_method(), 405, "the server does not allow this method on the requested resource"),
        (
            Status::not_acceptable(&["a/b", "c/d"]),
            406,
            "only the following media types are accepted: a/b, c/d",
        ),
        (
            Status::no_free_name(PODS, "a-x"),
            409,
            "pods \"a-x\" already exists, the server was not able to generate a unique name for the object",
        ),
        (Status::gone("over"), 410, "over"),
        (Status::too_large("limit is 3145728"), 413, "Request entity too large: limit is 3145728"),
        (
            Status::unsupported_media_type(&["application/json"]),
            415,
            "the body of the request was in an unknown format - accepted media types include: application/json",
        ),
        (
            Status::patch_does_not_apply(),
            422,
            "the server rejected our request due to an error in our request",
        ),
        (Status::too_many_requests("later", 2), 429, "later"),
        (Status::internal("disk"), 500, "Internal error occurred: disk"),
        (
            Status::server_timeout(PODS, "list", 0),
            500,
            "The list operation against pods could not be completed at this time, please try again.",
        ),
        (Status::unavailable("draining"), 503, "draining"),
        (Status::timeout("slow", 1), 504, "Timeout: slow"),
    ];
    for (status, code, message) in rows {
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
}
