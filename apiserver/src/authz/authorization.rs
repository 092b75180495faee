//! Authorizes a request.
//!
//! A client that does not reach a logical cluster gets 404, as if it did not exist. A client that reaches it but lacks
//! the right gets 403, with the message of Kubernetes.

use std::sync::Arc;

use api::cluster::Id;
use http::HeaderMap;
use openapi::catalog::resource_info::Verb;
use openapi::meta::status::{GroupResource, Status};
use storage::Revision;

use crate::authn::identity::Identity;
use crate::authn::impersonation::Impersonation;
use crate::authz::access::{Access, Lineage};
use crate::authz::revalidation;
use crate::clusters::logical_cluster;
use crate::objects::store_errors::unreadable;
use crate::quota::{QuotaReservation, Size, WatchReservation};
use crate::rbac::controller_role::Granted;
use crate::rbac::{Decision, Layers, Rule, UserInfo};
use crate::request::attributes::{Attributes, ResourceAttributes};

/// An authorized request: its identities, its logical cluster and its attributes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Authorization {
    access: Arc<Access>,
    cluster: Id,
    /// None for administrators and controllers of this process that do not impersonate: they reach everything.
    lineage: Option<Lineage>,
    /// The grants of the sender's controller role that apply here, if it has one.
    granted: Option<Granted>,
    /// The identity that sent the request.
    sender: Identity,
    /// The identity that the request acts as: the sender, or the impersonated user.
    identity: Identity,
    /// The rights that the sender needs for the impersonation.
    required: Arc<[Attributes]>,
    attributes: Arc<Attributes>,
    /// The revision of the policies that were used.
    decided: Revision,
}

impl Authorization {
    /// Authorizes a request for a logical cluster.
    pub(crate) async fn authorize(
        access: &Arc<Access>,
        cluster: Id,
        sender: &Identity,
        headers: &HeaderMap,
        attributes: Attributes,
    ) -> Result<Authorization, Status> {
        let impersonation = Impersonation::of(headers);
        let lineage = match (sender.is_at_home_everywhere(), &impersonation) {
            (true, Ok(None)) => None,
            _ => {
                let lineage = access.lineage(cluster).await.map_err(unreadable)?;
                Some(lineage.ok_or_else(Status::unknown_path)?)
            }
        };
        // A terminating logical cluster has no path, but a service account token still leads to it.
        if let (Some(_), Some(lineage)) = (sender.home(), &lineage) {
            let exists = revalidation::all_exist(access, &revalidation::objects(lineage)).await;
            if !exists.map_err(unreadable)? {
                return Err(Status::unknown_path());
            }
        }
        // This comes before any other error: an error about the request would reveal that the logical cluster exists.
        if lineage.as_ref().is_some_and(|lineage| !access.reaches(sender, lineage)) {
            return Err(Status::unknown_path());
        }
        let impersonation = impersonation?;
        let decided = lineage.as_ref().map_or(Revision::ZERO, |lineage| access.changed(lineage));
        let (identity, required) = match impersonation {
            None => (sender.clone(), Arc::default()),
            Some(one) if one.is_of_administrators() && !sender.is_administrator() => {
                return Err(refused(sender, &Impersonation::administrators(), ""));
            }
            Some(Impersonation { identity, required }) => (identity, required.into()),
        };
        let mut authorization =
            Authorization::new(access, cluster, lineage, sender, required, attributes, decided);
        authorization.identity = identity;
        if let Some(controller_role) = sender.controller_role() {
            let labels = match controller_role.selects_labels() {
                true => logical_cluster::labels(access.store(), cluster).await.map_err(unreadable)?,
                false => Vec::new(),
            };
            authorization.granted = Some(controller_role.within(cluster, &labels));
        }
        authorization.check().map(|()| authorization)
    }

    fn new(
        access: &Arc<Access>,
        cluster: Id,
        lineage: Option<Lineage>,
        sender: &Identity,
        required: Arc<[Attributes]>,
        attributes: Attributes,
        decided: Revision,
    ) -> Authorization {
        let (access, attributes) = (access.clone(), Arc::new(attributes));
        let (identity, sender) = (sender.clone(), sender.clone());
        Authorization {
            access,
            cluster,
            lineage,
            granted: None,
            sender,
            identity,
            required,
            attributes,
            decided,
        }
    }

    /// Decides again with the current policies.
    pub(super) fn check(&self) -> Result<(), Status> {
        if self.lineage.as_ref().is_some_and(|lineage| !self.access.reaches(&self.sender, lineage)) {
            return Err(Status::unknown_path());
        }
        let checks = self.required.iter().map(|required| (&self.sender, required));
        for (identity, attributes) in checks.chain([(&self.identity, &*self.attributes)]) {
            let Decision { allowed, reason } = self.may(identity, attributes);
            if !allowed {
                return Err(refused(identity, attributes, &reason));
            }
        }
        Ok(())
    }

