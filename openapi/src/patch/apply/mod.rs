//! Server-side apply: several managers write one object, and each owns the fields it set.
//!
//! ```text
//!   Update   old, new ──▶ compare ──▶ the manager owns changed fields; removed fields lose their owners
//!   Apply    live, config ──▶ verify ──▶ merge ──▶ prune fields no longer applied ──▶ compare ──▶ conflicts, owners
//! ```
//!
//! Owners are recorded in `metadata.managedFields`. Everything here is pure and knows schemas, never kinds: which
//! values can be shared field by field ([`schema_type`]), which fields an object has ([`applied_fields`]), how two
//! objects differ ([`compare`]), and sets of fields ([`field_set`]) that consist of path elements ([`path_element`]).

mod applied_fields;
mod compare;
mod conflict;
mod field_set;
mod fields_v1;
mod last_applied;
mod managed_fields;
mod merge;
mod path_element;
mod prune;
mod reconcile;
mod remove;
mod reset_fields;
mod scale;
mod schema_type;
#[cfg(test)]
mod tests;
mod verify;

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;

use self::compare::Changes;
use self::conflict::Conflicts;
use self::field_set::FieldSet;
use self::managed_fields::{ManagedFields, ManagedFieldsEntry, Operation};
pub use self::reset_fields::ResetFields;
pub use self::scale::{from_scale, to_scale};
use self::schema_type::SchemaType;
use crate::meta::status::Status;
use crate::schema::Schema;

/// The manager of all fields that an object without managed fields had before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager of a request without a manager name.
const UNKNOWN: &str = "unknown";

/// Fields without owners: they cannot change, or they identify the object.
static UNOWNED_FIELDS: LazyLock<FieldSet<'static>> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "clusterName"],
        &["metadata", "creationTimestamp"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "resourceVersion"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
    ])
});

/// The manager of a write, and the facts about the object that managed fields depend on.
pub struct FieldManager<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub schema: &'a Schema,
    /// An object of the kind without any field set, from [`defaulting::empty_object`](crate::defaulting::empty_object).
    pub blank: &'a Value,
    pub reset: ResetFields,
    /// The current time in the format of objects.
    pub now: &'a str,
    /// Reports whether the kind has this API version.
    pub knows: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for FieldManager<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FieldManager").field("manager", &self.manager).finish_non_exhaustive()
    }
}

/// Why an object cannot be applied.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// The applied object must not contain this field.
    #[error("{0}")]
    InvalidPathElement(String),
    /// The applied object does not fit the schema. Kubernetes answers 500 with this text, as if the server had failed.
    #[error("{0}")]
    Unfit(String),
    #[error("apply conflicts with other field managers")]
    Conflict(Box<Status>),
}

impl ApplyError {
    /// Returns the Status for the client.
    pub fn status(self) -> Status {
        match self {
            ApplyError::InvalidPathElement(why) => Status::bad_request(why),
            ApplyError::Unfit(why) => Status::unprocessable(why),
            ApplyError::Conflict(status) => *status,
        }
    }
}

/// The result of an apply.
#[derive(Clone, PartialEq, Debug)]
pub struct Applied {
    /// The object without its managedFields. Values of the client are as it sent them: quantities are not canonical,
    /// and nulls are kept.
    pub object: Value,
    pub managed_fields: Option<Value>,
}

impl<'a> FieldManager<'a> {
    /// Returns the managedFields of `new`, which replaces `old`; both still contain fields that the request cannot
    /// change. `sent` are the managedFields in the request: a client may change or clear them. An existing object
    /// without managedFields stays without; only for a new object, whose `old` has no uid, they are created.
    pub fn updated(&self, old: &Value, new: &Value, sent: Option<&Value>) -> Option<Value> {
        let live = old["metadata"].get("managedFields");
        let changes = self.changes(old, new);
        if changes.is_empty() && sent.is_none_or(|sent| Some(sent) == live) {
            return live.cloned();
        }
        let managers = self.known_managers(live, sent);
        if managers.is_empty() && old["metadata"]["uid"].is_string() {
            return None;
        }
        let mut managers = self.account(managers, self.manager, changes);
        managers.cap();
        managers.encode()
    }

