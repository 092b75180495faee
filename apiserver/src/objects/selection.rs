//! Label and field selectors.
//!
//! The cheapest requirements are checked first: name and namespace in the key, then the labels, from the metadata
//! alone. Only other fields need the whole object.

use api::meta::selector::{FieldSelector, LabelSelector};
use openapi::catalog::resource_info::ResourceInfo;
use openapi::conversion;
use openapi::meta::status::Status;
use serde_json::Value;
use storage::Entry;

use crate::keys::ObjectKey;
use crate::objects::stored;
use crate::request::query::Query;

/// The parsed selectors of a request.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    labels: LabelSelector,
    /// The requirements on fields that the key contains.
    place: FieldSelector,
    /// The requirements on all other fields.
    fields: FieldSelector,
    /// The namespace of the path, if the range of keys does not restrict it.
    namespace: Option<String>,
}

impl Selection {
    pub(crate) fn parse(query: &Query, resource: &ResourceInfo) -> Result<Selection, Status> {
        let bad = |error: api::meta::selector::SelectorError| Status::bad_request(error.to_string());
        let labels = LabelSelector::parse(query.text("labelSelector")).map_err(bad)?;
        let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(bad)?;
        let known: Vec<&str> = resource.selectable.iter().map(|selectable| &*selectable.label).collect();
        fields.check(&known).map_err(bad)?;
        let in_key = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        let (place, fields) = fields.terms.into_iter().partition(|term| in_key(&term.field));
        let (place, fields) = (FieldSelector { terms: place }, FieldSelector { terms: fields });
        Ok(Selection { labels, place, fields, namespace: None })
    }

    /// Restricts the selection to one namespace of every logical cluster.
    pub(crate) fn within(self, namespace: Option<String>) -> Selection {
        Selection { namespace, ..self }
    }

    pub(crate) fn is_everything(&self) -> bool {
        let Selection { labels, place, fields, namespace } = self;
        labels.is_empty() && place.is_empty() && fields.is_empty() && namespace.is_none()
    }

    /// Returns the only name that can match, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.place.exact("metadata.name")
    }

    /// Reports whether an entry matches. An entry that cannot be decoded matches only the empty selector.
    pub(crate) fn holds(&self, resource: &ResourceInfo, entry: &Entry) -> bool {
        self.is_everything()
            || self.holds_place(entry) && self.holds_labels(entry) && self.holds_fields(resource, entry)
    }

    fn holds_place(&self, entry: &Entry) -> bool {
        if self.place.is_empty() && self.namespace.is_none() {
            return true;
        }
        let Some(place) = ObjectKey::of(entry.key()) else { return false };
        let here = self.namespace.as_deref().is_none_or(|namespace| place.namespace == Some(namespace));
        here && self.place.matches(|field| match field {
            "metadata.name" => Some(place.name),
            _ => place.namespace,
        })
    }

    fn holds_labels(&self, entry: &Entry) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        if let Some(labels) = stored::labels(entry.value()) {
            return self.labels.matches(|label| labels.get(label));
        }
        stored::tree(entry).is_ok_and(|tree| {
            let labels = &tree["metadata"]["labels"];
            self.labels.matches(|label| labels.get(label).and_then(Value::as_str))
        })
    }

    fn holds_fields(&self, resource: &ResourceInfo, entry: &Entry) -> bool {
        if self.fields.is_empty() {
            return true;
        }
        let Ok(tree) = stored::tree(entry) else { return false };
        let tree = conversion::from_stored(resource, tree);
        let values: Vec<(&str, String)> = resource
            .selectable
            .iter()
            .map(|selectable| (&*selectable.label, selectable.value(&tree)))
            .collect();
        self.fields.matches(|field| {
            values.iter().find(|(label, _)| *label == field).map(|(_, value)| value.as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Collection;
    use api::cluster::Id;
    use openapi::catalog;
    use proptest::prelude::*;
    use serde_json::json;
    use storage::Revision;

    #[test]
    fn each_part_of_a_selector_is_applied() {
        let resource = catalog::find("", "v1", "pods").unwrap();
        let pod = json!({
            "metadata": { "name": "web", "namespace": "shop", "labels": { "app": "web" } },
            "spec": { "nodeName": "east" },
        });
        let key = Collection { group: "", plural: "pods" }.key(Id::ROOT, Some("shop"), "web");
        let entry = Entry::new(key, Revision(1), stored::encode(&pod));
        let check = |query: &str, expected: bool| {
            let selection = Selection::parse(&Query::parse(Some(query)), resource).unwrap();
            assert_eq!(selection.holds(resource, &entry), expected, "{query}");
        };
        check("", true);
        check("fieldSelector=metadata.name%3Dweb,metadata.namespace%3Dshop", true);
        check("fieldSelector=metadata.name!%3Dweb", false);
        check("fieldSelector=metadata.namespace%3Dother", false);
        check("labelSelector=app%3Dweb", true);
        check("labelSelector=app!%3Dweb", false);
        check("labelSelector=!tier", true);
        check("fieldSelector=spec.nodeName%3Deast&labelSelector=app", true);
        check("fieldSelector=spec.nodeName%3Dwest&labelSelector=app", false);
        let anywhere = Selection::parse(&Query::default(), resource).unwrap();
        assert!(anywhere.clone().within(Some("shop".into())).holds(resource, &entry));
        assert!(!anywhere.within(Some("other".into())).holds(resource, &entry));
    }

    /// Stored labels, also from before they were validated, next to text that looks like labels.
    fn labelled() -> impl Strategy<Value = Value> {
        let any_text = || {
            proptest::sample::select(
                &["app", "a", "tier", "x.y/app", "5", "", "ä", "\"", "\\", "app\":\"web"][..],
            )
        };
        let value = || proptest::sample::select(&["web", "", "5", "7", "\n", "web\"", "ä"][..]);
        let pairs = || prop::collection::btree_map(any_text(), value(), 0..4);
        let labels = prop_oneof![Just(Value::Null), pairs().prop_map(|pairs| json!(pairs))];
        (labels, pairs(), pairs()).prop_map(|(labels, annotations, data)| {
            json!({ "data": data, "metadata": { "annotations": annotations, "labels": labels, "name": "a" } })
        })
    }

    proptest! {
        /// The field scan agrees with a parser.
        #[test]
        fn label_selection_agrees_with_a_parser(
            object in labelled(),
            text in proptest::sample::select(&[
                "app", "!app", "app=web", "app!=web", "app in (web,5)", "app notin (web)", "a=", "x.y/app", "5>6", "tier,!a",
            ][..]),
        ) {
            let resource = catalog::find("", "v1", "configmaps").unwrap();
            let query = form_urlencoded::Serializer::new(String::new()).append_pair("labelSelector", text).finish();
            let selection = Selection::parse(&Query::parse(Some(&query)), resource).unwrap();
            let key = Collection { group: "", plural: "configmaps" }.key(Id::ROOT, Some("shop"), "a");
            let entry = Entry::new(key, Revision(1), stored::encode(&object));
            let labels = &object["metadata"]["labels"];
            let expected = selection.labels.matches(|label| labels.get(label).and_then(Value::as_str));
            prop_assert_eq!(selection.holds(resource, &entry), expected, "{} of {}", text, object);
        }
    }
}
