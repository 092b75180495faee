//! Custom kinds: which logical clusters define them, and in which version they are followed.
//!
//! Every logical cluster has definitions of its own, and those with the same name may differ. A kind is followed once
//! for all of them, in the version that most of them serve; objects of a logical cluster that does not serve this
//! version are not observed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::cluster::Id;
use controller::kind::ResourceKind;
use serde_json::Value;

/// The properties of a custom kind that the splitter needs to follow and write it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CustomKind {
    pub(crate) kind: ResourceKind,
    /// The pointer to its replicas, if it has a scale subresource.
    pub(crate) replicas_at: Option<String>,
    /// Whether it has a status subresource.
    pub(crate) has_status: bool,
}

/// The kind of a definition in every served version, the storage version first.
fn shapes(definition: &Value) -> Vec<CustomKind> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let shape = |version: &Value| {
        let kind = ResourceKind {
            group: text(&spec["group"])?,
            version: text(&version["name"])?,
            plural: text(&spec["names"]["plural"])?,
            name: text(&spec["names"]["kind"])?,
            namespaced: true,
        };
        let path = version.pointer("/subresources/scale/specReplicasPath").and_then(Value::as_str);
        let replicas_at = path.and_then(crate::division::pointer_of);
        Some(CustomKind { kind, replicas_at, has_status: version.pointer("/subresources/status").is_some() })
    };
    // Cluster-scoped kinds are not propagated.
    let versions = spec["versions"].as_array().filter(|_| spec["scope"] == "Namespaced");
    let mut served: Vec<&Value> =
        versions.into_iter().flatten().filter(|version| version["served"] == true).collect();
    served.sort_by_key(|version| version["storage"] != true);
    served.into_iter().filter_map(shape).collect()
}

/// How a change of a definition changes the watch of its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KindChange {
    /// The kind is watched in this version from now on.
    Watch(CustomKind),
    /// Nothing changes.
    Unchanged,
    /// No logical cluster defines it any more.
    Removed,
}

/// All definitions of users, by resource name.
#[derive(Debug, Default)]
pub(crate) struct CustomKinds {
    by_name: HashMap<String, BTreeMap<Id, Vec<CustomKind>>>,
}

impl CustomKinds {
    /// `now` is how the kind is watched at the moment, if it is.
    pub(crate) fn put(
        &mut self,
        name: &str,
        cluster: Id,
        definition: &Value,
        now: Option<&CustomKind>,
    ) -> KindChange {
        let shapes = shapes(definition);
        if shapes.is_empty() {
            return self.remove(name, cluster, now);
        }
        let of = self.by_name.entry(name.to_owned()).or_default();
        let is_first = of.is_empty();
        of.insert(cluster, shapes);
        match chosen(of, now) {
            // Its watch may have ended with the last definition.
            Some(shape) if is_first || Some(&shape) != now => KindChange::Watch(shape),
            _ => KindChange::Unchanged,
        }
    }

    pub(crate) fn remove(&mut self, name: &str, cluster: Id, now: Option<&CustomKind>) -> KindChange {
        let Some(of) = self.by_name.get_mut(name) else { return KindChange::Unchanged };
        of.remove(&cluster);
        match chosen(of, now) {
            Some(shape) if Some(&shape) != now => KindChange::Watch(shape),
            Some(_) => KindChange::Unchanged,
            None => {
                self.by_name.remove(name);
                KindChange::Removed
            }
        }
    }
}

/// The version that most logical clusters serve; of several, the present one, then a storage version.
fn chosen(of: &BTreeMap<Id, Vec<CustomKind>>, now: Option<&CustomKind>) -> Option<CustomKind> {
    let served: BTreeSet<&str> = of.values().flatten().map(|shape| shape.kind.version.as_str()).collect();
    let shaped = |version: &'_ str| {
        let candidates = of.values().flatten().filter(move |shape| shape.kind.version == version);
        candidates.cloned().collect::<Vec<CustomKind>>()
    };
    let best = served.into_iter().min_by_key(|version| {
        let stores =
            of.values().filter(|shapes| shapes.first().is_some_and(|it| it.kind.version == *version));
        let is_present = now.is_some_and(|now| now.kind.version == *version);
        (Reverse(shaped(version).len()), !is_present, Reverse(stores.count()), version.to_string())
    })?;
    let mut candidates = shaped(best).into_iter();
    let first = candidates.next()?;
    // One definition with a scale or status subresource is enough: the others do not contradict it.
    Some(candidates.fold(first, |all, one| CustomKind {
        replicas_at: all.replicas_at.or(one.replicas_at),
        has_status: all.has_status || one.has_status,
        ..all
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn id(number: u8) -> Id {
        let letter = char::from(b"bcdfghjk"[usize::from(number)]);
        format!("~{}", letter.to_string().repeat(16)).parse().unwrap()
    }

    /// `v1` served, `v1!` stored as well, `-v1` not served any more.
    fn definition(versions: &str) -> Value {
        let version = |word: &str| {
            let name = word.trim_matches(['-', '!']);
            json!({ "name": name, "served": !word.starts_with('-'), "storage": word.ends_with('!'), "subresources": { "status": {} } })
        };
        json!({ "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
            "versions": versions.split(' ').map(version).collect::<Vec<_>>(),
        } })
    }

    /// A kind was watched in the version of the first definition until the next start: objects of another version were
    /// never observed.
    #[test]
    fn a_kind_is_watched_in_the_version_that_most_clusters_serve() {
        let (mut all, mut now) = (CustomKinds::default(), None);
        let mut check = |cluster: u8, versions: &str, expected: &str| {
            let change = match versions {
                "" => all.remove("widgets.example.com", id(cluster), now.as_ref()),
                _ => all.put("widgets.example.com", id(cluster), &definition(versions), now.as_ref()),
            };
            let found = match &change {
                KindChange::Watch(shape) => shape.kind.version.clone(),
                KindChange::Unchanged => "same".to_owned(),
                KindChange::Removed => "undefined".to_owned(),
            };
            assert_eq!(found, expected, "{cluster}: {versions}");
            if let KindChange::Watch(shape) = change {
                now = Some(shape);
            }
        };
        check(0, "v1!", "v1");
        check(0, "v1!", "same");
        // A tie between versions keeps the watched one.
        check(1, "v2!", "same");
        check(2, "v1 v2!", "same");
        check(3, "v1 v2!", "same");
        // An upgrade, which stops serving the old one.
        check(2, "-v1 v2!", "v2");
        check(0, "", "same");
        check(1, "", "same");
        check(2, "", "same");
        check(3, "", "undefined");
        check(3, "", "same");
        // Its watch has ended.
        check(0, "v2!", "v2");
    }
}
