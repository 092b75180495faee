//! Small schemas for tests. Real ones come from the catalog.

use std::sync::Arc;

use crate::schema::{FieldSchema, ListSchema, ListType, MapSchema, ObjectSchema, Schema, SchemaRef, Shape};

fn of(shape: Shape) -> SchemaRef {
    Arc::new(Schema { shape, ..Schema::default() })
}

fn with_format(shape: Shape, format: &str) -> SchemaRef {
    Arc::new(Schema { shape, format: Some(format.into()), ..Schema::default() })
}

pub(crate) fn any() -> SchemaRef {
    of(Shape::Any)
}

pub(crate) fn boolean() -> SchemaRef {
    of(Shape::Boolean)
}

pub(crate) fn string() -> SchemaRef {
    of(Shape::String)
}

pub(crate) fn integer() -> SchemaRef {
    with_format(Shape::Integer, "int32")
}

pub(crate) fn long() -> SchemaRef {
    with_format(Shape::Integer, "int64")
}

pub(crate) fn bytes() -> SchemaRef {
    with_format(Shape::String, "byte")
}

pub(crate) fn int_or_string() -> SchemaRef {
    of(Shape::IntOrString)
}

pub(crate) fn quantity() -> SchemaRef {
    named("io.k8s.apimachinery.pkg.api.resource.Quantity", string())
}

pub(crate) fn list(items: SchemaRef) -> SchemaRef {
    of(Shape::List(ListSchema { items, kind: ListType::Atomic }))
}

pub(crate) fn map(values: SchemaRef) -> SchemaRef {
    of(Shape::Map(MapSchema { values, atomic: false }))
}

pub(crate) fn named(name: &str, schema: SchemaRef) -> SchemaRef {
    Arc::new(Schema { name: Some(name.into()), ..(*schema).clone() })
}

pub(crate) fn object(fields: &[(&str, SchemaRef)]) -> SchemaRef {
    struct_of(fields.iter().map(|(name, schema)| (*name, FieldSchema::of(schema.clone()))))
}

/// An object that preserves unknown fields.
pub(crate) fn open(fields: &[(&str, SchemaRef)]) -> SchemaRef {
    let fields =
        fields.iter().map(|(name, schema)| ((*name).into(), FieldSchema::of(schema.clone()))).collect();
    of(Shape::Object(ObjectSchema { fields, preserve_unknown: true, ..ObjectSchema::default() }))
}

pub(crate) fn struct_of<'a>(fields: impl IntoIterator<Item = (&'a str, FieldSchema)>) -> SchemaRef {
    let fields = fields.into_iter().map(|(name, field)| (name.into(), field)).collect();
    of(Shape::Object(ObjectSchema { fields, ..ObjectSchema::default() }))
}

/// A field that a strategic merge patch replaces.
pub(crate) fn plain(schema: SchemaRef) -> FieldSchema {
    FieldSchema::of(schema)
}

/// A list that a strategic merge patch merges, by `key` if its items are objects.
pub(crate) fn merged(schema: SchemaRef, key: Option<&str>) -> FieldSchema {
    FieldSchema { patch_merge: true, patch_merge_key: key.map(Into::into), ..FieldSchema::of(schema) }
}

/// A Deployment with the fields that tests need.
pub(crate) fn deployment() -> SchemaRef {
    let port = named(
        "io.k8s.api.core.v1.ContainerPort",
        object(&[("containerPort", integer()), ("name", string()), ("protocol", string())]),
    );
    let env = named("io.k8s.api.core.v1.EnvVar", object(&[("name", string()), ("value", string())]));
    let container = named(
        "io.k8s.api.core.v1.Container",
        struct_of([
            ("name", plain(string())),
            ("image", plain(string())),
            ("args", plain(list(string()))),
            ("env", merged(list(env), Some("name"))),
            ("ports", merged(list(port), Some("containerPort"))),
            ("limits", plain(map(quantity()))),
        ]),
    );
    let toleration =
        named("io.k8s.api.core.v1.Toleration", object(&[("key", string()), ("value", string())]));
    let pod_spec = named(
        "io.k8s.api.core.v1.PodSpec",
        struct_of([
            ("containers", merged(list(container), Some("name"))),
            ("tolerations", plain(list(toleration))),
            ("nodeSelector", plain(map(string()))),
            ("hostNetwork", plain(boolean())),
            ("terminationGracePeriodSeconds", plain(long())),
        ]),
    );
    let rolling =
        named("io.k8s.api.apps.v1.RollingUpdateDeployment", object(&[("maxSurge", int_or_string())]));
    let strategy = named(
        "io.k8s.api.apps.v1.DeploymentStrategy",
        object(&[("type", string()), ("rollingUpdate", rolling)]),
    );
    let meta = metadata();
    let template = named(
        "io.k8s.api.core.v1.PodTemplateSpec",
        object(&[("metadata", meta.clone()), ("spec", pod_spec)]),
    );
    let spec = named(
        "io.k8s.api.apps.v1.DeploymentSpec",
        struct_of([
            ("replicas", plain(integer())),
            ("strategy", FieldSchema { patch_retain_keys: true, ..plain(strategy) }),
            ("template", plain(template)),
        ]),
    );
    named(
        "io.k8s.api.apps.v1.Deployment",
        object(&[
            ("apiVersion", string()),
            ("kind", string()),
            ("metadata", meta),
            ("spec", spec),
            ("raw", any()),
        ]),
    )
}

pub(crate) fn metadata() -> SchemaRef {
    named(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        struct_of([
            ("name", plain(string())),
            ("labels", plain(map(string()))),
            ("annotations", plain(map(string()))),
            ("creationTimestamp", plain(with_format(Shape::String, "date-time"))),
            ("finalizers", merged(list(string()), None)),
        ]),
    )
}

/// A Secret, as an example with bytes.
pub(crate) fn secret() -> SchemaRef {
    named("io.k8s.api.core.v1.Secret", object(&[("metadata", metadata()), ("data", map(bytes()))]))
}
