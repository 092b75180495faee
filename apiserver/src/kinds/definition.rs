//! The parts of a stored definition that matter for serving its kind.
//!
//! Most of a definition is schema. Whether its kind is served, and whether an equal definition is already compiled, is
//! read from its text without building a tree.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use api::names::GROUP;
use openapi::catalog;
use openapi::catalog::resource_info::{ResourceInfo, Verb};
use openapi::codec;
use openapi::crd::CustomKind;
use ring::digest;
use serde::Deserialize;
use serde_json::value::RawValue;
use storage::Entry;

use crate::keys::Collection;
use crate::kinds::READ_ONLY;
use crate::objects::stored;

/// The collection of custom resource definitions.
pub(crate) const DEFINITIONS: Collection<'static> =
    Collection { group: "apiextensions.k8s.io", plural: "customresourcedefinitions" };

/// Returns the resource of custom resource definitions.
pub(crate) fn definitions_resource() -> &'static Arc<ResourceInfo> {
    catalog::find(DEFINITIONS.group, "v1", DEFINITIONS.plural).expect("the catalogue has definitions")
}

/// The condition of a definition whose kind is served.
pub(crate) const ESTABLISHED: &str = "Established";

/// The digest of a definition. Definitions with the same digest define the same kind, in any logical cluster, and
/// tenants share the compiled kind. So it must be infeasible to find a second definition with the same digest.
pub(super) type Content = [u8; digest::SHA256_OUTPUT_LEN];

/// A definition whose kind is served.
#[derive(Debug)]
pub(super) struct Definition<'a> {
    text: &'a [u8],
    pub(super) content: Content,
    /// Whether the definition is terminating.
    pub(super) is_being_deleted: bool,
}

#[derive(Deserialize)]
struct Text<'a> {
    metadata: Metadata,
    #[serde(borrow)]
    spec: &'a RawValue,
    #[serde(borrow, default)]
    status: Status<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    deletion_timestamp: Option<String>,
}

/// The status of a definition.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status<'a> {
    #[serde(borrow)]
    pub(crate) accepted_names: Option<&'a RawValue>,
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

impl Status<'_> {
    pub(crate) fn holds(&self, condition: &str) -> bool {
        let mut all = self.conditions.iter().flatten();
        all.any(|entry| entry.r#type == condition && entry.status == "True")
    }
}

#[derive(Deserialize, Debug)]
struct Condition {
    r#type: String,
    status: String,
}

/// Reports whether this is the name of a definition of a built-in kind, served or not. A tenant that could define such
/// a kind in another version could write its objects without the rules for them: for example the id of a
/// LogicalCluster, and so reach another tenant's logical cluster.
pub(crate) fn is_reserved(name: &str) -> bool {
    static BUILT_IN: LazyLock<HashSet<String>> =
        LazyLock::new(|| catalog::built_in().iter().map(|resource| resource.qualified()).collect());
    [GROUP, DEFINITIONS.group].contains(&group(name)) || BUILT_IN.contains(name)
}

/// Returns the group in the name of a definition, which is `plural.group`.
pub(crate) fn group(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

impl<'a> Definition<'a> {
    /// Parses a definition. None if its kind is not served (yet) or it cannot be parsed.
    pub(super) fn of(entry: &'a Entry) -> Option<Definition<'a>> {
        let text = stored::json(entry)?;
        let Text { metadata, spec, status } = serde_json::from_slice(text).ok()?;
        // The status is tenant input: users who may write definitions may write it too.
        if !status.holds(ESTABLISHED) || is_reserved(&metadata.name) {
            return None;
        }
        let mut context = digest::Context::new(&digest::SHA256);
        for field in [metadata.name.as_str(), spec.get(), status.accepted_names.map_or("", RawValue::get)] {
            // Each part with its length, so that no two different sequences of parts give the same input.
            context.update(&field.len().to_le_bytes());
            context.update(field.as_bytes());
        }
        let content = context.finish().as_ref().try_into().ok()?;
        Some(Definition { text, content, is_being_deleted: metadata.deletion_timestamp.is_some() })
    }

    pub(super) fn kind(&self) -> Option<CustomKind> {
        let mut kind = CustomKind::of(&codec::parse_json(self.text).ok()?);
        for resource in kind.resources.iter_mut().filter(|resource| READ_ONLY.contains(&&*resource.group)) {
            *resource = Arc::new(ResourceInfo {
                verbs: vec![Verb::Get, Verb::List],
                ..ResourceInfo::clone(resource)
            });
        }
        Some(kind)
    }
}
