//! Writes that RBAC cannot deny, because administrators of a logical cluster may do everything there.
//!
//! Some objects state facts that grant access: the physical clusters of a workload (Distribution), whether a physical
//! cluster is ready and what it serves (PhysicalCluster status), and which logical cluster is a mailbox (name and label
//! of a LogicalCluster). Only Holon's controllers write them. Distributions can still be deleted with their namespace,
//! because the namespace controller deletes them below the API.
//!
//! Projected objects are read-only in the user's logical cluster. They show pods, nodes and other objects of a physical
//! cluster; a change would have no effect there, so the request is denied with advice. The exceptions are applied to
//! the real object: pods and claims can be deleted, and claims can be resized.
//!
//! The labels of placed and projected objects also direct our controllers and `kubectl logs`. So only controllers set
//! them: the splitter everywhere, and a syncer in its own mailbox, where it projects but does not place.

use std::sync::Arc;

use api::cluster::Id;
use api::fleet::{Distribution, Override, PhysicalCluster, Placement, PolicyError, StatusRule};
use api::meta::field::FieldError;
use api::names::{GROUP, MAILBOX_OF, PLACED, PROJECTED, SPLITTER, SYNCER_ACCOUNT, owner_of_mailbox};
use apiserver::admission::guard::{AdmissionRequest, Guard};
use apiserver::authn::identity::Identity;
use apiserver::clusters::records;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;
use splitter::status::policy_errors::errors;
use splitter::transform::projection::pods::{CLUSTER, is_deletable};
use storage::{Boxed, Store};

/// The prefix of the names of Holon's controllers. A name alone grants nothing: only their clients have a controller
/// role.
pub(crate) const CONTROLLERS: &str = "system:holon:";

const POD_TEMPLATE_HASH: &str = "pod-template-hash";
const LOGICAL_CLUSTERS: &str = "logicalclusters";
const DISTRIBUTIONS: &str = Distribution::RESOURCE.plural;
const PHYSICAL_CLUSTERS: &str = PhysicalCluster::RESOURCE.plural;

/// Metadata that the server changes with every write.
const SET_BY_SERVER: &[&str] = &["generation", "managedFields", "resourceVersion"];

/// Denies writes of reserved objects, labels and fields.
#[derive(Debug)]
pub(crate) struct ReservedObjects {
    store: Arc<dyn Store>,
}

impl ReservedObjects {
    pub(crate) fn new(store: Arc<dyn Store>) -> ReservedObjects {
        ReservedObjects { store }
    }

    async fn is_mailbox(&self, cluster: Id) -> bool {
        let record = records::find(&*self.store, cluster).await.ok().flatten();
        record.is_some_and(|record| owner_of_mailbox(&record.name).is_some())
    }

    async fn decide(&self, request: AdmissionRequest<'_>) -> Result<(), Status> {
        if is_controller(request.who) {
            return Ok(());
        }
        let deny = |reason: &str| Err(Status::forbidden(request.grouped(), request.name, reason));
        if let Some(reason) = self.reserved_reason(&request).await {
            return deny(reason);
        }
        check_expressions(&request)?;
        let (was_placed, is_placed) = request.label(PLACED);
        if was_placed != is_placed
            && !request.who.is_administrator()
            && self.is_mailbox(request.cluster).await
        {
            return deny(&format!("only the server sets the label {PLACED} in a mailbox"));
        }
        let (was_projected, is_projected) = request.label(PROJECTED);
        if was_projected.is_none() && is_projected.is_none() {
            return Ok(());
        }
        if is_syncer_of(request.who, request.cluster) && self.is_mailbox(request.cluster).await {
            return Ok(());
        }
        match (was_projected, request.before) {
            (Some(_), Some(_)) if request.subresource == Some("eviction") => deny(
                "an eviction would only start another pod on the same physical cluster; to move the app, set the annotation \
                 holon.dev/placement of its namespace; to restart this pod, delete it",
            ),
            (Some(_), Some(before)) if !is_applied_downstream(&request, before) => {
                deny(&advice(&request, before))
            }
            (Some(_), _) => Ok(()),
            (None, _) => deny(&format!(
                "only the server sets the label {PROJECTED}; it marks objects that are projected from a \
                 physical cluster"
            )),
        }
    }
}

