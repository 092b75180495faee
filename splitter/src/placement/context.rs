//! A workload, and everything a placement decision about it needs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::{Distribution, Division, Override, Placement, Target};
use api::meta::quantity::{self, Amounts};
use serde_json::Value;

use crate::controller::Splitter;
use crate::division::autoscaled;
use crate::division::{self, DivisionPlan, DivisionRule, REPLICAS};
use crate::execute::api_access;
use crate::placement::migration::{self, ExclusiveReason};
use crate::placement::policy::{self, AnnotationLevel, EffectivePlacement, Labels};
use crate::placement::reservations::ClusterName;
use crate::placement::targets::Extent;
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::placement_index::PolicyVersion;
use crate::snapshot::pod_count::PodCounter;
use crate::snapshot::{LabelsAndAnnotations, MemberCluster, ObjectRef, WatchedKind};
use crate::status::Report;
use crate::status::degraded::DegradedTargets;
use crate::transform::api_access::ApiAccess;
use crate::transform::references::pod_spec_at;
use crate::transform::{self, Destination};

/// The input of a placement decision.
#[derive(Debug)]
pub(crate) struct PlacementContext<'a> {
    pub(crate) watched: &'a WatchedKind,
    pub(crate) subject: &'a ObjectRef,
    pub(crate) object: &'a Value,
    pub(crate) record: Option<Distribution>,
    pub(crate) mailbox_objects: Vec<MailboxObject>,
    pub(crate) members: Vec<Arc<MemberCluster>>,
    pub(crate) namespace: LabelsAndAnnotations,
    pub(crate) placements: Vec<Placement>,
    pub(crate) overrides: Vec<Override>,
    /// The version of the namespace's policies. It is read before everything else here, so it is never newer.
    pub(crate) policies: PolicyVersion,
    /// The members that the logical cluster may not use.
    pub(crate) refused: HashSet<ClusterName>,
    /// `maxReplicas` of its autoscaler. None if it has no autoscaler.
    pub(crate) scaled_to: Option<u32>,
    /// The claims it mounts, each with the physical clusters that have it.
    pub(crate) claims: BTreeMap<String, BTreeSet<String>>,
    /// The pods by mailbox that have to terminate before the workload starts elsewhere. A Deployment does not count pods
    /// that are terminating.
    pub(crate) terminating_pods: BTreeMap<Id, u32>,
    /// The targets where it is degraded and waits for a new template.
    pub(crate) degraded: DegradedTargets,
    /// How its pods reach its logical cluster, if they do.
    pub(crate) api_access: Option<ApiAccess>,
    /// The desired template hash of each mailbox object, by mailbox. None if the object cannot be transformed for that
    /// physical cluster.
    pub(crate) templates: BTreeMap<Id, Option<String>>,
}

