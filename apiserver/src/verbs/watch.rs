//! Following a collection.
//!
//! ```text
//!   what is there (if asked for) ─► initial-events-end (if asked for) ─► changes … bookmarks … ─► timeout
//! ```
//!
//! The stream pulls: nothing is read from the store before the client has taken what came before, so a slow
//! client waits in the store's history and holds nothing here but the event being sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use controller::tasks::Stop;
use futures::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use openapi::field::FieldError;
use openapi::resource::Resource;
use openapi::status::{Grouped, Status};
use openapi::table::{Heading, Include};
use serde_json::json;
use storage::{Entry, Event, ReadError, Revision, Store, Watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::list;
use crate::call::{Call, unreadable};
use crate::negotiate::Form;
use crate::render::{self, Style};
use crate::select::Selection;
use crate::server::Body;

/// About once a minute, so that an idle client can resume close to now.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Upstream draws between 30 and 60 minutes; clients connect again by themselves.
const LASTS: Duration = Duration::from_secs(45 * 60);

pub(crate) async fn watch(
    store: &dyn Store,
    call: &Call,
    style: &Style<'_>,
    stop: Stop,
) -> Result<Response<Body>, Status> {
    let selection = Selection::parse(&call.query, &call.row)?;
    let begin = Begin::parse(call)?;
    let mut following = Following {
        row: call.row.clone(),
        form: style.form,
        include: style.include,
        headed: false,
        selection,
        stop,
        pending: VecDeque::new(),
        watch: None,
        bookmarks: bookmarks(call),
        ends: Instant::now() + lasts(call)?,
        done: false,
    };
    let after = following.start(store, call, begin).await?;
    let range = list::range(call, &following.selection);
    match store.watch(range, after).await {
        Ok(watch) => following.watch = Some(watch),
        // That the past is gone is said in the stream, as upstream says it: kube's watcher lists again when it
        // hears it there, and asks the same question forever when the request itself fails.
        Err(error @ ReadError::Compacted { .. }) => following.fail(error),
        Err(error) => return Err(unreadable(error)),
    }
    let frames = stream::unfold(following, |mut following| async move {
        following.next().await.map(|frame| (Ok::<_, Infallible>(Frame::data(frame)), following))
    });
    let mut response = render::json(StatusCode::OK, Bytes::new());
    *response.body_mut() = StreamBody::new(frames).boxed_unsync();
    Ok(response)
}

/// Where a watch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    /// With what is there, and then what changes.
    Existing {
        marked: bool,
    },
    /// With what changes now.
    Now,
    After(Revision),
}

