//! The next step for one placed object.
//!
//! The syncer deletes a downstream object only with a tombstone: the mailbox object, read from the server, with a
//! deletion timestamp and our finalizer. The finalizer is added before the object is applied, so every applied object
//! has one. If an object is missing from the mailbox without a tombstone, its deletion was not requested there, and the
//! downstream object is held.
//!
//! ```text
//!   in the mailbox         downstream             step
//!   placed                 absent                 AddFinalizer, then Apply
//!   placed                 ours                   Apply, if it differs
//!   placed                 not ours               Hold, unless it is to be adopted
//!   deleting, finalizer    ours, of this origin   Delete
//!   deleting, finalizer    absent, or not ours    RemoveFinalizer
//!   absent                 ours                   Hold
//! ```

use std::fmt;

use api::names::{ADOPT, ORIGIN, TRUE};
use serde_json::Value;

use super::compare::{LastApplied, is_applied};
use super::desired::DesiredObject;
use super::object::AnyObject;

/// The state of one object from which the syncer plans.
#[derive(Clone, Copy, Debug)]
pub struct SyncSnapshot<'a> {
    /// The id of the mailbox.
    pub mailbox_id: &'a str,
    pub mailbox: Option<&'a Value>,
    pub downstream: Option<&'a Value>,
    pub sent: Option<LastApplied>,
    /// Whether the informer of the mailbox is synced and watching.
    pub mailbox_synced: bool,
    /// Whether the informer of the physical cluster is synced and watching.
    pub downstream_synced: bool,
    /// Whether this syncer may write downstream.
    pub leads: bool,
    /// The identity of this syncer, if it holds the lease.
    pub leader: Option<&'a str>,
    pub cluster: ClusterIdentity,
}

/// Whether the client reaches the physical cluster that was joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterIdentity {
    Same,
    Other,
    /// Not verified since the last event that made it uncertain.
    Unknown,
}

impl ClusterIdentity {
    fn hold_reason(self) -> Option<HoldReason> {
        match self {
            ClusterIdentity::Same => None,
            ClusterIdentity::Other => Some(HoldReason::OtherCluster),
            ClusterIdentity::Unknown => Some(HoldReason::UnknownCluster),
        }
    }
}

/// The next step. After its execution, the caller plans again.
#[derive(Clone, PartialEq, Debug)]
pub enum SyncStep {
    /// Nothing to do: the object is in sync, or an event will requeue it.
    InSync,
    /// Add our finalizer to the mailbox object.
    AddFinalizer,
    Apply(DesiredObject),
    /// Delete the downstream object with this uid.
    Delete {
        uid: String,
    },
    /// The downstream object is deleted: remove our finalizer.
    RemoveFinalizer,
    /// Do nothing, and report why.
    Hold(HoldReason),
}

/// Why the syncer does nothing although the object is not in sync.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HoldReason {
    MailboxNotSynced,
    DownstreamNotSynced,
    NotLeading,
    OtherCluster,
    UnknownCluster,
    NotOurs,
    OtherMailbox,
    OriginMismatch,
    NoTombstone,
    FinalizerMissing,
}

