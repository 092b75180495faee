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
use crate::rbac::{Decision, Layers, Rule, Who};
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
    needed: Arc<[Attributes]>,
    wanted: Arc<Attributes>,
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
        wanted: Attributes,
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
            let is_there = revalidation::are_there(access, &revalidation::objects(lineage)).await;
            if !is_there.map_err(unreadable)? {
                return Err(Status::unknown_path());
            }
        }
        // This comes before any other error: an error about the request would reveal that the logical cluster exists.
        if lineage.as_ref().is_some_and(|lineage| !access.reaches(sender, lineage)) {
            return Err(Status::unknown_path());
        }
        let impersonation = impersonation?;
        let decided = lineage.as_ref().map_or(Revision::ZERO, |lineage| access.changed(lineage));
        let (identity, needed) = match impersonation {
            None => (sender.clone(), Arc::default()),
            Some(one) if one.is_of_administrators() && !sender.is_administrator() => {
                return Err(refused(sender, &Impersonation::administrators(), ""));
            }
            Some(Impersonation { identity, needed }) => (identity, needed.into()),
        };
        let mut authorization = Authorization::new(access, cluster, lineage, sender, needed, wanted, decided);
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
        needed: Arc<[Attributes]>,
        wanted: Attributes,
        decided: Revision,
    ) -> Authorization {
        let (access, wanted) = (access.clone(), Arc::new(wanted));
        let (identity, sender) = (sender.clone(), sender.clone());
        Authorization { access, cluster, lineage, granted: None, sender, identity, needed, wanted, decided }
    }

    /// Decides again with the current policies.
    pub(super) fn check(&self) -> Result<(), Status> {
        if self.lineage.as_ref().is_some_and(|lineage| !self.access.reaches(&self.sender, lineage)) {
            return Err(Status::unknown_path());
        }
        let acts = self.needed.iter().map(|needs| (&self.sender, needs));
        for (who, wanted) in acts.chain([(&self.identity, &*self.wanted)]) {
            let Decision { allowed, reason } = self.may(who, wanted);
            if !allowed {
                return Err(refused(who, wanted, &reason));
            }
        }
        Ok(())
    }

    /// Checks that a request that updates a missing object may also create it.
    pub(crate) fn authorize_create(&self) -> Result<(), Status> {
        let mut wanted = (*self.wanted).clone();
        if let Attributes::Resource(wanted) = &mut wanted {
            wanted.verb = Verb::Create.as_str().to_owned();
        }
        let Decision { allowed, reason } = self.may(&self.identity, &wanted);
        if allowed { Ok(()) } else { Err(refused(&self.identity, &wanted, &reason)) }
    }

    /// Applies the rate limit of the logical cluster. Deletions are exempt, because a tenant over its quota must be
    /// able to delete; so are administrators and controllers.
    pub(crate) fn pace(&self) -> Result<(), Status> {
        let deletes = match &*self.wanted {
            Attributes::Resource(wanted) => matches!(&*wanted.verb, "delete" | "deletecollection"),
            Attributes::Path { .. } => false,
        };
        match deletes || self.sender.is_at_home_everywhere() {
            true => Ok(()),
            false => self.access.quotas().pace(self.cluster),
        }
    }

    /// Reserves quota for an object that grows by `growth`.
    pub(crate) async fn room(
        &self,
        what: (GroupResource<'_>, &str),
        growth: Size,
    ) -> Result<QuotaReservation, Status> {
        self.access.quotas().room(self.cluster, what, growth).await
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
    pub(crate) fn may(&self, who: &Identity, wanted: &Attributes) -> Decision {
        match self.granted.as_ref().filter(|_| who.controller_role().is_some()) {
            Some(granted) => Decision { allowed: granted.allows(wanted), reason: String::new() },
            None => self.access.may(who, self.cluster, wanted),
        }
    }

    /// Reads the policy of this logical cluster.
    pub(crate) fn policy<T>(&self, read: impl FnOnce(Layers<'_>) -> T) -> T {
        self.access.index().read(self.cluster, read)
    }

    /// Returns the rules of the user in a namespace, and an error for each missing role.
    pub(crate) fn rules(&self, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let Identity::User(user) = &self.identity else { return Default::default() };
        let who = Who { name: &user.name, groups: &user.groups };
        self.policy(|layers| {
            let (rules, missing) = layers.rules(who, namespace);
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
pub(crate) fn wants_to_act_as(headers: &HeaderMap) -> Option<Identity> {
    Impersonation::of(headers).ok().flatten().map(|wanted| wanted.identity)
}

/// Returns the 403 error.
fn refused(who: &Identity, wanted: &Attributes, reason: &str) -> Status {
    let name = who.name();
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match wanted {
        Attributes::Path { path, verb } => {
            let why = format!("User {name:?} cannot {verb} path {path:?}{reason}");
            Status::forbidden(GroupResource::new("", ""), "", &why)
        }
        Attributes::Resource(it) => {
            let ResourceAttributes { verb, group, resource, subresource, namespace, .. } = it;
            let part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
            let scope = match namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let what = format!("{resource}{part}");
            let why = format!(
                "User {name:?} cannot {verb} resource {what:?} in API group {group:?} {scope}{reason}"
            );
            Status::forbidden(GroupResource::new(group, resource), &it.name, &why)
        }
    }
}

#[cfg(test)]
impl Authorization {
    /// Returns an authorization for tests of later steps.
    pub(crate) fn open() -> Authorization {
        let store = Arc::new(storage::memory::Memory::new());
        let admin = Identity::user("admin", &[crate::authn::identity::ADMINISTRATORS]);
        let wanted = Attributes::Path { path: "/".to_owned(), verb: "get".to_owned() };
        let access = Arc::new(Access::plain(store));
        Authorization::new(&access, Id::ROOT, None, &admin, Arc::default(), wanted, Revision::ZERO)
    }
}
