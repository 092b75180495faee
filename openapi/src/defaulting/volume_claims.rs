//! The data source of a PersistentVolumeClaim, which has an old and a new field.

use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, text};

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// Keeps `dataSource` and `dataSourceRef` equal. The old field allows two kinds of source and ignores others; the new
/// one allows any. A source in another namespace needs a feature that is not enabled and is removed. Sources that the
/// old object already had stay.
pub(super) fn data_sources(claim: &mut Fields, had_source: bool) {
    let Some(spec) = inner_mut(claim, &["spec"]) else { return };
    if !had_source {
        if inner(spec, &["dataSourceRef"]).is_some_and(|source| !text(source, "namespace").is_empty()) {
            spec.remove("dataSourceRef");
        }
        if !spec.contains_key("dataSourceRef")
            && !inner(spec, &["dataSource"]).is_some_and(is_supported_source)
        {
            spec.remove("dataSource");
        }
    }
    match (source(spec, "dataSource"), source(spec, "dataSourceRef")) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(source))
            if inner(spec, &["dataSourceRef"]).is_some_and(|it| text(it, "namespace").is_empty()) =>
        {
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

pub(super) fn has_source(claim: &Fields) -> bool {
    inner(claim, &["spec"])
        .is_some_and(|spec| spec.contains_key("dataSource") || spec.contains_key("dataSourceRef"))
}

fn is_supported_source(source: &Fields) -> bool {
    matches!(
        (text(source, "kind"), text(source, "apiGroup")),
        ("PersistentVolumeClaim", "") | ("VolumeSnapshot", SNAPSHOTS)
    )
}

/// Returns the part of a source that both fields can express.
fn source(spec: &Fields, field: &str) -> Option<Value> {
    let source = inner(spec, &[field])?;
    let mut both = json!({ "kind": text(source, "kind"), "name": text(source, "name") });
    if let Some(group) = source.get("apiGroup").filter(|group| !group.is_null()) {
        both["apiGroup"] = group.clone();
    }
    Some(both)
}
