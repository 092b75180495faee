//! Which objects of a collection a client wants.

use openapi::resource::Resource;
use openapi::select::{FieldSelector, LabelSelector};
use openapi::status::Status;
use serde_json::Value;
use storage::Entry;

use crate::query::Query;
use crate::stored;

/// The selectors of a request, parsed.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub(crate) fn parse(query: &Query, row: &Resource) -> Result<Selection, Status> {
        let bad = |error: openapi::select::SelectorError| Status::bad_request(error.to_string());
        let labels = LabelSelector::parse(query.text("labelSelector")).map_err(bad)?;
        let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(bad)?;
        let known: Vec<&str> = row.selectable.iter().map(|selectable| &*selectable.label).collect();
        fields.check(&known).map_err(bad)?;
        Ok(Selection { labels, fields })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name that can match, if there is only one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// An object that cannot be read matches nothing but "everything".
    pub(crate) fn holds(&self, row: &Resource, entry: &Entry) -> bool {
        self.is_everything() || stored::tree(entry).is_ok_and(|tree| self.holds_tree(row, &tree))
    }

    fn holds_tree(&self, row: &Resource, tree: &Value) -> bool {
        let labels = &tree["metadata"]["labels"];
        if !self.labels.matches(|label| labels.get(label).and_then(Value::as_str)) {
            return false;
        }
        let values: Vec<(&str, String)> =
            row.selectable.iter().map(|selectable| (&*selectable.label, selectable.value(tree))).collect();
        self.fields.matches(|field| {
            values.iter().find(|(label, _)| *label == field).map(|(_, value)| value.as_str())
        })
    }
}
