//! [`ResourceInfo`]: everything that the generic request path needs in order to serve one resource.
//!
//! All of it is data, so no code branches on a kind. The built-in resources come from [`catalog`](crate::catalog),
//! their schemas from [`builtin`]. A custom resource gets its [`ResourceInfo`], with the schema, when its definition is
//! accepted.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::catalog::printer::PrinterCell;
use crate::meta::status::GroupResource;
use crate::schema::builtin;
use crate::schema::{Origin, SchemaRef};

/// A resource of one version of an API group.
#[derive(Clone, Debug)]
pub struct ResourceInfo {
    pub origin: Origin,
    /// Empty for the core group.
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub kind: Arc<str>,
    pub list_kind: Arc<str>,
    pub plural: Arc<str>,
    pub singular: Arc<str>,
    pub namespaced: bool,
    pub short_names: Vec<Arc<str>>,
    pub categories: Vec<Arc<str>>,
    pub verbs: Vec<Verb>,
    pub subresources: Vec<Subresource>,
    pub columns: Vec<PrinterColumn>,
    /// The fields that field selectors can use.
    pub selectable: Vec<SelectableField>,
    pub generation: Generation,
    /// Whether an update of an object that does not exist creates it.
    pub create_on_update: bool,
    /// Whether an update must contain the resource version it replaces.
    pub update_needs_version: bool,
    /// Whether a delete that completes at once returns the deleted object instead of a Status. A delete that waits for
    /// finalizers always returns the object.
    pub delete_answers_object: bool,
    /// The name of the type in OpenAPI documents. A custom kind has one too.
    pub type_name: Arc<str>,
    /// The schema of a custom kind; see [`ResourceInfo::schema`].
    pub schema: Option<SchemaRef>,
    /// Properties that only a custom kind has.
    pub custom: Option<Arc<CustomResourceInfo>>,
    /// Group and version of the resource under which objects are stored, if it is another one. For example, Events of
    /// `events.k8s.io` are stored as core Events.
    pub stored_as: Option<(Arc<str>, Arc<str>)>,
    /// The hash of the storage version in discovery. Clients use it to notice that the storage version changed.
    pub storage_version_hash: Option<Arc<str>>,
}

impl ResourceInfo {
    /// Returns the kind as errors name it. Kubernetes uses the stored kind: an Event of `events.k8s.io` is an `Event`.
    pub fn group_kind(&self) -> GroupResource<'_> {
        let group = self.stored_as.as_ref().map_or(&self.group, |(group, _)| group);
        GroupResource::new(group, &self.kind)
    }

    /// Returns the `apiVersion` of the objects: `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Returns the resource as errors name it: `deployments.apps`, or `pods`.
    pub fn qualified(&self) -> String {
        match &*self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Returns the schema of the objects; none for a built-in kind without a type.
    pub fn schema(&self) -> Option<&SchemaRef> {
        match self.origin {
            Origin::BuiltIn => builtin::schema(&self.type_name),
            Origin::Custom => self.schema.as_ref(),
        }
    }

    /// Reports whether an object that was stored in this version, when the version's schema had this hash, can be
    /// returned as stored. Pruning and defaulting it again would change nothing.
    pub fn reads_as_stored(&self, api_version: &str, schema_hash: u128) -> bool {
        let same = |custom: &Arc<CustomResourceInfo>| custom.schema_hash == schema_hash;
        self.custom.as_ref().is_none_or(same) && api_version == self.api_version()
    }

    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| &*subresource.name == name)
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub fn has_scale(&self) -> bool {
        self.subresource("scale").is_some()
    }
}

/// What a custom resource definition declares for one version, beyond the fields of [`ResourceInfo`].
#[derive(Clone, PartialEq, Debug)]
pub struct CustomResourceInfo {
    /// The deprecation warning of this version, sent with every response.
    pub warning: Option<Arc<str>>,
    pub scale: Option<ScalePaths>,
    /// The schema of each version of the kind, served or not: objects may be stored in any of them.
    pub versions: Arc<BTreeMap<Arc<str>, SchemaRef>>,
    /// Identifies the schema of this version among those that its definition has had.
    pub schema_hash: u128,
}

/// JSON pointers to the scale fields of a custom object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScalePaths {
    pub replicas: Arc<str>,
    pub replicas_now: Arc<str>,
    /// A label selector as text.
    pub selector: Option<Arc<str>>,
}

/// Returns `group/version`, or `version` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// A subresource: a part of an object with a path of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Subresource {
    pub name: Arc<str>,
    pub kind: Arc<str>,
    /// Group and version of the kind, if they differ from the parent's.
    pub foreign: Option<(Arc<str>, Arc<str>)>,
    pub verbs: Vec<Verb>,
}

/// A verb of discovery and RBAC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// In the order discovery lists them.
    pub const ALL: [Verb; 8] = [
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }

    pub fn parse(word: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == word)
    }
}