impl ReservedObjects {
    /// Returns why only Holon's controllers may write this object: it states a fact that grants access. `None` if
    /// others may.
    async fn reserved_reason(&self, request: &AdmissionRequest<'_>) -> Option<&'static str> {
        if &*request.resource.group != GROUP {
            return None;
        }
        match (&*request.resource.plural, request.subresource) {
            (DISTRIBUTIONS, _) => Some(
                "it records a decision of the splitter, and only the splitter writes it; to change where an object runs, \
                 set the annotation holon.dev/placement or edit a Placement",
            ),
            (PHYSICAL_CLUSTERS, Some("status")) => {
                let is_report = is_syncer_of(request.who, request.cluster) && self.is_mailbox(request.cluster).await;
                (!is_report).then_some(
                    "only the server writes the status of a physical cluster, from what its syncer reports",
                )
            }
            (PHYSICAL_CLUSTERS, None) => renames_namespaces(request).then_some(
                "workloads run there, in namespaces that spec.dedicatedTo names; move them away before you change it: \
                 `kubectl get distributions -A` lists them",
            ),
            (LOGICAL_CLUSTERS, _) => {
                let (was, is) = request.label(MAILBOX_OF);
                let uses_mailbox_name = request.before.is_none() && owner_of_mailbox(request.name).is_some();
                (uses_mailbox_name || request.after.is_some() && was != is).then_some(
                    "a logical cluster whose name begins with mailbox-, or that has the label holon.dev/mailbox-of, is the \
                     mailbox of a physical cluster, and only the server creates those; choose another name",
                )
            }
            _ => None,
        }
    }
}

impl Guard for ReservedObjects {
    fn labels(&self) -> &[&str] {
        &[PROJECTED, PLACED]
    }

    fn kinds(&self) -> &[(&str, &str)] {
        &[
            (GROUP, DISTRIBUTIONS),
            (GROUP, PHYSICAL_CLUSTERS),
            (GROUP, LOGICAL_CLUSTERS),
            (GROUP, Placement::RESOURCE.plural),
            (GROUP, Override::RESOURCE.plural),
            (GROUP, StatusRule::RESOURCE.plural),
        ]
    }

    fn may<'a>(&'a self, request: AdmissionRequest<'a>) -> Boxed<'a, Result<(), Status>> {
        Box::pin(self.decide(request))
    }
}

fn is_controller(identity: &Identity) -> bool {
    identity.has_controller_role() && identity.name().starts_with(CONTROLLERS)
}

/// Returns whether a change of `dedicatedTo` would rename the namespaces of running workloads, which would restart
/// them.
fn renames_namespaces(request: &AdmissionRequest) -> bool {
    let (Some(before), Some(after)) = (request.before, request.after) else { return false };
    let finalizers = before["metadata"]["finalizers"].as_array().into_iter().flatten();
    let is_used = finalizers.into_iter().any(|finalizer| finalizer == SPLITTER);
    is_used && before["spec"]["dedicatedTo"] != after["spec"]["dedicatedTo"]
}

/// Denies a policy whose expressions do not compile, so that its author gets the error before any object depends on it.
/// Other fields of a policy that was stored earlier may still be changed.
fn check_expressions(request: &AdmissionRequest) -> Result<(), Status> {
    let Some(after) =
        request.after.filter(|_| &*request.resource.group == GROUP && request.subresource.is_none())
    else {
        return Ok(());
    };
    if request.before.is_some_and(|before| before["spec"] == after["spec"]) {
        return Ok(());
    }
    let field_error = |error: PolicyError| {
        let detail = format!("{}:{}: {}", error.line, error.column, error.message);
        let value = after.pointer(&pointer(&error.field)).cloned().unwrap_or_default();
        FieldError::invalid(error.field, value, detail)
    };
    let errors: Vec<FieldError> =
        errors(&request.resource.plural, after).into_iter().map(field_error).collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid(
            GroupResource::new(&request.resource.group, &request.resource.kind),
            request.name,
            &errors,
        )),
    }
}