impl HoldReason {
    /// Returns the reason in conditions and events.
    pub fn reason(self) -> &'static str {
        match self {
            HoldReason::MailboxNotSynced => "MailboxNotSynced",
            HoldReason::DownstreamNotSynced => "PhysicalClusterNotSynced",
            HoldReason::NotLeading => "NotLeading",
            HoldReason::OtherCluster => "OtherCluster",
            HoldReason::UnknownCluster => "UnknownCluster",
            HoldReason::NotOurs => "NotOurs",
            HoldReason::OtherMailbox => "OtherMailbox",
            HoldReason::OriginMismatch => "OriginMismatch",
            HoldReason::NoTombstone => "NoTombstone",
            HoldReason::FinalizerMissing => "FinalizerMissing",
        }
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoldReason::MailboxNotSynced => "the informer of the mailbox is not synced",
            HoldReason::DownstreamNotSynced => "the informer of the physical cluster is not synced",
            HoldReason::NotLeading => "another syncer holds the lease of this mailbox",
            HoldReason::OtherCluster => {
                "the kubeconfig connects to a different physical cluster than the recorded one"
            }
            HoldReason::UnknownCluster => "the identity of the physical cluster is not verified yet",
            HoldReason::NotOurs => {
                "the physical cluster has an object of this name that Holon did not create; \
                 the annotation holon.dev/adopt: \"true\" takes it over"
            }
            HoldReason::OtherMailbox => {
                "the physical cluster has an object of this name that belongs to another mailbox"
            }
            HoldReason::OriginMismatch => {
                "the object on the physical cluster was applied for a mailbox object with another uid"
            }
            HoldReason::NoTombstone => {
                "the object on the physical cluster is missing from the mailbox without a tombstone (its deletion was not \
                 requested)"
            }
            HoldReason::FinalizerMissing => {
                "the object is being deleted in the mailbox and does not have the finalizer of the syncer"
            }
        })
    }
}

/// The mailbox that applied a downstream object.
enum Owner {
    ThisMailbox,
    OtherMailbox,
    Unmanaged,
}

fn owner_of(downstream: &Value, mailbox_id: &str) -> Owner {
    match AnyObject(downstream).mailbox() {
        Some(id) if id == mailbox_id => Owner::ThisMailbox,
        Some(_) => Owner::OtherMailbox,
        None => Owner::Unmanaged,
    }
}

pub fn plan_step(snapshot: &SyncSnapshot) -> SyncStep {
    match snapshot.mailbox.map(AnyObject) {
        Some(object) if object.is_deleting() => plan_deletion(snapshot, object),
        Some(object) if object.is_placed() => plan_placed(snapshot, object),
        _ => plan_missing(snapshot),
    }
}

fn plan_placed(snapshot: &SyncSnapshot, object: AnyObject) -> SyncStep {
    if !snapshot.downstream_synced {
        return SyncStep::Hold(HoldReason::DownstreamNotSynced);
    }
    if let Some(downstream) = snapshot.downstream {
        let adopts = object.annotation(ADOPT) == Some(TRUE);
        match owner_of(downstream, snapshot.mailbox_id) {
            Owner::ThisMailbox => {}
            Owner::Unmanaged if adopts => {}
            Owner::Unmanaged => return SyncStep::Hold(HoldReason::NotOurs),
            Owner::OtherMailbox => return SyncStep::Hold(HoldReason::OtherMailbox),
        }
        // The object is applied again after its deletion is complete.
        if AnyObject(downstream).is_deleting() {
            return SyncStep::InSync;
        }
    }
    let desired =
        DesiredObject::of(object.0, snapshot.mailbox_id).with_downstream_scale(object.0, snapshot.downstream);
    let desired = desired.with_leader(snapshot.leader, snapshot.downstream);
    let is_applied =
        snapshot.downstream.is_some_and(|downstream| is_applied(downstream, &desired, snapshot.sent));
    if is_applied && object.has_finalizer() {
        return SyncStep::InSync;
    }
    match snapshot.cluster.hold_reason() {
        Some(reason) => SyncStep::Hold(reason),
        None if !snapshot.leads => SyncStep::Hold(HoldReason::NotLeading),
        // Without the finalizer there would be no tombstone, and the downstream object could never be deleted.
        None if !object.has_finalizer() => SyncStep::AddFinalizer,
        None => SyncStep::Apply(desired),
    }
}

