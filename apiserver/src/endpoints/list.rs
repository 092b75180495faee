//! Lists a collection at one revision.
//!
//! ```text
//!   query ─► one page of references to stored bytes ─► chunks of at most 4 KB, each rendered when the client takes it
//!                       ▲ the next page is read, at the same revision, when these are sent ─┘
//! ```
//!
//! For a client that reads slowly or not at all, the server holds only the references of one page: eight bytes an
//! object. A list of several pages needs the history of its revision until the last page is read. If that is compacted
//! before, the response breaks off and the client lists again.

use std::sync::Arc;

use api::meta::field::FieldError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use openapi::codec;
use openapi::codec::Syntax;
use openapi::meta::status::{GroupResource, Status};
use openapi::schema::Origin;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use storage::{Entry, Key, Page, Range, ReadError, Revision, Store};

use crate::endpoints::get;
use crate::http::body::Body;
use crate::objects::selection::Selection;
use crate::objects::store_errors::unreadable;
use crate::registry::call::Call;
use crate::request::info::Reach;
use crate::request::negotiation::Shape;
use crate::request::query::Query;
use crate::response::list_reader::{ListReader, SENT_ENTRIES};
use crate::response::list_stream;
use crate::response::list_stream::Interruption;
use crate::response::render::Style;

/// Page size while reading the store for matching objects.
const PAGE_ENTRIES: usize = 1000;
/// Maximum for `limit`, because the server reads a whole page before it sends the first object. A client that asks for
/// more gets a continue token.
const LIMIT_MAX: usize = 4096;

/// A continue token. It is opaque to clients and validated when a client sends it.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    /// The revision of all pages. Negative: the newest revision, for a list whose revision was compacted.
    rv: i64,
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";
const NEWEST: i64 = -1;

const LIST_EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const TOKEN_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The entries of one page, and the key to continue from.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) revision: Revision,
    pub(crate) entries: Vec<Entry>,
    next: Option<Key>,
    remaining: Option<usize>,
}

pub(crate) async fn list(
    store: &Arc<dyn Store>,
    call: &Call,
    style: &Style,
) -> Result<Response<Body>, Status> {
    style.several()?;
    let selection = selection(call)?;
    let plan = ListPlan::new(&**store, call, &selection).await?;
    if plan.limit == 0 {
        let reader = ListReader::start(
            store,
            range(call, &selection),
            call.resource.clone(),
            &selection,
            plan.page.clone(),
        )
        .await;
        let reader = reader.map_err(|error| plan.failed(error))?;
        let listed = Listed { revision: reader.revision, entries: Vec::new(), next: None, remaining: None };
        return send(style, list_metadata(&listed, style), reader).await;
    }
    let plan = ListPlan { limit: plan.limit.min(LIMIT_MAX), ..plan };
    let page = plan.page.clone();
    let listed = plan.read(&**store, call, &selection).await?;
    if listed.entries.len() <= SENT_ENTRIES {
        return list_of(&listed, style).await;
    }
    // The first read only determined the end of the page. The page is read again while it is sent.
    let page = Page { at: Some(listed.revision), ..page };
    let reader = ListReader::start(store, range(call, &selection), call.resource.clone(), &selection, page)
        .await
        .map_err(unreadable)?;
    let reader = reader.limited(listed.entries.len());
    send(style, list_metadata(&listed, style), reader).await
}

/// Responds with a list in the requested form.
pub(crate) async fn list_of(listed: &Listed, style: &Style) -> Result<Response<Body>, Status> {
    style.several()?;
    send(style, list_metadata(listed, style), ListReader::of(listed.entries.clone())).await
}

async fn send(style: &Style, metadata: Value, reader: ListReader) -> Result<Response<Body>, Status> {
    let sent = list_stream::list(style.clone(), &metadata, reader).await;
    sent.map_err(|interruption| match interruption {
        Interruption::Read(error) => unreadable(error),
        // A kind without protobuf is not offered in protobuf.
        other => Status::internal(&other.to_string()),
    })
}

fn list_metadata(listed: &Listed, style: &Style) -> Value {
    let mut metadata = metadata(listed);
    // Kubernetes has no type for lists of custom kinds, so it does not omit an empty `continue`.
    let is_custom_object = style.form.shape == Shape::Whole && style.resource.origin == Origin::Custom;
    if is_custom_object && metadata.get("continue").is_none() {
        metadata["continue"] = "".into();
    }
    metadata
}

/// Returns the selectors of a list.
pub(crate) fn selection(call: &Call) -> Result<Selection, Status> {
    let selection = Selection::parse(&call.query, &call.resource)?;
    Ok(match call.reach {
        Reach::One => selection,
        // Across all logical clusters, the keys of one namespace are not contiguous, so the namespace is a selector.
        Reach::Every => selection.within(call.namespace.clone()),
    })
}

