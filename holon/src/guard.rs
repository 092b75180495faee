//! What is shown because it is on a physical cluster is not changed where it is shown.
//!
//! A user sees pods, nodes and more that nobody made in his logical cluster. Changing them there would change nothing where
//! they are, so he is told what to change instead. The exceptions are done to the real one: a pod or a claim is
//! deleted, and a claim asks for another amount of storage.
//!
//! The marks that say what is shown and what is placed are also what our controllers go by, and what leads `kubectl logs` to
//! the right cluster. So they are theirs: of the splitter everywhere, and of a syncer in its own mailbox, where it shows but
//! does not place.

use std::sync::Arc;

use api::cluster::Id;
use api::names::{PLACED, PROJECTED, SYNCER_ACCOUNT, owner_of_mailbox};
use apiserver::births;
use apiserver::guard::{Deed, Guard};
use apiserver::identity::Identity;
use openapi::status::Status;
use serde_json::Value;
use splitter::raise::pods::{CLUSTER, is_deletable};
use storage::{Boxed, Store};

/// What our own controllers are called. Nobody else has a mandate, whatever they call themselves.
pub(crate) const CONTROLLERS: &str = "system:holon:";

const HASH: &str = "pod-template-hash";

/// Metadata that the server itself changes with every write.
const KEPT_BY_SERVER: &[&str] = &["generation", "managedFields", "resourceVersion"];

/// Guards the marks of what is shown and of what is placed.
#[derive(Debug)]
pub(crate) struct Marks {
    store: Arc<dyn Store>,
}

impl Marks {
    pub(crate) fn new(store: Arc<dyn Store>) -> Marks {
        Marks { store }
    }

    async fn is_mailbox(&self, cluster: Id) -> bool {
        let birth = births::find(&*self.store, cluster).await.ok().flatten();
        birth.is_some_and(|birth| owner_of_mailbox(&birth.name).is_some())
    }

    async fn decide(&self, deed: Deed<'_>) -> Result<(), Status> {
        if is_ours(deed.who) {
            return Ok(());
        }
        let refuse = |why: &str| Err(Status::forbidden(deed.grouped(), deed.name, why));
        let (was_placed, is_placed) = deed.label(PLACED);
        if was_placed != is_placed && !deed.who.is_administrator() && self.is_mailbox(deed.cluster).await {
            return refuse(&format!(
                "what has the label {PLACED} in a mailbox is chosen by the server alone"
            ));
        }
        let (was_shown, is_shown) = deed.label(PROJECTED);
        if was_shown.is_none() && is_shown.is_none() {
            return Ok(());
        }
        if is_syncer_of(deed.who, deed.cluster) && self.is_mailbox(deed.cluster).await {
            return Ok(());
        }
        match (was_shown, deed.before) {
            (Some(_), Some(before)) if !is_passed_on(&deed, before) => refuse(&reason(&deed, before)),
            (Some(_), _) => Ok(()),
            (None, _) => refuse(&format!(
                "the label {PROJECTED} is on what is shown because it is on a physical cluster; the server alone sets it"
            )),
        }
    }
}

impl Guard for Marks {
    fn labels(&self) -> &[&str] {
        &[PROJECTED, PLACED]
    }

    fn may<'a>(&'a self, deed: Deed<'a>) -> Boxed<'a, Result<(), Status>> {
        Box::pin(self.decide(deed))
    }
}

fn is_ours(who: &Identity) -> bool {
    who.has_mandate() && who.name().starts_with(CONTROLLERS)
}

/// Whether somebody is the service account of the syncer of a mailbox.
pub(crate) fn is_syncer_of(who: &Identity, cluster: Id) -> bool {
    who.home() == Some(cluster) && who.name() == format!("system:serviceaccount:kube-system:{SYNCER_ACCOUNT}")
}

/// Whether what a user does to something shown is passed on to the real object.
fn is_passed_on(deed: &Deed, before: &Value) -> bool {
    match deed.after {
        None => is_deletable(&deed.row.group, &deed.row.kind),
        Some(after) => {
            (&*deed.row.group, &*deed.row.kind) == ("", "PersistentVolumeClaim")
                && deed.part.is_none()
                && is_resized(before, after)
        }
    }
}

