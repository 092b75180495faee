//! A workload, and everything a placement decision about it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::{Distribution, Division, Override, Placement, Target};
use api::meta::quantity::{self, Amounts};
use jiff::Timestamp;
use serde_json::Value;

use crate::division::{self, DivisionPlan, DivisionRule, REPLICAS};
use crate::placement::api_access;
use crate::placement::autoscaled;
use crate::placement::degraded::DegradedTargets;
use crate::placement::estimate::CapacityEstimates;
use crate::placement::migration::{self, ExclusiveReason, Readiness};
use crate::placement::permissions::SendPermissions;
use crate::placement::targets::Extent;
use crate::policy::{self, AnnotationLevel, EffectivePlacement, Labels};
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::placement_index::PolicyVersion;
use crate::snapshot::pod_count::PodCounter;
use crate::snapshot::{Caches, LabelsAndAnnotations, MemberCluster, ObjectRef, WatchedKind};
use crate::status::Report;
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
    /// The placement annotation of the logical cluster.
    pub(crate) inherited_placement: Option<String>,
    pub(crate) permissions: SendPermissions,
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
    /// How many replicas fit on its targets, as far as its pods show.
    pub(crate) estimates: CapacityEstimates,
    /// Why it must not run on two targets at the same time, if so.
    pub(crate) exclusive: Option<ExclusiveReason>,
    /// The readiness of each recorded target.
    pub(crate) readiness: BTreeMap<String, Readiness>,
    /// The time of the decision.
    pub(crate) now: Timestamp,
}

impl PlacementContext<'_> {
    /// Adds what follows from the other facts.
    pub(crate) fn complete(self, caches: &Caches) -> Self {
        self.with_terminating_pods(caches).with_templates().with_observations(caches)
    }

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
            true => mailbox_object.current_replicas(self.replicas_at()),
            false => mailbox_object.number(self.replicas_at()),
        }
    }

    pub(crate) fn generation(&self) -> i64 {
        self.object["metadata"]["generation"].as_i64().unwrap_or(1)
    }

    /// Adds the pods that have to terminate first, if it has to wait for any.
    fn with_terminating_pods(self, caches: &Caches) -> Self {
        let is_recreated = self.object.pointer("/spec/strategy/type").is_some_and(|kind| kind == "Recreate");
        let is_awaited = is_recreated && autoscaled::is_moving(self.recorded());
        let awaited = self
            .mailbox_objects
            .iter()
            .filter(|mailbox_object| is_awaited && mailbox_object.object.is_some());
        let count = |mailbox_object: &MailboxObject| {
            let pods = mailbox_objects::pods_of(caches, mailbox_object).len();
            (mailbox_object.mailbox, u32::try_from(pods).unwrap_or(u32::MAX))
        };
        let terminating_pods = awaited.map(count).collect();
        Self { terminating_pods, ..self }
    }

    /// Adds the desired template of every mailbox object. An Override or another server address changes it without a
    /// change of the object.
    fn with_templates(self) -> Self {
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

    /// Adds what the pods and statuses of the targets show. Needs the templates.
    fn with_observations(self, caches: &Caches) -> Self {
        let degraded = DegradedTargets::of(caches, &self);
        let estimates = CapacityEstimates::of(caches, &self);
        let readiness = readiness(&self);
        Self { degraded, estimates, readiness, ..self }
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
    pub(crate) fn report<'b>(&self, target: &Target, mailbox_object: &'b MailboxObject) -> Report<'b> {
        let report = Report { current: self.is_current(mailbox_object), ..mailbox_object.report(target) };
        let share = match self.is_autoscaled() {
            true => mailbox_object.current_replicas(self.replicas_at()),
            false => report.share,
        };
        Report { share, ..report }
    }

    pub(crate) fn effective_placement(
        &self,
    ) -> (Option<AnnotationLevel>, Result<EffectivePlacement, policy::InvalidAnnotation>) {
        let (labels, annotations) = (self.labels(), self.annotations());
        let inherited = self.inherited_placement.iter();
        let logical_cluster: Labels =
            inherited.map(|text| (api::names::PLACEMENT.to_owned(), text.clone())).collect();
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
}

/// Why an object must not run on two targets at the same time, if so.
pub(crate) fn exclusive(caches: &Caches, subject: &ObjectRef, object: &Value) -> Option<ExclusiveReason> {
    let claims = caches.by_group_kind("", "PersistentVolumeClaim");
    migration::exclusive(object, |claim| {
        let key = controller::informer::Key { name: claim.to_owned(), ..subject.key.clone() };
        let found = claims.as_ref().and_then(|claims| claims.get(&key));
        let modes = found.as_ref().and_then(|claim| claim["spec"]["accessModes"].as_array());
        modes.is_none_or(|modes| modes.iter().any(|mode| mode != "ReadWriteMany" && mode != "ReadOnlyMany"))
    })
}

/// The readiness of each target, as observed after the record was written.
fn readiness(context: &PlacementContext) -> BTreeMap<String, Readiness> {
    let one = |(target, mailbox_object): (&Target, &MailboxObject)| {
        let readiness =
            match (&mailbox_object.object, mailbox_object.is_applied() && mailbox_object.member.is_ready()) {
                (None, _) => Readiness::Unready { why: "not sent yet".to_owned() },
                // It is created again after its deletion. Its status is that of pods that are being deleted.
                (Some(_), _) if mailbox_object.is_being_deleted() => Readiness::Unready {
                    why: "the previous mailbox object is still being deleted".to_owned(),
                },
                (Some(_), false) => Readiness::Unknown,
                (Some(object), true) => {
                    let report = context.report(target, mailbox_object);
                    let number = context.desired_replicas(mailbox_object);
                    let share = target.share.and_then(|share| u32::try_from(share).ok());
                    match crate::status::health::of(&report, object) {
                        _ if context.rule().has_replicas() && share.is_some() && number < share => {
                            Readiness::Unready {
                                why: format!(
                                    "{} of {} replicas requested",
                                    number.unwrap_or(0),
                                    share.unwrap_or(0)
                                ),
                            }
                        }
                        (api::fleet::Health::Available, _) => Readiness::Ready,
                        (_, why) => Readiness::Unready { why },
                    }
                }
            };
        (target.cluster.clone(), readiness)
    };
    mailbox_objects::at_targets(&context.mailbox_objects, context.recorded()).into_iter().map(one).collect()
}

pub(crate) fn table(value: &Value) -> Labels {
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    value.as_object().into_iter().flatten().filter_map(text).collect()
}
