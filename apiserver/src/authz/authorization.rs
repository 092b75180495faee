//! Lets a request in, or says why not.
//!
//! Who does not reach a logical cluster is answered as if it were not there. Who reaches it and may not do what the
//! request asks for is told so, in Kubernetes' words.

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
use crate::quota::{Promise, Size, Watching};
use crate::rbac::controller_role::Granted;
use crate::rbac::{Decision, Layers, Rule, Who};
use crate::request::attributes::{Attributes, ResourceAttributes};

/// Who was let in where, and for what. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    access: Arc<Access>,
    cluster: Id,
    /// None for administrators and parts of this process who act as themselves: they need none.
    lineage: Option<Lineage>,
    /// What the sender may do here by a mandate, if they have one.
    granted: Option<Granted>,
    /// Who sent the request.
    sender: Identity,
    /// Whom it acts as: the sender, if it does not say otherwise.
    identity: Identity,
    /// What the sender had to be allowed to act so.
    claims: Arc<[Attributes]>,
    wanted: Arc<Attributes>,
    /// Decided on policies as of here.
    decided: Revision,
}

impl Gate {
    /// Lets a request for a logical cluster in.
    pub(crate) async fn enter(
        access: &Arc<Access>,
        cluster: Id,
        sender: &Identity,
        headers: &HeaderMap,
        wanted: Attributes,
    ) -> Result<Gate, Status> {
        let impersonation = Impersonation::of(headers);
        let lineage = match (sender.is_at_home_everywhere(), &impersonation) {
            (true, Ok(None)) => None,
            _ => {
                let lineage = access.lineage(cluster).await.map_err(unreadable)?;
                Some(lineage.ok_or_else(Status::unknown_path)?)
            }
        };
        // By its path nobody finds a logical cluster that is on its way out; a token leads there without one.
        if let (Some(_), Some(lineage)) = (sender.home(), &lineage) {
            let is_there = revalidation::are_there(access, &revalidation::objects(lineage)).await;
            if !is_there.map_err(unreadable)? {
                return Err(Status::unknown_path());
            }
        }
        // Before anything else is said: a word about the request would be one about the logical cluster.
        if lineage.as_ref().is_some_and(|lineage| !access.reaches(sender, lineage)) {
            return Err(Status::unknown_path());
        }
        let impersonation = impersonation?;
        let decided = lineage.as_ref().map_or(Revision::ZERO, |lineage| access.changed(lineage));
        let (identity, claims) = match impersonation {
            None => (sender.clone(), Arc::default()),
            Some(one) if one.is_of_administrators() && !sender.is_administrator() => {
                return Err(refused(sender, &Impersonation::administrators(), ""));
            }
            Some(Impersonation { identity, claims }) => (identity, claims.into()),
        };
        let mut gate = Gate::new(access, cluster, lineage, sender, claims, wanted, decided);
        gate.identity = identity;
        if let Some(mandate) = sender.mandate() {
            let labels = match mandate.selects_labels() {
                true => logical_cluster::labels(access.store(), cluster).await.map_err(unreadable)?,
                false => Vec::new(),
            };
            gate.granted = Some(mandate.within(cluster, &labels));
        }
        gate.check().map(|()| gate)
    }

    fn new(
        access: &Arc<Access>,
        cluster: Id,
        lineage: Option<Lineage>,
        sender: &Identity,
        claims: Arc<[Attributes]>,
        wanted: Attributes,
        decided: Revision,
    ) -> Gate {
        let (access, wanted) = (access.clone(), Arc::new(wanted));
        let (identity, sender) = (sender.clone(), sender.clone());
        Gate { access, cluster, lineage, granted: None, sender, identity, claims, wanted, decided }
    }

    /// Whether all that was decided still holds.
    pub(super) fn check(&self) -> Result<(), Status> {
        if self.lineage.as_ref().is_some_and(|lineage| !self.access.reaches(&self.sender, lineage)) {
            return Err(Status::unknown_path());
        }
        let acts = self.claims.iter().map(|claim| (&self.sender, claim));
        for (who, wanted) in acts.chain([(&self.identity, &*self.wanted)]) {
            let Decision { allowed, reason } = self.may(who, wanted);
            if !allowed {
                return Err(refused(who, wanted, &reason));
            }
        }
        Ok(())
    }

    /// Lets a request that changes what is not there make it, if it may do that too.
    pub(crate) fn creates(&self) -> Result<(), Status> {
        let mut wanted = (*self.wanted).clone();
        if let Attributes::Resource(wanted) = &mut wanted {
            wanted.verb = Verb::Create.as_str().to_owned();
        }
        let Decision { allowed, reason } = self.may(&self.identity, &wanted);
        if allowed { Ok(()) } else { Err(refused(&self.identity, &wanted, &reason)) }
    }

    /// Takes the turn of a request, if it is one that has to wait for it. Whoever has too much must be able to delete,
    /// and somebody has to be able to look.
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

    /// Makes room for an object that grows so much.
    pub(crate) async fn room(
        &self,
        what: (GroupResource<'_>, &str),
        growth: Size,
    ) -> Result<Promise, Status> {
        self.access.quotas().room(self.cluster, what, growth).await
    }

    /// Makes room for a watch.
    pub(crate) async fn watching(&self) -> Result<Watching, Status> {
        self.access.quotas().watch(self.cluster).await
    }

    /// Whom the request acts as.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Decides anew as of now from here on.
    pub(crate) async fn catch_up(&self) -> Result<(), Status> {
        self.access.catch_up().await.map_err(unreadable)
    }

    /// Whether somebody may do something in this logical cluster.
    pub(crate) fn may(&self, who: &Identity, wanted: &Attributes) -> Decision {
        match self.granted.as_ref().filter(|_| who.mandate().is_some()) {
            Some(granted) => Decision { allowed: granted.allows(wanted), reason: String::new() },
            None => self.access.may(who, self.cluster, wanted),
        }
    }

    /// Looks at the policy of this logical cluster.
    pub(crate) fn policy<T>(&self, read: impl FnOnce(Layers<'_>) -> T) -> T {
        self.access.index().read(self.cluster, read)
    }

    /// The rules whoever asks has in a namespace, and what is missing of them.
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

/// Whom a request wants to act as, whether it may or not.
pub(crate) fn wants_to_act_as(headers: &HeaderMap) -> Option<Identity> {
    Impersonation::of(headers).ok().flatten().map(|wanted| wanted.identity)
}

/// What somebody is told who may not.
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
impl Gate {
    /// For tests of what comes after it.
    pub(crate) fn open() -> Gate {
        let store = Arc::new(storage::memory::Memory::new());
        let admin = Identity::user("admin", &[crate::authn::identity::ADMINISTRATORS]);
        let wanted = Attributes::Path { path: "/".to_owned(), verb: "get".to_owned() };
        let access = Arc::new(Access::plain(store));
        Gate::new(&access, Id::ROOT, None, &admin, Arc::default(), wanted, Revision::ZERO)
    }
}