/// Whether a claim asks for another amount of storage, and nothing else about it changes.
fn is_resized(before: &Value, after: &Value) -> bool {
    let rest = |claim: &Value| {
        let mut rest = claim.clone();
        if let Some(requests) = rest.pointer_mut("/spec/resources/requests").and_then(Value::as_object_mut) {
            requests.remove("storage");
        }
        if let Some(metadata) = rest["metadata"].as_object_mut() {
            metadata.retain(|field, _| !KEPT_BY_SERVER.contains(&field.as_str()));
        }
        rest
    };
    rest(before) == rest(after)
}

/// Why it is not to be changed here, and what to do instead.
fn reason(deed: &Deed, object: &Value) -> String {
    if deed.row.group.is_empty() && &*deed.row.plural == "nodes" {
        let name = deed.name;
        return format!(
            "it stands for the physical cluster {name}; change that, where it is registered: \
             kubectl edit physicalcluster {name}"
        );
    }
    let place = match object["metadata"]["labels"][CLUSTER].as_str() {
        Some(cluster) => format!("it is on {cluster}"),
        None => "of what is on physical clusters".to_owned(),
    };
    let advice = match owner(object) {
        Some((kind, name)) => format!("change the {kind} {name} it belongs to"),
        None => "change what brought it about".to_owned(),
    };
    format!("it is shown here because {place}; {advice}")
}

/// What the user made that this belongs to. The ReplicaSets of a Deployment are shown as well, and named after it.
fn owner(object: &Value) -> Option<(&str, &str)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true).or(owners.first())?;
    let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
    let hash = object["metadata"]["labels"][HASH].as_str().filter(|_| kind == "ReplicaSet");
    let deployment = hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'));
    Some(deployment.map_or((kind, name), |deployment| ("Deployment", deployment)))
}

#[cfg(test)]
mod tests {
    use apiserver::births::Birth;
    use apiserver::identity::User;
    use openapi::catalog;
    use serde_json::json;
    use storage::memory::Memory;

    use super::*;

    const USER: Id = Id::new(1);
    const MAILBOX: Id = Id::new(2);

    async fn marks() -> Marks {
        let store = Arc::new(Memory::new());
        births::write(&*store, USER, &Birth::new(Id::ROOT, "team-a")).await.unwrap();
        births::write(&*store, MAILBOX, &Birth::new(Id::ROOT, "mailbox-east")).await.unwrap();
        Marks::new(store)
    }

    fn known(name: &str, group: &str, home: Option<Id>) -> Identity {
        let groups = vec![group.to_owned()];
        Identity::known(User { name: name.to_owned(), groups, home, ..User::default() })
    }

    fn pod(labels: Value) -> Value {
        let mut labels = labels;
        labels[HASH] = "5d".into();
        let owner = json!({ "kind": "ReplicaSet", "name": "web-5d", "controller": true });
        json!({ "metadata": { "name": "web-5d-x1", "labels": labels, "ownerReferences": [owner] } })
    }

    type Change<'a> = (Option<&'a Value>, Option<&'a Value>);

    async fn told(who: &Identity, cluster: Id, plural: &str, (before, after): Change<'_>) -> Option<String> {
        let row = catalog::find("", "v1", plural).unwrap();
        let deed = Deed { cluster, who, row, name: "x", part: None, before, after };
        marks().await.decide(deed).await.err().map(|status| status.message)
    }

