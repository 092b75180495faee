use api::names::{API_ACCESS, RENEW_AFTER};
use jiff::{SignedDuration, Timestamp};

use super::*;

#[test]
fn pods_that_mount_a_token_call_the_api_as_their_account() {
    let check = |spec: Value, expected: Option<(&str, bool)>| {
        let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": { "spec": spec } } });
        let found = PodApiAccess::of(&object);
        let found = found.as_ref().map(|access| (access.account.as_str(), access.always));
        assert_eq!(found, expected, "{object}");
    };
    let containers = json!([{ "name": "a" }]);
    let project = |source: Value| json!([{ "name": "own", "projected": { "sources": [source] } }]);
    check(json!({ "containers": containers }), Some(("default", false)));
    check(json!({ "containers": containers, "serviceAccountName": "bot" }), Some(("bot", false)));
    check(json!({ "containers": containers, "serviceAccount": "bot" }), Some(("bot", false)));
    check(
        json!({ "containers": containers, "serviceAccountName": "bot", "automountServiceAccountToken": true }),
        Some(("bot", true)),
    );
    check(json!({ "containers": containers, "automountServiceAccountToken": false }), None);
    let token = json!({ "serviceAccountToken": { "path": "token" } });
    check(
        json!({ "containers": containers, "automountServiceAccountToken": false, "volumes": project(token) }),
        Some(("default", true)),
    );
    let vault = json!({ "serviceAccountToken": { "path": "token", "audience": "vault" } });
    check(
        json!({ "containers": containers, "automountServiceAccountToken": false, "volumes": project(vault) }),
        None,
    );
    assert_eq!(PodApiAccess::of(&json!({ "kind": "ConfigMap", "data": {} })), None);
}

fn account() -> ServiceAccountRef {
    ServiceAccountRef { cluster: Id::ROOT, namespace: "shop".to_owned(), name: "bot".to_owned() }
}

fn api_endpoint(authority: &str) -> ApiEndpoint {
    ApiEndpoint { host: "holon.example".to_owned(), port: 6443, authority: authority.to_owned() }
}

#[test]
fn a_secret_is_valid_for_two_thirds_of_its_token_lifetime_and_for_one_account() {
    let expires = Timestamp::now() + SignedDuration::from_secs(24 * 60 * 60);
    let response = json!({ "status": { "token": "t", "expirationTimestamp": expires.to_string() } });
    let (written, left) = secret::written(&account(), "u1", "shop-1", &api_endpoint("ca"), &response, None);
    assert!((57_590..=57_600).contains(&left.as_secs()), "{left:?}");
    let read = AccessSecret::read(&written).unwrap();
    assert_eq!((&read.account, read.name.as_str()), (&account(), "holon-api-access-bot"));
    assert!(read.valid_for("u1", &api_endpoint("ca")).is_some_and(|left| left.as_secs() > 57_000));
    // Another account of the same name, another authority, an expired token.
    assert_eq!(read.valid_for("u2", &api_endpoint("ca")), None);
    assert_eq!(read.valid_for("u1", &api_endpoint("another")), None);
    let mut old = written.clone();
    old["metadata"]["annotations"][RENEW_AFTER] = "2020-01-01T00:00:00Z".into();
    assert_eq!(AccessSecret::read(&old).unwrap().valid_for("u1", &api_endpoint("ca")), None);
    // A Secret of this name that another client created is not ours.
    let mut other = written;
    other["metadata"]["annotations"][API_ACCESS] = Value::Null;
    assert_eq!(AccessSecret::read(&other), None);
}

#[test]
fn every_account_has_its_own_secret_name_whatever_its_length() {
    assert_eq!(secret::name("default"), "holon-api-access-default");
    let (long, other) = ("a".repeat(253), format!("{}b", "a".repeat(252)));
    assert_eq!(secret::name(&long).len(), 253);
    assert_ne!(secret::name(&long), secret::name(&other));
}

#[test]
fn immutable_objects_keep_their_api_address() {
    let api_access = ApiAccess { host: "new".into(), port: 1, secret: "s".into(), mounts: true };
    let old = ApiAccess { host: "old".into(), ..api_access.clone() };
    let member = Arc::new(MemberCluster { owner: Id::ROOT, object: Default::default(), mailbox: None });
    let mailbox_object = |object: Option<Value>| MailboxObject {
        is_nearest: true,
        member: member.clone(),
        mailbox: Id::ROOT,
        namespace: String::new(),
        object,
    };
    let sent = json!({ "metadata": { "annotations": { API_HOME: json!(old).to_string() } } });
    let check = |kind: (&str, &str), present: Option<&Value>, expected: Option<&str>| {
        let object = json!({ "apiVersion": kind.0, "kind": kind.1 });
        let found = at(Some(&api_access), &object, &mailbox_object(present.cloned()));
        assert_eq!(
            found.map(|api_access| api_access.host.clone()).as_deref(),
            expected,
            "{kind:?} {present:?}"
        );
    };
    check(("apps/v1", "Deployment"), Some(&sent), Some("new"));
    check(("batch/v1", "Job"), Some(&sent), Some("old"));
    check(("batch/v1", "Job"), None, Some("new"));
    check(("v1", "Pod"), Some(&json!({ "metadata": {} })), None);
}
