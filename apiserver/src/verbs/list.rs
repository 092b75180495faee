//! Reading a collection, all of it at one revision.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, BytesMut};
use http::{Response, StatusCode};
use jiff::Timestamp;
use openapi::field::FieldError;
use openapi::status::{Grouped, Status};
use openapi::table::{self, Heading};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use storage::{Entry, Key, Page, Range, Revision, Store};

use crate::call::{Call, unreadable};
use crate::negotiate::Form;
use crate::query::Query;
use crate::render::{self, Style};
use crate::select::Selection;
use crate::server::Body;
use crate::stored;

/// Entries read from the store at a time while looking for those selected.
const PAGE_ENTRIES: usize = 1000;

/// Where a list goes on: opaque to clients, checked when it comes back.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: u64,
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// What was found, and where it goes on.
pub(crate) struct Listed {
    pub(crate) revision: Revision,
    pub(crate) entries: Vec<Entry>,
    next: Option<Key>,
    remaining: Option<usize>,
}

pub(crate) async fn list(
    store: &dyn Store,
    call: &Call,
    style: &Style<'_>,
) -> Result<Response<Body>, Status> {
    let selection = Selection::parse(&call.query, &call.row)?;
    let listed = read(store, call, &selection).await?;
    list_of(&listed, call, style)
}

/// A list in the form asked for.
pub(crate) fn list_of(listed: &Listed, call: &Call, style: &Style<'_>) -> Result<Response<Body>, Status> {
    let metadata = metadata(listed);
    Ok(match style.form {
        Form::Table => {
            let trees: Vec<Value> =
                listed.entries.iter().filter_map(|entry| stored::tree(entry).ok()).collect();
            let columns = &call.row.columns;
            let now = Timestamp::now();
            let table = table::table(columns, Heading::Shown, metadata, &trees, style.include, now);
            render::value(StatusCode::OK, &table)
        }
        Form::Partial => render::json(
            StatusCode::OK,
            items(listed, style, "PartialObjectMetadataList", "meta.k8s.io/v1", &metadata),
        ),
        _ => render::json(
            StatusCode::OK,
            items(listed, style, &call.row.list_kind, &call.row.api_version(), &metadata),
        ),
    })
}

/// Reads what a list shows.
pub(crate) async fn read(store: &dyn Store, call: &Call, selection: &Selection) -> Result<Listed, Status> {
    check(&call.query)?;
    let limit = usize::try_from(call.query.number("limit")?).unwrap_or(usize::MAX);
    let mut page = Page::default();
    match call.query.text("continue") {
        "" => page.at = exact(call)?,
        token => (page.at, page.after) = resume(token, &range(call, selection))?,
    }
    let listed = pages(store, call, selection, page, limit).await?;
    not_older(call, listed)
}

/// Reads everything selected, as it is now: the beginning of a watch.
pub(crate) async fn everything(
    store: &dyn Store,
    call: &Call,
    selection: &Selection,
) -> Result<Listed, Status> {
    let listed = pages(store, call, selection, Page::default(), 0).await?;
    not_older(call, listed)
}

/// Reads up to `limit` entries; all of them if it is zero.
async fn pages(
    store: &dyn Store,
    call: &Call,
    selection: &Selection,
    mut page: Page,
    limit: usize,
) -> Result<Listed, Status> {
    let range = range(call, selection);
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let wanted = if limit == 0 { PAGE_ENTRIES } else { (limit - entries.len()).min(PAGE_ENTRIES) };
        page.limit = Some(wanted);
        // What follows can only be counted where everything is shown.
        page.count = limit > 0 && selection.is_everything();
        let read = store.list(range.clone(), page.clone()).await.map_err(unreadable)?;
        page.at = Some(read.revision);
        page.after = read.value.entries.last().map(|entry| entry.key().clone());
        entries.extend(read.value.entries.into_iter().filter(|entry| selection.holds(&call.row, entry)));
        let full = limit > 0 && entries.len() >= limit;
        if full || !read.value.more {
            let next = page.after.filter(|_| read.value.more);
            return Ok(Listed { revision: read.revision, entries, next, remaining: read.value.remaining });
        }
    }
}