/// A printer column: a column of the Table that `kubectl get` shows.
#[derive(Clone, Debug)]
pub struct PrinterColumn {
    pub name: Arc<str>,
    /// `string`, `integer`, `boolean`, `date`, …
    pub kind: Arc<str>,
    pub format: Arc<str>,
    pub description: Arc<str>,
    /// 0 is always shown; a higher number only in wide tables.
    pub priority: i32,
    pub cell: PrinterCell,
}

/// A field that field selectors can use.
#[derive(Clone, PartialEq, Debug)]
pub struct SelectableField {
    /// `spec.nodeName`
    pub label: Arc<str>,
    /// JSON pointers; the first that points to a value that is not empty wins.
    pub pointers: Vec<Arc<str>>,
    /// What an absent value equals: `""`, `"0"` or `"false"`.
    pub absent: Arc<str>,
}

impl SelectableField {
    /// Returns the text that a selector's value is compared with.
    pub fn value(&self, object: &Value) -> String {
        for pointer in &self.pointers {
            match object.pointer(pointer) {
                Some(Value::String(text)) if !text.is_empty() => return text.clone(),
                Some(Value::Bool(truth)) => return truth.to_string(),
                Some(Value::Number(number)) => return number.to_string(),
                _ => {}
            }
        }
        self.absent.to_string()
    }
}

/// When `metadata.generation` is incremented.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Generation {
    /// The kind has no generation.
    #[default]
    Never,
    /// Always 1.
    Fixed,
    /// `first` on create, incremented when the value at one of these JSON pointers changes.
    Within { first: i64, parts: Vec<Arc<str>> },
    /// 1 on create, incremented when a top-level field other than these changes.
    Outside { parts: Vec<Arc<str>> },
}

impl Generation {
    /// Returns the generation of a new object.
    pub fn first(&self) -> Option<i64> {
        match self {
            Generation::Never => None,
            Generation::Fixed | Generation::Outside { .. } => Some(1),
            Generation::Within { first, .. } => Some(*first).filter(|first| *first > 0),
        }
    }

    /// Reports whether the change from `before` to `after` increments the generation.
    pub fn grows(&self, before: &Value, after: &Value) -> bool {
        match self {
            Generation::Never | Generation::Fixed => false,
            Generation::Within { parts, .. } => {
                parts.iter().any(|part| before.pointer(part) != after.pointer(part))
            }
            Generation::Outside { parts } => {
                let fields = |object: &Value| -> Vec<(String, Value)> {
                    let fields = object.as_object().into_iter().flatten();
                    let counted = fields.filter(|(name, _)| !parts.iter().any(|part| **part == **name));
                    counted.map(|(name, value)| (name.clone(), value.clone())).collect()
                };
                fields(before) != fields(after)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_generation_counts_only_the_fields_that_it_names() {
        let spec =
            Generation::Within { first: 1, parts: vec!["/spec".into(), "/metadata/annotations".into()] };
        let but_status = Generation::Outside { parts: vec!["metadata".into(), "status".into()] };
        let before = json!({ "metadata": { "labels": {} }, "spec": { "replicas": 1 }, "status": {} });
        let mut rows = Vec::new();
        let mut change = |pointer: &str, value: Value| {
            let mut after = before.clone();
            *after.pointer_mut(pointer).unwrap() = value;
            rows.push((pointer.to_owned(), spec.grows(&before, &after), but_status.grows(&before, &after)));
        };
        change("/spec/replicas", json!(2));
        change("/status", json!({ "replicas": 1 }));
        change("/metadata/labels", json!({ "a": "b" }));
        change("/metadata", json!({ "labels": {}, "annotations": { "a": "b" } }));
        let expected = [
            ("/spec/replicas", true, true),
            ("/status", false, false),
            ("/metadata/labels", false, false),
            ("/metadata", true, false),
        ];
        assert_eq!(rows, expected.map(|(pointer, spec, status)| (pointer.to_owned(), spec, status)));
        assert_eq!(
            (Generation::Never.first(), Generation::Fixed.first(), spec.first()),
            (None, Some(1), Some(1))
        );
    }

    #[test]
    fn a_selectable_field_is_compared_as_text() {
        let field = |pointers: &[&str], absent: &str| SelectableField {
            label: "x".into(),
            pointers: pointers.iter().map(|pointer| (*pointer).into()).collect(),
            absent: absent.into(),
        };
        let object = json!({ "a": "", "b": "text", "c": true, "d": 3 });
        let check = |pointers: &[&str], absent, expected| {
            assert_eq!(field(pointers, absent).value(&object), expected, "{pointers:?}");
        };
        check(&["/b"], "", "text");
        check(&["/a", "/b"], "", "text");
        check(&["/c"], "false", "true");
        check(&["/d"], "0", "3");
        check(&["/missing"], "0", "0");
    }
}