    /// Checks that a request that updates a missing object may also create it.
    pub(crate) fn authorize_create(&self) -> Result<(), Status> {
        let mut attributes = (*self.attributes).clone();
        if let Attributes::Resource(attributes) = &mut attributes {
            attributes.verb = Verb::Create.as_str().to_owned();
        }
        let Decision { allowed, reason } = self.may(&self.identity, &attributes);
        if allowed { Ok(()) } else { Err(refused(&self.identity, &attributes, &reason)) }
    }

    /// Applies the rate limit of the logical cluster. Deletions are exempt, because a tenant over its quota must be
    /// able to delete; so are administrators and controllers.
    pub(crate) fn pace(&self) -> Result<(), Status> {
        let deletes = match &*self.attributes {
            Attributes::Resource(attributes) => matches!(&*attributes.verb, "delete" | "deletecollection"),
            Attributes::Path { .. } => false,
        };
        match deletes || self.sender.is_at_home_everywhere() {
            true => Ok(()),
            false => self.access.quotas().pace(self.cluster),
        }
    }

    /// Reserves quota for an object that grows by `growth`.
    pub(crate) async fn reserve_quota(
        &self,
        object: (GroupResource<'_>, &str),
        growth: Size,
    ) -> Result<QuotaReservation, Status> {
        self.access.quotas().reserve(self.cluster, object, growth).await
    }

    /// Reserves quota for a watch.
    pub(crate) async fn watching(&self) -> Result<WatchReservation, Status> {
        self.access.quotas().watch(self.cluster).await
    }

    /// Returns the identity that the request acts as.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Makes later decisions use the current policies.
    pub(crate) async fn catch_up(&self) -> Result<(), Status> {
        self.access.catch_up().await.map_err(unreadable)
    }

    /// Decides whether an identity may send a request in this logical cluster.
    pub(crate) fn may(&self, identity: &Identity, attributes: &Attributes) -> Decision {
        match self.granted.as_ref().filter(|_| identity.controller_role().is_some()) {
            Some(granted) => Decision { allowed: granted.allows(attributes), reason: String::new() },
            None => self.access.may(identity, self.cluster, attributes),
        }
    }

    /// Reads the policy of this logical cluster.
    pub(crate) fn policy<T>(&self, read: impl FnOnce(Layers<'_>) -> T) -> T {
        self.access.index().read(self.cluster, read)
    }

    /// Returns the rules of the user in a namespace, and an error for each missing role.
    pub(crate) fn rules(&self, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let Identity::User(user) = &self.identity else { return Default::default() };
        let user_info = UserInfo { name: &user.name, groups: &user.groups };
        self.policy(|layers| {
            let (rules, missing) = layers.rules(user_info, namespace);
            (rules.into_iter().cloned().collect(), missing)
        })
    }

    pub(super) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    pub(super) fn cluster(&self) -> Id {
        self.cluster
    }

    pub(super) fn sender(&self) -> &Identity {
        &self.sender
    }

    pub(super) fn lineage(&self) -> Option<&Lineage> {
        self.lineage.as_ref()
    }

    pub(super) fn decided(&self) -> Revision {
        self.decided
    }
}

/// Returns the identity that a request impersonates, whether this is allowed or not.
pub(crate) fn requested_impersonation(headers: &HeaderMap) -> Option<Identity> {
    Impersonation::of(headers).ok().flatten().map(|impersonation| impersonation.identity)
}

/// Returns the 403 error.
fn refused(identity: &Identity, attributes: &Attributes, reason: &str) -> Status {
    let name = identity.name();
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match attributes {
        Attributes::Path { path, verb } => {
            let why = format!("User {name:?} cannot {verb} path {path:?}{reason}");
            Status::forbidden(GroupResource::new("", ""), "", &why)
        }
        Attributes::Resource(it) => {
            let ResourceAttributes { verb, group, resource, subresource, namespace, .. } = it;
            let suffix = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
            let scope = match namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let full_resource = format!("{resource}{suffix}");
            let why = format!(
                "User {name:?} cannot {verb} resource {full_resource:?} in API group {group:?} {scope}{reason}"
            );
            Status::forbidden(GroupResource::new(group, resource), &it.name, &why)
        }
    }
}

#[cfg(test)]
impl Authorization {
    /// Returns an authorization for tests of later steps.
    pub(crate) fn allow_all() -> Authorization {
        let store = Arc::new(storage::memory::Memory::new());
        let admin = Identity::user("admin", &[crate::authn::identity::ADMINISTRATORS]);
        let attributes = Attributes::Path { path: "/".to_owned(), verb: "get".to_owned() };
        let access = Arc::new(Access::plain(store));
        Authorization::new(&access, Id::ROOT, None, &admin, Arc::default(), attributes, Revision::ZERO)
    }
}