impl Begin {
    fn parse(call: &Call) -> Result<Begin, Status> {
        let query = &call.query;
        let version = query.number("resourceVersion")?;
        let rule = query.text("resourceVersionMatch");
        match query.text("sendInitialEvents") {
            "" if !rule.is_empty() => Err(forbidden(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            "" if version == 0 => Ok(Begin::Existing { marked: false }),
            "" => Ok(Begin::After(Revision(version))),
            _ if rule != "NotOlderThan" => {
                Err(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
            }
            _ if query.flag("sendInitialEvents") => Ok(Begin::Existing { marked: true }),
            _ if version == 0 => Ok(Begin::Now),
            _ => Ok(Begin::After(Revision(version))),
        }
    }
}

fn forbidden(why: &str) -> Status {
    let error = FieldError::forbidden("resourceVersionMatch", why);
    Status::invalid(Grouped::new("meta.k8s.io", "ListOptions"), "", &[error])
}

fn bookmarks(call: &Call) -> Option<Interval> {
    call.query.flag("allowWatchBookmarks").then(|| {
        let mut interval = interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    })
}

fn lasts(call: &Call) -> Result<Duration, Status> {
    Ok(match call.query.number("timeoutSeconds")? {
        0 => LASTS,
        seconds => Duration::from_secs(seconds).min(LASTS),
    })
}

/// One event that has not been written out.
enum Pending {
    Object(&'static str, Entry, Revision),
    Bookmark(Revision),
    /// Everything that was there at the beginning has been sent.
    InitialEnd(Revision),
    Error(Status),
}

/// A watch on its way to a client.
struct Following {
    row: Arc<Resource>,
    form: Form,
    include: Include,
    /// Whether a table of this watch has said what its columns are.
    headed: bool,
    selection: Selection,
    stop: Stop,
    /// What the client has not taken yet: handles to shared bytes, written out one by one.
    pending: VecDeque<Pending>,
    watch: Option<Watch>,
    bookmarks: Option<Interval>,
    ends: Instant,
    done: bool,
}

impl Following {
    /// Prepares what is there, and says after which revision to go on.
    async fn start(&mut self, store: &dyn Store, call: &Call, begin: Begin) -> Result<Revision, Status> {
        let marked = match begin {
            Begin::After(revision) => return Ok(revision),
            Begin::Now => {
                let none = store.get(&call.key("")).await.map_err(unreadable)?;
                return Ok(none.revision);
            }
            Begin::Existing { marked } => marked,
        };
        let listed = list::everything(store, call, &self.selection).await?;
        let added = listed.entries.into_iter().map(|entry| {
            let revision = entry.revision();
            Pending::Object("ADDED", entry, revision)
        });
        self.pending.extend(added);
        if marked {
            self.pending.push_back(Pending::InitialEnd(listed.revision));
        }
        Ok(listed.revision)
    }

    /// The next bytes to send; none when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(pending) = self.pending.pop_front() {
                return Some(self.written(pending));
            }
            if self.done {
                return None;
            }
            let watch = self.watch.as_mut()?;
            let tick = async {
                match &mut self.bookmarks {
                    Some(bookmarks) => drop(bookmarks.tick().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                batch = watch.next() => match batch {
                    Ok(batch) => batch.events.iter().for_each(|event| self.event(event)),
                    Err(error) => self.fail(error),
                },
                () = tick => {
                    let through = watch.through();
                    self.pending.push_back(Pending::Bookmark(through));
                }
                () = sleep_until(self.ends) => self.end(),
                () = self.stop.requested() => self.end(),
            }
        }
    }

    /// Ends well: with a bookmark, so that the client goes on from here and not from long ago.
    fn end(&mut self) {
        if let (Some(_), Some(watch)) = (&self.bookmarks, &mut self.watch) {
            self.pending.push_back(Pending::Bookmark(watch.through()));
        }
        self.done = true;
    }

    /// What a change looks like to somebody who sees only what is selected.
    fn event(&mut self, event: &Event) {
        let selected = |entry: &Option<Entry>| {
            entry.as_ref().filter(|entry| self.selection.holds(&self.row, entry)).cloned()
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

    fn written(&mut self, pending: Pending) -> Bytes {
        match pending {
            Pending::Object(kind, entry, revision) => self.frame(kind, &entry, revision),
            Pending::Bookmark(revision) => self.bookmark(revision, None),
            Pending::InitialEnd(revision) => {
                self.bookmark(revision, Some(json!({ "k8s.io/initial-events-end": "true" })))
            }
            Pending::Error(status) => format!("{}\n", json!({ "type": "ERROR", "object": status })).into(),
        }
    }

    fn frame(&mut self, kind: &str, entry: &Entry, revision: Revision) -> Bytes {
        let heading =
            if std::mem::replace(&mut self.headed, true) { Heading::Omitted } else { Heading::Shown };
        let mut out = BytesMut::new();
        out.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        let style = Style { form: self.form, row: &self.row, include: self.include };
        style.object(entry, revision, heading, &mut out);
        out.put_slice(b"}\n");
        out.freeze()
    }

    fn bookmark(&mut self, revision: Revision, annotations: Option<serde_json::Value>) -> Bytes {
        let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let plain =
            json!({ "kind": self.row.kind, "apiVersion": self.row.api_version(), "metadata": metadata });
        let style = Style { form: self.form, row: &self.row, include: self.include };
        let event = json!({ "type": "BOOKMARK", "object": style.shown(&plain, Heading::Omitted) });
        format!("{event}\n").into()
    }

    fn fail(&mut self, error: ReadError) {
        self.pending.push_back(Pending::Error(unreadable(error)));
        self.done = true;
    }
}

#[cfg(test)]
mod tests {
    use api::cluster::Id;
    use controller::tasks::Tasks;
    use http::Request;
    use http_body_util::Full;
    use serde_json::Value;
    use storage::memory::Memory;

    use super::*;
    use crate::clusters;
    use crate::identity::Identity;
    use crate::stack::Stack;

    /// kube's watcher asked for the same forgotten version for ever: the request failed with 410, and it lists
    /// again only when an event says so.
    #[tokio::test]
    async fn that_the_past_is_gone_is_an_event() {
        let store = Arc::new(Memory::new());
        clusters::fill(&*store, Id::ROOT).await.unwrap();
        store.compact(Revision(2)).await.unwrap();
        let stack = Stack::new(store, String::new(), Tasks::new().stop());
        let user = Identity::User { name: "one".to_owned(), groups: Vec::new() };
        let request = Request::get("/api/v1/namespaces?watch=1&resourceVersion=1");
        let response = stack.respond(&user, request.body(Full::<Bytes>::default()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let event: Value = serde_json::from_slice(&body).unwrap();
        let told = (&event["type"], &event["object"]["code"], &event["object"]["reason"]);
        assert_eq!(told, (&json!("ERROR"), &json!(410), &json!("Expired")), "{event}");
    }
}
