//! The mailbox objects of a user's object.

use std::collections::HashSet;
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::{Locator, Role, Target};
use api::meta::is_being_deleted;
use api::meta::selector::LabelSelector;
use api::names::{LOCATOR, SCALED_DOWNSTREAM, SOURCE_GENERATION, SYNCER, TEMPLATE, TRUE};
use controller::informer::Key;
use serde_json::Value;

use crate::snapshot::{Caches, MemberCluster, ObjectRef, WatchedKind};
use crate::status::Report;
use crate::transform::physical_namespace;

/// The mailbox of one physical cluster, with the object in it, if it exists.
#[derive(Clone, Debug)]
pub(crate) struct MailboxObject {
    pub(crate) member: Arc<MemberCluster>,
    pub(crate) mailbox: Id,
    /// The name of the namespace in the mailbox.
    pub(crate) namespace: String,
    /// Whether the user's logical cluster means this physical cluster by its name. A logical cluster above may have
    /// another one of the same name; objects in that mailbox are only ever deleted.
    pub(crate) is_nearest: bool,
    pub(crate) object: Option<Value>,
}

/// One entry per physical cluster. An object of the same name that belongs to another user's object is ignored.
pub(crate) fn list(caches: &Caches, watched: &WatchedKind, subject: &ObjectRef) -> Vec<MailboxObject> {
    let clusters = caches.clusters();
    let members = caches.members().all(&clusters);
    let visible: HashSet<Id> = caches
        .members()
        .visible_from(subject.cluster(), &clusters)
        .iter()
        .filter_map(|member| member.mailbox())
        .collect();
    drop(clusters);
    let find = |member: Arc<MemberCluster>| {
        let mailbox = member.mailbox()?;
        let namespace = namespace_on(&member, subject.cluster(), &subject.key.namespace);
        let key =
            Key { cluster: Some(mailbox), namespace: namespace.clone(), name: subject.key.name.clone() };
        let object = watched.get(&key).filter(|object| is_of(object, subject));
        Some(MailboxObject { member, mailbox, namespace, is_nearest: visible.contains(&mailbox), object })
    };
    members.into_iter().filter_map(find).collect()
}

/// The same, without the status of mailbox objects that belong to an earlier object of the same name.
pub(crate) fn list_current(
    caches: &Caches,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
) -> Vec<MailboxObject> {
    let mut mailbox_objects = list(caches, watched, subject);
    let is_earlier = |mailbox_object: &Value| {
        locator(mailbox_object).is_some_and(|of| object["metadata"]["uid"] != *of.uid)
    };
    for mailbox_object in
        mailbox_objects.iter_mut().filter_map(|mailbox_object| mailbox_object.object.as_mut())
    {
        if is_earlier(mailbox_object)
            && let Some(fields) = mailbox_object.as_object_mut()
        {
            fields.remove("status");
        }
    }
    mailbox_objects
}

/// The name that a namespace of a logical cluster has on a physical cluster.
pub(crate) fn namespace_on(member: &MemberCluster, cluster: Id, namespace: &str) -> String {
    match member.object.spec.dedicated_to {
        Some(_) => namespace.to_owned(),
        None => physical_namespace(&cluster.to_string(), namespace),
    }
}

/// The user's object of a mailbox object.
pub(crate) fn locator(object: &Value) -> Option<Locator> {
    serde_json::from_str(object["metadata"]["annotations"][LOCATOR].as_str()?).ok()
}

fn is_of(object: &Value, subject: &ObjectRef) -> bool {
    locator(object).is_some_and(|of| {
        of.logical_cluster == subject.cluster().to_string()
            && of.name == subject.key.name
            && of.namespace.as_deref().unwrap_or_default() == subject.key.namespace
    })
}

/// The pods that a mailbox object selects, as projected into its mailbox.
pub(crate) fn pods_of(caches: &Caches, mailbox_object: &MailboxObject) -> Vec<Value> {
    let (Some(pods), Some(object)) = (caches.by_group_kind("", "Pod"), &mailbox_object.object) else {
        return Vec::new();
    };
    let Some(selector) = LabelSelector::from_value(&object["spec"]["selector"]) else {
        return Vec::new();
    };
    let is_own = |pod: &Value| selector.matches(|key| pod["metadata"]["labels"][key].as_str());
    let keys = pods.view.keys_within(mailbox_object.mailbox, Some(&mailbox_object.namespace));
    keys.iter().filter_map(|key| pods.get(key)).filter(is_own).collect()
}

