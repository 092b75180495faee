//! Deletion of an object: at once, or marked first and deleted later.
//!
//! ```text
//!   delete ─► nothing to wait for ──────────────────────────────► removed
//!          └► grace period, finalizers, or contained objects ─► marked ─► … ─► removed
//! ```
//!
//! Finalizers record the propagation policy: with `orphan` the garbage collector first removes the owner references of
//! the dependents, with `foregroundDeletion` it deletes the dependents first. With neither, it deletes them after the
//! owner. This module only sets and removes the two finalizers; the [garbage collector](crate::controllers) acts on
//! them.
//!
//! The decision is a pure function, [`decide`]. The verb and the controllers both delete through [`delete`].

use api::meta::field::FieldError;
use jiff::{SignedDuration, Timestamp};
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::{GroupResource, Status};
use serde_json::{Value, json};
use storage::{Change, CommitError, Entry, Expect, Key, Revision, Store};

use crate::objects::metadata;
use crate::objects::stored;
use crate::registry::strategy;
use crate::registry::strategy::KindStrategy;

/// Finalizer that keeps an object until its dependents no longer refer to it.
pub(crate) const ORPHAN: &str = "orphan";
/// Finalizer that keeps an object until the dependents with `blockOwnerDeletion` are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Kinds whose default propagation policy is Orphan. The default of all others is Background.
const LEAVES_DEPENDENTS: &[(&str, &str)] = &[("", "replicationcontrollers"), ("batch", "jobs")];

/// The propagation policy for dependents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    /// Precondition; empty if there is none.
    pub(crate) uid: String,
    /// Precondition; empty if there is none.
    pub(crate) version: String,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// Parses `DeleteOptions`, from a body or made from a query.
    pub(crate) fn parse(body: &Value) -> Result<DeleteOptions, Status> {
        let propagation = match (body["propagationPolicy"].as_str(), body["orphanDependents"].as_bool()) {
            (Some(policy), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                return Err(invalid(FieldError::invalid("propagationPolicy", policy, why)));
            }
            (Some("Background"), None) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), None) => Some(Propagation::Foreground),
            (Some("Orphan"), None) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some(policy), None) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                return Err(invalid(FieldError::not_supported("propagationPolicy", policy, &known)));
            }
            (None, None) => None,
        };
        let dry_run: Vec<&str> =
            body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if dry_run.iter().any(|value| *value != "All") {
            return Err(invalid(FieldError::not_supported("dryRun", json!(dry_run), &["All"])));
        }
        let condition = |field: &str| body["preconditions"][field].as_str().unwrap_or_default().to_owned();
        Ok(DeleteOptions {
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            propagation,
            uid: condition("uid"),
            version: condition("resourceVersion"),
            dry_run: !dry_run.is_empty(),
        })
    }
}

fn invalid(error: FieldError) -> Status {
    Status::invalid(GroupResource::new("meta.k8s.io", "DeleteOptions"), "", &[error])
}

/// The next step of a deletion.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum DeletionStep {
    /// Remove the object. The value is its last state.
    Remove(Value),
    /// Store this state, with a deletion timestamp.
    Mark(Value),
    /// Change nothing: the object is terminating already.
    Wait,
}

/// Decides the next step of a deletion.
pub(crate) fn decide(
    resource: &ResourceInfo,
    object: Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> DeletionStep {
    let before = object.clone();
    let mut object = object;
    set_finalizers(resource, &mut object, options);
    let waits = metadata::has_finalizers(&object) || KindStrategy::of(resource).is_some();
    let grace = match grace(resource, &object, options) {
        Grace::Pending => return DeletionStep::Wait,
        grace => grace,
    };
    match grace {
        Grace::Seconds(seconds) => mark(&mut object, now, Some(seconds)),
        _ if waits => mark(&mut object, now, KindStrategy::of(resource).is_none().then_some(0)),
        _ => {}
    }
    if !metadata::is_being_deleted(&before) {
        strategy::mark_terminating(resource, &mut object);
    }
    match waits || matches!(grace, Grace::Seconds(1..)) {
        false => DeletionStep::Remove(object),
        true if object == before => DeletionStep::Wait,
        true => DeletionStep::Mark(object),
    }
}

/// The grace period of an object.
enum Grace {
    /// No grace period: only running pods have one.
    None,
    Seconds(i64),
    /// The object is terminating, and the request does not shorten its grace period.
    Pending,
}

/// Returns the grace period. Only pods have one, because only pods run.
fn grace(resource: &ResourceInfo, object: &Value, options: &DeleteOptions) -> Grace {
    if (&*resource.group, &*resource.plural) != ("", "pods") {
        return Grace::None;
    }
    if metadata::is_being_deleted(object) {
        let remaining_seconds = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        return match options.grace_seconds {
            _ if remaining_seconds == 0 => Grace::None,
            Some(seconds) if seconds < remaining_seconds => Grace::Seconds(seconds.max(0)),
            _ => Grace::Pending,
        };
    }
    let runs = !object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
        && !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let requested_seconds =
        options.grace_seconds.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64());
    match requested_seconds.unwrap_or(0) {
        _ if !runs => Grace::Seconds(0),
        ..0 => Grace::Seconds(1),
        seconds => Grace::Seconds(seconds),
    }
}