/// Returns `spec.rules[0].expression` as a JSON pointer.
fn pointer(field: &str) -> String {
    format!("/{}", field.replace('[', ".").replace(']', "").replace('.', "/"))
}

/// Returns whether the caller is the service account of the syncer of a mailbox.
pub(crate) fn is_syncer_of(identity: &Identity, cluster: Id) -> bool {
    identity.home() == Some(cluster)
        && identity.name() == format!("system:serviceaccount:kube-system:{SYNCER_ACCOUNT}")
}

/// Returns whether a write of a projected object is applied to the real object.
fn is_applied_downstream(request: &AdmissionRequest, before: &Value) -> bool {
    match request.after {
        None => is_deletable(&request.resource.group, &request.resource.kind),
        Some(after) => {
            (&*request.resource.group, &*request.resource.kind) == ("", "PersistentVolumeClaim")
                && request.subresource.is_none()
                && is_resized(before, after)
        }
    }
}

/// Returns whether only the requested storage of a claim changes.
fn is_resized(before: &Value, after: &Value) -> bool {
    let rest = |claim: &Value| {
        let mut rest = claim.clone();
        if let Some(requests) = rest.pointer_mut("/spec/resources/requests").and_then(Value::as_object_mut) {
            requests.remove("storage");
        }
        if let Some(metadata) = rest["metadata"].as_object_mut() {
            metadata.retain(|field, _| !SET_BY_SERVER.contains(&field.as_str()));
        }
        rest
    };
    rest(before) == rest(after)
}

/// Returns why a projected object cannot be changed here, and what to change instead.
fn advice(request: &AdmissionRequest, object: &Value) -> String {
    if request.resource.group.is_empty() && &*request.resource.plural == "nodes" {
        let name = request.name;
        return format!(
            "it represents the physical cluster {name}; change that, in the logical cluster where it is registered: \
             kubectl edit physicalcluster {name}"
        );
    }
    let location = match object["metadata"]["labels"][CLUSTER].as_str() {
        Some(cluster) => format!("it runs on {cluster}"),
        None => "it exists on a physical cluster".to_owned(),
    };
    let advice = match owner(object) {
        Some((kind, name)) => format!("change the {kind} {name} it belongs to"),
        None => "change the object that created it".to_owned(),
    };
    format!("{location} and cannot be changed here; {advice}")
}

/// Returns kind and name of the user's object that owns this one. The name of a ReplicaSet leads to its Deployment.
fn owner(object: &Value) -> Option<(&str, &str)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true).or(owners.first())?;
    let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
    let hash = object["metadata"]["labels"][POD_TEMPLATE_HASH].as_str().filter(|_| kind == "ReplicaSet");
    let deployment = hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'));
    Some(deployment.map_or((kind, name), |deployment| ("Deployment", deployment)))
}

#[cfg(test)]
mod tests {
    use apiserver::authn::identity::User;
    use apiserver::clusters::records::LogicalClusterRecord;
    use openapi::catalog;
    use openapi::catalog::resource_info::ResourceInfo;
    use serde_json::json;
    use storage::memory::Memory;

    use super::*;

    const USER: Id = Id::new(1);
    const MAILBOX: Id = Id::new(2);

    async fn reserved() -> ReservedObjects {
        let store = Arc::new(Memory::new());
        records::write(&*store, USER, &LogicalClusterRecord::new(Id::ROOT, "team-a")).await.unwrap();
        records::write(&*store, MAILBOX, &LogicalClusterRecord::new(Id::ROOT, "mailbox-east")).await.unwrap();
        ReservedObjects::new(store)
    }

    fn identity(name: &str, group: &str, home: Option<Id>) -> Identity {
        let groups = vec![group.to_owned()];
        Identity::known(User { name: name.to_owned(), groups, home, ..User::default() })
    }

    fn pod(labels: Value) -> Value {
        let mut labels = labels;
        labels[POD_TEMPLATE_HASH] = "5d".into();
        let owner = json!({ "kind": "ReplicaSet", "name": "web-5d", "controller": true });
        json!({ "metadata": { "name": "web-5d-x1", "labels": labels, "ownerReferences": [owner] } })
    }

