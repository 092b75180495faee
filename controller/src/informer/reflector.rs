//! Keeps a view up to date: lists and watches, for as long as it is polled.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use http::Method;
use rand::RngExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::object::{CachedObject, of_text};
use super::view::{News, Scope, View};
use crate::key::Key;
use crate::remote::{CallError, Remote, request};

/// Objects in one response. At a few kilobytes each, usually a few megabytes.
const PAGE: usize = 500;
/// A page may be long and the network slow.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// The duration of a watch. As in client-go, a new one may reach another server.
const WATCH: Duration = Duration::from_secs(290);
/// A connection without any bytes for longer than a whole watch is broken.
const IDLE_TIMEOUT: Duration = Duration::from_secs(310);
/// One event is one object with its managed fields; servers accept no larger ones.
const LINE_BYTES_MAX: usize = 32 << 20;

const RETRY_FIRST: Duration = Duration::from_millis(100);
/// A server that was down for hours should be noticed soon after it is back.
const RETRY_MAX: Duration = Duration::from_secs(15);

/// A watch that ends sooner without an event counts as failed.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// The delay after consecutive failures. Half of it is random, so that clients that failed together do not retry
/// together.
struct Backoff(u32);

impl Backoff {
    fn is_first(&self) -> bool {
        self.0 == 0
    }

    fn next(&mut self) -> Duration {
        let most = RETRY_FIRST.saturating_mul(1 << self.0.min(16)).min(RETRY_MAX);
        self.0 += 1;
        most.mul_f64(rand::rng().random_range(0.5..1.0))
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageHead,
    // Some servers send null for an empty list.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageHead {
    resource_version: String,
    #[serde(rename = "continue", default)]
    next: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkHead,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkHead {
    resource_version: String,
}

#[derive(Deserialize)]
struct WatchError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Keeps `view` up to date and reports each change, in order.
pub async fn follow(
    remote: Remote,
    view: Arc<View>,
    scope: Scope,
    notify: impl Fn(&View, News),
) -> Infallible {
    Reflector { remote, view, scope, notify }.list_and_watch().await
}

struct Reflector<T> {
    remote: Remote,
    view: Arc<View>,
    scope: Scope,
    notify: T,
}

impl<T: Fn(&View, News)> Reflector<T> {
    async fn list_and_watch(&self) -> Infallible {
        let mut backoff = Backoff(0);
        // The version up to which the view is complete. None: list again.
        let mut through = None;
        let mut pages = true;
        loop {
            let begun = Instant::now();
            let ended = match &mut through {
                None => self.list(&mut pages).await.map(|version| through = Some(version)),
                Some(version) => self.watch(version, &mut backoff).await,
            };
            // An attempt that took this long is no busy loop. A list that succeeds does not prove that the watch works.
            if begun.elapsed() >= RETRY_MAX {
                backoff = Backoff(0);
            }
            let Err(error) = ended else { continue };
            // The server answers and refuses this version, so list again.
            if error.is_answer() || error.is_ahead() {
                through = None;
            }
            // An expired version is normal, unless every new one has expired as well.
            let is_first = backoff.is_first();
            let pause = backoff.next();
            if error.code() != 410 || !is_first {
                self.lost(&error);
                sleep(pause).await;
            }
        }
    }

    /// Lists all objects. Returns the version of the list. If the version expires before the last page, the next
    /// attempt lists without pages.
    async fn list(&self, pages: &mut bool) -> Result<String, CallError> {
        let listed = self.list_by(if *pages { PAGE } else { 0 }).await;
        *pages = !listed.as_ref().is_err_and(|error| error.code() == 410);
        listed
    }

    async fn list_by(&self, limit: usize) -> Result<String, CallError> {
        let (mut listed, mut next) = (HashSet::new(), String::new());
        loop {
            let mut path = format!("{}?limit={limit}", self.view.kind.path(&self.scope.namespace));
            self.select(&mut path);
            if !next.is_empty() {
                path.push_str(&format!("&continue={}", escaped(&next)));
            }
            let text = self.remote.text(Method::GET, &path, "", Vec::new(), PAGE_TIMEOUT).await?;
            let page: Page = serde_json::from_str(&text).map_err(garbled)?;
            for item in page.items.into_iter().flatten() {
                let object = of_text(item, &self.scope).map_err(garbled)?;
                if self.keeps(&object.key) {
                    listed.insert(object.key.clone());
                    self.put(object);
                }
            }
            next = page.metadata.next;
            if next.is_empty() {
                self.retain(&listed);
                self.view.set_through(&page.metadata.resource_version);
                self.synced();
                return Ok(page.metadata.resource_version);
            }
        }
    }

    /// Watches from `version`, and advances it. Returns when the server ends the watch without an error.
    async fn watch(&self, version: &mut String, backoff: &mut Backoff) -> Result<(), CallError> {
        let seconds = WATCH.as_secs();
        let mut path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
            self.view.kind.path(&self.scope.namespace),
            escaped(version)
        );
        self.select(&mut path);
        let request = request(Method::GET, &self.remote.path(&path), "", Vec::new())?;
        let opened = timeout(PAGE_TIMEOUT, self.remote.client().request_stream(request)).await;
        let stream = opened.map_err(|_| CallError::Silent(PAGE_TIMEOUT))??;
        let mut stream = pin!(stream);
        self.synced();
        let (mut line, mut has_events, begun) = (Vec::new(), false, Instant::now());
        while read_line(&mut stream, &mut line).await? {
            if let Some(through) = self.event(&line)? {
                self.view.set_through(&through);
                *version = through;
            }
            *backoff = Backoff(0);
            has_events = true;
        }
        match has_events || begun.elapsed() >= WATCH_MIN {
            true => Ok(()),
            false => Err(CallError::Unreachable("the server ended the watch at once".to_owned())),
        }
    }

    /// Applies an event. Returns the version up to which the view is complete.
    fn event(&self, line: &[u8]) -> Result<Option<String>, CallError> {
        let line: Line = serde_json::from_slice(line).map_err(garbled)?;
        match &*line.r#type {
            "ADDED" | "MODIFIED" => {
                let object = of_text(line.object, &self.scope).map_err(garbled)?;
                let version = object.version.clone();
                if self.keeps(&object.key) {
                    self.put(object);
                }
                Ok(Some(version))
            }
            "DELETED" => {
                let object = of_text(line.object, &self.scope).map_err(garbled)?;
                let version = object.version.clone();
                if self.view.remove(&object.key).is_some() {
                    // The last state of the object, which is newer than that of the view.
                    self.notify_of(News::Gone { last: &Arc::new(object), witnessed: true });
                }
                Ok(Some(version))
            }
            "BOOKMARK" => {
                let bookmark: Bookmark = serde_json::from_str(line.object.get()).map_err(garbled)?;
                Ok(Some(bookmark.metadata.resource_version))
            }
            "ERROR" => {
                let WatchError { code, reason, message } =
                    serde_json::from_str(line.object.get()).map_err(garbled)?;
                Err(CallError::Refused { code, reason, message })
            }
            other => Err(CallError::Garbled(format!("an event of type {other:?}"))),
        }
    }