/// Sets the deletion timestamp and the grace period. A second deletion can only shorten the grace period.
fn mark(object: &mut Value, now: Timestamp, grace_seconds: Option<i64>) {
    let metadata = &mut object["metadata"];
    let requested_at =
        match (metadata["deletionTimestamp"].as_str(), metadata["deletionGracePeriodSeconds"].as_i64()) {
            (Some(_), remaining_seconds) if remaining_seconds.unwrap_or(0) == 0 => return,
            (Some(ends), Some(remaining_seconds)) => {
                let ends = ends.parse().unwrap_or(now);
                ends.checked_sub(SignedDuration::from_secs(remaining_seconds)).unwrap_or(ends)
            }
            _ => {
                let generation = metadata["generation"].as_i64().filter(|generation| *generation > 0);
                if let (Some(generation), Some(_)) = (generation, grace_seconds) {
                    metadata["generation"] = (generation + 1).into();
                }
                now
            }
        };
    let ends = requested_at
        .checked_add(SignedDuration::from_secs(grace_seconds.unwrap_or(0)))
        .unwrap_or(requested_at);
    metadata["deletionTimestamp"] = metadata::time(ends).into();
    if let Some(seconds) = grace_seconds {
        metadata["deletionGracePeriodSeconds"] = seconds.into();
    }
}

/// Sets the finalizer of the requested propagation policy and removes that of the other one.
fn set_finalizers(resource: &ResourceInfo, object: &mut Value, options: &DeleteOptions) {
    let found = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| found.iter().any(|finalizer| finalizer == name);
    let requested_finalizer = match options.propagation {
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
        None if has(ORPHAN) => Some(ORPHAN),
        None if has(FOREGROUND) => Some(FOREGROUND),
        None => LEAVES_DEPENDENTS.contains(&(&*resource.group, &*resource.plural)).then_some(ORPHAN),
    };
    let others = found.iter().filter(|name| *name != ORPHAN && *name != FOREGROUND).cloned();
    let mut finalizers: Vec<Value> = others.collect();
    finalizers.extend(requested_finalizer.map(Value::from));
    match finalizers.is_empty() {
        true => drop(object["metadata"].as_object_mut().and_then(|metadata| metadata.remove("finalizers"))),
        false if finalizers.len() == found.len() && found.iter().all(|name| finalizers.contains(name)) => {}
        false => object["metadata"]["finalizers"] = finalizers.into(),
    }
}

/// Reports whether this update removes a terminating object, because nothing holds it any longer.
pub(crate) fn ends_with(resource: &ResourceInfo, old: &Value, new: &Value) -> bool {
    let remaining_seconds = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    // A namespace or logical cluster is removed by its controller once it is empty. A definition waits for its
    // finalizer.
    let waits_for_controller = KindStrategy::of(resource).is_some_and(|holder| !holder.has_finalizer());
    metadata::is_being_deleted(old)
        && remaining_seconds == 0
        && !metadata::has_finalizers(new)
        && !waits_for_controller
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The last state of the object, and the revision of its removal.
    Removed(Entry, Revision),
    /// The object is terminating and waits for its grace period, finalizers or contained objects.
    Terminating(Entry),
}

/// Why an object was not deleted.
#[derive(Debug)]
pub(crate) enum NotDeleted {
    /// Another write came first. The caller decides again on the current object, if it still exists.
    Changed(Option<Entry>),
    /// A precondition failed, or the object must not be deleted.
    Refused(Box<Status>),
    Failed(CommitError),
}

