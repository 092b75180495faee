//! One object that placed ones brought about below: shown in the mailbox for as long as it is there.
//!
//! ```text
//!   below: ours, through its owners ──► the same in the mailbox, with the mailbox's uids
//!   below: gone                     ──► gone there too
//!   mailbox: a held one is deleted  ──► the real one is deleted, if nobody else's going took it along
//!   mailbox: a claim asks for more  ──► the real one does
//! ```
//!
//! Pods and claims are held: in the mailbox they carry our finalizer, so that their deletion is something we read. Their
//! owners' going is no wish to delete them: what becomes of them then is decided below.

use api::names::BELOW_UID;
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::Patch;
use serde_json::{Value, json};

use crate::down::unmark;
use crate::kinds::KindName;
use crate::mirror::{Cluster, Object, Projection, SENT, claims, is_projection, owner_references, projection};
use crate::sides::{Pair, Sides, Subject, place};
use crate::troubles::{CANNOT_RESIZE, Cure, Trouble};
use crate::{look, mirror, up};

/// Containers that are added to a pod that runs.
const EPHEMERAL: &str = "ephemeralContainers";
/// How much storage a claim asks for.
const STORAGE_REQUEST: &str = "/spec/resources/requests/storage";

pub(crate) async fn look(sides: &Sides, subject: &Subject, pair: Pair) -> Result<Outcome, Trouble> {
    // An Event of our own is shown to users too, and is of nothing downstream.
    let is_shown = |object: &&Value| is_projection(object) && Object(object).annotation(BELOW_UID).is_some();
    let shown = pair.mailbox.as_ref().filter(is_shown);
    if pair.below.is_none() {
        sides.wait_no_more(subject);
    }
    if !may_write(sides, &pair, &subject.key.namespace) {
        return Ok(Outcome::Done);
    }
    let wanted = pair.below.as_ref().and_then(|below| wanted(sides, subject, below, shown));
    match (wanted, shown) {
        (None, None) => sides.forget(subject),
        // It is there, and nobody's as far as is known; which is far enough only when everything is.
        (None, Some(_)) if pair.below.is_some() && !sides.is_all_synced() => {}
        (None, Some(shown)) => remove(sides, subject, &pair, shown).await?,
        (Some(_), None) if pair.mailbox.is_some() => {
            let message = "an object of this name is in the mailbox and shows nothing".to_owned();
            return Err(Trouble { reason: "CannotShow", message, cure: Cure::Event });
        }
        (Some(wanted), None) => create(sides, subject, &pair, wanted).await?,
        (Some(wanted), Some(shown)) => return update(sides, subject, &pair, wanted, shown).await,
    }
    Ok(Outcome::Done)
}

/// Nothing is shown, and nothing that is shown is removed, on doubt.
fn may_write(sides: &Sides, pair: &Pair, namespace: &str) -> bool {
    let synced = pair.followed.mailbox.synced()
        && pair.followed.below.as_ref().is_some_and(|view| view.synced(namespace));
    synced && sides.lease.leads() && sides.cluster() == Cluster::Same
}

/// What the mailbox should show. None for what is not ours, or not yet known to be.
fn wanted(sides: &Sides, subject: &Subject, below: &Value, shown: Option<&Value>) -> Option<Projection> {
    if subject.kind.is_events() {
        let mut event = below.clone();
        event["involvedObject"]["uid"] = uid_here(sides, subject, &below["involvedObject"])?.into();
        event["involvedObject"].as_object_mut()?.remove("resourceVersion");
        return Some(projection(&event, &sides.settings.name, Vec::new(), false));
    }
    let owners = owner_references(below, |owner| uid_here(sides, subject, owner));
    let is_ours = !owners.is_empty()
        || (subject.kind.is_claims()
            && (is_claimed(sides, subject) || is_kept(sides, subject, below, shown)));
    let held = subject.kind.is_pods() || subject.kind.is_claims();
    is_ours.then(|| projection(below, &sides.settings.name, owners, held))
}