fn plan_deletion(snapshot: &SyncSnapshot, object: AnyObject) -> SyncStep {
    if let Some(reason) = deletion_hold(snapshot) {
        return SyncStep::Hold(reason);
    }
    let ours = snapshot
        .downstream
        .filter(|downstream| matches!(owner_of(downstream, snapshot.mailbox_id), Owner::ThisMailbox))
        .map(AnyObject);
    match ours {
        None if object.has_finalizer() => SyncStep::RemoveFinalizer,
        None => SyncStep::InSync,
        Some(downstream) if downstream.is_deleting() => SyncStep::InSync,
        Some(_) if !object.has_finalizer() => SyncStep::Hold(HoldReason::FinalizerMissing),
        Some(downstream) if downstream.annotation(ORIGIN) != Some(object.uid()) => {
            SyncStep::Hold(HoldReason::OriginMismatch)
        }
        Some(downstream) => SyncStep::Delete { uid: downstream.uid().to_owned() },
    }
}

fn plan_missing(snapshot: &SyncSnapshot) -> SyncStep {
    match snapshot.downstream.map(|downstream| owner_of(downstream, snapshot.mailbox_id)) {
        Some(Owner::ThisMailbox) if !snapshot.mailbox_synced => SyncStep::Hold(HoldReason::MailboxNotSynced),
        Some(Owner::ThisMailbox) => SyncStep::Hold(HoldReason::NoTombstone),
        _ => SyncStep::InSync,
    }
}

