//! [`Schema`]: the type of a value, in the form that all other modules use.
//!
//! Built-in and custom kinds have the same form, so pruning, defaulting, validation, the patch types and OpenAPI
//! documents are each written once. A schema is immutable and shared: two kinds with a pod template share the schema of
//! the pod template.

pub mod builtin;
pub mod constraints;
pub(crate) mod messages;
pub mod parse;
pub mod prune;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use crate::schema::constraints::{Bound, Constraints, JsonType, Pattern};

/// A shared schema.
pub type SchemaRef = Arc<Schema>;

/// Definitions of custom types: compact OpenAPI v3 JSON by type name. Built-in types need not be included.
pub type OpenApiDefinitions = BTreeMap<Arc<str>, Arc<str>>;

/// Where a kind is defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// In Kubernetes. Clients may also use protobuf and strategic merge patches for it.
    BuiltIn,
    /// In a custom resource definition.
    Custom,
}

/// A type. Absent properties are empty.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Schema {
    /// The name by which OpenAPI documents refer to it (`io.k8s.api.core.v1.PodSpec`); none for an inline type.
    pub name: Option<Arc<str>>,
    pub description: Option<Arc<str>>,
    pub shape: Shape,
    /// `date-time`, `int32`, `int64`, `byte`, …
    pub format: Option<Arc<str>>,
    /// The value to use if it is absent.
    pub default: Option<Value>,
    pub nullable: bool,
    /// Further constraints on values of a custom kind. Built-in types have tables instead: see [`crate::validation`].
    pub rules: Option<Box<Constraints>>,
}

impl Schema {
    /// Reports whether objects of this type are custom objects, which are trees and not structs.
    pub fn is_custom(&self) -> bool {
        matches!(&self.shape, Shape::Object(object) if object.embedded)
    }
}

/// The kind of a value.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Shape {
    /// Any value. No field in it is unknown.
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

/// An object with named fields.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ObjectSchema {
    pub fields: BTreeMap<Arc<str>, FieldSchema>,
    pub required: Vec<Arc<str>>,
    /// Whether unknown fields are preserved instead of pruned.
    pub preserve_unknown: bool,
    /// Whether the object is owned and replaced as a whole.
    pub atomic: bool,
    /// Whether the object has a kind and metadata of its own: a custom object, or one embedded in another.
    /// [`crate::crd`] describes how it is decoded, pruned and defaulted.
    pub embedded: bool,
}

/// A field of an object. Its strategy for strategic merge patches belongs to the field, not to its type: the same list
/// type is merged in one field and replaced in another.
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

/// A map with any keys and one type of value.
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

/// How managers share a list (`x-kubernetes-list-type`).
#[derive(Clone, PartialEq, Debug, Default)]
pub enum ListType {
    /// Owned as a whole.
    #[default]
    Atomic,
    /// Unique scalars, each with its own owner.
    Set,
    /// Objects, identified by the values of these fields.
    Map { keys: Vec<Arc<str>> },
}
