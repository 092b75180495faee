//! One placed object: brought down, kept right there, and taken away when its tombstone says so.
//!
//! ```text
//!   read both sides ──► verdict ──► one step ──► read what came of it ──► verdict ──► … ──► rest ──► status up
//! ```
//!
//! Views may be late. So before anything is made, deleted or declared absent the server is asked itself; whoever finds
//! something else decides anew.

use std::time::Duration;

use api::names::{FIELD_MANAGER, SYNCER};
use controller::informer::Key;
use controller::kind::Kind;
use controller::queue::Outcome;
use controller::remote::{Patch, Place};
use serde_json::{Value, json};

use crate::kinds::KindName;
use crate::mirror::{Cluster, Hold, LED_BY, Object, Sent, Step, Wanted, fingerprint, verdict};
use crate::seen::Seen;
use crate::sides::{Followed, Pair, Sides, Subject, place};
use crate::state::Kept;
use crate::troubles::{Cure, REFUSED, Trouble};
use crate::up;

/// Mark, apply, rest, and twice a surprise on the way.
const STEPS_MAX: usize = 6;
/// An event comes sooner, unless it is missed.
const NAMESPACE_WAIT: Duration = Duration::from_secs(1);

/// What came of a step.
enum Stepped {
    /// Decide anew.
    On,
    Over(Outcome),
}

pub(crate) async fn look(sides: &Sides, subject: &Subject, mut pair: Pair) -> Result<Outcome, Trouble> {
    // Before anything goes down, so that nothing it brings about is missed.
    sides.note_namespace(&subject.key.namespace);
    for _ in 0..STEPS_MAX {
        let stepped = match verdict(&sides.facts(subject, &pair)) {
            Step::Rest => return rest(sides, subject, pair).await,
            Step::Mark => mark(sides, subject, &mut pair).await?,
            Step::Apply(wanted) => apply(sides, subject, &mut pair, wanted).await?,
            Step::Delete { uid } => delete(sides, subject, &pair, &uid).await?,
            Step::Release => release(sides, subject, &mut pair).await?,
            Step::Hold(Hold::NoTombstone) => search(sides, subject, &mut pair).await?,
            Step::Hold(why) => return Err(held(subject, &pair, why)),
        };
        if let Stepped::Over(outcome) = stepped {
            return Ok(outcome);
        }
    }
    // Somebody changes it as fast as we look.
    Ok(Outcome::Failed)
}

/// Why nothing is done. What may not be looked at is said so.
fn held(subject: &Subject, pair: &Pair, why: Hold) -> Trouble {
    let below = pair.followed.below.as_ref().filter(|_| why == Hold::BelowNotSynced);
    match below.and_then(|below| below.forbidden(&subject.key.namespace)) {
        Some(message) => Trouble { reason: "Forbidden", message, cure: Cure::Event },
        None => why.into(),
    }
}

/// All is as it should be down there.
async fn rest(sides: &Sides, subject: &Subject, pair: Pair) -> Result<Outcome, Trouble> {
    let (Some(mailbox), Some(below)) = (&pair.mailbox, &pair.below) else {
        if pair.mailbox.is_none() && pair.below.is_none() {
            sides.forget(subject);
        }
        return Ok(Outcome::Done);
    };
    if !Object(mailbox).is_being_deleted() && !Object(below).is_being_deleted() {
        let wanted = Wanted::of(mailbox, &sides.settings.mailbox).beside(mailbox, Some(below));
        sides.remember(subject, |memory| memory.sent = Some(Sent::new(&wanted, below)));
        save(sides, subject, &pair, mailbox, &wanted).await;
    }
    up::status(sides, subject, &pair).await?;
    Ok(Outcome::Done)
}

async fn mark(sides: &Sides, subject: &Subject, pair: &mut Pair) -> Result<Stepped, Trouble> {
    let Some(object) = &pair.mailbox else { return Ok(Stepped::On) };
    let has_some = object["metadata"]["finalizers"].is_array();
    let (path, value) = match has_some {
        true => ("/metadata/finalizers/-", json!(SYNCER)),
        false => ("/metadata/finalizers", json!([SYNCER])),
    };
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": Object(object).uid() },
        { "op": "test", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"] },
        { "op": "add", "path": path, "value": value },
    ]);
    let place = place(&pair.followed, &subject.key);
    let marked = sides.mailbox.patch(place, Patch::Json, &change).await;
    pair.mailbox = Some(marked.map_err(Trouble::stale("CannotMark"))?);
    Ok(Stepped::On)
}