    #[tokio::test]
    async fn only_our_controllers_change_what_is_shown_and_a_user_is_told_what_to_change() {
        let shown = pod(json!({ PROJECTED: "true", CLUSTER: "east" }));
        let plain = pod(json!({}));
        let admin = known("admin", "system:masters", None);
        let splitter = Identity::known(User {
            name: "system:holon:splitter".to_owned(),
            mandate: Some(crate::rights::splitter()),
            ..User::default()
        });
        let pretender = known("system:holon:splitter", "system:masters", None);
        let syncer = |home| {
            known("system:serviceaccount:kube-system:holon-syncer", "system:serviceaccounts", Some(home))
        };
        let edited = (Some(&shown), Some(&shown));
        let expected = "pods \"x\" is forbidden: it is shown here because it is on east; \
                        change the Deployment web it belongs to";
        assert_eq!(told(&admin, USER, "pods", edited).await.as_deref(), Some(expected));
        let expected = "nodes \"x\" is forbidden: it stands for the physical cluster x; change that, where it is registered: \
                        kubectl edit physicalcluster x";
        assert_eq!(told(&admin, USER, "nodes", edited).await.as_deref(), Some(expected));
        for (who, cluster, change, may) in [
            (&admin, USER, (Some(&shown), None), true),
            (&admin, USER, (None, Some(&shown)), false),
            (&admin, USER, (Some(&plain), Some(&shown)), false),
            (&admin, USER, (Some(&shown), Some(&plain)), false),
            (&pretender, USER, edited, false),
            (&splitter, USER, edited, true),
            (&splitter, USER, (None, Some(&shown)), true),
            (&syncer(MAILBOX), MAILBOX, (None, Some(&shown)), true),
            (&syncer(MAILBOX), USER, (None, Some(&shown)), false),
            // A service account of the same name, in a logical cluster that is no mailbox.
            (&syncer(USER), USER, (None, Some(&shown)), false),
        ] {
            assert_eq!(told(who, cluster, "pods", change).await.is_none(), may, "{who:?} {change:?}");
        }
        assert!(
            told(&admin, USER, "services", (Some(&shown), None)).await.is_some(),
            "it goes with its owner"
        );
    }

    /// The claims that a StatefulSet makes are its user's data. The user could neither delete nor resize one.
    #[tokio::test]
    async fn a_user_resizes_and_deletes_a_shown_claim_and_changes_nothing_else_about_it() {
        let claim = |storage: &str, change: fn(&mut Value)| {
            let mut claim = json!({
                "metadata": { "name": "x", "labels": { PROJECTED: "true", CLUSTER: "east" }, "resourceVersion": storage },
                "spec": { "storageClassName": "fast", "resources": { "requests": { "storage": storage } } },
            });
            change(&mut claim);
            claim
        };
        let admin = known("admin", "system:masters", None);
        let before = claim("1Gi", |_| {});
        for (after, may) in [
            (Some(claim("2Gi", |_| {})), true),
            (None, true),
            (Some(claim("2Gi", |claim| claim["spec"]["storageClassName"] = "slow".into())), false),
            (Some(claim("2Gi", |claim| claim["spec"]["resources"]["requests"]["cpu"] = "1".into())), false),
            (Some(claim("2Gi", |claim| claim["metadata"]["labels"]["a"] = "b".into())), false),
            (Some(claim("2Gi", |claim| claim["metadata"]["labels"][PROJECTED] = Value::Null)), false),
            (
                Some(claim("2Gi", |claim| {
                    claim["metadata"]["annotations"] = json!({ "holon.dev/shown": "" })
                })),
                false,
            ),
            (Some(claim("2Gi", |claim| claim["metadata"]["finalizers"] = json!([]))), false),
            (Some(claim("2Gi", |claim| claim["status"] = json!({ "phase": "Bound" }))), false),
        ] {
            let change = (Some(&before), after.as_ref());
            let told = told(&admin, USER, "persistentvolumeclaims", change).await;
            assert_eq!(told.is_none(), may, "{after:?} {told:?}");
        }
    }

    /// A stolen syncer could have made the splitter take something for a copy.
    #[tokio::test]
    async fn a_syncer_shows_and_does_not_place() {
        let (placed, plain) = (pod(json!({ PLACED: "true" })), pod(json!({})));
        let syncer =
            known("system:serviceaccount:kube-system:holon-syncer", "system:serviceaccounts", Some(MAILBOX));
        for (change, may) in [
            ((None, Some(&placed)), false),
            ((Some(&placed), Some(&plain)), false),
            ((Some(&placed), None), false),
            ((Some(&placed), Some(&placed)), true),
        ] {
            assert_eq!(told(&syncer, MAILBOX, "pods", change).await.is_none(), may, "{change:?}");
        }
        // A logical cluster may be somebody's physical cluster, and has what is placed on it.
        let other = known("other", "developers", None);
        assert_eq!(told(&other, USER, "pods", (None, Some(&placed))).await, None);
    }
}
