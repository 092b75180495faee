//! [`ResourceInfo`]: everything the generic request path needs to know to serve one resource.
//!
//! All of it is data, so no code branches on a kind. The built-in resources come from
//! [`catalog`](crate::catalog); rows of custom kinds are made when their definition is accepted, and carry along what
//! their objects look like inside. For a built-in kind that is in [`builtin`].

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
    /// What a field selector may name.
    pub selectable: Vec<SelectableField>,
    pub generation: Generation,
    /// An update of an object that is not there creates it.
    pub create_on_update: bool,
    /// An update must say which version it replaces.
    pub update_needs_version: bool,
    /// A deletion that is done at once answers with the object that is gone, rather than with a status. One that has
    /// to wait always answers with the object.
    pub delete_answers_object: bool,
    /// The name of its type in OpenAPI documents. A custom kind has one too.
    pub type_name: Arc<str>,
    /// What objects of a custom kind look like; see [`ResourceInfo::schema`].
    pub schema: Option<SchemaRef>,
    /// What only a kind with a definition has to say.
    pub custom: Option<Arc<CustomResourceInfo>>,
    /// Group and version of the resource its objects are kept as, where that is another: the same object, seen through
    /// two resources.
    pub stored_as: Option<(Arc<str>, Arc<str>)>,
    /// Tells clients when the version objects are stored in changes.
    pub storage_version_hash: Option<Arc<str>>,
}

impl ResourceInfo {
    /// How errors name the kind. Kubernetes says what an object is kept as: an Event of `events.k8s.io` is an `Event`.
    pub fn group_kind(&self) -> GroupResource<'_> {
        let group = self.stored_as.as_ref().map_or(&self.group, |(group, _)| group);
        GroupResource::new(group, &self.kind)
    }

    /// `apps/v1`, or `v1` for the core group: what objects carry as `apiVersion`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `deployments.apps`, or `pods`: how people write it and how errors name it.
    pub fn qualified(&self) -> String {
        match &*self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// What its objects look like; none for a built-in kind that has no type.
    pub fn schema(&self) -> Option<&SchemaRef> {
        match self.origin {
            Origin::BuiltIn => builtin::schema(&self.type_name),
            Origin::Custom => self.schema.as_ref(),
        }
    }

    /// Whether what was stored in this version, when the schema of the version had this hash, can be handed out as it
    /// is: to read it is to prune and to fill it again, which then changes nothing.
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

/// What a custom resource definition declares for one version, beyond [`ResourceInfo`].
#[derive(Clone, PartialEq, Debug)]
pub struct CustomResourceInfo {
    /// The deprecation warning every request in this version is answered with.
    pub warning: Option<Arc<str>>,
    pub scale: Option<ScalePaths>,
    /// What objects look like in each version of the kind, served or not: any of them may be stored.
    pub versions: Arc<BTreeMap<Arc<str>, SchemaRef>>,
    /// Tells the schema of this version from others its definition has had.
    pub schema_hash: u128,
}

/// Where the scale of a custom object is found in it, as JSON pointers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScalePaths {
    pub replicas: Arc<str>,
    pub replicas_now: Arc<str>,
    /// A label selector as text.
    pub selector: Option<Arc<str>>,
}

/// `group/version`, without the slash where there is no group.
pub fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// A part of an object with an address of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Subresource {
    pub name: Arc<str>,
    pub kind: Arc<str>,
    /// Group and version of the kind, where they are not the parent's.
    pub foreign: Option<(Arc<str>, Arc<str>)>,
    pub verbs: Vec<Verb>,
}

/// What a client can ask for, in the words of discovery and RBAC.
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

/// A column of the table a client sees.
#[derive(Clone, Debug)]
pub struct PrinterColumn {
    pub name: Arc<str>,
    /// `string`, `integer`, `boolean`, `date`, …
    pub kind: Arc<str>,
    pub format: Arc<str>,
    pub description: Arc<str>,
    /// 0 is always shown, more only when a wide table is asked for.
    pub priority: i32,
    pub cell: PrinterCell,
}

/// A field that selectors may name.
#[derive(Clone, PartialEq, Debug)]
pub struct SelectableField {
    /// `spec.nodeName`
    pub label: Arc<str>,
    /// JSON pointers; the first that leads to something not empty wins.
    pub pointers: Vec<Arc<str>>,
    /// What an absent value equals: `""`, `"0"` or `"false"`.
    pub absent: Arc<str>,
}

impl SelectableField {
    /// The text a selector's value is compared with.
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

/// When `metadata.generation` grows.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Generation {
    /// The kind has none.
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
    /// What a new object starts with.
    pub fn first(&self) -> Option<i64> {
        match self {
            Generation::Never => None,
            Generation::Fixed | Generation::Outside { .. } => Some(1),
            Generation::Within { first, .. } => Some(*first).filter(|first| *first > 0),
        }
    }

    /// Whether `after` is a new generation of `before`.
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
    fn a_generation_counts_only_the_parts_it_names() {
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