    /// Removes all objects that were not listed.
    fn retain(&self, listed: &HashSet<Key>) {
        let gone = self.view.retain(listed);
        gone.iter().for_each(|last| self.notify_of(News::Gone { last, witnessed: false }));
    }

    fn put(&self, object: CachedObject) {
        let object = Arc::new(object);
        if let Some(new) = self.view.put(&object) {
            self.notify_of(News::Put { now: &object, new });
        }
    }

    fn keeps(&self, key: &Key) -> bool {
        self.scope.keep.as_ref().is_none_or(|keep| keep(key))
    }

    fn select(&self, path: &mut String) {
        if !self.scope.labels.is_empty() {
            path.push_str(&format!("&labelSelector={}", escaped(&self.scope.labels)));
        }
    }

    fn synced(&self) {
        if self.view.set_synced() {
            self.notify_of(News::Synced);
        }
    }

    fn lost(&self, error: &CallError) {
        if self.view.set_lost(error) {
            tracing::warn!(kind = %self.view.kind, %error, "cannot list or watch; retrying");
            self.notify_of(News::Lost);
        }
    }

    fn notify_of(&self, news: News) {
        (self.notify)(&self.view, news);
    }
}

fn garbled(error: serde_json::Error) -> CallError {
    CallError::Garbled(error.to_string())
}

/// Percent-encodes a part of a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match plain(byte) {
            true => escaped.push(byte.into()),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Reads one line into `line`, without its end. False at the end of the stream.
async fn read_line(stream: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> Result<bool, CallError> {
    line.clear();
    loop {
        let read =
            timeout(IDLE_TIMEOUT, stream.fill_buf()).await.map_err(|_| CallError::Silent(IDLE_TIMEOUT))?;
        let buffer = read.map_err(|error| CallError::Unreachable(error.to_string()))?;
        if buffer.is_empty() {
            // The rest is an incomplete event, which the next watch sends again.
            return Ok(false);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&buffer[..end.unwrap_or(buffer.len())]);
        let read = end.map_or(buffer.len(), |end| end + 1);
        stream.consume_unpin(read);
        match end {
            _ if line.len() > LINE_BYTES_MAX => {
                return Err(CallError::Garbled(format!("an event of more than {LINE_BYTES_MAX} bytes")));
            }
            Some(_) => return Ok(true),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
