//! Access reviews and similar kinds that are answered but not stored.

use serde_json::{Value, json};
use testkit::{Client, Server};

use crate::common::HOLON;

const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const LOCAL: &str = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
const MINE: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn pods(namespace: &str) -> Value {
    json!({ "namespace": namespace, "verb": "get", "resource": "pods" })
}

#[test]
fn access_reviews_are_answered_and_not_stored() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    client.bind("", "cluster-admin", "User bob");
    let check = |path: &str, spec: Value, allowed: bool| {
        let answer = client.ask("POST", path, &json!({ "spec": spec }));
        let review = answer.json();
        assert_eq!((answer.code, &review["status"]["allowed"]), (201, &json!(allowed)), "{path} {review}");
        assert_eq!(review["spec"], spec, "the response contains the spec of the request");
    };
    check(MINE, json!({ "resourceAttributes": pods("default") }), true);
    check(MINE, json!({ "nonResourceAttributes": { "path": "/metrics", "verb": "get" } }), true);
    check(ACCESS, json!({ "user": "bob", "resourceAttributes": pods("") }), true);
    check(ACCESS, json!({ "user": "ann", "resourceAttributes": pods("") }), false);
    check(
        ACCESS,
        json!({ "user": "ann", "groups": ["system:masters"], "resourceAttributes": pods("") }),
        true,
    );
    check(ACCESS, json!({ "user": "system:anonymous", "resourceAttributes": pods("") }), false);
    let probe = json!({ "path": "/readyz", "verb": "get" });
    let anonymous = json!({ "user": "system:anonymous", "groups": ["system:unauthenticated"], "nonResourceAttributes": probe });
    check(ACCESS, anonymous, true);
    check(LOCAL, json!({ "user": "bob", "resourceAttributes": pods("default") }), true);

    let rules = client.ask(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        &json!({ "spec": { "namespace": "default" } }),
    );
    let rules = rules.json()["status"].clone();
    let everything = json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] });
    assert!(rules["resourceRules"].as_array().unwrap().contains(&everything), "{rules}");
    assert_eq!(rules["incomplete"], false);
}

/// The messages are those of kube-apiserver 1.36.4.
#[test]
fn invalid_reviews_are_refused_with_the_messages_of_kubernetes() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let check = |path: &str, body: Value, code: u16, message: &str| {
        let answer = client.ask("POST", path, &body);
        let status = answer.json();
        assert_eq!((answer.code, status["message"].as_str().unwrap_or_default()), (code, message), "{path}");
    };
    let invalid = |text: &str| format!(".authorization.k8s.io \"\" is invalid: {text}");
    check(
        MINE,
        json!({ "spec": {} }),
        422,
        &invalid(
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
    );
    let path = json!({ "path": "/", "verb": "get" });
    check(
        MINE,
        json!({ "metadata": { "name": "x" }, "spec": { "resourceAttributes": pods(""), "nonResourceAttributes": path } }),
        422,
        &invalid(
            "[spec.nonResourceAttributes: Invalid value: {\"Path\":\"/\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes, metadata: Invalid value: {\"name\":\"x\"}: must be empty]",
        ),
    );
    check(
        ACCESS,
        json!({ "spec": { "resourceAttributes": pods("") } }),
        422,
        &invalid("spec.user: Invalid value: \"\": at least one of user or group must be specified"),
    );
    check(
        LOCAL,
        json!({ "spec": { "user": "bob", "resourceAttributes": pods("other") } }),
        422,
        &invalid(
            "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace",
        ),
    );
    check(
        LOCAL,
        json!({ "spec": { "user": "bob", "nonResourceAttributes": path } }),
        422,
        &invalid(
            "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/\",\"Verb\":\"get\"}: disallowed on this kind of request",
        ),
    );
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    check(rules, json!({ "spec": {} }), 400, "no namespace on request");
    let tokens = "/apis/authentication.k8s.io/v1/tokenreviews";
    check(tokens, json!({ "spec": {} }), 400, "token is required for TokenReview in authentication");
    for hostile in
        [json!([]), json!({ "metadata": "x" }), json!({ "spec": "x" }), json!({ "metadata": [], "spec": [] })]
    {
        let code = client.ask("POST", LOCAL, &hostile).code;
        assert!((400..500).contains(&code), "{hostile} was answered {code}");
    }
    let table = client.with("Accept: application/json;as=Table;g=meta.k8s.io;v=v1");
    assert_eq!(table.ask("POST", tokens, &json!({ "spec": { "token": "x" } })).code, 406);
}

#[test]
fn discovery_lists_reviews_with_the_verb_create_only() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let listed = client.get("/apis/authorization.k8s.io/v1").json();
    let resources = listed["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 4, "{listed}");
    assert!(resources.iter().all(|resource| resource["verbs"] == json!(["create"])), "{listed}");
    let documents = client.get("/openapi/v3").json();
    assert!(documents["paths"]["apis/authentication.k8s.io/v1"].is_object(), "{documents}");
}
