//! What is done about one placed object.
//!
//! A delete below needs a tombstone: the object in the mailbox, read, with a deletion timestamp and our finalizer. That
//! finalizer goes on before anything goes down, so whatever is below has one, and an object that is not in the mailbox, for
//! whatever reason, is held: nobody said that it should go.
//!
//! ```text
//!   in the mailbox       below                  what is done
//!   wanted               nothing                Mark, then Apply
//!   wanted               ours                   Apply, if something differs
//!   wanted               somebody else's        Hold, unless it is to be adopted
//!   leaving, marked      ours, of this origin   Delete
//!   leaving, marked      nothing, or not ours   Release
//!   absent               ours                   Hold
//! ```

use std::fmt;

use api::names::{ADOPT, ORIGIN, TRUE};
use serde_json::Value;

use super::compare::{Sent, holds};
use super::object::Object;
use super::wanted::Wanted;

/// All that is known when deciding.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The id of the mailbox.
    pub mailbox_id: &'a str,
    pub mailbox: Option<&'a Value>,
    pub below: Option<&'a Value>,
    pub sent: Option<Sent>,
    /// The mailbox was read whole and is being followed, as somebody it knows.
    pub mailbox_synced: bool,
    /// The same for what is below.
    pub below_synced: bool,
    /// Nobody else looks after this mailbox.
    pub leads: bool,
    /// What we are known by below, if we hold the lease.
    pub leader: Option<&'a str>,
    pub cluster: Cluster,
}

/// Whether the physical cluster is the one it has always been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cluster {
    Same,
    Other,
    /// Nobody could tell yet.
    Unknown,
}

impl Cluster {
    fn doubt(self) -> Option<Hold> {
        match self {
            Cluster::Same => None,
            Cluster::Other => Some(Hold::OtherCluster),
            Cluster::Unknown => Some(Hold::UnknownCluster),
        }
    }
}

/// What is done next. After each step there is another look.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Nothing: all is as it should be, or an event will say when to look again.
    Rest,
    /// Put our finalizer on the object in the mailbox.
    Mark,
    Apply(Wanted),
    /// Delete this very object below.
    Delete {
        uid: String,
    },
    /// Nothing of it is below: take our finalizer off.
    Release,
    /// Nothing may be done, and somebody should know.
    Hold(Hold),
}

/// Why nothing is done although something is to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hold {
    MailboxNotSynced,
    BelowNotSynced,
    NotLeading,
    OtherCluster,
    UnknownCluster,
    NotOurs,
    OtherMailbox,
    OtherOrigin,
    NoTombstone,
    NotMarked,
}

impl Hold {
    /// One word for it, as in the reason of a condition.
    pub fn reason(self) -> &'static str {
        match self {
            Hold::MailboxNotSynced => "MailboxNotSynced",
            Hold::BelowNotSynced => "PhysicalClusterNotSynced",
            Hold::NotLeading => "NotLeading",
            Hold::OtherCluster => "OtherCluster",
            Hold::UnknownCluster => "UnknownCluster",
            Hold::NotOurs => "NotOurs",
            Hold::OtherMailbox => "OtherMailbox",
            Hold::OtherOrigin => "OtherOrigin",
            Hold::NoTombstone => "NoTombstone",
            Hold::NotMarked => "NotMarked",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hold::MailboxNotSynced => "the mailbox cannot be followed at the moment",
            Hold::BelowNotSynced => "the physical cluster cannot be followed at the moment",
            Hold::NotLeading => "another syncer looks after this mailbox",
            Hold::OtherCluster => "the kubeconfig leads to another physical cluster than before",
            Hold::UnknownCluster => "which physical cluster this is could not be found out yet",
            Hold::NotOurs => {
                "an object of this name is on the physical cluster and was not made by Holon; \
                 holon.dev/adopt: \"true\" takes it over"
            }
            Hold::OtherMailbox => "an object of this name on the physical cluster belongs to another mailbox",
            Hold::OtherOrigin => {
                "the object on the physical cluster was made for another object than the one that is deleted"
            }
            Hold::NoTombstone => {
                "the object is on the physical cluster but not in the mailbox, and nobody deleted it there"
            }
            Hold::NotMarked => {
                "the object is being deleted in the mailbox without having been marked by the syncer"
            }
        })
    }
}