    type ObjectChange<'a> = (Option<&'a Value>, Option<&'a Value>);

    async fn denied(
        who: &Identity,
        cluster: Id,
        plural: &str,
        (before, after): ObjectChange<'_>,
    ) -> Option<String> {
        let resource = catalog::find("", "v1", plural).unwrap();
        let request =
            AdmissionRequest { cluster, who, resource, name: "x", subresource: None, before, after };
        reserved().await.decide(request).await.err().map(|status| status.message)
    }

    /// Tenants could write the status of physical clusters, records and mailboxes.
    #[tokio::test]
    async fn only_our_controllers_write_facts_that_grant_access() {
        let admin = identity("admin", "system:masters", None);
        let syncer = |home| {
            identity("system:serviceaccount:kube-system:holon-syncer", "system:serviceaccounts", Some(home))
        };
        let splitter = Identity::known(User {
            name: "system:holon:splitter".to_owned(),
            controller_role: Some(crate::authz::roles::splitter()),
            ..User::default()
        });
        let object = |name: &str, labels: Value| json!({ "metadata": { "name": name, "labels": labels } });
        let (plain, marked) = (object("x", json!({})), object("x", json!({ MAILBOX_OF: "x" })));
        let check = async |who: &Identity,
                           cluster,
                           (plural, subresource, name): (&str, Option<&str>, &str),
                           change: ObjectChange<'_>,
                           is_allowed| {
            let pods = catalog::find("", "v1", "pods").unwrap();
            let resource = ResourceInfo { group: GROUP.into(), plural: plural.into(), ..(**pods).clone() };
            let (before, after) = change;
            let request =
                AdmissionRequest { cluster, who, resource: &resource, name, subresource, before, after };
            let refused = reserved().await.decide(request).await.err();
            assert_eq!(refused.is_none(), is_allowed, "{who:?} {plural} {name} {change:?}: {refused:?}");
        };
        let changes = [(None, Some(&plain)), (Some(&plain), Some(&plain)), (Some(&plain), None)];
        for change in changes {
            check(&admin, USER, (DISTRIBUTIONS, None, "x"), change, false).await;
            check(&splitter, USER, (DISTRIBUTIONS, None, "x"), change, true).await;
            check(&admin, USER, (PHYSICAL_CLUSTERS, None, "x"), change, true).await;
        }
        // Such a change once renamed the namespaces of running workloads: their pods were started again, and the old
        // ones were never deleted.
        let used = |to: Option<&str>| json!({ "metadata": { "name": "x", "finalizers": [SPLITTER] }, "spec": { "dedicatedTo": to } });
        let (shared, own) = (used(None), used(Some("root:a")));
        check(&admin, USER, (PHYSICAL_CLUSTERS, None, "x"), (Some(&shared), Some(&own)), false).await;
        check(&admin, USER, (PHYSICAL_CLUSTERS, None, "x"), (Some(&own), Some(&own)), true).await;
        check(&admin, USER, (PHYSICAL_CLUSTERS, None, "x"), (Some(&plain), Some(&own)), true).await;
        let written = (Some(&plain), Some(&plain));
        check(&admin, USER, (PHYSICAL_CLUSTERS, Some("status"), "x"), written, false).await;
        check(&syncer(MAILBOX), MAILBOX, (PHYSICAL_CLUSTERS, Some("status"), "x"), written, true).await;
        // A service account of that name in a logical cluster that is not a mailbox.
        check(&syncer(USER), USER, (PHYSICAL_CLUSTERS, Some("status"), "x"), written, false).await;
        check(&admin, USER, (LOGICAL_CLUSTERS, None, "mailbox-x"), (None, Some(&plain)), false).await;
        check(&admin, USER, (LOGICAL_CLUSTERS, None, "x"), (None, Some(&marked)), false).await;
        check(&admin, USER, (LOGICAL_CLUSTERS, None, "x"), (Some(&plain), Some(&marked)), false).await;
        check(&admin, USER, (LOGICAL_CLUSTERS, None, "mailbox-x"), (Some(&marked), Some(&plain)), false)
            .await;
        check(&admin, USER, (LOGICAL_CLUSTERS, None, "mailbox-x"), (Some(&marked), Some(&marked)), true)
            .await;
        check(&admin, USER, (LOGICAL_CLUSTERS, None, "mailbox-x"), (Some(&marked), None), true).await;
        check(&admin, USER, (LOGICAL_CLUSTERS, None, "x"), (None, Some(&plain)), true).await;
    }

