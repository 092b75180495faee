//! Which logical clusters may use which physical clusters.
//!
//! ```text
//!   root             PhysicalCluster east; RBAC for the verb `use`     ◄ reviewed here, as system:holon:logicalcluster:root:a:dev
//!   └─ a                                                                  in groups system:holon:logicalclusters
//!      └─ dev        Deployment web                                               and …:root, …:root:a, …:root:a:dev
//! ```
//!
//! A physical cluster can be used in the logical cluster its object is in and below, by logical clusters that are
//! granted the verb `use` on it there. It is a permission like any other: roles grant it, and a SubjectAccessReview
//! checks it. Every logical cluster starts with a binding that grants it to all; an admin who wants to choose deletes
//! or changes that.
//!
//! Reviews are repeated when a role or binding of the owner changes. If a review fails, the last answer is used. A
//! revoked grant keeps new workloads out; it evicts nothing.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use api::cluster::{Id, Path};
use api::fleet::PhysicalCluster;
use api::names::GROUP;
use controller::kind::ResourceKind;
use controller::queue::Outcome;
use controller::remote::{CallError, NAMES};
use serde_json::{Value, json};

use crate::context::{Splitter, WorkItem, lock};
use crate::placement::permissions::SendPermissions;
use crate::placement::reservations::ClusterName;
use crate::snapshot::{LabelsAndAnnotations, MemberCluster, ObjectRef};

/// The user name of a logical cluster in the reviews, without its path.
const USER: &str = "system:holon:logicalcluster:";
/// The group of all logical clusters. With a path: of that logical cluster and its descendants.
const ALL: &str = "system:holon:logicalclusters";
const USE: &str = "use";
/// How often roles and bindings are compared with the last ones.
const POLICY_RESYNC: Duration = Duration::from_secs(5);
const RBAC: &str = "rbac.authorization.k8s.io";

/// The members that a logical cluster may use.
async fn granted(
    splitter: &Splitter,
    user: Id,
    members: &[Arc<MemberCluster>],
) -> Result<HashSet<ClusterName>, CallError> {
    let mut granted = HashSet::new();
    for member in members {
        let name: ClusterName = (member.owner, member.name().to_owned());
        let cached = lock(&splitter.grants.answers).get(&(name.clone(), user)).copied();
        let is_granted = match cached {
            Some(cached) => cached,
            None => {
                let answer = review(splitter, &name, user).await?;
                if let Some(answer) = answer {
                    lock(&splitter.grants.answers).insert((name.clone(), user), answer);
                    splitter.queue.add(WorkItem::Grants(member.owner));
                }
                answer.unwrap_or(false)
            }
        };
        if is_granted {
            granted.insert(name);
        }
    }
    Ok(granted)
}

/// Reads the permissions of an object for these physical clusters. Grants that were never reviewed are reviewed.
pub(crate) async fn send_permissions(
    splitter: &Splitter,
    subject: &ObjectRef,
    namespace: &LabelsAndAnnotations,
    members: &[Arc<MemberCluster>],
) -> Result<SendPermissions, CallError> {
    let granted = granted(splitter, subject.cluster(), members).await?;
    let caches = &splitter.caches;
    let circular = |member: &Arc<MemberCluster>| {
        Some(((member.owner, member.name().to_owned()), caches.cycle_through(member)?))
    };
    let circular = members.iter().filter_map(circular).collect();
    let path = caches.clusters().path(subject.cluster());
    Ok(SendPermissions::new(path, granted, circular, namespace))
}

/// Repeats all reviews of an owner if its roles or bindings changed.
pub(crate) async fn reconcile(splitter: &Splitter, owner: Id) -> Result<Outcome, CallError> {
    let grants = &splitter.grants;
    let reviewed: Vec<(ClusterName, Id)> = {
        let mut answers = lock(&grants.answers);
        answers.retain(|((at, name), user), _| *at != owner || is_visible(splitter, owner, name, *user));
        answers.keys().filter(|((at, _), _)| *at == owner).cloned().collect()
    };
    if reviewed.is_empty() {
        lock(&grants.policies).remove(&owner);
        return Ok(Outcome::Done);
    }
    let policy = policy(splitter, owner).await?;
    if lock(&grants.policies).get(&owner) == Some(&policy) {
        return Ok(Outcome::RequeueAfter(POLICY_RESYNC));
    }
    for (name, user) in reviewed {
        let Some(answer) = review(splitter, &name, user).await? else { continue };
        if lock(&grants.answers).insert((name, user), answer) != Some(answer) {
            splitter.enqueue_all(Some(user), None);
        }
    }
    // Stored last: after a failed review, all are repeated.
    lock(&grants.policies).insert(owner, policy);
    Ok(Outcome::RequeueAfter(POLICY_RESYNC))
}

fn is_visible(splitter: &Splitter, owner: Id, name: &str, user: Id) -> bool {
    let clusters = splitter.caches.clusters();
    let seen = splitter.caches.members().visible_from(user, &clusters);
    seen.iter().any(|member| (member.owner, member.name()) == (owner, name))
}

/// A hash of the roles and bindings. Only those of a whole logical cluster can grant access to a cluster-scoped object.
async fn policy(splitter: &Splitter, owner: Id) -> Result<u64, CallError> {
    let mut hasher = DefaultHasher::new();
    for plural in ["clusterroles", "clusterrolebindings"] {
        let kind = ResourceKind::new(RBAC, "v1", plural, "", false);
        let list = splitter.caches.server.within(owner).read_as(&kind.path(""), NAMES).await?;
        for item in list["items"].as_array().into_iter().flatten() {
            let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
            (text("name"), text("uid"), text("resourceVersion")).hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}

/// Whether a logical cluster may use a physical cluster, by the roles of the owner. None if its path is unknown.
async fn review(
    splitter: &Splitter,
    (owner, name): &ClusterName,
    user: Id,
) -> Result<Option<bool>, CallError> {
    let path = splitter.caches.clusters().path(user);
    let Some(path) = path else { return Ok(None) };
    let kind =
        ResourceKind::new("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false);
    let response =
        splitter.caches.server.within(*owner).create(&kind, "", &access_review(&path, name)).await?;
    Ok(Some(response["status"]["allowed"] == true))
}

fn access_review(path: &Path, physical_cluster: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("{USER}{path}"),
            "groups": groups(path),
            "resourceAttributes": {
                "verb": USE, "group": GROUP,
                "resource": PhysicalCluster::RESOURCE.plural, "name": physical_cluster,
            },
        },
    })
}

fn groups(path: &Path) -> Vec<String> {
    let path = path.as_str();
    let ends = path.match_indices(':').map(|(at, _)| at).chain([path.len()]);
    let above = ends.map(|end| format!("{ALL}:{}", &path[..end]));
    [ALL.to_owned()].into_iter().chain(above).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_binding_covers_a_logical_cluster_and_its_descendants() {
        let path: Path = "root:a:dev".parse().unwrap();
        let expected = ["", ":root", ":root:a", ":root:a:dev"].map(|path| format!("{ALL}{path}"));
        assert_eq!(groups(&path), expected);
        assert_eq!(groups(&Path::root()), [ALL.to_owned(), format!("{ALL}:root")]);
        let reviewed = access_review(&path, "east");
        assert_eq!(reviewed["spec"]["user"], "system:holon:logicalcluster:root:a:dev");
        assert_eq!(reviewed["spec"]["resourceAttributes"]["name"], "east");
    }
}