/// Whether a claim is shown although no StatefulSet of the mailbox claims it: nothing owns it downstream either, so it was
/// kept when its StatefulSet went, and its user has to delete it. In a namespace we made every such claim is its user's; in
/// another one those are that were shown before.
fn is_kept(sides: &Sides, subject: &Subject, below: &Value, shown: Option<&Value>) -> bool {
    let is_shown = |shown: &Value| Object(shown).annotation(BELOW_UID) == Some(Object(below).uid());
    let namespace = Subject::new(&KindName::new("", "namespaces"), Key::new("", &subject.key.namespace));
    let made_for = |pair: Pair| Some(Object(pair.below.as_ref()?).mailbox()?.to_owned());
    let is_ours = || sides.pair(&namespace).and_then(made_for).as_ref() == Some(&sides.settings.mailbox);
    Object(below).owners().next().is_none() && (shown.is_some_and(is_shown) || is_ours())
}

/// The uid in the mailbox of what is named here by kind, name and uid. What is not known may become so.
fn uid_here(sides: &Sides, subject: &Subject, named: &Value) -> Option<String> {
    let text = |field: &str| named[field].as_str().unwrap_or_default();
    let (uid, version) = (text("uid"), text("apiVersion"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let find = || {
        let followed = sides.named(group, text("kind"))?;
        let namespace = if followed.row.kind.namespaced { &*subject.key.namespace } else { "" };
        let key = Key::new(namespace, text("name"));
        let pair = sides.pair(&Subject { kind: followed.name.clone(), key })?;
        let mailbox = pair.mailbox.as_ref()?;
        let shows = Object(mailbox).annotation(BELOW_UID) == Some(uid) && is_projection(mailbox);
        let below = pair.below.as_ref().is_some_and(|below| Object(below).uid() == uid);
        let is_it = shows || (below && pair.is_placed(&sides.settings.mailbox));
        is_it.then(|| Object(mailbox).uid().to_owned())
    };
    find().or_else(|| {
        if !uid.is_empty() {
            sides.wait(uid, subject);
        }
        // It may have become known before we waited, and nobody was woken.
        find()
    })
}

/// Whether a placed StatefulSet made this claim.
fn is_claimed(sides: &Sides, subject: &Subject) -> bool {
    let Some(sets) = sides.named("apps", "StatefulSet") else { return false };
    let namespace = &subject.key.namespace;
    let of = |key: &Key| sets.mailbox.get(key).map(|set| set.read(&sets.row.kind));
    let find =
        || sets.mailbox.keys_in(namespace).iter().filter_map(of).any(|set| claims(&set, &subject.key.name));
    find() || {
        sides.wait(&claims_of(namespace), subject);
        find()
    }
}

/// What claims wait for that have no owner's uid.
pub(crate) fn claims_of(namespace: &str) -> String {
    format!("claims in {namespace}")
}

async fn create(sides: &Sides, subject: &Subject, pair: &Pair, wanted: Projection) -> Result<(), Trouble> {
    let kind = &pair.followed.row.kind;
    let created = sides.mailbox.create(kind, &subject.key.namespace, &at_birth(wanted.object)).await;
    let created = match created {
        // The view is late: it will say so.
        Err(error) if error.is_conflict() => return Ok(()),
        other => other.map_err(Trouble::failed("CannotShow"))?,
    };
    show_status(sides, subject, pair, &created).await
}

/// No pod is created with containers that came later: those are added to it, as they were below.
fn at_birth(mut object: Value) -> Value {
    let spec = object["spec"].as_object_mut();
    if spec.is_some_and(|spec| spec.remove(EPHEMERAL).is_some()) {
        // It is not all that is to be shown.
        object["metadata"]["annotations"][SENT] = "".into();
    }
    object
}

/// The exact status; its generations are the mailbox's own, which has the same specification.
async fn show_status(sides: &Sides, subject: &Subject, pair: &Pair, shown: &Value) -> Result<(), Trouble> {
    let Some(below) = pair.below.as_ref().filter(|_| pair.followed.row.status) else { return Ok(()) };
    let generations = mirror::Generations {
        mailbox: Object(shown).generation(),
        below: Object(below).generation(),
        settled: true,
    };
    match mirror::raised(below, generations) {
        Some(status) => up::write(sides, subject, pair, shown, status).await,
        None => Ok(()),
    }
}

async fn update(
    sides: &Sides,
    subject: &Subject,
    pair: &Pair,
    wanted: Projection,
    shown: &Value,
) -> Result<Outcome, Trouble> {
    let Some(below) = &pair.below else { return Ok(Outcome::Done) };
    if wanted.replaces(shown) {
        remove(sides, subject, pair, shown).await?;
        return Ok(Outcome::Failed);
    }
    match (Object(shown).is_being_deleted(), Object(below).is_being_deleted()) {
        (true, false) => return ask_to_go(sides, subject, pair, &wanted, shown).await,
        // It is on its way; the mailbox shows that too. What is not held would go at once.
        (false, true) if Object(shown).is_marked() => {
            let seconds = below["metadata"]["deletionGracePeriodSeconds"].as_i64();
            let place = place(&pair.followed, &subject.key);
            let told = sides.mailbox.delete_within(place, Object(shown).uid(), seconds).await;
            told.map_err(Trouble::failed("CannotShow"))?;
        }
        _ => {}
    }
    let is_whole = wanted.is_shown(shown) && !Object(below).is_being_deleted();
    if is_whole && resize(sides, subject, pair, &wanted, shown).await? == Resized::Refused {
        return Ok(Outcome::Failed);
    }
    let mut now = shown.clone();
    if !wanted.is_shown(shown) && !Object(shown).is_being_deleted() {
        match rewrite(sides, subject, pair, &wanted, shown).await? {
            Some(written) => now = written,
            None => return Ok(Outcome::Failed),
        }
    }
    show_status(sides, subject, pair, &now).await?;
    Ok(Outcome::Done)
}

/// None where it had to be removed to be shown anew.
async fn rewrite(
    sides: &Sides,
    subject: &Subject,
    pair: &Pair,
    wanted: &Projection,
    shown: &Value,
) -> Result<Option<Value>, Trouble> {
    let place = place(&pair.followed, &subject.key);
    let node = |object: &Value| object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let mut version = shown["metadata"]["resourceVersion"].clone();
    // A pod gets its node only this way.
    if subject.kind.is_pods() && node(shown).is_empty() && !node(&wanted.object).is_empty() {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": subject.key.name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node(&wanted.object) },
        });
        sides.mailbox.post(place.part("binding"), &binding).await.map_err(Trouble::failed("CannotShow"))?;
        version = Value::Null;
    }
    let later = |object: &Value| object["spec"][EPHEMERAL].clone();
    if subject.kind.is_pods() && !later(&wanted.object).is_null() && later(shown) != later(&wanted.object) {
        let change = json!({ "spec": { EPHEMERAL: later(&wanted.object) } });
        let added = sides.mailbox.patch(place.part("ephemeralcontainers"), Patch::Merge, &change).await;
        added.map_err(Trouble::failed("CannotShow"))?;
        version = Value::Null;
    }
    let mut object = wanted.object.clone();
    object["metadata"]["uid"] = Object(shown).uid().into();
    object["metadata"]["resourceVersion"] = version;
    match sides.mailbox.replace(place, &object).await {
        Ok(written) => Ok(Some(written)),
        // What cannot be changed here was changed there, or is another: it is shown anew.
        Err(error) if error.code() == 422 => {
            remove(sides, subject, pair, shown).await?;
            Ok(None)
        }
        Err(error) => Err(Trouble::failed("CannotShow")(error)),
    }
}

