//! Writes mailbox objects and their namespaces.

use std::collections::BTreeMap;

use api::cluster::Id;
use api::fleet::PodSecurity;
use api::meta::metadata;
use api::names::{LOCATOR, PLACED, TRUE, VIA};
use controller::informer::Key;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::{Value, json};

use crate::context::Splitter;
use crate::execute::definitions;
use crate::placement::context::table;
use crate::placement::pod_security;
use crate::plan::MailboxWrite;
use crate::policy::Labels;
use crate::snapshot::mailbox_objects::MailboxObject;
use crate::snapshot::{MemberCluster, ObjectRef, WatchedKind};
use crate::transform::server_fields::is_not_propagated;

/// The label by which Pod Security admission of a physical cluster checks the pods of a namespace.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const BASELINE: &str = "baseline";

/// Executes the planned write of a mailbox object. Returns whether it wrote anything.
pub(crate) async fn execute_write(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    mailbox_object: &MailboxObject,
    write: &MailboxWrite,
) -> Result<bool, CallError> {
    let mailbox = splitter.caches.server.within(mailbox_object.mailbox);
    let written = match write {
        MailboxWrite::Unchanged | MailboxWrite::Denied(_) => return Ok(false),
        MailboxWrite::DeletePrevious => {
            return delete(splitter, watched, subject, mailbox_object, "the object was replaced").await;
        }
        MailboxWrite::Create(object) => {
            definitions::ensure_definition(splitter, watched, subject, mailbox_object.mailbox).await?;
            create_namespace(splitter, subject, mailbox_object).await?;
            mailbox.create(&watched.kind, &mailbox_object.namespace, object).await?
        }
        MailboxWrite::Replace(object) => {
            let place = ObjectPath::new(&watched.kind, &mailbox_object.namespace, &subject.key.name);
            mailbox.replace(place, object).await?
        }
    };
    splitter.own_writes.add(subject, &written);
    Ok(true)
}

/// Deletes a mailbox object, and with it the object on the physical cluster. Returns whether a request was made.
pub(crate) async fn delete(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    mailbox_object: &MailboxObject,
    reason: &str,
) -> Result<bool, CallError> {
    let Some(object) = mailbox_object.object.as_ref().filter(|_| !mailbox_object.is_being_deleted()) else {
        return Ok(false);
    };
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let place = ObjectPath::new(&watched.kind, &mailbox_object.namespace, &subject.key.name);
    let is_deleted = splitter.caches.server.within(mailbox_object.mailbox).delete(place, uid).await?;
    splitter.own_writes.add_deletion(subject);
    if is_deleted {
        tracing::info!(
            revision = metadata::text(object, "resourceVersion"),
            from = mailbox_object.name(),
            reason,
            "deleted from the mailbox"
        );
    }
    Ok(is_deleted)
}

/// Creates the namespace of a mailbox object in its mailbox.
async fn create_namespace(
    splitter: &Splitter,
    subject: &ObjectRef,
    mailbox_object: &MailboxObject,
) -> Result<(), CallError> {
    let caches = &splitter.caches;
    let mailbox_key = Key {
        cluster: Some(mailbox_object.mailbox),
        namespace: String::new(),
        name: mailbox_object.namespace.clone(),
    };
    if caches.config.namespaces.get(&mailbox_key).is_some() {
        return Ok(());
    }
    let user_key = Key { name: subject.key.namespace.clone(), ..mailbox_key.clone() };
    let user_key = Key { cluster: subject.key.cluster, ..user_key };
    let Some(own) = caches.config.namespaces.get(&user_key) else { return Ok(()) };
    let locator =
        json!({ "logicalCluster": subject.cluster().to_string(), "name": user_key.name, "uid": own.uid });
    let own = own.read(&caches.config.namespaces.kind);
    let via = via(&own, mailbox_object.mailbox);
    let mut labels = propagated_labels(&own);
    labels.insert(PLACED.to_owned(), TRUE.to_owned());
    // Custom kinds may have pod specs anywhere, so Pod Security admission of the physical cluster checks their pods.
    if pod_security::level(&mailbox_object.member.object.spec) == PodSecurity::Baseline {
        labels.insert(ENFORCE.to_owned(), BASELINE.to_owned());
    }
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": mailbox_object.namespace, "labels": labels, "annotations": { LOCATOR: locator.to_string(), VIA: via } },
    });
    match caches
        .server
        .within(mailbox_object.mailbox)
        .create(&caches.config.namespaces.kind, "", &namespace)
        .await
    {
        Err(error) if error.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}

/// The mailboxes that a namespace came through, this one included.
fn via(own: &Value, mailbox: Id) -> String {
    match own["metadata"]["annotations"][VIA].as_str() {
        Some(via) => format!("{via},{mailbox}"),
        None => mailbox.to_string(),
    }
}

/// The labels of a namespace that are propagated to mailboxes.
fn propagated_labels(namespace: &Value) -> Labels {
    let mut labels = table(&namespace["metadata"]["labels"]);
    labels.retain(|name, _| name != PLACED && !is_not_propagated(name));
    labels
}

/// Propagates changed labels of a user's namespace to its mailbox namespace: NetworkPolicies and admission on the
/// physical cluster use them. When an admin allows privileged pods on a cluster, existing namespaces allow them too.
/// When an admin allows fewer, existing namespaces are unchanged.
pub(crate) async fn update_namespace_labels(
    splitter: &Splitter,
    member: &MemberCluster,
    mailbox: Id,
    own: &Value,
    mailbox_namespace: &Value,
) -> Result<(), CallError> {
    let (desired, present) = (propagated_labels(own), propagated_labels(mailbox_namespace));
    let mut change: BTreeMap<&str, Option<&String>> =
        present.keys().map(|name| (name.as_str(), None)).collect();
    change.extend(desired.iter().map(|(name, value)| (name.as_str(), Some(value))));
    change.retain(|name, value| *value != present.get(*name));
    let is_enforced = mailbox_namespace["metadata"]["labels"][ENFORCE] == BASELINE;
    if is_enforced && pod_security::level(&member.object.spec) == PodSecurity::Privileged {
        change.insert(ENFORCE, None);
    }
    let lacks_via = mailbox_namespace["metadata"]["annotations"][VIA].is_null();
    if change.is_empty() && !lacks_via {
        return Ok(());
    }
    let kind = &splitter.caches.config.namespaces.kind;
    let name = mailbox_namespace["metadata"]["name"].as_str().unwrap_or_default();
    let mut change = json!({ "metadata": { "uid": mailbox_namespace["metadata"]["uid"], "labels": change } });
    if lacks_via {
        change["metadata"]["annotations"] = json!({ VIA: via(own, mailbox) });
    }
    splitter
        .caches
        .server
        .within(mailbox)
        .patch(ObjectPath::new(kind, "", name), Patch::Merge, &change)
        .await
        .map(drop)
}
