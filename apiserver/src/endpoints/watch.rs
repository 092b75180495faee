//! Watches a collection.
//!
//! ```text
//!   current objects (if requested) ─► initial-events-end (if requested) ─► changes … bookmarks … ─► timeout
//! ```
//!
//! The stream pulls: nothing is read from the store before the client has taken what came before, so a slow
//! client waits in the store's history and holds nothing here but handles to what it is about to be sent. That is true
//! for the initial objects, too: they are read a page at a time, at one revision.
//!
//! A client that asks for a WebSocket gets each event as a message; all others get one event after the other.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use controller::tasks::Stop;
use futures::{FutureExt, stream};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec::protobuf;
use openapi::meta::field::FieldError;
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

/// About once a minute, so that an idle client can resume close to now; not all at once, so that a thousand watches
/// that began together do not all speak together.
const BOOKMARK_SECONDS: std::ops::Range<f64> = 60.0..75.0;
/// What stands around an object in an event, and what is put into it.
const FRAME_BYTES: usize = 256;
/// As for Kubernetes; clients connect again by themselves, and not all in the same moment.
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
    let mut following = Box::new(Following {
        style: style.clone(),
        is_each_alone: socket.is_some(),
        is_headed: false,
        selection: list::selection(call)?,
        served: Served::of(kinds, call),
        ending: None,
        revalidation: Revalidation::new(&call.authorization, authenticators, call.reach == Reach::Every)
            .await?,
        _watching: call.authorization.watching().await?,
        initial: None,
        held_back: None,
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
    let after = following.start(store, call).await?;
    let range = list::range(call, &following.selection);
    match begun(&**store, call, range, after).await {
        Ok((watch, resumed)) => (following.watch, following.resumed) = (Some(watch), resumed),
        // That the past is gone is said in the stream, as upstream says it: kube's watcher lists again when it
        // hears it there, and asks the same question forever when the request itself fails.
        Err(error @ ReadError::Compacted { .. }) => following.fail(error),
        Err(error) => return Err(unreadable(error)),
    }
    let frames = stream::unfold(following, |mut following| async move {
        following.next().await.map(|frame| (Ok::<_, Broken>(Frame::data(frame)), following))
    });
    let (body, encoding) = (StreamBody::new(frames).boxed_unsync(), style.form.encoding);
    if let Some(on) = socket {
        let framing = if encoding == Encoding::Protobuf { Framing::Binary } else { Framing::Text };
        return websocket::accept(on, &call.headers, framing, body);
    }
    let mut response = render::typed(StatusCode::OK, encoding.stream_type(), Bytes::new());
    *response.body_mut() = body;
    Ok(response)
}

/// All bootstrap objects of a logical cluster appear at one revision. A watch of all logical clusters that was cut off in the middle of
/// that comes back with its version, having seen only some of it. So for them a watch begins one earlier, and what is
/// there at that version is shown once more if it is more than one event.
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

/// Where a watch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    /// With the current objects, in a state no older than this, and then changes.
    Existing {
        at_least: Revision,
        marked: bool,
    },
    /// With what changes now.
    Now,
    After(Revision),
}