/// Whose an object below is.
enum Whose {
    Ours,
    Other,
    Nobodys,
}

fn whose(below: &Value, mailbox_id: &str) -> Whose {
    match Object(below).mailbox() {
        Some(id) if id == mailbox_id => Whose::Ours,
        Some(_) => Whose::Other,
        None => Whose::Nobodys,
    }
}

pub fn verdict(facts: &Facts) -> Step {
    match facts.mailbox.map(Object) {
        Some(object) if object.is_being_deleted() => leaving(facts, object),
        Some(object) if object.is_placed() => wanted(facts, object),
        _ => absent(facts),
    }
}

fn wanted(facts: &Facts, object: Object) -> Step {
    if !facts.below_synced {
        return Step::Hold(Hold::BelowNotSynced);
    }
    if let Some(below) = facts.below {
        let adopts = object.annotation(ADOPT) == Some(TRUE);
        match whose(below, facts.mailbox_id) {
            Whose::Ours => {}
            Whose::Nobodys if adopts => {}
            Whose::Nobodys => return Step::Hold(Hold::NotOurs),
            Whose::Other => return Step::Hold(Hold::OtherMailbox),
        }
        // It comes back once it is gone.
        if Object(below).is_being_deleted() {
            return Step::Rest;
        }
    }
    let wanted = Wanted::of(object.0, facts.mailbox_id).beside(object.0, facts.below);
    let wanted = wanted.led_by(facts.leader, facts.below);
    let done = facts.below.is_some_and(|below| holds(below, &wanted, facts.sent));
    if done && object.is_marked() {
        return Step::Rest;
    }
    match facts.cluster.doubt() {
        Some(why) => Step::Hold(why),
        None if !facts.leads => Step::Hold(Hold::NotLeading),
        // What is below without a tombstone to come could never be deleted.
        None if !object.is_marked() => Step::Mark,
        None => Step::Apply(wanted),
    }
}

fn leaving(facts: &Facts, object: Object) -> Step {
    if let Some(why) = doubt(facts) {
        return Step::Hold(why);
    }
    let ours = facts.below.filter(|below| matches!(whose(below, facts.mailbox_id), Whose::Ours)).map(Object);
    match ours {
        None if object.is_marked() => Step::Release,
        None => Step::Rest,
        Some(below) if below.is_being_deleted() => Step::Rest,
        Some(_) if !object.is_marked() => Step::Hold(Hold::NotMarked),
        Some(below) if below.annotation(ORIGIN) != Some(object.uid()) => Step::Hold(Hold::OtherOrigin),
        Some(below) => Step::Delete { uid: below.uid().to_owned() },
    }
}

fn absent(facts: &Facts) -> Step {
    match facts.below.map(|below| whose(below, facts.mailbox_id)) {
        Some(Whose::Ours) if !facts.mailbox_synced => Step::Hold(Hold::MailboxNotSynced),
        Some(Whose::Ours) => Step::Hold(Hold::NoTombstone),
        _ => Step::Rest,
    }
}

