//! Watches a collection.
//!
//! ```text
//!   current objects (if requested) ─► initial-events-end (if requested) ─► changes … bookmarks … ─► timeout
//! ```
//!
//! The stream pulls: it reads from the store only after the client has taken the previous bytes. So a slow client holds
//! nothing here but references to the next events; everything else waits in the store's history. The same holds for the
//! initial objects, which are read page by page at one revision.
//!
//! A client that asks for a WebSocket gets each event as a message. All others get the events as one stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::meta::field::FieldError;
use bytes::{BufMut, Bytes, BytesMut};
use controller::tasks::Stop;
use futures::{FutureExt, stream};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec::protobuf;
use openapi::meta::status::{GroupResource, Status};
use openapi::publish::tables::ColumnDefinitions;
use rand::RngExt;
use serde_json::{Value, json};
use storage::{Batch, Entry, Event, Page, Range, ReadError, Revision, Store, Watch};
use tokio::sync;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::authn::credential::Authenticators;
use crate::authz::revalidation::Revalidation;
use crate::endpoints::{get, list};
use crate::http::body::{Body, Broken};
use crate::http::body::{CHUNK_BYTES, chunk_buffer};
use crate::http::websocket;
use crate::http::websocket::Framing;
use crate::kinds::{Kinds, Registry};
use crate::objects::selection::Selection;
use crate::objects::store_errors::unreadable;
use crate::quota::WatchReservation;
use crate::registry::call::Call;
use crate::request::info::Reach;
use crate::request::info::RequestInfo;
use crate::request::negotiation::Encoding;
use crate::response::list_reader::ListReader;
use crate::response::render;
use crate::response::render::Style;

/// About once a minute, so that an idle client can resume from a recent revision. The interval is random, so that
/// watches that began together do not send their bookmarks together.
const BOOKMARK_SECONDS: std::ops::Range<f64> = 60.0..75.0;
/// The bytes around an object in an event, and those inserted into it.
const FRAME_BYTES: usize = 256;
/// The duration of a watch, as in Kubernetes. It is random, so that clients do not all reconnect at the same moment.
const LASTS_SECONDS: std::ops::Range<f64> = 1800.0..3600.0;

pub(crate) async fn watch(
    store: &Arc<dyn Store>,
    kinds: &Arc<Registry>,
    authenticators: &Authenticators,
    call: &Call,
    style: &Style,
    info: &RequestInfo,
    mut stop: Stop,
) -> Result<Response<Body>, Status> {
    let socket = info.websocket(&call.headers);
    let ends = Instant::now() + lasts(call)?;
    let mut events = Box::new(WatchEvents {
        style: style.clone(),
        is_each_alone: socket.is_some(),
        is_headed: false,
        selection: list::selection(call)?,
        served: KindAvailability::of(kinds, call),
        ending: None,
        revalidation: Revalidation::new(&call.authorization, authenticators, call.reach == Reach::Every)
            .await?,
        _watching: call.authorization.watching().await?,
        initial: None,
        carried_over: None,
        pending: VecDeque::new(),
        watch: None,
        resumed: None,
        bookmark: call.query.flag("allowWatchBookmarks").then(|| Box::pin(sleep_until(next_bookmark()))),
        over: Box::pin(async move {
            tokio::select! {
                () = sleep_until(ends) => {}
                () = stop.requested() => {}
            }
        }),
        is_done: false,
    });
    let after = events.start(store, call).await?;
    let range = list::range(call, &events.selection);
    match begun(&**store, call, range, after).await {
        Ok((watch, resumed)) => (events.watch, events.resumed) = (Some(watch), resumed),
        // The event stream reports a compacted revision, as in Kubernetes. kube's watcher lists again when it gets the
        // 410 as an event; if the request itself fails with 410, it repeats that request forever.
        Err(error @ ReadError::Compacted { .. }) => events.fail(error),
        Err(error) => return Err(unreadable(error)),
    }
    let frames = stream::unfold(events, |mut events| async move {
        events.next().await.map(|frame| (Ok::<_, Broken>(Frame::data(frame)), events))
    });
    let (body, encoding) = (StreamBody::new(frames).boxed_unsync(), style.form.encoding);
    if let Some(upgrade) = socket {
        let framing = if encoding == Encoding::Protobuf { Framing::Binary } else { Framing::Text };
        return websocket::accept(upgrade, &call.headers, framing, body);
    }
    let mut response = render::typed(StatusCode::OK, encoding.stream_type(), Bytes::new());
    *response.body_mut() = body;
    Ok(response)
}