    #[tokio::test]
    async fn only_our_controllers_change_projections_and_users_get_advice() {
        let projected = pod(json!({ PROJECTED: "true", CLUSTER: "east" }));
        let plain = pod(json!({}));
        let admin = identity("admin", "system:masters", None);
        let splitter = Identity::known(User {
            name: "system:holon:splitter".to_owned(),
            controller_role: Some(crate::authz::roles::splitter()),
            ..User::default()
        });
        let impostor = identity("system:holon:splitter", "system:masters", None);
        let syncer = |home| {
            identity("system:serviceaccount:kube-system:holon-syncer", "system:serviceaccounts", Some(home))
        };
        let edited = (Some(&projected), Some(&projected));
        let expected = "pods \"x\" is forbidden: it runs on east and cannot be changed here; \
                        change the Deployment web it belongs to";
        assert_eq!(denied(&admin, USER, "pods", edited).await.as_deref(), Some(expected));
        let expected = "nodes \"x\" is forbidden: it represents the physical cluster x; change that, in the logical cluster where it is \
                        registered: kubectl edit physicalcluster x";
        assert_eq!(denied(&admin, USER, "nodes", edited).await.as_deref(), Some(expected));
        for (who, cluster, change, is_allowed) in [
            (&admin, USER, (Some(&projected), None), true),
            (&admin, USER, (None, Some(&projected)), false),
            (&admin, USER, (Some(&plain), Some(&projected)), false),
            (&admin, USER, (Some(&projected), Some(&plain)), false),
            (&impostor, USER, edited, false),
            (&splitter, USER, edited, true),
            (&splitter, USER, (None, Some(&projected)), true),
            (&syncer(MAILBOX), MAILBOX, (None, Some(&projected)), true),
            (&syncer(MAILBOX), USER, (None, Some(&projected)), false),
            // A service account of that name in a logical cluster that is not a mailbox.
            (&syncer(USER), USER, (None, Some(&projected)), false),
        ] {
            assert_eq!(
                denied(who, cluster, "pods", change).await.is_none(),
                is_allowed,
                "{who:?} {change:?}"
            );
        }
        assert!(
            denied(&admin, USER, "services", (Some(&projected), None)).await.is_some(),
            "a projected Service is deleted only with its owner"
        );
    }