/// What came of asking for another amount of storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Resized {
    Done,
    Refused,
}

/// Asks for as much storage downstream as a claim in the mailbox does. The mailbox shows what we wrote last, so a different
/// amount is what its user asked for since. What the physical cluster refuses is taken back in the mailbox, and its user told.
async fn resize(
    sides: &Sides,
    subject: &Subject,
    pair: &Pair,
    wanted: &Projection,
    shown: &Value,
) -> Result<Resized, Trouble> {
    let requested = shown.pointer(STORAGE_REQUEST).filter(|_| subject.kind.is_claims());
    let Some(requested) = requested.filter(|size| wanted.object.pointer(STORAGE_REQUEST) != Some(*size))
    else {
        return Ok(Resized::Done);
    };
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": Object(shown).annotation(BELOW_UID) },
        { "op": "replace", "path": STORAGE_REQUEST, "value": requested },
    ]);
    let place = place(&pair.followed, &subject.key);
    match sides.below.patch(place, Patch::Json, &change).await {
        Ok(_) => Ok(Resized::Done),
        Err(error) if matches!(error.code(), 403 | 422) => {
            look::tell(sides, shown, &Trouble::failed(CANNOT_RESIZE)(error)).await;
            rewrite(sides, subject, pair, wanted, shown).await?;
            Ok(Resized::Refused)
        }
        Err(error) => Err(Trouble::failed(CANNOT_RESIZE)(error)),
    }
}