/// Deletes one object, or marks it as terminating.
pub(crate) async fn delete(
    store: &dyn Store,
    resource: &ResourceInfo,
    key: Key,
    entry: &Entry,
    options: &DeleteOptions,
) -> Result<Deleted, NotDeleted> {
    // An object that cannot be decoded can still be removed.
    let read = stored::tree(entry);
    let is_read = read.is_ok();
    let tree = read.unwrap_or_default();
    refuse(resource, &tree, entry, options).map_err(|status| NotDeleted::Refused(Box::new(status)))?;
    let encode = |object: &Value| stored::encode_with(object, stored::stamp(entry.value()));
    let (change, last_state) = match decide(resource, tree, options, Timestamp::now()) {
        DeletionStep::Wait => return Ok(Deleted::Terminating(entry.clone())),
        DeletionStep::Remove(object) => (Change::Delete, encode(&object)),
        DeletionStep::Mark(object) if !is_read => (Change::Delete, encode(&object)),
        DeletionStep::Mark(object) => {
            let value = encode(&object);
            (Change::Put(value.clone()), value)
        }
    };
    let last_state = |revision: Revision| Entry::new(key.clone(), revision, last_state.clone());
    if options.dry_run {
        let last_state = last_state(entry.revision());
        return Ok(match change {
            Change::Delete => Deleted::Removed(last_state, entry.revision()),
            Change::Put(_) => Deleted::Terminating(last_state),
        });
    }
    match store.commit(key.clone(), Expect::Revision(entry.revision()), change).await {
        Ok(event) => Ok(match event.current {
            Some(current) => Deleted::Terminating(current),
            None => Deleted::Removed(last_state(entry.revision()), event.revision),
        }),
        Err(CommitError::Conflict { current }) => Err(NotDeleted::Changed(current.value)),
        Err(error) => Err(NotDeleted::Failed(error)),
    }
}

fn refuse(
    resource: &ResourceInfo,
    object: &Value,
    entry: &Entry,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let name = metadata::text(object, "name");
    let (uid, version) = (metadata::text(object, "uid"), entry.revision().to_string());
    let conflict =
        |why: String| Err(Status::conflict(GroupResource::new(&resource.group, &resource.kind), name, &why));
    if !options.uid.is_empty() && options.uid != uid {
        return conflict(format!(
            "the UID in the precondition ({}) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated",
            options.uid
        ));
    }
    if !options.version.is_empty() && options.version != version {
        return conflict(format!(
            "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified",
            options.version
        ));
    }
    strategy::validate_delete(resource, name)
}

#[cfg(test)]
mod tests {
    use openapi::catalog;

    use super::*;

    const NOW: &str = "2026-11-16T06:00:00Z";

    fn step(resource: (&str, &str, &str), object: Value, options: &DeleteOptions) -> DeletionStep {
        let resource = catalog::find(resource.0, resource.1, resource.2).unwrap();
        decide(resource, object, options, NOW.parse().unwrap())
    }

    const PODS: (&str, &str, &str) = ("", "v1", "pods");
    const MAPS: (&str, &str, &str) = ("", "v1", "configmaps");
    const JOBS: (&str, &str, &str) = ("batch", "v1", "jobs");