impl Begin {
    fn parse(call: &Call) -> Result<Begin, Status> {
        let query = &call.query;
        let version = query.version().map_err(|bad| bad.of_other())?;
        let rule = query.text("resourceVersionMatch");
        match query.text("sendInitialEvents") {
            "" if !rule.is_empty() => Err(refused(
                rule,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            "" if version == Revision::ZERO => Ok(Begin::Existing { at_least: version, marked: false }),
            "" => Ok(Begin::After(version)),
            _ if rule != "NotOlderThan" => {
                Err(refused(rule, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
            }
            // Who does not take bookmarks cannot be told where the beginning ends, and gets the rest all the same.
            _ if query.flag("sendInitialEvents") => {
                Ok(Begin::Existing { at_least: version, marked: query.flag("allowWatchBookmarks") })
            }
            _ if version == Revision::ZERO => Ok(Begin::Now),
            _ => Ok(Begin::After(version)),
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
        // Over before it begins.
        Err(_) => Duration::ZERO,
    })
}

/// One event that has not been written out.
enum Pending {
    Object(&'static str, Entry, Revision),
    Bookmark(Revision),
    /// All initial objects have been sent.
    InitialEnd(Revision),
    /// Boxed, so that not every event takes the room of a status.
    Error(Box<Status>),
}

impl Pending {
    /// How many bytes it takes, about.
    fn guess(&self) -> usize {
        let object = if let Pending::Object(_, entry, _) = self { entry.value().len() } else { 0 };
        object + FRAME_BYTES
    }
}

/// The initial objects that have not been sent.
struct Initial {
    reader: ListReader,
    /// Whether the client is told where it ends.
    is_marked: bool,
}

/// For how long what is watched is served as it was when the watch began: a client of a custom kind that has changed
/// begins anew, with the kind as it is then.
enum Served {
    /// As long as the server runs, or somewhere.
    Always,
    WhileIn(Arc<Registry>, Arc<ResourceInfo>, sync::watch::Receiver<Arc<Kinds>>),
    NoMore(Revision),
}

impl Served {
    fn of(kinds: &Arc<Registry>, call: &Call) -> Served {
        if call.reach == Reach::Every || kinds.common().has(&call.resource) {
            return Served::Always;
        }
        match kinds.changes(call.cluster) {
            Some(changes) => Served::WhileIn(kinds.clone(), call.resource.clone(), changes),
            None => Served::NoMore(kinds.newest()),
        }
    }

    /// Returns when it is over, and a revision at or after which that was. Cancel-safe.
    async fn ended(&mut self) -> Revision {
        match self {
            Served::Always => std::future::pending().await,
            Served::NoMore(newest) => *newest,
            Served::WhileIn(kinds, resource, changes) => {
                // If the sender is gone, the logical cluster defines nothing.
                while changes.borrow_and_update().has(resource) && changes.changed().await.is_ok() {}
                kinds.newest()
            }
        }
    }
}

/// A watch on its way to a client.
struct Following {
    style: Style,
    /// Whether every event is a piece, whose length the connection says.
    is_each_alone: bool,
    /// Whether a table of this watch has said what its columns are.
    is_headed: bool,
    selection: Selection,
    served: Served,
    /// What happened until then is the last that is told.
    ending: Option<Revision>,
    revalidation: Revalidation,
    /// It counts as one of its logical cluster.
    _watching: WatchReservation,
    initial: Option<Initial>,
    /// What did not fit into the last piece.
    held_back: Option<Pending>,
    /// What the client has not taken yet: handles to shared bytes, written out when it does.
    pending: VecDeque<Pending>,
    watch: Option<Watch>,
    /// The version the client has seen, if the watch begins before it.
    resumed: Option<Revision>,
    /// Until the next one is due, if the client wants any. It waits on, whatever happens meanwhile: most events would
    /// cost less than to set a clock for each.
    bookmark: Option<Pin<Box<Sleep>>>,
    /// Until its time is up or the server stops.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_done: bool,
}

impl Following {
    /// Prepares the initial objects, and returns the revision to continue from.
    async fn start(&mut self, store: &Arc<dyn Store>, call: &Call) -> Result<Revision, Status> {
        let begin = Begin::parse(call)?;
        let reached = |version| async move { get::not_older(&**store, &call.key(""), version).await };
        let is_marked = match begin {
            Begin::Now => return Ok(reached(Revision::ZERO).await?.revision),
            Begin::After(version) => {
                reached(version).await?;
                return Ok(version);
            }
            Begin::Existing { at_least, marked } => {
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

    /// The next bytes to send: as many events as make up a piece, or one if each is sent alone. None when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // A client that is no longer authorized gets no more events, not even those that wait already.
            if self.revalidation.lost().now_or_never().is_some() {
                return None;
            }
            if let Some(piece) = self.piece().await {
                return Some(piece);
            }
            if self.is_done {
                return None;
            }
            self.wait().await?;
        }
    }

    /// As much of what is at hand as makes up a piece.
    async fn piece(&mut self) -> Option<Bytes> {
        // An idle watch has no buffer, and a single event one of its size.
        let mut out = BytesMut::new();
        while let Some(pending) = self.pending().await {
            if !out.is_empty() {
                if out.len() + pending.guess() > CHUNK_BYTES {
                    self.held_back = Some(pending);
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

    /// The next event: first the initial objects, then events since.
    async fn pending(&mut self) -> Option<Pending> {
        if let Some(held_back) = self.held_back.take() {
            return Some(held_back);
        }
        if let Some(initial) = &mut self.initial {
            let is_marked = initial.is_marked;
            match initial.reader.next().await {
                Ok(Some(entry)) => {
                    let revision = entry.revision();
                    return Some(Pending::Object("ADDED", entry, revision));
                }
                Ok(None) => {
                    let revision = initial.reader.revision;
                    self.initial = None;
                    if is_marked {
                        return Some(Pending::InitialEnd(revision));
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

    /// Waits for something to send.
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
            // In this order: a client that is no longer authorized gets nothing, however many events wait.
            biased;
            () = self.revalidation.lost() => self.is_done = true,
            () = &mut self.over => self.end(),
            newest = self.served.ended() => self.ending = Some(newest),
            () = bookmark_due => {
                self.pending.push_back(Pending::Bookmark(watch.through()));
                self.bookmark = Some(Box::pin(sleep_until(next_bookmark())));
            }
            batch = watch.next() => match batch {
                Ok(batch) => self.tell(&batch).await,
                Err(error) => self.fail(error),
            },
        }
        Some(())
    }

    /// The kind is another now, or gone. What happened to its objects before is still told, as fast as the client takes
    /// it.
    async fn last(&mut self, newest: Revision) -> Option<()> {
        match self.watch.as_mut()?.until(newest).await {
            Ok(Some(batch)) => self.tell(&batch).await,
            Ok(None) => self.end(),
            Err(error) => self.fail(error),
        }
        Some(())
    }

    /// Takes up events, if policies as of then still allow it: an event from after the client lost access is not
    /// for them, however soon after.
    async fn tell(&mut self, batch: &Batch) {
        match self.revalidation.holds_at(batch.through).await {
            Ok(true) => self.news(&batch.events).iter().for_each(|event| self.event(event)),
            Ok(false) => self.is_done = true,
            Err(error) => self.fail(error),
        }
    }

    /// Ends well: with a bookmark, so that the client goes on from here and not from long ago.
    fn end(&mut self) {
        if let (Some(_), Some(watch)) = (&self.bookmark, &mut self.watch) {
            self.pending.push_back(Pending::Bookmark(watch.through()));
        }
        self.is_done = true;
    }

    fn fail(&mut self, error: ReadError) {
        self.pending.push_back(Pending::Error(Box::new(unreadable(error))));
        self.is_done = true;
    }

    /// Leaves out the one event of the version the client has seen; if there is more than one, it may have missed some.
    fn news<'e>(&mut self, events: &'e [Event]) -> &'e [Event] {
        let seen = self.resumed.take();
        match events {
            [first, others @ ..] if Some(first.revision) == seen => {
                let is_alone = others.first().is_none_or(|second| Some(second.revision) != seen);
                if is_alone { others } else { events }
            }
            _ => events,
        }
    }

    /// The event that a client with a selector sees.
    fn event(&mut self, event: &Event) {
        let selected = |entry: &Option<Entry>| {
            entry.as_ref().filter(|entry| self.selection.holds(&self.style.resource, entry)).cloned()
        };
        let (kind, entry) = match (selected(&event.previous), selected(&event.current)) {
            (None, None) => return,
            (None, Some(current)) => ("ADDED", current),
            (Some(_), Some(current)) => ("MODIFIED", current),
            // Gone, or no longer selected. Either way the last state that was selected is shown, as of now.
            (Some(previous), None) => ("DELETED", previous),
        };
        self.pending.push_back(Pending::Object(kind, entry, event.revision));
    }

    fn write(&mut self, pending: Pending, out: &mut BytesMut) {
        let end = "k8s.io/initial-events-end";
        match pending {
            Pending::Object(kind, entry, revision) => {
                let heading =
                    if self.is_headed { ColumnDefinitions::Omitted } else { ColumnDefinitions::Shown };
                let object = |out: &mut BytesMut| self.style.object(&entry, revision, heading, out);
                self.is_headed |= self.frame(kind, entry.value().len(), object, out);
            }
            Pending::Bookmark(revision) => {
                self.bookmark(json!({ "resourceVersion": revision.to_string() }), out);
            }
            Pending::InitialEnd(revision) => {
                let annotations = json!({ end: "true" });
                self.bookmark(
                    json!({ "resourceVersion": revision.to_string(), "annotations": annotations }),
                    out,
                );
            }
            Pending::Error(status) => self.tree("ERROR", &render::status_tree(&status), out),
        }
    }

    fn bookmark(&mut self, metadata: Value, out: &mut BytesMut) {
        let resource = &self.style.resource;
        let plain =
            json!({ "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata });
        let shown = self.style.shown(&plain, ColumnDefinitions::Omitted, &resource.columns);
        self.tree("BOOKMARK", &shown, out);
    }

    fn tree(&self, kind: &str, tree: &Value, out: &mut BytesMut) {
        self.frame(kind, 0, |out| render::encode(self.style.form.encoding, tree, out), out);
    }

    /// One event: a line of JSON, or in protobuf a length, unless the connection says it, and a message. What cannot be read, and so is not written, is
    /// no event either. The size is a guess.
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
        for part in [b"{\"type\":\"", kind.as_bytes(), b"\",\"object\":"] {
            out.put_slice(part);
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

    /// kube's watcher asked for the same forgotten version for ever: the request failed with 410, and it lists
    /// again only when an event says so.
    #[tokio::test]
    async fn that_the_past_is_gone_is_an_event() {
        let store = Arc::new(Memory::new());
        for id in [Id::ROOT, Id::new(1)] {
            records::write(&*store, id, &LogicalClusterRecord::root()).await.unwrap();
        }
        store.compact(Revision(2)).await.unwrap();
        let stack = Stack::new(store, String::new(), Tasks::new().stop());
        let user = Identity::user("one", &["system:masters"]);
        let request = Request::get("/api/v1/namespaces?watch=1&resourceVersion=1");
        let response = stack.respond(user, request.body(Full::<Bytes>::default()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let event: Value = serde_json::from_slice(&body).unwrap();
        let told = (&event["type"], &event["object"]["code"], &event["object"]["reason"]);
        assert_eq!(told, (&json!("ERROR"), &json!(410), &json!("Expired")), "{event}");
    }
}