/// Reads all entries of a list.
pub(crate) async fn read(store: &dyn Store, call: &Call, selection: &Selection) -> Result<Listed, Status> {
    ListPlan::new(store, call, selection).await?.read(store, call, selection).await
}

/// Where a list begins and how many entries it returns.
struct ListPlan {
    page: Page,
    /// 0 for all.
    limit: usize,
    token: Option<Continue>,
}

impl ListPlan {
    async fn new(store: &dyn Store, call: &Call, selection: &Selection) -> Result<ListPlan, Status> {
        check(&call.query)?;
        // A negative limit is no limit.
        let limit = usize::try_from(call.query.number("limit")?).unwrap_or(0);
        // A list has no timeout, but an invalid number is refused as for a watch.
        call.query.number("timeoutSeconds")?;
        let version = call.query.version().map_err(|bad| bad.of_list())?;
        let token = match call.query.text("continue") {
            "" => None,
            text => Some(parse(text, &range(call, selection))?),
        };
        let page = match &token {
            Some(_) if version != Revision::ZERO => {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            Some(token) => Page {
                at: u64::try_from(token.rv).ok().map(Revision),
                after: Some(Key::from(token.start.as_str())),
                ..Page::default()
            },
            None => {
                get::not_older(store, &call.key(""), version).await?;
                Page { at: exact(&call.query, version, limit), ..Page::default() }
            }
        };
        Ok(ListPlan { page, limit, token })
    }

    async fn read(self, store: &dyn Store, call: &Call, selection: &Selection) -> Result<Listed, Status> {
        let listed = pages(store, call, selection, self.page.clone(), self.limit).await;
        listed.map_err(|error| self.failed(error))
    }

    fn failed(self, error: ReadError) -> Status {
        match (error, self.token) {
            (ReadError::Compacted { .. }, None) => Status::expired(LIST_EXPIRED),
            (ReadError::Compacted { .. }, Some(token)) => {
                let mut status = Status::expired(TOKEN_EXPIRED);
                status.metadata.continue_token = Some(written(&Continue { rv: NEWEST, ..token }));
                status
            }
            (error, _) => unreadable(error),
        }
    }
}

/// Reads up to `limit` entries, or all if it is 0.
async fn pages(
    store: &dyn Store,
    call: &Call,
    selection: &Selection,
    mut page: Page,
    limit: usize,
) -> Result<Listed, ReadError> {
    let range = range(call, selection);
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let page_size = if limit == 0 { PAGE_ENTRIES } else { (limit - entries.len()).min(PAGE_ENTRIES) };
        page.limit = Some(page_size);
        // Remaining objects can be counted only without selectors, and only within one logical cluster.
        page.count = limit > 0 && selection.is_everything() && call.reach == Reach::One;
        let read = store.list(range.clone(), page.clone()).await?;
        page.at = Some(read.revision);
        page.after = read.value.entries.last().map(|entry| entry.key().clone());
        entries.extend(read.value.entries.into_iter().filter(|entry| selection.holds(&call.resource, entry)));
        let full = limit > 0 && entries.len() >= limit;
        if full || !read.value.more {
            let next = page.after.filter(|_| read.value.more);
            return Ok(Listed { revision: read.revision, entries, next, remaining: read.value.remaining });
        }
    }
}

/// Returns the range of keys that contains all selected objects.
pub(crate) fn range(call: &Call, selection: &Selection) -> Range {
    // Clients often watch a single object this way.
    match (selection.name(), call.resource.namespaced, &call.namespace) {
        (Some(name), true, Some(_)) | (Some(name), false, None) if call.reach == Reach::One => {
            Range::key(call.key(name))
        }
        _ => call.range(),
    }
}

/// Returns the exact revision to read at, if the client requires one: by `resourceVersionMatch=Exact`, or by a resource
/// version with a limit, as before that parameter existed.
fn exact(query: &Query, version: Revision, limit: usize) -> Option<Revision> {
    let rule = query.text("resourceVersionMatch");
    let insists = rule == "Exact" || rule.is_empty() && limit > 0;
    (version > Revision::ZERO && insists).then_some(version)
}

/// Refuses contradictory parameters, with Kubernetes' messages.
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
    Err(Status::invalid(GroupResource::new("meta.k8s.io", "ListOptions"), "", &[error]))
}

fn parse(token: &str, range: &Range) -> Result<Continue, Status> {
    let bad =
        |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|error| bad(&error.to_string()))?;
    let read = codec::decode(&bytes, Syntax::Json).map_err(|error| bad(&error.to_string()))?;
    let token: Continue = serde_json::from_value(read.value).map_err(|error| bad(&error.to_string()))?;
    if token.v != TOKEN_VERSION {
        return Err(bad(&format!("server does not recognize this encoded version {:?}", token.v)));
    }
    // A client may have changed the token; it must not lead out of the list.
    if !range.contains(token.start.as_bytes()) {
        return Err(bad(&token.start));
    }
    Ok(token)
}