/// A projection was deleted. If that was meant for it, the real one goes.
async fn ask_to_go(
    sides: &Sides,
    subject: &Subject,
    pair: &Pair,
    wanted: &Projection,
    shown: &Value,
) -> Result<Outcome, Trouble> {
    // It went with owners that have others in their place by now: it is shown anew, as theirs.
    if shown["metadata"]["ownerReferences"] != wanted.object["metadata"]["ownerReferences"] {
        remove(sides, subject, pair, shown).await?;
        return Ok(Outcome::Failed);
    }
    if Object(shown).is_marked() && do_owners_stay(sides, subject, shown).await? {
        let place = place(&pair.followed, &subject.key);
        let seconds = shown["metadata"]["deletionGracePeriodSeconds"].as_i64();
        // The one it shows, which is the one that is there: otherwise it would have been replaced.
        let uid = Object(shown).annotation(BELOW_UID).unwrap_or_default();
        let deleted = sides.below.delete_within(place, uid, seconds).await;
        deleted.map_err(Trouble::failed("CannotDelete"))?;
        tracing::info!(kind = %pair.followed.row.kind, object = %subject.key, "deleted, as requested in the mailbox");
    }
    Ok(Outcome::Done)
}

/// Whether the owners in the mailbox are there to stay. The server is asked: a view of theirs may be later than that of what
/// was collected after them.
async fn do_owners_stay(sides: &Sides, subject: &Subject, shown: &Value) -> Result<bool, Trouble> {
    for owner in Object(shown).owners() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let Some(followed) = sides.named(group, text("kind")) else { return Ok(false) };
        let key = Key::new(&subject.key.namespace, text("name"));
        let found = sides.mailbox.get(place(&followed, &key)).await.map_err(Trouble::failed("CannotRead"))?;
        let stays = |found: &Value| Object(found).uid() == text("uid") && !Object(found).is_being_deleted();
        if !found.as_ref().is_some_and(stays) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes a projection out of the mailbox at once. Our finalizer goes first: a held one that is to be shown anew must at no
/// moment look as if somebody had deleted it, which would be passed on to the real one.
async fn remove(sides: &Sides, subject: &Subject, pair: &Pair, shown: &Value) -> Result<(), Trouble> {
    unmark(sides, &pair.followed, subject, shown).await?;
    let place = place(&pair.followed, &subject.key);
    let deleted = sides.mailbox.delete_within(place, Object(shown).uid(), Some(0)).await;
    deleted.map(drop).map_err(Trouble::failed("CannotShow"))
}
