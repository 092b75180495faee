//! The ReplicaSets of a Deployment, one for each template it has had.
//!
//! `kubectl rollout history` and `undo` read revisions and templates from ReplicaSets, so these have the user's own
//! template, not one that was transformed for a cluster; and a ReplicaSet that no target has any more is kept, as far
//! back as `revisionHistoryLimit` says, because a move must not lose the history.
//!
//! A rollback also restores annotations from the ReplicaSet. So a ReplicaSet has the annotations its Deployment had
//! while it was the present one, and always the present annotations of Holon: a rollback does not move a workload.

use std::collections::BTreeMap;

use api::meta::pointer;
use api::names::{GROUP, LOGICAL_CLUSTER, PROJECTED, TEMPLATE, TRUE};
use serde_json::{Map, Value, json};

use crate::transform::template_hash;

const HASH: &str = "pod-template-hash";
/// Annotation of a Deployment and its sets.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotations that are about a Deployment and none of its sets, by how they begin.
const NOT_COPIED: &[&str] =
    &["deployment.kubernetes.io/", "kubectl.kubernetes.io/last-applied-configuration"];
const COUNTS: [&str; 5] =
    ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"];
/// The default of Kubernetes.
const HISTORY_DEFAULT: u32 = 10;

/// The ReplicaSets that the user's logical cluster should have.
#[derive(Clone, PartialEq, Debug)]
pub struct MergedReplicaSets {
    /// In the order of their revisions.
    pub sets: Vec<Value>,
    /// The revision of the present template, for the annotation of the Deployment. None until a target has it.
    pub revision: Option<u64>,
}

/// The ReplicaSets of one template.
#[derive(Default)]
struct TemplateGroup<'a> {
    downstream: Vec<&'a Value>,
    projected: Option<&'a Value>,
}

/// Merges the ReplicaSets of a Deployment from the mailboxes with those that are projected already.
pub fn merge_replica_sets(
    deployment: &Value,
    downstream: &[&Value],
    projected: &[&Value],
) -> MergedReplicaSets {
    let present = template_hash(deployment);
    let mut groups: BTreeMap<String, TemplateGroup> = BTreeMap::new();
    for set in downstream {
        groups.entry(key(set)).or_default().downstream.push(set);
    }
    for set in projected {
        groups.entry(key(set)).or_default().projected = Some(set);
    }
    let revisions = revisions(&groups, &present);
    let mut sets: Vec<(u64, bool, Value)> = groups
        .iter()
        .map(|(key, group)| {
            let revision = revisions[key];
            let is_alive = !group.downstream.is_empty() || *key == present;
            (revision, is_alive, group.set(deployment, key, &present, revision))
        })
        .collect();
    sets.sort_by_key(|(revision, _, _)| *revision);
    let keep =
        crate::transform::target_patch::number(deployment, "/spec/revisionHistoryLimit", HISTORY_DEFAULT)
            as usize;
    let gone = sets.iter().filter(|(_, is_alive, _)| !is_alive).count();
    let mut too_many = gone.saturating_sub(keep);
    sets.retain(|(_, is_alive, _)| {
        let drops = !is_alive && too_many > 0;
        too_many -= usize::from(drops);
        !drops
    });
    let revision = revisions.get(&present).copied();
    MergedReplicaSets { sets: sets.into_iter().map(|(_, _, set)| set).collect(), revision }
}

/// The template hash of a ReplicaSet. One without our label is identified by its pod-template-hash.
pub fn key(set: &Value) -> String {
    let in_pods = set.pointer("/spec/template/metadata/annotations").and_then(|all| all.get(TEMPLATE));
    let own = set["metadata"]["labels"].get(TEMPLATE);
    let hash = set["metadata"]["labels"].get(HASH);
    [own, in_pods, hash].into_iter().flatten().find_map(Value::as_str).unwrap_or_default().to_owned()
}