fn written(token: &Continue) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).unwrap_or_default())
}

fn metadata(listed: &Listed) -> Value {
    let mut metadata = json!({ "resourceVersion": listed.revision.to_string() });
    if let Some(next) = &listed.next {
        let start = String::from_utf8_lossy(next.as_bytes()).into_owned();
        // Revisions increase by one; no store reaches 2^63.
        let rv = i64::try_from(listed.revision.0).unwrap_or(i64::MAX);
        metadata["continue"] = written(&Continue { v: TOKEN_VERSION.to_owned(), rv, start }).into();
        if let Some(remaining) = listed.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictory_list_options_are_refused() {
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

    #[test]
    fn a_limited_list_reads_exactly_the_requested_version() {
        let at = |query: &str, limit| exact(&Query::parse(Some(query)), Revision(5), limit);
        assert_eq!(at("", 0), None);
        assert_eq!(at("", 1), Some(Revision(5)));
        assert_eq!(at("resourceVersionMatch=Exact", 0), Some(Revision(5)));
        assert_eq!(at("resourceVersionMatch=NotOlderThan", 1), None);
    }

    fn call(query: &str) -> Call {
        Call {
            cluster: api::cluster::Id::ROOT,
            reach: Reach::One,
            resource: openapi::catalog::find("", "v1", "configmaps").unwrap().clone(),
            namespace: Some("default".to_owned()),
            name: None,
            subresource: None,
            query: Query::parse(Some(query)),
            headers: http::HeaderMap::new(),
            identity: crate::authn::identity::Identity::Anonymous,
            authorization: crate::authz::authorization::Authorization::allow_all(),
            admission: crate::admission::Admission::default(),
        }
    }

    /// A client that reads slowly must not lose the end of a long list.
    #[tokio::test]
    async fn an_expired_continue_token_resumes_at_the_current_version() {
        let store = storage::memory::Memory::new();
        for name in ["a", "b", "c"] {
            let value = crate::objects::stored::encode(&json!({ "metadata": { "name": name } }));
            store
                .commit(call("").key(name), storage::Expect::Absent, storage::Change::Put(value))
                .await
                .unwrap();
        }
        let read = async |query: &str| {
            let call = call(query);
            read(&store, &call, &selection(&call).unwrap()).await
        };
        let token = metadata(&read("limit=1").await.unwrap())["continue"].as_str().unwrap().to_owned();
        let deleted = store.get(&call("").key("b")).await.unwrap().value.unwrap();
        let expect = storage::Expect::Revision(deleted.revision());
        store.commit(deleted.key().clone(), expect, storage::Change::Delete).await.unwrap();
        store.compact(Revision(u64::MAX)).await.unwrap();

        let expired = read(&format!("limit=1&continue={token}")).await.unwrap_err();
        assert_eq!((expired.code, expired.message.as_str()), (410, TOKEN_EXPIRED));
        let token = expired.metadata.continue_token.unwrap();
        let second_page = read(&format!("limit=5&continue={token}")).await.unwrap();
        let names: Vec<_> = second_page.entries.iter().map(|entry| entry.key().clone()).collect();
        assert_eq!(names, [call("").key("c")]);
        let old = read("resourceVersion=1&resourceVersionMatch=Exact").await.unwrap_err();
        assert_eq!((old.code, old.message.as_str()), (410, LIST_EXPIRED));
        let both = read(&format!("resourceVersion=1&continue={token}")).await.unwrap_err();
        assert_eq!(both.message, "specifying resource version is not allowed when using continue");
    }

    /// A list of several pages must not look complete if its revision was compacted before the last page was read.
    #[tokio::test]
    async fn a_list_fails_if_its_revision_is_compacted_before_the_last_page() {
        let store: Arc<dyn Store> = Arc::new(storage::memory::Memory::new());
        let write = async |name: String| {
            let value = crate::objects::stored::encode(&json!({ "metadata": { "name": name } }));
            let put = storage::Change::Put(value);
            store.commit(call("").key(&name), storage::Expect::Absent, put).await.unwrap();
        };
        for number in 0..=SENT_ENTRIES {
            write(format!("{number:04}")).await;
        }
        let call = call("");
        let selection = selection(&call).unwrap();
        let mut reader = ListReader::start(
            &store,
            range(&call, &selection),
            call.resource.clone(),
            &selection,
            Page::default(),
        )
        .await
        .unwrap();
        write("later".to_owned()).await;
        store.compact(Revision(u64::MAX)).await.unwrap();
        for _ in 0..SENT_ENTRIES {
            assert!(reader.next().await.unwrap().is_some());
        }
        assert!(matches!(reader.next().await, Err(ReadError::Compacted { .. })));
    }
}