async fn apply(
    sides: &Sides,
    subject: &Subject,
    pair: &mut Pair,
    wanted: Wanted,
) -> Result<Stepped, Trouble> {
    if !pair.followed.row.below {
        let kind = &pair.followed.row.kind;
        let message = format!("the physical cluster does not serve {kind} in version {}", kind.version);
        return Err(Trouble { reason: "KindNotServed", message, cure: Cure::Event });
    }
    if !has_namespace(sides, &subject.key.namespace) {
        return Ok(Stepped::Over(Outcome::Again(NAMESPACE_WAIT)));
    }
    let place = place(&pair.followed, &subject.key);
    let Some(below) = &pair.below else {
        // The view shows only what carries our label. What does not may still have this name.
        pair.below = ask_below(sides, place).await?;
        return match &pair.below {
            Some(_) => Ok(Stepped::On),
            None if is_superseded(sides, subject).await => Err(Hold::NotLeading.into()),
            None => send(sides, subject, pair, wanted, None).await,
        };
    };
    let uid = Object(below).uid().to_owned();
    send(sides, subject, pair, wanted, Some(uid)).await
}

/// Applies; with a uid, to that very object.
async fn send(
    sides: &Sides,
    subject: &Subject,
    pair: &mut Pair,
    wanted: Wanted,
    uid: Option<String>,
) -> Result<Stepped, Trouble> {
    if let Some(mailbox) = &pair.mailbox {
        // The next beat would say it, too; whoever is killed before that has sent something that nobody would enforce.
        if sides.lease.leads() {
            sides.change_about(|about| about.led = true).await;
        }
        save(sides, subject, pair, mailbox, &wanted).await;
    }
    let mut object = wanted.object.clone();
    if let Some(uid) = uid {
        object["metadata"]["uid"] = uid.into();
    }
    let place = place(&pair.followed, &subject.key);
    let patch = Patch::Apply { manager: FIELD_MANAGER };
    let applied = match sides.below.patch(place, patch, &object).await {
        Err(error) if error.code() == 422 => {
            let refused = Trouble::failed(REFUSED)(error);
            up::refused(sides, subject, pair, &refused.message).await?;
            return Err(refused);
        }
        applied => applied.map_err(Trouble::failed("CannotApply"))?,
    };
    tracing::debug!(kind = %pair.followed.row.kind, object = %subject.key, "applied");
    sides.remember(subject, |memory| memory.sent = Some(Sent::new(&wanted, &applied)));
    if pair.followed.name.is_definitions() {
        sides.redefined();
    }
    if pair.below.as_ref().is_some_and(|before| Object(before).mailbox().is_none()) {
        sides.missed();
    }
    pair.below = Some(applied);
    up::status(sides, subject, pair).await?;
    Ok(Stepped::Over(Outcome::Done))
}

/// What the server below itself says about an object, if it is the server of this physical cluster. In another one it is no
/// wonder that something is not there.
async fn ask_below(sides: &Sides, place: Place<'_>) -> Result<Option<Value>, Trouble> {
    let found = async { sides.below.get(place).await.map_err(Trouble::failed("CannotRead")) };
    Ok(tokio::try_join!(found, same_cluster(sides))?.0)
}

/// The same of the mailbox.
async fn ask_here(sides: &Sides, place: Place<'_>) -> Result<Option<Value>, Trouble> {
    sides.mailbox.get(place).await.map_err(Trouble::failed("CannotRead"))
}

/// Asks once more which physical cluster this is.
async fn same_cluster(sides: &Sides) -> Result<(), Trouble> {
    let uid = Seen::whose(&sides.below).await.map_err(Trouble::failed("CannotRead"))?;
    if sides.about().cluster.as_deref() == Some(&uid) {
        return Ok(());
    }
    sides.doubt_cluster();
    Err(Hold::UnknownCluster.into())
}