fn revision(set: &Value) -> u64 {
    set["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Projected ReplicaSets keep their revision; new ones follow, oldest first; the present one is always the highest, as
/// after a rollback.
fn revisions(groups: &BTreeMap<String, TemplateGroup>, present: &str) -> BTreeMap<String, u64> {
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    numbers.extend(groups.iter().filter_map(|(key, group)| Some((key.clone(), revision(group.projected?)))));
    let mut new: Vec<(&String, &TemplateGroup)> =
        groups.iter().filter(|(_, group)| group.projected.is_none()).collect();
    new.sort_by_key(|(key, group)| {
        (*key == present, group.downstream.iter().map(|set| revision(set)).max(), (*key).clone())
    });
    for (key, _) in new {
        let highest = numbers.values().max().copied().unwrap_or_default();
        numbers.insert(key.clone(), highest + 1);
    }
    let highest_other = numbers.iter().filter(|(key, _)| *key != present).map(|(_, number)| *number).max();
    if let (Some(number), Some(highest)) = (numbers.get_mut(present), highest_other)
        && *number <= highest
    {
        *number = highest + 1;
    }
    numbers
}

impl TemplateGroup<'_> {
    fn set(&self, deployment: &Value, key: &str, present: &str, revision: u64) -> Value {
        let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
        let hash = self.hash(key);
        let projected = self.projected.map(|projected| projected["metadata"]["name"].clone());
        let mut template = self.template(deployment, key == present);
        // Pods refer to their ReplicaSet by this label.
        let _ =
            api::meta::pointer::set(&mut template, &format!("/metadata/labels/{HASH}"), hash.as_str().into());
        let mut selector = deployment["spec"]["selector"].clone();
        let _ = api::meta::pointer::set(&mut selector, &format!("/matchLabels/{HASH}"), hash.as_str().into());
        let mut labels = template["metadata"]["labels"].clone();
        labels[PROJECTED] = TRUE.into();
        labels[TEMPLATE] = key.into();
        let mut annotations = self.annotations(deployment, key == present);
        annotations.insert(REVISION.to_owned(), revision.to_string().into());
        let sum = |pointer: &str| -> i64 {
            self.downstream.iter().filter_map(|set| set.pointer(pointer)?.as_i64()).sum()
        };
        let replicas = sum("/spec/replicas");
        let mut status = json!({});
        for field in COUNTS {
            let pointer = format!("/status/{field}");
            if field == "replicas" || self.downstream.iter().any(|set| set.pointer(&pointer).is_some()) {
                status[field] = sum(&pointer).into();
            }
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": projected.unwrap_or_else(|| format!("{name}-{hash}").into()),
                "namespace": deployment["metadata"]["namespace"],
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "controller": true,
                    "uid": deployment["metadata"]["uid"],
                }],
            },
            "spec": { "replicas": replicas, "selector": selector, "template": template },
            "status": status,
        })
    }

    /// The annotations that a rollback to this template restores.
    fn annotations(&self, deployment: &Value, is_present: bool) -> Map<String, Value> {
        let of = |object: &Value, take: &dyn Fn(&str) -> bool| {
            let all = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            let copied = |name: &str| {
                name != LOGICAL_CLUSTER && !NOT_COPIED.iter().any(|prefix| name.starts_with(prefix))
            };
            all.into_iter().filter(|(name, _)| copied(name) && take(name)).collect::<Map<_, _>>()
        };
        let is_ours = |name: &str| name.split_once('/').is_some_and(|(group, _)| group == GROUP);
        let mut annotations = of(deployment, &is_ours);
        let previous = if is_present { Some(deployment) } else { self.projected };
        annotations.extend(previous.map(|previous| of(previous, &|name| !is_ours(name))).unwrap_or_default());
        annotations
    }

    /// The pod-template-hash, if it is the same on all targets. A projected ReplicaSet keeps its name.
    fn hash(&self, key: &str) -> String {
        let of = |set: &Value| set["metadata"]["labels"][HASH].as_str().map(str::to_owned);
        if let Some(hash) = self.projected.and_then(of) {
            return hash;
        }
        let mut hashes: Vec<String> = self.downstream.iter().filter_map(|set| of(set)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        match hashes.as_slice() {
            [same] => same.clone(),
            _ => key.to_owned(),
        }
    }

    /// The template as the user wrote it. Of a template that was never projected, only the transformed one is left.
    fn template(&self, deployment: &Value, is_present: bool) -> Value {
        if is_present {
            return deployment["spec"]["template"].clone();
        }
        let found = self.projected.or(self.downstream.first().copied());
        let mut template = found.map(|set| set["spec"]["template"].clone()).unwrap_or_default();
        api::meta::pointer::remove(
            &mut template,
            &format!("/metadata/annotations/{}", pointer::escape(TEMPLATE)),
        );
        template
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": "shop", "uid": "d-1" },
            "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": image }] } },
            },
        })
    }

    /// A ReplicaSet in a mailbox, made from this Deployment.
    fn downstream_set(of: &Value, hash: &str, revision: u32, replicas: i64, available: i64) -> Value {
        let mut template = of["spec"]["template"].clone();
        template["metadata"]["annotations"] = json!({ TEMPLATE: template_hash(of) });
        template["spec"]["containers"][0]["env"] =
            json!([{ "name": "KUBERNETES_SERVICE_HOST", "value": "holon" }]);
        json!({
            "metadata": { "name": format!("web-{hash}"), "labels": { HASH: hash }, "annotations": { REVISION: revision.to_string() } },
            "spec": { "replicas": replicas, "template": template },
            "status": { "replicas": replicas, "availableReplicas": available },
        })
    }

    fn rows(sets: &MergedReplicaSets) -> Vec<(String, String, i64, i64)> {
        let row = |set: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (
                text(&set["metadata"]["name"]),
                text(&set["metadata"]["annotations"][REVISION]),
                set["spec"]["replicas"].as_i64().unwrap_or(-1),
                set["status"]["availableReplicas"].as_i64().unwrap_or(-1),
            )
        };
        sets.sets.iter().map(row).collect()
    }

    fn row(name: &str, revision: &str, replicas: i64, available: i64) -> (String, String, i64, i64) {
        (name.to_owned(), revision.to_owned(), replicas, available)
    }

    #[test]
    fn one_set_per_template_with_counts_added_up() {
        let (v1, v2) = (deployment("app:1"), deployment("app:2"));
        let sets = merge_replica_sets(
            &v1,
            &[&downstream_set(&v1, "h1", 1, 3, 3), &downstream_set(&v1, "h1", 4, 2, 1)],
            &[],
        );
        assert_eq!(rows(&sets), [row("web-h1", "1", 5, 4)]);
        assert_eq!(sets.revision, Some(1));
        let set = &sets.sets[0];
        assert_eq!(set["spec"]["selector"], json!({ "matchLabels": { "app": "web", HASH: "h1" } }));
        assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], "d-1");
        // A template as the user wrote it, to go back to.
        let mut expected = v1["spec"]["template"].clone();
        expected["metadata"]["labels"][HASH] = "h1".into();
        assert_eq!(set["spec"]["template"], expected);

        // In the middle of an update: east has the new one, west waits.
        let in_mailboxes = [
            downstream_set(&v1, "h1", 1, 0, 0),
            downstream_set(&v2, "h2", 2, 3, 2),
            downstream_set(&v1, "h1", 4, 2, 2),
        ];
        let updating = merge_replica_sets(&v2, &in_mailboxes.iter().collect::<Vec<_>>(), &[set]);
        assert_eq!(rows(&updating), [row("web-h1", "1", 2, 2), row("web-h2", "2", 3, 2)]);
        assert_eq!(updating.sets[0]["spec"]["template"], expected, "still the user's own");

        // Back to the first: it becomes the newest, as with kubectl rollout undo.
        let back = merge_replica_sets(
            &v1,
            &in_mailboxes.iter().collect::<Vec<_>>(),
            &updating.sets.iter().collect::<Vec<_>>(),
        );
        assert_eq!(rows(&back), [row("web-h2", "2", 3, 2), row("web-h1", "3", 2, 2)]);
        assert_eq!(back.revision, Some(3));
        let repeated = merge_replica_sets(
            &v1,
            &in_mailboxes.iter().collect::<Vec<_>>(),
            &back.sets.iter().collect::<Vec<_>>(),
        );
        assert_eq!(repeated, back, "twice changes nothing");
    }

    #[test]
    fn overrides_do_not_split_a_replica_set() {
        let v1 = deployment("app:1");
        let sets = merge_replica_sets(
            &v1,
            &[&downstream_set(&v1, "h1", 1, 3, 3), &downstream_set(&v1, "other", 1, 2, 2)],
            &[],
        );
        assert_eq!(rows(&sets), [row(&format!("web-{}", template_hash(&v1)), "1", 5, 5)]);
    }

    #[test]
    fn a_rollback_restores_annotations_but_not_the_placement() {
        let (mut v1, mut v2) = (deployment("app:1"), deployment("app:2"));
        v1["metadata"]["annotations"] =
            json!({ "why": "first", REVISION: "1", LOGICAL_CLUSTER: "~x", "holon.dev/placement": "east" });
        v2["metadata"]["annotations"] = json!({ "why": "second", "holon.dev/placement": "west" });
        let first = merge_replica_sets(&v1, &[&downstream_set(&v1, "h1", 1, 1, 1)], &[]);
        let expected = json!({ "why": "first", "holon.dev/placement": "east", REVISION: "1" });
        assert_eq!(first.sets[0]["metadata"]["annotations"], expected);
        let both = [downstream_set(&v1, "h1", 1, 0, 0), downstream_set(&v2, "h2", 2, 1, 1)];
        let second =
            merge_replica_sets(&v2, &both.iter().collect::<Vec<_>>(), &first.sets.iter().collect::<Vec<_>>());
        let found: Vec<&Value> = second.sets.iter().map(|set| &set["metadata"]["annotations"]).collect();
        assert_eq!(
            found,
            [
                &json!({ "why": "first", "holon.dev/placement": "west", REVISION: "1" }),
                &json!({ "why": "second", "holon.dev/placement": "west", REVISION: "2" }),
            ]
        );
    }

    #[test]
    fn revision_history_outlives_a_move_up_to_its_limit() {
        let mut now = deployment("app:9");
        now["spec"]["revisionHistoryLimit"] = json!(2);
        let old: Vec<Value> = (1..5)
            .map(|version| {
                let previous = deployment(&format!("app:{version}"));
                merge_replica_sets(
                    &previous,
                    &[&downstream_set(&previous, &format!("h{version}"), 1, 1, 1)],
                    &[],
                )
                .sets
                .remove(0)
            })
            .zip(1..)
            .map(|(mut set, revision): (Value, u32)| {
                set["metadata"]["annotations"][REVISION] = revision.to_string().into();
                set
            })
            .collect();
        let sets = merge_replica_sets(
            &now,
            &[&downstream_set(&now, "h9", 1, 1, 1)],
            &old.iter().collect::<Vec<_>>(),
        );
        assert_eq!(
            rows(&sets).iter().map(|row| row.0.as_str()).collect::<Vec<_>>(),
            ["web-h3", "web-h4", "web-h9"]
        );
        assert_eq!(sets.revision, Some(5));
        assert_eq!(rows(&sets)[0].2, 0, "the template has no replicas downstream");
    }
}
