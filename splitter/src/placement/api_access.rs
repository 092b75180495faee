//! How the pods of an object reach its logical cluster, on one physical cluster.

use std::borrow::Cow;

use api::names::API_HOME;
use serde_json::Value;

use crate::snapshot::mailbox_objects::MailboxObject;
use crate::transform::api_access::ApiAccess;
use crate::transform::group_kind;

/// Kinds whose pod spec is immutable.
const FIXED: &[(&str, &str)] = &[("", "Pod"), ("batch", "Job")];

/// The API access of a mailbox object. One with an immutable pod spec keeps its API access.
pub(crate) fn at<'a>(
    api_access: Option<&'a ApiAccess>,
    object: &Value,
    mailbox_object: &MailboxObject,
) -> Option<Cow<'a, ApiAccess>> {
    match &mailbox_object.object {
        Some(present) if FIXED.contains(&group_kind(object)) => {
            let annotation = present["metadata"]["annotations"][API_HOME].as_str()?;
            serde_json::from_str(annotation).ok().map(Cow::Owned)
        }
        _ => api_access.map(Cow::Borrowed),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::cluster::Id;
    use serde_json::json;

    use super::*;
    use crate::snapshot::MemberCluster;

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
}
