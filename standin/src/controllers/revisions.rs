//! ControllerRevisions: the past and current templates of a StatefulSet or DaemonSet.
//!
//! A label on each pod names the revision it was created from, which shows whether it is up to date. `kubectl rollout
//! undo` restores a template from a revision.

use serde_json::{Value, json};

use crate::cache::Cache;
use crate::objects::fields::{
    annotation, count, is_equivalent, label, name, name_hash, namespace, number, owner_reference,
};
use crate::objects::kind::ObjectKind;
use crate::plan::Plan;

/// The default of `revisionHistoryLimit`.
const HISTORY_LIMIT: usize = 10;

/// The revisions of one owner.
#[derive(Debug)]
pub(crate) struct Revisions<'a> {
    /// Oldest first.
    all: Vec<&'a Value>,
    /// The hash and the name of the revision of the current template.
    pub(crate) hash: String,
    pub(crate) name: String,
}

impl<'a> Revisions<'a> {
    /// Reads the revisions, and creates one for the current template. If an older revision has the same template, that
    /// becomes the newest. `hash_label` is the label that carries the hash.
    pub(crate) fn sync(
        cache: &'a Cache,
        kind: ObjectKind,
        owner: &Value,
        hash_label: &str,
        plan: &mut Plan,
    ) -> Revisions<'a> {
        let mut all = cache.controlled_by(ObjectKind::ControllerRevisions, owner);
        all.sort_by_key(|revision| count(revision, "/revision"));
        let data = data(owner);
        let newest = all.last().map_or(0, |revision| count(revision, "/revision"));
        if let Some(existing) = all.iter().find(|revision| is_equivalent(&revision["data"], &data)) {
            if count(existing, "/revision") < newest {
                let mut restored = (*existing).clone();
                restored["revision"] = (newest + 1).into();
                plan.update(ObjectKind::ControllerRevisions, existing, restored);
            }
            let (hash, name) =
                (label(existing, hash_label).unwrap_or_default().to_owned(), name(existing).to_owned());
            return Revisions { all, hash, name };
        }
        let hash = name_hash(&data);
        let revision = format!("{}-{hash}", name(owner));
        let mut labels = owner["spec"]["selector"]["matchLabels"].clone();
        labels[hash_label] = hash.as_str().into();
        plan.create_without_event(
            ObjectKind::ControllerRevisions,
            json!({
                "apiVersion": "apps/v1", "kind": "ControllerRevision",
                "metadata": {
                    "name": revision, "namespace": namespace(owner), "labels": labels,
                    "annotations": owner["metadata"]["annotations"],
                    "ownerReferences": [owner_reference(kind, owner)],
                },
                "data": data, "revision": newest + 1,
            }),
        );
        Revisions { all, hash, name: revision }
    }

    /// Returns the template of a revision; the current one if the revision does not exist.
    pub(crate) fn template(&self, owner: &Value, revision: &str) -> Value {
        let existing = self.all.iter().find(|existing| name(existing) == revision);
        match existing.map(|existing| existing["data"]["spec"]["template"].clone()) {
            Some(Value::Object(mut template)) => {
                template.remove(PATCH);
                template.into()
            }
            _ => owner["spec"]["template"].clone(),
        }
    }

    /// Deletes the oldest revisions beyond the history limit that no pod uses.
    pub(crate) fn delete_old(&self, owner: &Value, is_used: impl Fn(&Value) -> bool, plan: &mut Plan) {
        let limit =
            number(owner, "/spec/revisionHistoryLimit").map_or(HISTORY_LIMIT, |limit| limit.max(0) as usize);
        let unused: Vec<_> =
            self.all.iter().filter(|revision| name(revision) != self.name && !is_used(revision)).collect();
        let surplus = unused.len().saturating_sub(limit);
        unused
            .into_iter()
            .take(surplus)
            .for_each(|revision| plan.delete(ObjectKind::ControllerRevisions, revision));
    }
}

/// The strategic merge directive that replaces the whole template on a rollback.
const PATCH: &str = "$patch";

fn data(owner: &Value) -> Value {
    let mut template = owner["spec"]["template"].clone();
    template[PATCH] = "replace".into();
    json!({ "spec": { "template": template } })
}

/// Returns the generation of a DaemonSet's template, which is a label on its pods.
pub(crate) fn template_generation(owner: &Value) -> Option<&str> {
    annotation(owner, "deprecated.daemonset.template.generation")
}