/// Returns why the syncer may neither delete downstream nor conclude that the object is deleted there.
fn deletion_hold(snapshot: &SyncSnapshot) -> Option<HoldReason> {
    match snapshot.cluster.hold_reason() {
        Some(reason) => Some(reason),
        None if !snapshot.mailbox_synced => Some(HoldReason::MailboxNotSynced),
        None if !snapshot.downstream_synced => Some(HoldReason::DownstreamNotSynced),
        None if !snapshot.leads => Some(HoldReason::NotLeading),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::LED_BY;
    use api::names::{MAILBOX, PLACED, SYNCER};
    use serde_json::json;

    const ID: &str = "~bcdf";

    fn mailbox() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" },
            "metadata": { "name": "m", "uid": "origin", "labels": { PLACED: TRUE }, "finalizers": [SYNCER] },
        })
    }

    fn tombstone() -> Value {
        with(mailbox(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))
    }

    fn downstream() -> Value {
        with(DesiredObject::of(&mailbox(), ID).object, "/metadata/uid", json!("downstream"))
    }

    fn with(mut object: Value, path: &str, value: Value) -> Value {
        let (parent, field) = path.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        object
    }

    fn annotated(object: Value, name: &str, value: Value) -> Value {
        let mut object = object;
        object["metadata"]["annotations"][name] = value;
        object
    }

    fn snapshot<'a>(mailbox: Option<&'a Value>, downstream: Option<&'a Value>) -> SyncSnapshot<'a> {
        SyncSnapshot {
            mailbox_id: ID,
            mailbox,
            downstream,
            sent: None,
            mailbox_synced: true,
            downstream_synced: true,
            leads: true,
            leader: None,
            cluster: ClusterIdentity::Same,
        }
    }

    fn apply() -> SyncStep {
        SyncStep::Apply(DesiredObject::of(&mailbox(), ID))
    }

    #[test]
    fn a_placed_object_gets_a_finalizer_then_is_applied_then_is_in_sync() {
        let (mailbox, downstream) = (mailbox(), downstream());
        let unmarked = with(mailbox.clone(), "/metadata/finalizers", json!([]));
        assert_eq!(plan_step(&snapshot(Some(&unmarked), None)), SyncStep::AddFinalizer);
        assert_eq!(plan_step(&snapshot(Some(&mailbox), None)), apply());
        assert_eq!(plan_step(&snapshot(Some(&mailbox), Some(&downstream))), SyncStep::InSync);
        // A user removed our finalizer: without it, the downstream object could never be deleted.
        assert_eq!(plan_step(&snapshot(Some(&unmarked), Some(&downstream))), SyncStep::AddFinalizer);
        let drifted = with(downstream.clone(), "/data/a", json!("c"));
        assert_eq!(plan_step(&snapshot(Some(&mailbox), Some(&drifted))), apply());
        // Restored from an older backup: the same name with another uid is still ours.
        let other = annotated(downstream.clone(), ORIGIN, json!("another"));
        assert_eq!(plan_step(&snapshot(Some(&mailbox), Some(&other))), apply());
        let deleting = with(downstream, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        assert_eq!(plan_step(&snapshot(Some(&mailbox), Some(&deleting))), SyncStep::InSync);
    }

    #[test]
    fn a_namespace_names_the_syncer_that_holds_the_lease() {
        let mailbox = with(mailbox(), "/kind", json!("Namespace"));
        let of = |leader: &str| annotated(DesiredObject::of(&mailbox, ID).object, LED_BY, json!(leader));
        let (mine, theirs) = (of("me"), of("another"));
        let planned = |leader: Option<&'static str>, downstream: &Value| {
            plan_step(&SyncSnapshot { leader, ..snapshot(Some(&mailbox), Some(downstream)) })
        };
        assert_eq!(planned(Some("me"), &mine), SyncStep::InSync);
        assert_eq!(planned(None, &theirs), SyncStep::InSync);
        // The record of the last apply makes no difference: every syncer applies the same fields.
        let SyncStep::Apply(desired) = planned(Some("me"), &theirs) else {
            panic!("the annotation names another leader")
        };
        assert_eq!(desired.object, mine);
        let sent = Some(LastApplied::new(&desired, &theirs));
        let after_apply =
            plan_step(&SyncSnapshot { leader: Some("me"), sent, ..snapshot(Some(&mailbox), Some(&theirs)) });
        assert_eq!(after_apply, SyncStep::Apply(desired));
    }

    #[test]
    fn an_object_that_is_not_ours_is_not_touched() {
        let (mailbox, mine) = (mailbox(), downstream());
        let theirs = json!({ "metadata": { "name": "m", "uid": "theirs" }, "data": { "a": "b" } });
        let others = annotated(mine, MAILBOX, json!("~other"));
        assert_eq!(plan_step(&snapshot(Some(&mailbox), Some(&theirs))), SyncStep::Hold(HoldReason::NotOurs));
        assert_eq!(
            plan_step(&snapshot(Some(&mailbox), Some(&others))),
            SyncStep::Hold(HoldReason::OtherMailbox)
        );
        let adopting = annotated(mailbox.clone(), ADOPT, json!("true"));
        assert!(matches!(plan_step(&snapshot(Some(&adopting), Some(&theirs))), SyncStep::Apply(_)));
        assert_eq!(
            plan_step(&snapshot(Some(&adopting), Some(&others))),
            SyncStep::Hold(HoldReason::OtherMailbox)
        );
        // No object of ours exists downstream, so the finalizer can be removed.
        for foreign in [&theirs, &others] {
            assert_eq!(plan_step(&snapshot(Some(&tombstone()), Some(foreign))), SyncStep::RemoveFinalizer);
            assert_eq!(plan_step(&snapshot(None, Some(foreign))), SyncStep::InSync);
        }
    }

    #[test]
    fn a_delete_needs_a_tombstone_and_synced_informers() {
        let (tombstone, downstream) = (tombstone(), downstream());
        let snapshot_of_both = snapshot(Some(&tombstone), Some(&downstream));
        assert_eq!(plan_step(&snapshot_of_both), SyncStep::Delete { uid: "downstream".to_owned() });
        let check = |snapshot: SyncSnapshot, expected: HoldReason| {
            assert_eq!(plan_step(&snapshot), SyncStep::Hold(expected))
        };
        check(SyncSnapshot { mailbox_synced: false, ..snapshot_of_both }, HoldReason::MailboxNotSynced);
        check(SyncSnapshot { downstream_synced: false, ..snapshot_of_both }, HoldReason::DownstreamNotSynced);
        check(SyncSnapshot { leads: false, ..snapshot_of_both }, HoldReason::NotLeading);
        check(SyncSnapshot { cluster: ClusterIdentity::Other, ..snapshot_of_both }, HoldReason::OtherCluster);
        check(
            SyncSnapshot { cluster: ClusterIdentity::Unknown, ..snapshot_of_both },
            HoldReason::UnknownCluster,
        );
        let unmarked = with(tombstone.clone(), "/metadata/finalizers", json!(["theirs"]));
        check(SyncSnapshot { mailbox: Some(&unmarked), ..snapshot_of_both }, HoldReason::FinalizerMissing);
        let other = annotated(downstream.clone(), ORIGIN, json!("another"));
        check(SyncSnapshot { downstream: Some(&other), ..snapshot_of_both }, HoldReason::OriginMismatch);
        // An absent mailbox object was not deleted with a tombstone.
        check(SyncSnapshot { mailbox: None, ..snapshot_of_both }, HoldReason::NoTombstone);
        check(
            SyncSnapshot { mailbox: None, mailbox_synced: false, ..snapshot_of_both },
            HoldReason::MailboxNotSynced,
        );
        let unlabelled = with(mailbox(), "/metadata/labels", json!({}));
        check(SyncSnapshot { mailbox: Some(&unlabelled), ..snapshot_of_both }, HoldReason::NoTombstone);
        let deleting = with(downstream.clone(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        assert_eq!(
            plan_step(&SyncSnapshot { downstream: Some(&deleting), ..snapshot_of_both }),
            SyncStep::InSync
        );
    }

    #[test]
    fn the_finalizer_is_removed_when_the_object_is_certainly_deleted_downstream() {
        let tombstone = tombstone();
        let snapshot_of_both = snapshot(Some(&tombstone), None);
        assert_eq!(plan_step(&snapshot_of_both), SyncStep::RemoveFinalizer);
        assert_eq!(
            plan_step(&SyncSnapshot { downstream_synced: false, ..snapshot_of_both }),
            SyncStep::Hold(HoldReason::DownstreamNotSynced)
        );
        assert_eq!(
            plan_step(&SyncSnapshot { cluster: ClusterIdentity::Other, ..snapshot_of_both }),
            SyncStep::Hold(HoldReason::OtherCluster)
        );
        let unmarked = with(tombstone.clone(), "/metadata/finalizers", json!([]));
        assert_eq!(
            plan_step(&SyncSnapshot { mailbox: Some(&unmarked), ..snapshot_of_both }),
            SyncStep::InSync
        );
    }

    #[test]
    fn without_the_mailbox_the_last_desired_object_is_enforced() {
        let mailbox = mailbox();
        let snapshot_of_both = snapshot(Some(&mailbox), None);
        let check = |snapshot: SyncSnapshot, expected: SyncStep| assert_eq!(plan_step(&snapshot), expected);
        check(
            SyncSnapshot { downstream_synced: false, ..snapshot_of_both },
            SyncStep::Hold(HoldReason::DownstreamNotSynced),
        );
        check(SyncSnapshot { leads: false, ..snapshot_of_both }, SyncStep::Hold(HoldReason::NotLeading));
        check(
            SyncSnapshot { cluster: ClusterIdentity::Other, ..snapshot_of_both },
            SyncStep::Hold(HoldReason::OtherCluster),
        );
        // The desired object is known from before the informer lost its watch, and is enforced.
        check(SyncSnapshot { mailbox_synced: false, ..snapshot_of_both }, apply());
    }

    #[test]
    fn each_hold_reason_has_its_own_reason_and_message() {
        let all = [
            HoldReason::MailboxNotSynced,
            HoldReason::DownstreamNotSynced,
            HoldReason::NotLeading,
            HoldReason::OtherCluster,
            HoldReason::UnknownCluster,
            HoldReason::NotOurs,
            HoldReason::OtherMailbox,
            HoldReason::OriginMismatch,
            HoldReason::NoTombstone,
            HoldReason::FinalizerMissing,
        ];
        let mut texts: Vec<_> =
            all.iter().flat_map(|hold| [hold.reason().to_owned(), hold.to_string()]).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 2 * all.len());
    }
}