/// Whether what the mailbox wants in a namespace can be made: either the namespace is there, or it is not ours to make.
fn has_namespace(sides: &Sides, namespace: &str) -> bool {
    let subject = Subject::new(&KindName::new("", "namespaces"), Key::new("", namespace));
    let Some(pair) = sides.pair(&subject).filter(|_| !namespace.is_empty()) else { return true };
    // Who may not look at namespaces finds out by trying.
    if pair.followed.below.as_ref().is_some_and(|below| below.forbidden("").is_some()) {
        return true;
    }
    let view = &pair.followed.mailbox;
    // Until the mailbox was read nobody knows whose it is; when it cannot be, what it asked for last counts.
    let is_known = view.known() || view.trouble().is_some();
    is_known && (pair.mailbox.is_none() || pair.below.is_some()) && is_led(sides, &subject, &pair)
}

/// Whether a namespace says that we lead, so that whoever led before knows why something in it goes or changes. One that
/// cannot be told so, for whatever reason, need not.
fn is_led(sides: &Sides, subject: &Subject, namespace: &Pair) -> bool {
    let (Some(mailbox), Some(below)) = (&namespace.mailbox, &namespace.below) else { return true };
    let ours = Object(mailbox).is_placed() && Object(below).mailbox() == Some(&sides.settings.mailbox);
    let stays = !Object(mailbox).is_being_deleted() && !Object(below).is_being_deleted();
    let says = || sides.leader().is_none_or(|leader| Object(below).annotation(LED_BY) == Some(leader));
    !ours || !stays || says() || sides.troubles.has(subject)
}

/// Whether another leads by now, as the namespace says in which something is to be made that was there before. Asked of the
/// server itself: it may be gone because that other one deleted it.
async fn is_superseded(sides: &Sides, subject: &Subject) -> bool {
    let namespace = &subject.key.namespace;
    if sides.lease.leads() || namespace.is_empty() {
        return sides.is_superseded() && !sides.lease.leads();
    }
    let kind = Kind::new("", "v1", "namespaces", "Namespace", false);
    // Who may not look at namespaces goes on as if there were no other.
    if let Ok(Some(found)) = sides.below.get(Place::new(&kind, "", namespace)).await {
        sides.hear_leader(Object(&found).annotation(LED_BY));
    }
    sides.is_superseded()
}

async fn delete(sides: &Sides, subject: &Subject, pair: &Pair, uid: &str) -> Result<Stepped, Trouble> {
    let gone = Some(fingerprint(&uid.into()));
    if sides.memory(subject).deleted == gone {
        return Ok(Stepped::Over(Outcome::Again(Duration::from_secs(1))));
    }
    let place = place(&pair.followed, &subject.key);
    let (tombstone, ()) = tokio::try_join!(ask_here(sides, place), same_cluster(sides))?;
    let meant = pair.mailbox.as_ref().map(|object| Object(object).uid());
    let stands = tombstone
        .as_ref()
        .map(Object)
        .is_some_and(|object| object.is_being_deleted() && object.is_marked() && Some(object.uid()) == meant);
    if !stands {
        return Ok(Stepped::Over(Outcome::Failed));
    }
    if !has_told(sides, subject, pair, uid).await? {
        return Ok(Stepped::Over(Outcome::Again(NAMESPACE_WAIT)));
    }
    drop_saved(sides, subject).await?;
    sides.below.delete(place, uid).await.map_err(Trouble::failed("CannotDelete"))?;
    sides.remember(subject, |memory| memory.deleted = gone);
    tracing::info!(kind = %pair.followed.row.kind, object = %subject.key, "deleted, as its tombstone says");
    // An event says when it is gone. If it was already, none will come.
    Ok(Stepped::Over(Outcome::Again(Duration::from_secs(1))))
}

/// Whether whoever led before us can know that this goes because we want it: its namespace says that we lead, or it does so
/// itself before it goes.
async fn has_told(sides: &Sides, subject: &Subject, pair: &Pair, uid: &str) -> Result<bool, Trouble> {
    let Some(leader) = sides.leader() else { return Ok(true) };
    if !subject.kind.is_namespaces() {
        let namespace = Subject::new(&KindName::new("", "namespaces"), Key::new("", &subject.key.namespace));
        return Ok(sides.pair(&namespace).is_none_or(|pair| is_led(sides, &namespace, &pair)));
    }
    let says = pair.below.as_ref().and_then(|below| Object(below).annotation(LED_BY)) == Some(leader);
    if !says {
        let change = json!({ "metadata": { "uid": uid, "annotations": { LED_BY: leader } } });
        let place = place(&pair.followed, &subject.key);
        match sides.below.patch(place, Patch::Merge, &change).await {
            // Who may delete it and not change it deletes it.
            Err(error) if error.code() == 403 || error.is_not_found() => {}
            told => drop(told.map_err(Trouble::failed("CannotDelete"))?),
        }
    }
    Ok(true)
}

