//! Impersonation headers.
//!
//! ```text
//!   Impersonate-User: bob     Impersonate-Group: dev     Impersonate-Uid: 7     Impersonate-Extra-Scopes: read
//! ```
//!
//! Each header requires the right to `impersonate` in the logical cluster of the request. The impersonated identity is
//! valid only there and for this request. Impersonation cannot make a client an administrator: administrators reach
//! every logical cluster, and the policy of one must not grant access to others.

use http::HeaderMap;
use openapi::meta::status::Status;
use std::collections::BTreeMap;

use crate::authn::identity::{ADMINISTRATORS, ANONYMOUS, AUTHENTICATED, Identity, User};
use crate::rbac::cover;
use crate::request::attributes::{Attributes, ResourceAttributes};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// The impersonated identity, and the rights that the sender needs for it.
#[derive(Debug)]
pub(crate) struct Impersonation {
    pub(crate) identity: Identity,
    /// All of these rights are required.
    pub(crate) required: Vec<Attributes>,
}

impl Impersonation {
    /// Parses the headers. None if the request does not impersonate.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Impersonation>, Status> {
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
        };
        let one = |name: &str| all(name).into_iter().next().unwrap_or_default();
        let (name, groups, uid) = (one(USER), all(GROUP), one(UID));
        let mut extra = BTreeMap::new();
        for header in headers.keys() {
            if let Some(key) = header.as_str().strip_prefix(EXTRA) {
                extra.insert(unescaped(key), all(header.as_str()));
            }
        }
        if name.is_empty() {
            return match groups.is_empty() && uid.is_empty() && extra.is_empty() {
                true => Ok(None),
                false => Err(nameless(&uid, &groups)),
            };
        }
        let required = required(&name, &groups, &uid, &extra);
        Ok(Some(Impersonation { identity: acting(name, groups, uid, extra), required }))
    }

    /// Reports whether the impersonated user is an administrator.
    pub(crate) fn is_of_administrators(&self) -> bool {
        self.identity.is_administrator()
    }

    /// Returns the attributes of impersonating the administrators' group.
    pub(crate) fn administrators() -> Attributes {
        require("", "groups", "", "", ADMINISTRATORS)
    }
}

fn required(
    name: &str,
    groups: &[String],
    uid: &str,
    extra: &BTreeMap<String, Vec<String>>,
) -> Vec<Attributes> {
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let mut required = vec![match account(name) {
        Some((namespace, name)) => require("", "serviceaccounts", "", namespace, name),
        None => require("", "users", "", "", name),
    }];
    required.extend(groups.iter().map(|group| require("", "groups", "", "", group)));
    if !uid.is_empty() {
        required.push(require(AUTHENTICATION, "uids", "", "", uid));
    }
    for (key, values) in extra {
        required.extend(values.iter().map(|value| require(AUTHENTICATION, "userextras", key, "", value)));
    }
    required
}