impl MailboxObject {
    pub(crate) fn name(&self) -> &str {
        self.member.name()
    }

    /// Whether this is the mailbox object of the target.
    pub(crate) fn is_at(&self, cluster: &str) -> bool {
        self.is_nearest && self.name() == cluster
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.object.as_ref()?["metadata"]["annotations"][name].as_str()
    }

    /// The hash of its pod template.
    pub(crate) fn template(&self) -> Option<&str> {
        self.annotation(TEMPLATE)
    }

    /// Whether an autoscaler on the physical cluster sets its replicas.
    pub(crate) fn is_scaled_downstream(&self) -> bool {
        self.annotation(SCALED_DOWNSTREAM) == Some(TRUE)
    }

    /// Whether the syncer has started to apply it.
    pub(crate) fn is_applied(&self) -> bool {
        let finalizers = self.object.as_ref().and_then(|object| object["metadata"]["finalizers"].as_array());
        finalizers.is_some_and(|all| all.iter().any(|one| one == SYNCER))
    }

    pub(crate) fn is_being_deleted(&self) -> bool {
        self.object.as_ref().is_some_and(is_being_deleted)
    }

    /// A number in its spec. None if the object does not exist.
    pub(crate) fn number(&self, pointer: &str) -> Option<u32> {
        self.object.as_ref().map(|object| crate::division::number(object, pointer, 1))
    }

    /// A number in its status.
    pub(crate) fn reported(&self, field: &str) -> Option<u32> {
        let status = self.object.as_ref()?.get("status")?;
        Some(crate::division::number(status, &format!("/{field}"), 0))
    }

    /// The replicas by its last report; before that, the requested ones.
    pub(crate) fn current_replicas(&self, replicas_at: &str) -> Option<u32> {
        let requested = self.number(replicas_at)?;
        Some(self.reported("replicas").filter(|reported| *reported > 0).unwrap_or(requested))
    }

    /// The available replicas.
    pub(crate) fn available(&self) -> u32 {
        self.object.as_ref().map_or(0, crate::status::kinds::available)
    }

    pub(crate) fn has_observed(&self) -> bool {
        let Some(object) = &self.object else { return false };
        let observed = object["status"]["observedGeneration"].as_i64();
        observed.is_some_and(|observed| Some(observed) >= object["metadata"]["generation"].as_i64())
    }

    /// The status report of a target.
    pub(crate) fn report<'a>(&'a self, target: &Target) -> Report<'a> {
        let object = self.object.as_ref();
        Report {
            cluster: self.name(),
            role: target.role,
            status: object.and_then(|object| object.get("status")).filter(|status| !is_empty(status)),
            generation: object.and_then(|object| object["metadata"]["generation"].as_i64()).unwrap_or(1),
            source_generation: self
                .annotation(SOURCE_GENERATION)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            current: true,
            stale: !self.member.is_ready(),
            share: target.share.and_then(|share| u32::try_from(share).ok()),
            index_start: 0,
            labels: &self.member.object.metadata.labels,
        }
    }
}

/// Whether no controller has written the status yet.
fn is_empty(status: &Value) -> bool {
    status.is_null() || status.as_object().is_some_and(serde_json::Map::is_empty)
}

/// The mailbox objects at the targets of a record, in the record's order.
pub(crate) fn at_targets<'a>(
    mailbox_objects: &'a [MailboxObject],
    targets: &'a [Target],
) -> Vec<(&'a Target, &'a MailboxObject)> {
    let at_target = |target: &'a Target| {
        let mailbox_object =
            mailbox_objects.iter().find(|mailbox_object| mailbox_object.is_at(&target.cluster))?;
        Some((target, mailbox_object))
    };
    targets.iter().filter_map(at_target).collect()
}

pub(crate) fn is_staying(target: &Target) -> bool {
    target.role != Role::Leaving
}