async fn release(sides: &Sides, subject: &Subject, pair: &mut Pair) -> Result<Stepped, Trouble> {
    let place = place(&pair.followed, &subject.key);
    if pair.below.is_none() {
        pair.below = ask_below(sides, place).await?;
        if pair.below.is_some() {
            return Ok(Stepped::On);
        }
    }
    drop_saved(sides, subject).await?;
    if let Some(object) = &pair.mailbox {
        unmark(sides, &pair.followed, subject, object).await?;
    }
    sides.forget(subject);
    Ok(Stepped::Over(Outcome::Done))
}

/// Takes our finalizer off an object in the mailbox.
pub(crate) async fn unmark(
    sides: &Sides,
    followed: &Followed,
    subject: &Subject,
    object: &Value,
) -> Result<(), Trouble> {
    let Some(index) = Object(object).finalizers().position(|finalizer| finalizer == SYNCER) else {
        return Ok(());
    };
    let path = format!("/metadata/finalizers/{index}");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": Object(object).uid() },
        { "op": "test", "path": path, "value": SYNCER },
        { "op": "remove", "path": path },
    ]);
    match sides.mailbox.patch(place(followed, &subject.key), Patch::Json, &change).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop).map_err(Trouble::stale("CannotRelease")),
    }
}

/// The view does not have it, which may be because its label is gone. If it is still there and leaves, that is a tombstone.
async fn search(sides: &Sides, subject: &Subject, pair: &mut Pair) -> Result<Stepped, Trouble> {
    let place = place(&pair.followed, &subject.key);
    let found = ask_here(sides, place).await?;
    match found.filter(|object| Object(object).is_being_deleted()) {
        Some(tombstone) => {
            pair.mailbox = Some(tombstone);
            Ok(Stepped::On)
        }
        None => Err(Hold::NoTombstone.into()),
    }
}

/// Forgets on disk what goes, before it goes anywhere else. Whoever is killed in between knows it from its tombstone; the other
/// way round it would come back from disk when the next start finds no mailbox.
async fn drop_saved(sides: &Sides, subject: &Subject) -> Result<(), Trouble> {
    let Some(disk) = &sides.disk else { return Ok(()) };
    sides.remember(subject, |memory| memory.saved = None);
    disk.remove(&subject.kind.group, &subject.kind.plural, &subject.key).await.map_err(|error| Trouble {
        reason: "CannotForget",
        message: format!("what was asked for last cannot be taken off the disk: {error}"),
        cure: Cure::Retry,
    })
}

/// Something that was asked for once and that the mailbox does not have any more. If it is gone on both sides, so that nothing
/// depends on it, it is forgotten on disk, from where it would come back. If it is below, it is held like everything that
/// has no tombstone.
pub(crate) async fn look_at_stray(sides: &Sides, subject: &Subject, pair: &Pair) {
    let place = place(&pair.followed, &subject.key);
    let is_gone = async {
        let is_known = pair.followed.mailbox.synced() && sides.cluster() == Cluster::Same;
        let is_held = pair.mailbox.is_some() || pair.below.is_some();
        let gone = is_known && !is_held && ask_here(sides, place).await?.is_none();
        Ok::<_, Trouble>(gone && ask_below(sides, place).await?.is_none())
    };
    match is_gone.await {
        Ok(true) => {
            if drop_saved(sides, subject).await.is_ok() {
                sides.forget_stray(subject);
            }
        }
        Ok(false) if pair.mailbox.is_some() => sides.forget_stray(subject),
        // It is looked at again with everything else.
        Ok(false) | Err(_) => {}
    }
}

/// Keeps what is wanted on disk.
async fn save(sides: &Sides, subject: &Subject, pair: &Pair, mailbox: &Value, wanted: &Wanted) {
    let Some(disk) = &sides.disk else { return };
    if sides.memory(subject).saved == Some(wanted.fingerprint) {
        return;
    }
    match disk.save(Kept::new(&pair.followed.row.kind, &subject.key, mailbox)).await {
        Ok(()) => sides.remember(subject, |memory| memory.saved = Some(wanted.fingerprint)),
        Err(error) => tracing::warn!(%error, object = %subject.key, "cannot keep on disk"),
    }
}