fn require(group: &str, resource: &str, subresource: &str, namespace: &str, name: &str) -> Attributes {
    Attributes::Resource(ResourceAttributes {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Returns the impersonated user, with its implicit groups.
fn acting(
    name: String,
    mut groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
) -> Identity {
    if groups.is_empty()
        && let Some((namespace, _)) = account(&name)
    {
        groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    }
    let unauthenticated = ANONYMOUS.1;
    let is_named = |group: &str| groups.iter().any(|named| named == group);
    match name == ANONYMOUS.0 {
        true if !is_named(unauthenticated) => groups.push(unauthenticated.to_owned()),
        false if !is_named(unauthenticated) && !is_named(AUTHENTICATED) => {
            groups.push(AUTHENTICATED.to_owned())
        }
        _ => {}
    }
    Identity::exactly(User { name, uid, groups, extra, ..User::default() })
}

/// Returns namespace and name of the service account with this user name.
fn account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// Decodes the percent-encoded key of an extra, because header names cannot contain every character. Returns an invalid
/// encoding unchanged.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [first, others @ ..] = rest {
        // Excludes signs, which `from_str_radix` would accept.
        let digits = others.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match (*first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &others[2..];
            }
            (b'%', None) => return key.to_owned(),
            (byte, _) => {
                bytes.push(byte);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

/// Returns the error of Kubernetes 1.36 for impersonation without a user name.
fn nameless(uid: &str, groups: &[String]) -> Status {
    let groups = match groups {
        [] => "[]string(nil)".to_owned(),
        some => {
            format!("[]string{{{}}}", cover::quoted(some).trim_matches(['[', ']']).replace("\" \"", "\", \""))
        }
    };
    Status::bad_request(format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{groups}, Extra:map[string][]string(nil)}} \
         without impersonating a user name"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &[(&str, &str)]) -> Result<Option<Impersonation>, Status> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: http::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        Impersonation::of(&headers)
    }

    /// Formats the required rights.
    fn required_by(lines: &[(&str, &str)]) -> Vec<String> {
        let required = parsed(lines).unwrap().unwrap().required;
        let formatted = required.into_iter().map(|require| match require {
            Attributes::Resource(it) => {
                [it.group, it.resource, it.subresource, it.namespace, it.name].join(",")
            }
            Attributes::Path { path, .. } => path,
        });
        formatted.collect()
    }

    fn groups(lines: &[(&str, &str)]) -> Vec<String> {
        match parsed(lines).unwrap().unwrap().identity {
            Identity::User(user) => user.groups.clone(),
            Identity::Anonymous => vec!["unauthenticated".to_owned()],
        }
    }

    #[test]
    fn every_impersonated_attribute_requires_a_right() {
        assert!(parsed(&[("accept", "x")]).unwrap().is_none());
        let all = [
            ("Impersonate-User", "bob"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-acme.com%2fscopes", "read"),
        ];
        let expected = [
            ",users,,,bob",
            ",groups,,,dev",
            ",groups,,,ops",
            "authentication.k8s.io,uids,,,7",
            "authentication.k8s.io,userextras,acme.com/scopes,,read",
        ];
        assert_eq!(required_by(&all), expected);
        let account = [("Impersonate-User", "system:serviceaccount:shop:bot")];
        assert_eq!(required_by(&account), [",serviceaccounts,,shop,bot"]);
        assert_eq!(
            required_by(&[("Impersonate-User", "system:serviceaccount:a:b:c")]),
            [",users,,,system:serviceaccount:a:b:c"]
        );
    }

    #[test]
    fn invalid_percent_escapes_are_kept() {
        let check = |key: &str, expected: &str| assert_eq!(unescaped(key), expected, "{key}");
        check("a%2fb%2Fc", "a/b/c");
        check("a%+fb", "a%+fb");
        check("a%-1", "a%-1");
        check("a%2", "a%2");
        check("a%zz%2f", "a%zz%2f");
        check("%ff", "%ff");
    }

    #[test]
    fn implied_groups_are_added() {
        let user = |name| ("Impersonate-User", name);
        assert_eq!(groups(&[user("bob")]), ["system:authenticated"]);
        assert_eq!(groups(&[user("bob"), ("Impersonate-Group", "dev")]), ["dev", "system:authenticated"]);
        let unknown = [user("bob"), ("Impersonate-Group", "system:unauthenticated")];
        assert_eq!(groups(&unknown), ["system:unauthenticated"]);
        assert_eq!(groups(&[user("system:anonymous")]), ["system:unauthenticated"]);
        assert_eq!(
            groups(&[user("system:serviceaccount:shop:bot")]),
            ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]
        );
    }

    /// The text of kube-apiserver 1.36.4.
    #[test]
    fn groups_without_a_user_are_refused() {
        let status = parsed(&[("Impersonate-Group", "dev"), ("Impersonate-Group", "ops")]).unwrap_err();
        let expected = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"dev\", \"ops\"}, \
                        Extra:map[string][]string(nil)} without impersonating a user name";
        assert_eq!((status.code, status.message.as_str()), (400, expected));
    }
}