/// A client that has seen a version must not be shown an older one.
fn not_older(call: &Call, listed: Listed) -> Result<Listed, Status> {
    let seen = call.query.number("resourceVersion")?;
    match seen > listed.revision.0 {
        true => Err(Status::version_too_large(seen, listed.revision.0)),
        false => Ok(listed),
    }
}

/// The stretch of keys in which everything selected lies.
pub(crate) fn range(call: &Call, selection: &Selection) -> Range {
    // A single object is often asked for this way, to watch it.
    match (selection.name(), call.row.namespaced, &call.namespace) {
        (Some(name), true, Some(_)) | (Some(name), false, None) => Range::key(call.key(name)),
        _ => call.range(),
    }
}

/// The revision to read at, if the client insists on one.
fn exact(call: &Call) -> Result<Option<Revision>, Status> {
    let (version, rule) = (call.query.number("resourceVersion")?, call.query.text("resourceVersionMatch"));
    let legacy = rule.is_empty() && call.query.number("limit")? > 0;
    Ok((version > 0 && (rule == "Exact" || legacy)).then_some(Revision(version)))
}

/// Refuses what contradicts itself, in Kubernetes's words.
fn check(query: &Query) -> Result<(), Status> {
    let rule = query.text("resourceVersionMatch");
    let forbidden = |why: &str| FieldError::forbidden("resourceVersionMatch", why);
    let error = match (rule, query.text("resourceVersion")) {
        _ if !query.text("sendInitialEvents").is_empty() => {
            FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
        }
        ("", _) => return Ok(()),
        _ if !query.text("continue").is_empty() => {
            forbidden("resourceVersionMatch is forbidden when continue is provided")
        }
        (_, "") => forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("Exact", "0") => forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        ("Exact" | "NotOlderThan", _) => return Ok(()),
        _ => FieldError::not_supported("resourceVersionMatch", rule, &["Exact", "NotOlderThan", ""]),
    };
    Err(Status::invalid(Grouped::new("meta.k8s.io", "ListOptions"), "", &[error]))
}

fn resume(token: &str, range: &Range) -> Result<(Option<Revision>, Option<Key>), Status> {
    let bad = || Status::bad_request("continue key is not valid");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?;
    let token: Continue = serde_json::from_slice(&bytes).map_err(|_| bad())?;
    // A token only ever leads back into the list it came from, whatever somebody wrote into it.
    if token.v != TOKEN_VERSION || !range.contains(token.start.as_bytes()) {
        return Err(bad());
    }
    Ok((Some(Revision(token.rv)), Some(Key::from(token.start))))
}

fn metadata(listed: &Listed) -> Value {
    let mut metadata = json!({ "resourceVersion": listed.revision.to_string() });
    if let Some(next) = &listed.next {
        let start = String::from_utf8_lossy(next.as_bytes()).into_owned();
        let token = Continue { v: TOKEN_VERSION.to_owned(), rv: listed.revision.0, start };
        let token = serde_json::to_vec(&token).unwrap_or_default();
        metadata["continue"] = URL_SAFE_NO_PAD.encode(token).into();
        if let Some(remaining) = listed.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    metadata
}

fn items(listed: &Listed, style: &Style<'_>, kind: &str, api_version: &str, metadata: &Value) -> BytesMut {
    let mut out = BytesMut::new();
    let head =
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
    out.put_slice(head.as_bytes());
    let mut first = true;
    for entry in &listed.entries {
        if !std::mem::take(&mut first) {
            out.put_u8(b',');
        }
        style.object(entry, entry.revision(), Heading::Omitted, &mut out);
    }
    out.put_slice(b"]}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_contradicts_itself_is_refused() {
        let allowed = |query: &str| check(&Query::parse(Some(query))).is_ok();
        for query in [
            "",
            "resourceVersion=0",
            "resourceVersion=5&limit=1",
            "resourceVersion=5&resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        ] {
            assert!(allowed(query), "{query}");
        }
        for query in [
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=5&resourceVersionMatch=Newest",
            "resourceVersion=5&resourceVersionMatch=Exact&continue=x",
            "sendInitialEvents=true",
        ] {
            assert!(!allowed(query), "{query}");
        }
    }
}
