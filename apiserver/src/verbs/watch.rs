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
use futures::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use openapi::resource::Resource;
use openapi::status::Status;
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

pub(crate) async fn watch(store: &dyn Store, call: &Call, style: &Style<'_>) -> Result<Response<Body>, Status> {
    let selection = Selection::parse(&call.query, &call.row)?;
    let begin = Begin::parse(call)?;
    let mut following = Following {
        row: call.row.clone(),
        form: style.form,
        include: style.include,
        headed: false,
        selection,
        pending: VecDeque::new(),
        watch: None,
        bookmarks: bookmarks(call),
        ends: Instant::now() + lasts(call)?,
        done: false,
    };
    let after = following.start(store, call, begin).await?;
    following.watch = Some(store.watch(call.range(), after).await.map_err(unreadable)?);
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
    Existing { marked: bool },
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
            "" if !rule.is_empty() => Err(Status::bad_request(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            "" if version == 0 => Ok(Begin::Existing { marked: false }),
            "" => Ok(Begin::After(Revision(version))),
            _ if rule != "NotOlderThan" => Err(Status::bad_request(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
            _ if query.flag("sendInitialEvents") => Ok(Begin::Existing { marked: true }),
            _ if version == 0 => Ok(Begin::Now),
            _ => Ok(Begin::After(Revision(version))),
        }
    }
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

/// A watch on its way to a client.
struct Following {
    row: Arc<Resource>,
    form: Form,
    include: Include,
    /// Whether a table of this watch has said what its columns are.
    headed: bool,
    selection: Selection,
    /// Frames made but not taken.
    pending: VecDeque<Bytes>,
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
        let listed = list::read(store, call, &self.selection).await?;
        for entry in &listed.entries {
            let frame = self.frame("ADDED", entry, entry.revision());
            self.pending.push_back(frame);
        }
        if marked {
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            let frame = self.bookmark(listed.revision, Some(annotations));
            self.pending.push_back(frame);
        }
        Ok(listed.revision)
    }

    /// The next bytes to send; none when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.pending.pop_front() {
                return Some(frame);
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
                    let frame = self.bookmark(through, None);
                    self.pending.push_back(frame);
                }
                () = sleep_until(self.ends) => self.done = true,
            }
        }
    }

    /// What a change looks like to somebody who sees only what is selected.
    fn event(&mut self, event: &Event) {
        let selected = |entry: &Option<Entry>| {
            entry.as_ref().filter(|entry| self.selection.holds(&self.row, entry)).cloned()
        };
        let frame = match (selected(&event.previous), selected(&event.current)) {
            (None, None) => return,
            (None, Some(current)) => self.frame("ADDED", &current, event.revision),
            (Some(_), Some(current)) => self.frame("MODIFIED", &current, event.revision),
            // Gone, or no longer selected; if it still exists, its newest state is the last one shown.
            (Some(previous), None) => {
                let last = event.current.clone().unwrap_or(previous);
                self.frame("DELETED", &last, event.revision)
            }
        };
        self.pending.push_back(frame);
    }

    fn frame(&mut self, kind: &str, entry: &Entry, revision: Revision) -> Bytes {
        let heading = if std::mem::replace(&mut self.headed, true) { Heading::Omitted } else { Heading::Shown };
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
        let plain = json!({ "kind": self.row.kind, "apiVersion": self.row.api_version(), "metadata": metadata });
        let style = Style { form: self.form, row: &self.row, include: self.include };
        let event = json!({ "type": "BOOKMARK", "object": style.shown(&plain, Heading::Omitted) });
        format!("{event}\n").into()
    }

    fn fail(&mut self, error: ReadError) {
        let event = json!({ "type": "ERROR", "object": unreadable(error) });
        self.pending.push_back(format!("{event}\n").into());
        self.done = true;
    }
}