    /// Returns the existing managers: those in the request if it has valid ones, otherwise those of the live object.
    fn known_managers<'v>(&self, live: Option<&'v Value>, sent: Option<&'v Value>) -> ManagedFields<'v> {
        let live = || ManagedFields::decode(live).unwrap_or_default();
        match sent.and_then(Value::as_array).map(Vec::as_slice) {
            _ if !self.subresource.is_empty() => live(),
            None => live(),
            Some([]) => ManagedFields::default(),
            Some([Value::Object(entry)]) if entry.is_empty() => ManagedFields::default(),
            Some(_) => match ManagedFields::decode(sent) {
                Ok(managers) if !managers.is_empty() => managers,
                _ => live(),
            },
        }
    }

    /// Returns the changes of a request, without the fields that it cannot change.
    fn changes<'v>(&self, old: &'v Value, new: &'v Value) -> Changes<'v>
    where
        'a: 'v,
    {
        compare::changes(old, new, SchemaType::of(self.schema)).filtered(|set| self.reset.keep(set))
    }

    /// Makes the manager the owner of the fields it changed.
    fn account<'v>(
        &self,
        mut managers: ManagedFields<'v>,
        name: &'v str,
        changes: Changes<'v>,
    ) -> ManagedFields<'v>
    where
        'a: 'v,
    {
        let kind = SchemaType::of(self.schema);
        managers.forget(self.knows);
        let Changes { added, modified, removed } = changes;
        let theirs = added.union(modified);
        for manager in &mut managers.0 {
            let set = reconcile::reconcile(std::mem::take(&mut manager.set), kind);
            manager.set = set.difference(&theirs).difference(&removed);
        }
        managers.drop_empty();
        let set = theirs.difference(&UNOWNED_FIELDS);
        if !set.is_empty() {
            let writer = self.as_manager(name, Operation::Update, set);
            match managers.find(&writer) {
                Some(index) => {
                    let entry = &mut managers.0[index];
                    entry.set = std::mem::take(&mut entry.set).union(writer.set);
                    entry.time = writer.time;
                }
                None => managers.0.push(writer),
            }
        }
        managers
    }

    fn as_manager<'v>(&self, name: &'v str, operation: Operation, set: FieldSet<'v>) -> ManagedFieldsEntry<'v>
    where
        'a: 'v,
    {
        ManagedFieldsEntry {
            name: Cow::Borrowed(if name.is_empty() { UNKNOWN } else { name }),
            operation,
            api_version: self.api_version.into(),
            subresource: self.subresource.into(),
            time: self.now.into(),
            set,
        }
    }

    /// Applies `config` to `live`. For a create, `live` is empty and has no uid.
    pub fn applied(&self, live: &Value, config: &Value, force: bool) -> Result<Applied, ApplyError> {
        self.check(config)?;
        let recorded = ManagedFields::decode(live["metadata"].get("managedFields"))
            .map_err(|why| ApplyError::Unfit(format!("failed to decode managed fields: {why}")))?;
        let managers = match recorded.is_empty() {
            true => self.account(recorded, BEFORE_FIRST_APPLY, self.changes(self.blank, live)),
            false => recorded,
        };
        if self.manager != last_applied::KUBECTL {
            return self.apply(live, config, managers, force).map_err(refused);
        }
        let mut applied = match self.apply(live, config, managers.clone(), force) {
            Err(conflicts) => self.taken_over(live, config, managers, conflicts)?,
            Ok(applied) => applied,
        };
        last_applied::update(&mut applied.object, config);
        Ok(applied)
    }

    /// Checks whether the object can be applied at all.
    fn check(&self, config: &Value) -> Result<(), ApplyError> {
        if config["metadata"].get("managedFields").is_some_and(|entries| !entries.is_null()) {
            return Err(ApplyError::InvalidPathElement("metadata.managedFields must be nil".to_owned()));
        }
        let Some(fault) = verify::fault(config, SchemaType::of(self.schema)) else { return Ok(()) };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text(&config["metadata"]["namespace"]), text(&config["metadata"]["name"]));
        let version = match self.api_version.contains('/') {
            true => self.api_version.to_owned(),
            false => format!("/{}", self.api_version),
        };
        let which = format!("{namespace}/{name}; {version}, Kind={}", text(&config["kind"]));
        Err(ApplyError::Unfit(format!("failed to create typed patch object ({which}): {fault}")))
    }

    fn apply<'v>(
        &'v self,
        live: &'v Value,
        config: &'v Value,
        mut managers: ManagedFields<'v>,
        force: bool,
    ) -> Result<Applied, Conflicts<'v>> {
        let kind = SchemaType::of(self.schema);
        managers.forget(self.knows);
        for manager in &mut managers.0 {
            manager.set = reconcile::reconcile(std::mem::take(&mut manager.set), kind);
        }
        let mut object = live.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        merge::merge(&mut object, config, kind);

        let mentioned = self.reset.keep(applied_fields::fields(config, kind));
        let mut applier = self.as_manager(self.manager, Operation::Apply, mentioned);
        let before = managers.find(&applier).map(|index| managers.0.remove(index));
        if let Some(before) = &before {
            applier.time = before.time.clone();
            let others = managers.0.iter().map(|manager| manager.set.clone());
            let owned = FieldSet::union_all(std::iter::once(applier.set.clone()).chain(others));
            if let Some(pruned) = prune::prune(&object, &before.set, owned, kind) {
                object = pruned;
            }
        } else {
            applier.time = "".into();
        }
        let differs = self.take(live, &object, &mut managers, force)?;
        applier.set = applier.set.difference(&UNOWNED_FIELDS);
        if differs {
            applier.time = self.now.into();
        }
        managers.0.push(applier);
        managers.drop_empty();
        Ok(Applied { managed_fields: managers.encode(), object })
    }

    /// Removes changed fields from the sets of other managers, or returns the conflicts. Returns whether the object
    /// changed.
    fn take<'v>(
        &self,
        live: &Value,
        object: &Value,
        managers: &mut ManagedFields<'v>,
        force: bool,
    ) -> Result<bool, Conflicts<'v>> {
        let changes = compare::changes(live, object, SchemaType::of(self.schema));
        let managed_fields_only = FieldSet::of_fields(&[&["metadata", "managedFields"]]);
        let removed = changes.removed.clone().difference(&managed_fields_only);
        let differs = !(changes.added.is_empty() && changes.modified.is_empty() && removed.is_empty());
        let changes = changes.filtered(|set| self.reset.keep(set));
        let fields_to_own = changes.added.union(changes.modified);
        if !force {
            let conflicts = Conflicts::of(managers, &fields_to_own);
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        for manager in &mut managers.0 {
            let set = std::mem::take(&mut manager.set).difference(&fields_to_own);
            manager.set = set.difference(&changes.removed);
        }
        Ok(differs)
    }

    /// Applies in spite of conflicts if they all are with fields that kubectl itself applied client-side.
    fn taken_over(
        &self,
        live: &Value,
        config: &Value,
        managers: ManagedFields<'_>,
        mut conflicts: Conflicts<'_>,
    ) -> Result<Applied, ApplyError> {
        let before = last_applied::config(live, self.api_version);
        let theirs = before
            .as_ref()
            .and_then(|before| last_applied::unchanged(before, live, SchemaType::of(self.schema)));
        if let Some(theirs) = theirs {
            conflicts = conflicts.without(&theirs);
            if conflicts.is_empty() {
                return self.apply(live, config, managers, true).map_err(refused);
            }
        }
        Err(refused(conflicts))
    }
}

fn refused(conflicts: Conflicts<'_>) -> ApplyError {
    ApplyError::Conflict(Box::new(conflicts.status()))
}
