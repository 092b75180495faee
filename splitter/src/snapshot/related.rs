//! Objects that belong to a workload: its claims and its autoscaler.

use std::collections::{BTreeMap, BTreeSet};

use controller::informer::Key;
use serde_json::Value;

use crate::snapshot::{Caches, ObjectRef, mailbox_objects};
use crate::transform;
use crate::transform::references;
use crate::transform::target_patch::number;

/// The claims an object mounts, each with the physical clusters it was sent to.
pub(crate) fn claims(
    caches: &Caches,
    subject: &ObjectRef,
    object: &Value,
) -> BTreeMap<String, BTreeSet<String>> {
    let Some(claims) = caches.by_group_kind("", references::CLAIM) else { return BTreeMap::new() };
    let locations = |name: &String| {
        let key = Key { name: name.clone(), ..subject.key.clone() };
        let mailbox_objects =
            mailbox_objects::list(caches, &claims, &ObjectRef { kind: claims.name.clone(), key });
        let present = mailbox_objects
            .iter()
            .filter(|mailbox_object| mailbox_object.is_nearest && mailbox_object.object.is_some());
        present.map(|mailbox_object| mailbox_object.name().to_owned()).collect()
    };
    references::claims(object).into_iter().map(|name| (name.clone(), locations(&name))).collect()
}

/// `maxReplicas` of the autoscaler of an object. None if it has none.
pub(crate) fn scaled_to(caches: &Caches, subject: &ObjectRef, object: &Value) -> Option<u32> {
    let autoscalers = caches.by_group_kind("autoscaling", "HorizontalPodAutoscaler")?;
    let (group, kind) = transform::group_kind(object);
    let keys = autoscalers.view.keys_within(subject.cluster(), Some(&subject.key.namespace));
    keys.iter()
        .filter_map(|key| autoscalers.get(key))
        .find(|autoscaler| scales(autoscaler, group, kind, &subject.key.name))
        .map(|autoscaler| number(&autoscaler, "/spec/maxReplicas", 1))
}

/// Whether an object is the scale target of an autoscaler.
pub(crate) fn scales(autoscaler: &Value, group: &str, kind: &str, name: &str) -> bool {
    let of = &autoscaler["spec"]["scaleTargetRef"];
    let version = of["apiVersion"].as_str().unwrap_or_default();
    let its_group = version.rsplit_once('/').map_or("", |(group, _)| group);
    of["kind"] == *kind && its_group == group && of["name"] == *name
}
