//! What the template of a StatefulSet or DaemonSet was: a ControllerRevision for each.
//!
//! Pods carry the hash of the revision they were made of, so that it is known which are of now; `kubectl rollout undo`
//! puts a template back from here.

use serde_json::{Value, json};

use crate::kind::Kind;
use crate::object::{annotation, count, hash, label, name, namespace, reference, same};
use crate::plan::Plan;
use crate::world::World;

/// If nobody says how many to keep.
const HISTORY: usize = 10;

/// The revisions of one owner.
#[derive(Debug)]
pub(crate) struct Revisions<'a> {
    /// Oldest first.
    all: Vec<&'a Value>,
    /// What pods of the template of now are marked with, and the name of its revision.
    pub(crate) hash: String,
    pub(crate) name: String,
}

impl<'a> Revisions<'a> {
    /// Looks at the revisions there are, and plans one for the template of now if there is none, or makes it the newest
    /// if there is an older one. `mark` is the label that carries the hash.
    pub(crate) fn of(
        world: &'a World,
        kind: Kind,
        owner: &Value,
        mark: &str,
        plan: &mut Plan,
    ) -> Revisions<'a> {
        let mut all = world.owned(Kind::Revisions, owner);
        all.sort_by_key(|revision| count(revision, "/revision"));
        let data = data(owner);
        let newest = all.last().map_or(0, |revision| count(revision, "/revision"));
        if let Some(found) = all.iter().find(|revision| same(&revision["data"], &data)) {
            if count(found, "/revision") < newest {
                let mut renewed = (*found).clone();
                renewed["revision"] = (newest + 1).into();
                plan.update(Kind::Revisions, found, renewed);
            }
            let (hash, name) = (label(found, mark).unwrap_or_default().to_owned(), name(found).to_owned());
            return Revisions { all, hash, name };
        }
        let hash = hash(&data);
        let revision = format!("{}-{hash}", name(owner));
        let mut labels = owner["spec"]["selector"]["matchLabels"].clone();
        labels[mark] = hash.as_str().into();
        plan.create_silently(
            Kind::Revisions,
            json!({
                "apiVersion": "apps/v1", "kind": "ControllerRevision",
                "metadata": {
                    "name": revision, "namespace": namespace(owner), "labels": labels,
                    "annotations": owner["metadata"]["annotations"],
                    "ownerReferences": [reference(kind, owner)],
                },
                "data": data, "revision": newest + 1,
            }),
        );
        Revisions { all, hash, name: revision }
    }

    /// The template a revision stands for; that of now if it is not known.
    pub(crate) fn template(&self, owner: &Value, revision: &str) -> Value {
        let found = self.all.iter().find(|known| name(known) == revision);
        match found.map(|found| found["data"]["spec"]["template"].clone()) {
            Some(Value::Object(mut template)) => {
                template.remove(PATCH);
                template.into()
            }
            _ => owner["spec"]["template"].clone(),
        }
    }

    /// Removes the oldest that no pod is made of.
    pub(crate) fn forget_old(&self, owner: &Value, is_used: impl Fn(&Value) -> bool, plan: &mut Plan) {
        let kept = crate::object::number(owner, "/spec/revisionHistoryLimit")
            .map_or(HISTORY, |kept| kept.max(0) as usize);
        let unused: Vec<_> =
            self.all.iter().filter(|revision| name(revision) != self.name && !is_used(revision)).collect();
        let surplus = unused.len().saturating_sub(kept);
        unused.into_iter().take(surplus).for_each(|revision| plan.delete(Kind::Revisions, revision));
    }
}

/// Says that the template is replaced as a whole when it is put back.
const PATCH: &str = "$patch";

fn data(owner: &Value) -> Value {
    let mut template = owner["spec"]["template"].clone();
    template[PATCH] = "replace".into();
    json!({ "spec": { "template": template } })
}

/// The generation of a DaemonSet's template, which its pods are marked with.
pub(crate) fn template_generation(owner: &Value) -> Option<&str> {
    annotation(owner, "deprecated.daemonset.template.generation")
}
