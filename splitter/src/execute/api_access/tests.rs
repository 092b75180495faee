use api::names::{API_ACCESS, RENEW_AFTER};
use jiff::{SignedDuration, Timestamp};

use super::*;

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