    /// An Override with a misspelt variable was accepted, and the objects that it selected could no longer be
    /// applied. Only its status reported the reason.
    #[tokio::test]
    async fn an_expression_that_does_not_compile_is_refused_with_line_and_column() {
        let admin = identity("admin", "system:masters", None);
        let check = async |plural: &str, kind: &str, change: ObjectChange<'_>| {
            let pods = catalog::find("", "v1", "pods").unwrap();
            let resource = ResourceInfo {
                group: GROUP.into(),
                plural: plural.into(),
                kind: kind.into(),
                ..(**pods).clone()
            };
            let (before, after) = change;
            let request = AdmissionRequest {
                cluster: USER,
                who: &admin,
                resource: &resource,
                name: "x",
                subresource: None,
                before,
                after,
            };
            reserved().await.decide(request).await.err().map(|status| (status.code, status.message))
        };
        let policy = |expression: &str| {
            let computed = json!([{ "path": "/spec/replicas", "expression": expression }]);
            json!({ "metadata": { "name": "x" }, "spec": { "rules": [{ "computed": computed }] } })
        };
        let (good, bad) = (policy("object.spec.replicas + 1"), policy("1 +\n objekt.spec"));
        assert_eq!(check("overrides", "Override", (None, Some(&good))).await, None);
        let (code, message) = check("overrides", "Override", (Some(&good), Some(&bad))).await.unwrap();
        assert_eq!(code, 422);
        let expected = "Override.holon.dev \"x\" is invalid: spec.rules[0].computed[0].expression: Invalid value: \
                        \"1 +\\n objekt.spec\": 2:2: ";
        assert!(message.starts_with(expected), "{message}");
        // A stored policy can still be labelled, and corrected.
        assert_eq!(check("overrides", "Override", (Some(&bad), Some(&bad))).await, None);
        assert_eq!(check("overrides", "Override", (Some(&bad), Some(&good))).await, None);
        let placement =
            json!({ "spec": { "clusterSelector": { "expressions": ["cluster.metadata.name =="] } } });
        let (code, message) = check("placements", "Placement", (None, Some(&placement))).await.unwrap();
        assert!(code == 422 && message.contains("spec.clusterSelector.expressions[0]"), "{message}");
        // Too many long expressions are denied before any is compiled.
        let long = vec![format!("cluster.metadata.name == '{}'", "a".repeat(4000)); 100];
        let huge = json!({ "spec": { "clusterSelector": { "expressions": long } } });
        let (code, message) = check("placements", "Placement", (None, Some(&huge))).await.unwrap();
        assert!(code == 422 && message.contains("at most 256 expressions"), "{message}");
    }

    /// The claims of a StatefulSet are its user's data. The user could neither delete nor resize one.
    #[tokio::test]
    async fn a_user_can_resize_and_delete_a_projected_claim_and_change_nothing_else() {
        let claim = |storage: &str, change: fn(&mut Value)| {
            let mut claim = json!({
                "metadata": { "name": "x", "labels": { PROJECTED: "true", CLUSTER: "east" }, "resourceVersion": storage },
                "spec": { "storageClassName": "fast", "resources": { "requests": { "storage": storage } } },
            });
            change(&mut claim);
            claim
        };
        let admin = identity("admin", "system:masters", None);
        let before = claim("1Gi", |_| {});
        for (after, is_allowed) in [
            (Some(claim("2Gi", |_| {})), true),
            (None, true),
            (Some(claim("2Gi", |claim| claim["spec"]["storageClassName"] = "slow".into())), false),
            (Some(claim("2Gi", |claim| claim["spec"]["resources"]["requests"]["cpu"] = "1".into())), false),
            (Some(claim("2Gi", |claim| claim["metadata"]["labels"]["a"] = "b".into())), false),
            (Some(claim("2Gi", |claim| claim["metadata"]["labels"][PROJECTED] = Value::Null)), false),
            (
                Some(claim("2Gi", |claim| {
                    claim["metadata"]["annotations"] = json!({ "holon.dev/projected-hash": "" })
                })),
                false,
            ),
            (Some(claim("2Gi", |claim| claim["metadata"]["finalizers"] = json!([]))), false),
            (Some(claim("2Gi", |claim| claim["status"] = json!({ "phase": "Bound" }))), false),
        ] {
            let change = (Some(&before), after.as_ref());
            let denied = denied(&admin, USER, "persistentvolumeclaims", change).await;
            assert_eq!(denied.is_none(), is_allowed, "{after:?} {denied:?}");
        }
    }

    /// A stolen syncer credential could have made the splitter adopt an object.
    #[tokio::test]
    async fn a_syncer_projects_and_does_not_place() {
        let (placed, plain) = (pod(json!({ PLACED: "true" })), pod(json!({})));
        let syncer = identity(
            "system:serviceaccount:kube-system:holon-syncer",
            "system:serviceaccounts",
            Some(MAILBOX),
        );
        for (change, is_allowed) in [
            ((None, Some(&placed)), false),
            ((Some(&placed), Some(&plain)), false),
            ((Some(&placed), None), false),
            ((Some(&placed), Some(&placed)), true),
        ] {
            assert_eq!(denied(&syncer, MAILBOX, "pods", change).await.is_none(), is_allowed, "{change:?}");
        }
        // A logical cluster may be a physical cluster of another Holon, and then has placed objects.
        let other = identity("other", "developers", None);
        assert_eq!(denied(&other, USER, "pods", (None, Some(&placed))).await, None);
    }
}