/// Starts a watch. All bootstrap objects of a logical cluster appear at one revision. A watch of all logical clusters
/// that broke off in the middle of these resumes with their revision, although it has seen only some of them. So such a
/// watch starts one revision earlier, and sends the events of the resumed revision again if there are several.
async fn begun(
    store: &dyn Store,
    call: &Call,
    range: Range,
    after: Revision,
) -> Result<(Watch, Option<Revision>), ReadError> {
    if let (Reach::Every, Some(before)) = (call.reach, after.0.checked_sub(1)) {
        match store.watch(range.clone(), Revision(before)).await {
            Err(ReadError::Compacted { .. }) => {}
            begun => return begun.map(|watch| (watch, Some(after))),
        }
    }
    store.watch(range, after).await.map(|watch| (watch, None))
}

/// The start of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WatchStart {
    /// With the current objects at a revision no older than this, then with changes.
    Existing {
        at_least: Revision,
        marked: bool,
    },
    /// With changes from now on.
    Now,
    After(Revision),
}

impl WatchStart {
    fn parse(call: &Call) -> Result<WatchStart, Status> {
        let query = &call.query;
        let version = query.version().map_err(|bad| bad.of_other())?;
        let rule = query.text("resourceVersionMatch");
        match query.text("sendInitialEvents") {
            "" if !rule.is_empty() => Err(refused(
                rule,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            "" if version == Revision::ZERO => Ok(WatchStart::Existing { at_least: version, marked: false }),
            "" => Ok(WatchStart::After(version)),
            _ if rule != "NotOlderThan" => {
                Err(refused(rule, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
            }
            // Without bookmarks the client cannot be told where the initial objects end, but it gets them all the same.
            _ if query.flag("sendInitialEvents") => {
                Ok(WatchStart::Existing { at_least: version, marked: query.flag("allowWatchBookmarks") })
            }
            _ if version == Revision::ZERO => Ok(WatchStart::Now),
            _ => Ok(WatchStart::After(version)),
        }
    }
}

fn refused(rule: &str, why: &str) -> Status {
    let mut errors = vec![FieldError::forbidden("resourceVersionMatch", why)];
    if !["", "NotOlderThan"].contains(&rule) {
        errors.push(FieldError::not_supported("resourceVersionMatch", rule, &["NotOlderThan"]));
    }
    Status::invalid(GroupResource::new("meta.k8s.io", "ListOptions"), "", &errors)
}

fn drawn(seconds: std::ops::Range<f64>) -> Duration {
    Duration::from_secs_f64(rand::rng().random_range(seconds))
}

fn next_bookmark() -> Instant {
    Instant::now() + drawn(BOOKMARK_SECONDS)
}

fn lasts(call: &Call) -> Result<Duration, Status> {
    let info = call.query.number("timeoutSeconds")?;
    let longest = Duration::from_secs_f64(LASTS_SECONDS.end);
    Ok(match u64::try_from(info) {
        Ok(0) => drawn(LASTS_SECONDS),
        Ok(seconds) => Duration::from_secs(seconds).min(longest),
        // A negative timeout ends the watch at once.
        Err(_) => Duration::ZERO,
    })
}

/// One event that is not rendered yet.
enum PendingEvent {
    Object(&'static str, Entry, Revision),
    Bookmark(Revision),
    /// Bookmark after the last initial object.
    InitialEnd(Revision),
    /// Boxed, because a Status is much larger than the other variants.
    Error(Box<Status>),
}

impl PendingEvent {
    /// Estimates the size of the event.
    fn guess(&self) -> usize {
        let object = if let PendingEvent::Object(_, entry, _) = self { entry.value().len() } else { 0 };
        object + FRAME_BYTES
    }
}

/// The initial objects that are not sent yet.
struct Initial {
    reader: ListReader,
    /// Whether a bookmark marks the end of the initial objects.
    is_marked: bool,
}

/// How long the watched kind is served unchanged. When a custom kind changes, its watches end, so that clients start
/// again with the new kind.
enum KindAvailability {
    /// Until the server stops: a built-in kind, or a watch of all logical clusters.
    Always,
    WhileIn(Arc<Registry>, Arc<ResourceInfo>, sync::watch::Receiver<Arc<Kinds>>),
    NoMore(Revision),
}

impl KindAvailability {
    fn of(kinds: &Arc<Registry>, call: &Call) -> KindAvailability {
        if call.reach == Reach::Every || kinds.common().has(&call.resource) {
            return KindAvailability::Always;
        }
        match kinds.changes(call.cluster) {
            Some(changes) => KindAvailability::WhileIn(kinds.clone(), call.resource.clone(), changes),
            None => KindAvailability::NoMore(kinds.newest()),
        }
    }

    /// Returns when the kind has changed or is no longer served, with a revision at or after that change. Cancel-safe.
    async fn wait_for_end(&mut self) -> Revision {
        match self {
            KindAvailability::Always => std::future::pending().await,
            KindAvailability::NoMore(newest) => *newest,
            KindAvailability::WhileIn(kinds, resource, changes) => {
                // If the sender is dropped, the logical cluster has no custom kinds any more.
                while changes.borrow_and_update().has(resource) && changes.changed().await.is_ok() {}
                kinds.newest()
            }
        }
    }
}

/// The state of one watch.
struct WatchEvents {
    style: Style,
    /// Whether each event is a message of its own (WebSocket).
    is_each_alone: bool,
    /// Whether a table with column definitions has been sent.
    is_headed: bool,
    selection: Selection,
    served: KindAvailability,
    /// The last revision to send, once the kind has changed.
    ending: Option<Revision>,
    revalidation: Revalidation,
    /// Counts the watch against the limits of its logical cluster.
    _watching: WatchReservation,
    initial: Option<Initial>,
    /// The event that did not fit into the last chunk.
    carried_over: Option<PendingEvent>,
    /// Events that are not sent yet: references to stored bytes, rendered when the client reads.
    pending: VecDeque<PendingEvent>,
    watch: Option<Watch>,
    /// The revision that the client has seen, if the watch starts before it.
    resumed: Option<Revision>,
    /// The timer of the next bookmark, if the client accepts bookmarks. Events do not reset it: for most events that
    /// would cost more than sending them.
    bookmark: Option<Pin<Box<Sleep>>>,
    /// Ready when the timeout has passed or the server stops.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_done: bool,
}

impl WatchEvents {
    /// Prepares the initial objects, and returns the revision to continue from.
    async fn start(&mut self, store: &Arc<dyn Store>, call: &Call) -> Result<Revision, Status> {
        let begin = WatchStart::parse(call)?;
        let reached = |version| async move { get::not_older(&**store, &call.key(""), version).await };
        let is_marked = match begin {
            WatchStart::Now => return Ok(reached(Revision::ZERO).await?.revision),
            WatchStart::After(version) => {
                reached(version).await?;
                return Ok(version);
            }
            WatchStart::Existing { at_least, marked } => {
                reached(at_least).await?;
                marked
            }
        };
        let reader = ListReader::start(
            store,
            list::range(call, &self.selection),
            call.resource.clone(),
            &self.selection,
            Page::default(),
        )
        .await;
        let reader = reader.map_err(unreadable)?;
        let revision = reader.revision;
        self.initial = Some(Initial { reader, is_marked });
        Ok(revision)
    }

    /// Returns the next bytes to send: as many events as fit into a chunk, or a single event for a WebSocket. None when
    /// the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // A client that is no longer authorized gets no more events, not even those that are pending already.
            if self.revalidation.lost().now_or_never().is_some() {
                return None;
            }
            if let Some(chunk) = self.chunk().await {
                return Some(chunk);
            }
            if self.is_done {
                return None;
            }
            self.wait().await?;
        }
    }

    /// Renders the available events, up to one chunk.
    async fn chunk(&mut self) -> Option<Bytes> {
        // An idle watch has no buffer, and a single event gets one of its own size.
        let mut out = BytesMut::new();
        while let Some(pending) = self.pending().await {
            if !out.is_empty() {
                if out.len() + pending.guess() > CHUNK_BYTES {
                    self.carried_over = Some(pending);
                    break;
                }
                if out.capacity() < CHUNK_BYTES {
                    let begun = std::mem::replace(&mut out, chunk_buffer());
                    out.put_slice(&begun);
                }
            }
            self.write(pending, &mut out);
            if self.is_each_alone && !out.is_empty() {
                break;
            }
        }
        (!out.is_empty()).then(|| out.freeze())
    }

    /// Returns the next event: the initial objects first, then changes.
    async fn pending(&mut self) -> Option<PendingEvent> {
        if let Some(pending) = self.carried_over.take() {
            return Some(pending);
        }
        if let Some(initial) = &mut self.initial {
            let is_marked = initial.is_marked;
            match initial.reader.next().await {
                Ok(Some(entry)) => {
                    let revision = entry.revision();
                    return Some(PendingEvent::Object("ADDED", entry, revision));
                }
                Ok(None) => {
                    let revision = initial.reader.revision;
                    self.initial = None;
                    if is_marked {
                        return Some(PendingEvent::InitialEnd(revision));
                    }
                }
                Err(error) => {
                    self.initial = None;
                    self.pending.clear();
                    self.fail(error);
                }
            }
        }
        self.pending.pop_front()
    }

    /// Waits until there is something to send.
    async fn wait(&mut self) -> Option<()> {
        if let Some(newest) = self.ending {
            return self.last(newest).await;
        }
        let watch = self.watch.as_mut()?;
        let bookmark_due = async {
            match &mut self.bookmark {
                Some(due) => due.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The order matters: a client that is no longer authorized gets nothing, no matter how many events wait.
            biased;
            () = self.revalidation.lost() => self.is_done = true,
            () = &mut self.over => self.end(),
            newest = self.served.wait_for_end() => self.ending = Some(newest),
            () = bookmark_due => {
                self.pending.push_back(PendingEvent::Bookmark(watch.through()));
                self.bookmark = Some(Box::pin(sleep_until(next_bookmark())));
            }
            batch = watch.next() => match batch {
                Ok(batch) => self.deliver(&batch).await,
                Err(error) => self.fail(error),
            },
        }
        Some(())
    }

    /// Sends the changes up to `newest`, as fast as the client reads, and then ends the watch: the kind has changed
    /// since.
    async fn last(&mut self, newest: Revision) -> Option<()> {
        match self.watch.as_mut()?.until(newest).await {
            Ok(Some(batch)) => self.deliver(&batch).await,
            Ok(None) => self.end(),
            Err(error) => self.fail(error),
        }
        Some(())
    }

    /// Queues events if the client is authorized as of their revision. A client must not see an event from after it
    /// lost access, no matter how shortly after.
    async fn deliver(&mut self, batch: &Batch) {
        match self.revalidation.holds_at(batch.through).await {
            Ok(true) => self.news(&batch.events).iter().for_each(|event| self.event(event)),
            Ok(false) => self.is_done = true,
            Err(error) => self.fail(error),
        }
    }

    /// Ends the watch with a bookmark, so that the client can resume from here.
    fn end(&mut self) {
        if let (Some(_), Some(watch)) = (&self.bookmark, &mut self.watch) {
            self.pending.push_back(PendingEvent::Bookmark(watch.through()));
        }
        self.is_done = true;
    }

    fn fail(&mut self, error: ReadError) {
        self.pending.push_back(PendingEvent::Error(Box::new(unreadable(error))));
        self.is_done = true;
    }

    /// Drops the event of the revision that the client has seen, if it is the only one. If there are several, the
    /// client may have missed some.
    fn news<'e>(&mut self, events: &'e [Event]) -> &'e [Event] {
        let seen_revision = self.resumed.take();
        match events {
            [first, others @ ..] if Some(first.revision) == seen_revision => {
                let is_alone = others.first().is_none_or(|second| Some(second.revision) != seen_revision);
                if is_alone { others } else { events }
            }
            _ => events,
        }
    }

    /// Queues an event as a client with a selector sees it.
    fn event(&mut self, event: &Event) {
        let selected = |entry: &Option<Entry>| {
            entry.as_ref().filter(|entry| self.selection.holds(&self.style.resource, entry)).cloned()
        };
        let (kind, entry) = match (selected(&event.previous), selected(&event.current)) {
            (None, None) => return,
            (None, Some(current)) => ("ADDED", current),
            (Some(_), Some(current)) => ("MODIFIED", current),
            // Deleted, or no longer selected: DELETED with the last selected state.
            (Some(previous), None) => ("DELETED", previous),
        };
        self.pending.push_back(PendingEvent::Object(kind, entry, event.revision));
    }

    fn write(&mut self, pending: PendingEvent, out: &mut BytesMut) {
        let end = "k8s.io/initial-events-end";
        match pending {
            PendingEvent::Object(kind, entry, revision) => {
                let heading =
                    if self.is_headed { ColumnDefinitions::Omitted } else { ColumnDefinitions::Shown };
                let object = |out: &mut BytesMut| self.style.object(&entry, revision, heading, out);
                self.is_headed |= self.frame(kind, entry.value().len(), object, out);
            }
            PendingEvent::Bookmark(revision) => {
                self.bookmark(json!({ "resourceVersion": revision.to_string() }), out);
            }
            PendingEvent::InitialEnd(revision) => {
                let annotations = json!({ end: "true" });
                self.bookmark(
                    json!({ "resourceVersion": revision.to_string(), "annotations": annotations }),
                    out,
                );
            }
            PendingEvent::Error(status) => self.tree("ERROR", &render::status_tree(&status), out),
        }
    }

    fn bookmark(&mut self, metadata: Value, out: &mut BytesMut) {
        let resource = &self.style.resource;
        let plain =
            json!({ "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata });
        let bookmark = self.style.transform(&plain, ColumnDefinitions::Omitted, &resource.columns);
        self.tree("BOOKMARK", &bookmark, out);
    }

    fn tree(&self, kind: &str, tree: &Value, out: &mut BytesMut) {
        self.frame(kind, 0, |out| render::encode(self.style.form.encoding, tree, out), out);
    }

    /// Writes one event: a line of JSON, or a protobuf message with its length in front (without it for a WebSocket).
    /// An object that cannot be decoded makes no event. `size` is an estimate. Returns whether the event was written.
    fn frame(&self, kind: &str, size: usize, write: impl FnOnce(&mut BytesMut), out: &mut BytesMut) -> bool {
        if self.style.form.encoding == Encoding::Protobuf {
            let mut object = BytesMut::new();
            write(&mut object);
            if !object.is_empty() {
                let frame = protobuf::watch_frame(kind, &object);
                let length = if self.is_each_alone { size_of::<u32>() } else { 0 };
                out.put_slice(&frame[length..]);
            }
            return !object.is_empty();
        }
        let begun = out.len();
        out.reserve(size + FRAME_BYTES);
        for text in [b"{\"type\":\"", kind.as_bytes(), b"\",\"object\":"] {
            out.put_slice(text);
        }
        let head = out.len();
        write(out);
        let is_written = out.len() > head;
        match is_written {
            true => out.put_slice(b"}\n"),
            false => out.truncate(begun),
        }
        is_written
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::cluster::Id;
    use controller::tasks::Tasks;
    use http::Request;
    use http_body_util::Full;
    use serde_json::Value;
    use storage::memory::Memory;

    use super::*;
    use crate::authn::identity::Identity;
    use crate::clusters::records;
    use crate::clusters::records::LogicalClusterRecord;
    use crate::stack::Stack;

    /// Regression: the request failed with 410, and kube's watcher, which lists again only after an error event,
    /// repeated it forever.
    #[tokio::test]
    async fn a_compacted_resource_version_is_reported_as_an_event() {
        let store = Arc::new(Memory::new());
        for id in [Id::ROOT, Id::new(1)] {
            records::write(&*store, id, &LogicalClusterRecord::root()).await.unwrap();
        }
        store.compact(Revision(2)).await.unwrap();
        let stack = Arc::new(Stack::new(store, String::new(), Tasks::new().stop()));
        let user = Identity::user("one", &["system:masters"]);
        let request = Request::get("/api/v1/namespaces?watch=1&resourceVersion=1");
        let response = stack.respond(user, request.body(Full::<Bytes>::default()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let event: Value = serde_json::from_slice(&body).unwrap();
        let status = (&event["type"], &event["object"]["code"], &event["object"]["reason"]);
        assert_eq!(status, (&json!("ERROR"), &json!(410), &json!("Expired")), "{event}");
    }
}