    fn options_with(propagation: Propagation) -> DeleteOptions {
        DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() }
    }

    #[test]
    fn an_object_without_finalizers_is_removed_at_once() {
        let object = json!({ "metadata": { "name": "a" } });
        assert_eq!(
            step(MAPS, object.clone(), &DeleteOptions::default()),
            DeletionStep::Remove(object.clone())
        );
        // A grace period is ignored for anything but a pod.
        let hurried = DeleteOptions { grace_seconds: Some(20), ..DeleteOptions::default() };
        assert_eq!(step(MAPS, object.clone(), &hurried), DeletionStep::Remove(object));
    }

    #[test]
    fn the_propagation_policy_is_stored_as_a_finalizer() {
        let plain = json!({ "metadata": { "name": "a", "generation": 3 } });
        let with_finalizers = |finalizers: Value| {
            json!({ "metadata": {
                "name": "a", "generation": 4, "finalizers": finalizers,
                "deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0,
            } })
        };
        assert_eq!(
            step(MAPS, plain.clone(), &options_with(Propagation::Orphan)),
            DeletionStep::Mark(with_finalizers(json!(["orphan"])))
        );
        let foreground = options_with(Propagation::Foreground);
        assert_eq!(
            step(MAPS, plain.clone(), &foreground),
            DeletionStep::Mark(with_finalizers(json!(["foregroundDeletion"])))
        );
        assert_eq!(
            step(JOBS, plain.clone(), &DeleteOptions::default()),
            DeletionStep::Mark(with_finalizers(json!(["orphan"])))
        );
        assert_eq!(
            step(JOBS, plain.clone(), &options_with(Propagation::Background)),
            DeletionStep::Remove(plain)
        );
        // A second request with another policy replaces the finalizer; the deletion timestamp stays.
        let marked = with_finalizers(json!(["a.b/c", "orphan"]));
        let changed = step(MAPS, marked.clone(), &options_with(Propagation::Background));
        assert_eq!(changed, DeletionStep::Mark(with_finalizers(json!(["a.b/c"]))));
        assert_eq!(step(MAPS, marked, &DeleteOptions::default()), DeletionStep::Wait);
        assert_eq!(
            step(MAPS, with_finalizers(json!(["orphan"])), &options_with(Propagation::Background)),
            DeletionStep::Remove(json!({ "metadata": {
                "name": "a", "generation": 4, "deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0,
            } }))
        );
    }

    #[test]
    fn a_running_pod_gets_a_grace_period_that_can_only_be_shortened() {
        let pod = |ends: Value, remaining_seconds: Value| {
            let mut pod = json!({
                "metadata": { "name": "a" },
                "spec": { "nodeName": "n", "terminationGracePeriodSeconds": 30 },
                "status": { "phase": "Running" },
            });
            if !ends.is_null() {
                pod["metadata"]["deletionTimestamp"] = ends;
                pod["metadata"]["deletionGracePeriodSeconds"] = remaining_seconds;
            }
            pod
        };
        let with_grace =
            |seconds: i64| DeleteOptions { grace_seconds: Some(seconds), ..DeleteOptions::default() };
        let running = pod(Value::Null, Value::Null);
        let stopping = pod(json!("2026-11-16T06:00:30Z"), json!(30));
        assert_eq!(
            step(PODS, running.clone(), &DeleteOptions::default()),
            DeletionStep::Mark(stopping.clone())
        );
        assert_eq!(
            step(PODS, running.clone(), &options_with(Propagation::Background)),
            DeletionStep::Mark(stopping.clone())
        );
        assert_eq!(
            step(PODS, running.clone(), &with_grace(-5)),
            DeletionStep::Mark(pod(json!("2026-11-16T06:00:01Z"), json!(1)))
        );
        assert_eq!(step(PODS, running, &with_grace(0)), DeletionStep::Remove(pod(json!(NOW), json!(0))));
        assert_eq!(step(PODS, stopping.clone(), &DeleteOptions::default()), DeletionStep::Wait);
        assert_eq!(step(PODS, stopping.clone(), &with_grace(60)), DeletionStep::Wait);
        assert_eq!(
            step(PODS, stopping.clone(), &with_grace(5)),
            DeletionStep::Mark(pod(json!("2026-11-16T06:00:05Z"), json!(5)))
        );
        assert_eq!(step(PODS, stopping, &with_grace(0)), DeletionStep::Remove(pod(json!(NOW), json!(0))));
    }

    #[test]
    fn an_unscheduled_pod_has_no_grace_period() {
        for pod in [
            json!({ "metadata": { "name": "a" }, "spec": { "terminationGracePeriodSeconds": 30 } }),
            json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n" }, "status": { "phase": "Failed" } }),
        ] {
            assert!(matches!(step(PODS, pod, &DeleteOptions::default()), DeletionStep::Remove(_)));
        }
    }

    #[test]
    fn contradictory_options_are_refused() {
        let error_of = |options: Value| DeleteOptions::parse(&options).map_err(|status| status.message);
        assert_eq!(
            error_of(json!({ "propagationPolicy": "Foo" })).unwrap_err(),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Foo\": \
             supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        );
        assert!(error_of(json!({ "propagationPolicy": "Orphan", "orphanDependents": true })).is_err());
        assert_eq!(error_of(json!({ "orphanDependents": true })).unwrap(), options_with(Propagation::Orphan));
        assert_eq!(error_of(json!({})).unwrap(), DeleteOptions::default());
    }

    #[test]
    fn a_terminating_object_is_removed_with_its_last_finalizer_but_not_before_its_grace_period() {
        let resource = catalog::find("", "v1", "pods").unwrap();
        let marked = |remaining_seconds: i64, finalizers: Value| {
            json!({ "metadata": {
                "deletionTimestamp": NOW, "deletionGracePeriodSeconds": remaining_seconds, "finalizers": finalizers,
            } })
        };
        assert!(ends_with(resource, &marked(0, json!(["a/b"])), &marked(0, json!([]))));
        assert!(!ends_with(resource, &marked(30, json!(["a/b"])), &marked(30, json!([]))));
        assert!(!ends_with(resource, &marked(0, json!(["a/b"])), &marked(0, json!(["a/b"]))));
        assert!(!ends_with(resource, &json!({ "metadata": {} }), &json!({ "metadata": {} })));
    }
}