impl PlacementContext<'_> {
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.subject.key.namespace, self.subject.key.name)
    }

    pub(crate) fn annotations(&self) -> Labels {
        table(&self.object["metadata"]["annotations"])
    }

    pub(crate) fn labels(&self) -> Labels {
        table(&self.object["metadata"]["labels"])
    }

    pub(crate) fn recorded(&self) -> &[Target] {
        self.record.as_ref().map_or(&[], |record| &record.spec.targets)
    }

    pub(crate) fn rule(&self) -> DivisionRule {
        self.watched.rule(self.object)
    }

    /// The number of pods of each target with this plan, where it is known.
    pub(crate) fn pods(&self, targets: &[Target], plan: &DivisionPlan) -> BTreeMap<String, u32> {
        let counter = PodCounter {
            object: self.object,
            rule: self.rule(),
            replicas_at: self.replicas_at(),
            is_autoscaled: self.is_autoscaled(),
        };
        let count = |target: &Target| {
            let mailbox_object =
                self.mailbox_objects.iter().find(|mailbox_object| mailbox_object.is_at(&target.cluster));
            Some((target.cluster.clone(), counter.at(target, mailbox_object, plan.patch(&target.cluster))?))
        };
        targets.iter().filter_map(count).collect()
    }

    pub(crate) fn replicas_at(&self) -> &str {
        self.watched.replicas_at.as_deref().unwrap_or(REPLICAS)
    }

    pub(crate) fn is_autoscaled(&self) -> bool {
        self.scaled_to.is_some()
    }

    /// The desired replicas of a mailbox object: those requested, or those its autoscaler has set.
    pub(crate) fn desired_replicas(&self, mailbox_object: &MailboxObject) -> Option<u32> {
        match self.is_autoscaled() {
            true => autoscaled::current_replicas(mailbox_object, self.replicas_at()),
            false => mailbox_object.number(self.replicas_at()),
        }
    }

    pub(crate) fn generation(&self) -> i64 {
        self.object["metadata"]["generation"].as_i64().unwrap_or(1)
    }

    /// Adds the pods that have to terminate first, if it has to wait for any.
    pub(crate) fn with_terminating_pods(self, splitter: &Splitter) -> Self {
        let is_recreated = self.object.pointer("/spec/strategy/type").is_some_and(|kind| kind == "Recreate");
        let is_awaited = is_recreated && autoscaled::is_moving(self.recorded());
        let awaited = self
            .mailbox_objects
            .iter()
            .filter(|mailbox_object| is_awaited && mailbox_object.object.is_some());
        let count = |mailbox_object: &MailboxObject| {
            let pods = mailbox_objects::pods_of(&splitter.caches, mailbox_object).len();
            (mailbox_object.mailbox, u32::try_from(pods).unwrap_or(u32::MAX))
        };
        let terminating_pods = awaited.map(count).collect();
        Self { terminating_pods, ..self }
    }

    /// Adds the desired template of every mailbox object. An Override or another server address changes it without a
    /// change of the object.
    pub(crate) fn with_templates(self) -> Self {
        let cluster = self.subject.cluster().to_string();
        let template_hash = |mailbox_object: &MailboxObject| {
            let api_access = api_access::at(self.api_access.as_ref(), self.object, mailbox_object);
            let destination = self.destination(&cluster, mailbox_object, api_access.as_deref());
            transform::template_hash_on(self.object, &destination).ok().flatten()
        };
        let has_template = self.object.pointer("/spec/template").is_some();
        let present = self.mailbox_objects.iter().filter(|mailbox_object| {
            has_template && mailbox_object.is_nearest && mailbox_object.object.is_some()
        });
        let templates =
            present.map(|mailbox_object| (mailbox_object.mailbox, template_hash(mailbox_object))).collect();
        Self { templates, ..self }
    }

    /// Adds the degraded targets. Needs the templates.
    pub(crate) fn with_degraded(self, splitter: &Splitter) -> Self {
        let degraded = DegradedTargets::of(splitter, &self);
        Self { degraded, ..self }
    }

    /// The destination of a mailbox object.
    pub(crate) fn destination<'b>(
        &'b self,
        cluster: &'b str,
        mailbox_object: &'b MailboxObject,
        api_access: Option<&'b ApiAccess>,
    ) -> Destination<'b> {
        Destination {
            logical_cluster: cluster,
            cluster: &mailbox_object.member.object,
            overrides: &self.overrides,
            namespace_labels: &self.namespace.labels,
            api_access,
        }
    }

    /// The desired template hash of an existing mailbox object, if the object can be transformed for its physical cluster.
    pub(crate) fn template_for(&self, mailbox_object: &MailboxObject) -> Option<&str> {
        self.templates.get(&mailbox_object.mailbox)?.as_deref()
    }

    /// Whether a mailbox object has the desired template. An object that cannot be transformed is never current; one
    /// without template always is.
    pub(crate) fn is_current(&self, mailbox_object: &MailboxObject) -> bool {
        let has_none = !self.templates.contains_key(&mailbox_object.mailbox);
        has_none
            || self
                .template_for(mailbox_object)
                .is_some_and(|template_hash| mailbox_object.template() == Some(template_hash))
    }

    /// The status report of a mailbox object.
    pub(crate) fn report<'a>(&self, target: &Target, mailbox_object: &'a MailboxObject) -> Report<'a> {
        let report = Report { current: self.is_current(mailbox_object), ..mailbox_object.report(target) };
        let share = match self.is_autoscaled() {
            true => autoscaled::current_replicas(mailbox_object, self.replicas_at()),
            false => report.share,
        };
        Report { share, ..report }
    }

    pub(crate) fn effective_placement(
        &self,
        splitter: &Splitter,
    ) -> (Option<AnnotationLevel>, Result<EffectivePlacement, policy::InvalidAnnotation>) {
        let (labels, annotations) = (self.labels(), self.annotations());
        let logical_cluster: Labels = splitter
            .caches
            .clusters()
            .placement(self.subject.cluster())
            .map(|text| (api::names::PLACEMENT.to_owned(), text.to_owned()))
            .into_iter()
            .collect();
        let nearest = policy::nearest(&annotations, &self.namespace.annotations, &logical_cluster);
        let subject = policy::ObjectAttributes {
            group: &self.watched.kind.group,
            kind: &self.watched.kind.name,
            name: &self.subject.key.name,
            labels: &labels,
            namespace_labels: &self.namespace.labels,
        };
        (nearest.map(|(level, _)| level), policy::effective_placement(&subject, nearest, &self.placements))
    }

    /// The resource requests of one replica.
    pub(crate) fn each(&self) -> Amounts {
        let pod = pod_spec_at(self.object).and_then(|at| self.object.pointer(at));
        pod.map(quantity::asked_by).unwrap_or_default()
    }

    /// On how many physical clusters it can run. A claim is on one, and so are the pods that mount it. An autoscaled
    /// StatefulSet is on one, because the ordinals of the next target would depend on the autoscaler.
    pub(crate) fn extent(&self, division: Division) -> Extent {
        match self.rule() {
            DivisionRule::One | DivisionRule::Schedule => Extent::Single,
            DivisionRule::Copy => Extent::Copied,
            DivisionRule::Ordinals if self.is_autoscaled() => Extent::Single,
            _ if !self.claims.is_empty() => Extent::Single,
            _ if division == Division::Divide => Extent::Divided,
            _ => Extent::Copied,
        }
    }

    pub(crate) fn replicas(&self, rule: DivisionRule) -> u32 {
        match rule {
            DivisionRule::Replicas => division::number(self.object, self.replicas_at(), 1),
            DivisionRule::Ordinals => division::number(self.object, REPLICAS, 1),
            DivisionRule::Completions => division::number(self.object, "/spec/parallelism", 1),
            _ => 1,
        }
    }

    /// Why it must not run on two targets at the same time, if so.
    pub(crate) fn exclusive(&self, splitter: &Splitter) -> Option<ExclusiveReason> {
        let claims = splitter.caches.by_group_kind("", "PersistentVolumeClaim");
        migration::exclusive(self.object, |claim| {
            let key = controller::informer::Key { name: claim.to_owned(), ..self.subject.key.clone() };
            let found = claims.as_ref().and_then(|claims| claims.get(&key));
            let modes = found.as_ref().and_then(|claim| claim["spec"]["accessModes"].as_array());
            modes.is_none_or(|modes| {
                modes.iter().any(|mode| mode != "ReadWriteMany" && mode != "ReadOnlyMany")
            })
        })
    }
}

pub(crate) fn table(value: &Value) -> Labels {
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    value.as_object().into_iter().flatten().filter_map(text).collect()
}