/// What forbids to delete, or to say that nothing is left to delete.
fn doubt(facts: &Facts) -> Option<Hold> {
    match facts.cluster.doubt() {
        Some(why) => Some(why),
        None if !facts.mailbox_synced => Some(Hold::MailboxNotSynced),
        None if !facts.below_synced => Some(Hold::BelowNotSynced),
        None if !facts.leads => Some(Hold::NotLeading),
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

    fn leaving() -> Value {
        with(mailbox(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))
    }

    fn below() -> Value {
        with(Wanted::of(&mailbox(), ID).object, "/metadata/uid", json!("below"))
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

    fn facts<'a>(mailbox: Option<&'a Value>, below: Option<&'a Value>) -> Facts<'a> {
        Facts {
            mailbox_id: ID,
            mailbox,
            below,
            sent: None,
            mailbox_synced: true,
            below_synced: true,
            leads: true,
            leader: None,
            cluster: Cluster::Same,
        }
    }

    fn apply() -> Step {
        Step::Apply(Wanted::of(&mailbox(), ID))
    }

    #[test]
    fn what_is_wanted_is_marked_then_applied_then_left_alone() {
        let (mailbox, below) = (mailbox(), below());
        let unmarked = with(mailbox.clone(), "/metadata/finalizers", json!([]));
        assert_eq!(verdict(&facts(Some(&unmarked), None)), Step::Mark);
        assert_eq!(verdict(&facts(Some(&mailbox), None)), apply());
        assert_eq!(verdict(&facts(Some(&mailbox), Some(&below))), Step::Rest);
        // Somebody took our finalizer off: without it, what is below could never go.
        assert_eq!(verdict(&facts(Some(&unmarked), Some(&below))), Step::Mark);
        let drifted = with(below.clone(), "/data/a", json!("c"));
        assert_eq!(verdict(&facts(Some(&mailbox), Some(&drifted))), apply());
        // Restored from an older backup: the same name with another uid is still ours.
        let other = annotated(below.clone(), ORIGIN, json!("another"));
        assert_eq!(verdict(&facts(Some(&mailbox), Some(&other))), apply());
        let going = with(below, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        assert_eq!(verdict(&facts(Some(&mailbox), Some(&going))), Step::Rest);
    }

    #[test]
    fn a_namespace_says_who_leads_by_the_word_of_who_does() {
        let mailbox = with(mailbox(), "/kind", json!("Namespace"));
        let of = |leader: &str| annotated(Wanted::of(&mailbox, ID).object, LED_BY, json!(leader));
        let (mine, theirs) = (of("me"), of("another"));
        let decided = |leader: Option<&'static str>, below: &Value| {
            verdict(&Facts { leader, ..facts(Some(&mailbox), Some(below)) })
        };
        assert_eq!(decided(Some("me"), &mine), Step::Rest);
        assert_eq!(decided(None, &theirs), Step::Rest);
        // Whatever is remembered: each of them writes the same fields.
        let Step::Apply(wanted) = decided(Some("me"), &theirs) else { panic!("it says another leads") };
        assert_eq!(wanted.object, mine);
        let sent = Some(Sent::new(&wanted, &theirs));
        let again = verdict(&Facts { leader: Some("me"), sent, ..facts(Some(&mailbox), Some(&theirs)) });
        assert_eq!(again, Step::Apply(wanted));
    }

    #[test]
    fn what_is_not_ours_is_not_touched() {
        let (mailbox, mine) = (mailbox(), below());
        let theirs = json!({ "metadata": { "name": "m", "uid": "theirs" }, "data": { "a": "b" } });
        let others = annotated(mine, MAILBOX, json!("~other"));
        assert_eq!(verdict(&facts(Some(&mailbox), Some(&theirs))), Step::Hold(Hold::NotOurs));
        assert_eq!(verdict(&facts(Some(&mailbox), Some(&others))), Step::Hold(Hold::OtherMailbox));
        let adopting = annotated(mailbox.clone(), ADOPT, json!("true"));
        assert!(matches!(verdict(&facts(Some(&adopting), Some(&theirs))), Step::Apply(_)));
        assert_eq!(verdict(&facts(Some(&adopting), Some(&others))), Step::Hold(Hold::OtherMailbox));
        // Nothing of ours is there, so nothing is owed.
        for foreign in [&theirs, &others] {
            assert_eq!(verdict(&facts(Some(&leaving()), Some(foreign))), Step::Release);
            assert_eq!(verdict(&facts(None, Some(foreign))), Step::Rest);
        }
    }

    #[test]
    fn a_delete_needs_a_tombstone_and_no_doubt() {
        let (tombstone, below) = (leaving(), below());
        let told = facts(Some(&tombstone), Some(&below));
        assert_eq!(verdict(&told), Step::Delete { uid: "below".to_owned() });
        let check = |facts: Facts, expected: Hold| assert_eq!(verdict(&facts), Step::Hold(expected));
        check(Facts { mailbox_synced: false, ..told }, Hold::MailboxNotSynced);
        check(Facts { below_synced: false, ..told }, Hold::BelowNotSynced);
        check(Facts { leads: false, ..told }, Hold::NotLeading);
        check(Facts { cluster: Cluster::Other, ..told }, Hold::OtherCluster);
        check(Facts { cluster: Cluster::Unknown, ..told }, Hold::UnknownCluster);
        let unmarked = with(tombstone.clone(), "/metadata/finalizers", json!(["theirs"]));
        check(Facts { mailbox: Some(&unmarked), ..told }, Hold::NotMarked);
        let other = annotated(below.clone(), ORIGIN, json!("another"));
        check(Facts { below: Some(&other), ..told }, Hold::OtherOrigin);
        // Absent is not deleted.
        check(Facts { mailbox: None, ..told }, Hold::NoTombstone);
        check(Facts { mailbox: None, mailbox_synced: false, ..told }, Hold::MailboxNotSynced);
        let unlabelled = with(mailbox(), "/metadata/labels", json!({}));
        check(Facts { mailbox: Some(&unlabelled), ..told }, Hold::NoTombstone);
        let going = with(below.clone(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        assert_eq!(verdict(&Facts { below: Some(&going), ..told }), Step::Rest);
    }

    #[test]
    fn a_tombstone_goes_when_nothing_is_left_below_for_certain() {
        let tombstone = leaving();
        let told = facts(Some(&tombstone), None);
        assert_eq!(verdict(&told), Step::Release);
        assert_eq!(verdict(&Facts { below_synced: false, ..told }), Step::Hold(Hold::BelowNotSynced));
        assert_eq!(verdict(&Facts { cluster: Cluster::Other, ..told }), Step::Hold(Hold::OtherCluster));
        let unmarked = with(tombstone.clone(), "/metadata/finalizers", json!([]));
        assert_eq!(verdict(&Facts { mailbox: Some(&unmarked), ..told }), Step::Rest);
    }

    #[test]
    fn nothing_is_sent_in_doubt_but_cut_off_from_the_mailbox_it_is() {
        let mailbox = mailbox();
        let told = facts(Some(&mailbox), None);
        let check = |facts: Facts, expected: Step| assert_eq!(verdict(&facts), expected);
        check(Facts { below_synced: false, ..told }, Step::Hold(Hold::BelowNotSynced));
        check(Facts { leads: false, ..told }, Step::Hold(Hold::NotLeading));
        check(Facts { cluster: Cluster::Other, ..told }, Step::Hold(Hold::OtherCluster));
        // What is wanted is known from before, and is enforced.
        check(Facts { mailbox_synced: false, ..told }, apply());
    }

    #[test]
    fn each_reason_to_hold_has_a_word_of_its_own() {
        let all = [
            Hold::MailboxNotSynced,
            Hold::BelowNotSynced,
            Hold::NotLeading,
            Hold::OtherCluster,
            Hold::UnknownCluster,
            Hold::NotOurs,
            Hold::OtherMailbox,
            Hold::OtherOrigin,
            Hold::NoTombstone,
            Hold::NotMarked,
        ];
        let mut words: Vec<_> =
            all.iter().flat_map(|hold| [hold.reason().to_owned(), hold.to_string()]).collect();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), 2 * all.len());
    }
}
