//! What one value may look like, in the form every other module walks.
//!
//! Built-in kinds and custom ones are described alike, so pruning, defaulting, validation, the patch types and
//! OpenAPI documents are each written once. A schema is immutable and shared; two kinds that contain a pod
//! template contain the same pod template.

pub mod builtin;
pub mod constraints;
pub(crate) mod messages;
pub mod parse;
pub mod prune;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use crate::schema::constraints::{Bound, Constraints, JsonType, Pattern};

/// A type, by reference or in place.
pub type SchemaRef = Arc<Schema>;

/// Definitions of custom types: compact OpenAPI v3 JSON by type name. Built-in ones need not be given.
pub type OpenApiDefinitions = BTreeMap<Arc<str>, Arc<str>>;

/// Who described the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Kubernetes did. Clients may also speak protobuf about it and send strategic merge patches.
    BuiltIn,
    /// A custom resource definition did.
    Custom,
}

/// One type. Absent properties are empty.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Schema {
    /// The name under which documents refer to it (`io.k8s.api.core.v1.PodSpec`); none for a type in place.
    pub name: Option<Arc<str>>,
    pub description: Option<Arc<str>>,
    pub shape: Shape,
    /// `date-time`, `int32`, `int64`, `byte`, …
    pub format: Option<Arc<str>>,
    /// Filled in when the value is absent.
    pub default: Option<Value>,
    pub nullable: bool,
    /// What else holds for a value of a custom kind. Built-in types have tables for that: see [`crate::validation`].
    pub rules: Option<Box<Constraints>>,
}

impl Schema {
    /// Whether objects of this type are custom ones, which are trees and not structs.
    pub fn is_custom(&self) -> bool {
        matches!(&self.shape, Shape::Object(object) if object.embedded)
    }
}

/// What kind of value it is.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Shape {
    /// Any value at all; nothing in it is known or unknown.
    #[default]
    Any,
    Boolean,
    Integer,
    Number,
    String,
    IntOrString,
    Object(ObjectSchema),
    Map(MapSchema),
    List(ListSchema),
}

/// Named fields.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ObjectSchema {
    pub fields: BTreeMap<Arc<str>, FieldSchema>,
    pub required: Vec<Arc<str>>,
    /// Fields without a name here are kept rather than pruned.
    pub preserve_unknown: bool,
    /// Owned and replaced as a whole.
    pub atomic: bool,
    /// An object with a kind and metadata of its own: a custom object, or one inside another. It is read, pruned and
    /// filled by [`crate::crd`].
    pub embedded: bool,
}

/// A field of an object. How a strategic merge patch treats it belongs to the field, not to its type: the same
/// list type is merged in one place and replaced in another.
#[derive(Clone, PartialEq, Debug)]
pub struct FieldSchema {
    pub schema: SchemaRef,
    pub description: Option<Arc<str>>,
    pub default: Option<Value>,
    /// `x-kubernetes-patch-strategy` contains `merge`.
    pub patch_merge: bool,
    /// `x-kubernetes-patch-strategy` contains `retainKeys`.
    pub patch_retain_keys: bool,
    /// `x-kubernetes-patch-strategy` contains `replace`.
    pub patch_replace: bool,
    /// `x-kubernetes-patch-merge-key`.
    pub patch_merge_key: Option<Arc<str>>,
}

impl FieldSchema {
    pub fn of(schema: SchemaRef) -> FieldSchema {
        FieldSchema {
            schema,
            description: None,
            default: None,
            patch_merge: false,
            patch_retain_keys: false,
            patch_replace: false,
            patch_merge_key: None,
        }
    }
}

/// Any keys, one type of value.
#[derive(Clone, PartialEq, Debug)]
pub struct MapSchema {
    pub values: SchemaRef,
    pub atomic: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ListSchema {
    pub items: SchemaRef,
    pub kind: ListType,
}

/// How two appliers share a list (`x-kubernetes-list-type`).
#[derive(Clone, PartialEq, Debug, Default)]
pub enum ListType {
    /// Owned as a whole.
    #[default]
    Atomic,
    /// Scalars, each at most once, each with its own owner.
    Set,
    /// Objects, found by the values of these fields.
    Map { keys: Vec<Arc<str>> },
}
