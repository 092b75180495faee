//! Keeping a view up to date, for as long as it is polled.

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

use super::view::{Key, News, Object, Scope, View, object};
use crate::remote::{CallError, Remote, request};

/// Objects in one answer. At a few kilobytes each it is a few megabytes at most times.
const PAGE: usize = 500;
/// A page may be long and the line slow.
const PAGE_PATIENCE: Duration = Duration::from_secs(60);
/// A watch is begun anew after so long, as all clients do: it moves them on to other servers.
const WATCH: Duration = Duration::from_secs(290);
/// A server that has said nothing at all for longer than a whole watch is not there, whatever the connection says.
const SILENCE: Duration = Duration::from_secs(310);
/// One event is one object and its history of owners; a server takes no larger ones.
const LINE_BYTES_MAX: usize = 32 << 20;

const RETRY_FIRST: Duration = Duration::from_millis(100);
/// What has been away for hours should not be missed for long once it is back.
const RETRY_MAX: Duration = Duration::from_secs(15);

/// A watch that ends sooner, and without having said anything, was none.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// How long to wait after each failure in a row. Half of it is chance, so that those who failed together do not come back
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
    // Some servers say null for none.
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
struct Complaint {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Keeps `view` up to date and tells what happens, in order.
pub async fn follow(remote: Remote, view: Arc<View>, scope: Scope, told: impl Fn(&View, News)) -> Infallible {
    let follower = Follower { remote, view, scope, told };
    loop {
        follower.go_on(|_| false).await;
    }
}

/// The same, until the server says that there is no such kind. Then there are no such objects either, and the view is
/// empty and can be trusted. Only for a server that knows: one that has lost a definition still has what it defined.
pub async fn follow_while_served(remote: Remote, view: Arc<View>, scope: Scope, told: impl Fn(&View, News)) {
    let follower = Follower { remote, view, scope, told };
    follower.go_on(CallError::is_not_found).await;
    follower.keep(&HashSet::new());
    follower.synced();
}

struct Follower<T> {
    remote: Remote,
    view: Arc<View>,
    scope: Scope,
    told: T,
}

impl<T: Fn(&View, News)> Follower<T> {
    async fn go_on(&self, ends: fn(&CallError) -> bool) {
        let mut backoff = Backoff(0);
        // Up to where the view is complete. None: read all of it.
        let mut through = None;
        let mut pages = true;
        loop {
            let begun = Instant::now();
            let ended = match &mut through {
                None => self.list(&mut pages).await.map(|version| through = Some(version)),
                Some(version) => self.watch(version, &mut backoff).await,
            };
            // Whatever came of it, nobody was asked again and again. That all could be read, by itself, is no sign that it
            // can be followed.
            if begun.elapsed() >= RETRY_MAX {
                backoff = Backoff(0);
            }
            let Err(error) = ended else { continue };
            if ends(&error) {
                return;
            }
            // The server is there and will not go on from here, so begin anew.
            if error.is_answer() || error.is_ahead() {
                through = None;
            }
            // What has expired is no trouble, unless everything has by the time it is asked for.
            let is_first = backoff.is_first();
            let pause = backoff.next();
            if error.code() != 410 || !is_first {
                self.lost(&error);
                sleep(pause).await;
            }
        }
    }

    /// Reads all objects. Returns up to where that is true. Where the past is forgotten faster than pages are read, the next
    /// attempt takes all in one.
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
            let text = self.remote.text(Method::GET, &path, "", Vec::new(), PAGE_PATIENCE).await?;
            let page: Page = serde_json::from_str(&text).map_err(garbled)?;
            for item in page.items.into_iter().flatten() {
                let object = object(item, &self.scope).map_err(garbled)?;
                if self.keeps(&object.key) {
                    listed.insert(object.key.clone());
                    self.put(object);
                }
            }
            next = page.metadata.next;
            if next.is_empty() {
                self.keep(&listed);
                self.synced();
                return Ok(page.metadata.resource_version);
            }
        }
    }

    /// Follows what happens after `version`, which moves on. Returns when the server ends it in good order.
    async fn watch(&self, version: &mut String, backoff: &mut Backoff) -> Result<(), CallError> {
        let seconds = WATCH.as_secs();
        let mut path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
            self.view.kind.path(&self.scope.namespace),
            escaped(version)
        );
        self.select(&mut path);
        let request = request(Method::GET, &self.remote.path(&path), "", Vec::new())?;
        let opened = timeout(PAGE_PATIENCE, self.remote.client().request_stream(request)).await;
        let stream = opened.map_err(|_| CallError::Silent(PAGE_PATIENCE))??;
        let mut stream = pin!(stream);
        self.synced();
        let (mut line, mut heard, begun) = (Vec::new(), false, Instant::now());
        while read_line(&mut stream, &mut line).await? {
            if let Some(through) = self.event(&line)? {
                *version = through;
            }
            *backoff = Backoff(0);
            heard = true;
        }
        match heard || begun.elapsed() >= WATCH_MIN {
            true => Ok(()),
            false => Err(CallError::Unreachable("a watch ended as soon as it had begun".to_owned())),
        }
    }

    /// Returns up to where the view is complete now.
    fn event(&self, line: &[u8]) -> Result<Option<String>, CallError> {
        let line: Line = serde_json::from_slice(line).map_err(garbled)?;
        match &*line.r#type {
            "ADDED" | "MODIFIED" => {
                let object = object(line.object, &self.scope).map_err(garbled)?;
                let version = object.version.clone();
                if self.keeps(&object.key) {
                    self.put(object);
                }
                Ok(Some(version))
            }
            "DELETED" => {
                let object = object(line.object, &self.scope).map_err(garbled)?;
                let version = object.version.clone();
                if self.view.remove(&object.key).is_some() {
                    // As it was when it went, which is later than what the view had.
                    self.tell(News::Gone { last: &Arc::new(object), witnessed: true });
                }
                Ok(Some(version))
            }
            "BOOKMARK" => {
                let bookmark: Bookmark = serde_json::from_str(line.object.get()).map_err(garbled)?;
                Ok(Some(bookmark.metadata.resource_version))
            }
            "ERROR" => {
                let Complaint { code, reason, message } =
                    serde_json::from_str(line.object.get()).map_err(garbled)?;
                Err(CallError::Refused { code, reason, message })
            }
            other => Err(CallError::Garbled(format!("an event of type {other:?}"))),
        }
    }

    /// What is not among these is gone.
    fn keep(&self, listed: &HashSet<Key>) {
        let gone = self.view.retain(listed);
        gone.iter().for_each(|last| self.tell(News::Gone { last, witnessed: false }));
    }

    fn put(&self, object: Object) {
        let object = Arc::new(object);
        if let Some(new) = self.view.put(&object) {
            self.tell(News::Put { now: &object, new });
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
            self.tell(News::Synced);
        }
    }

    fn lost(&self, error: &CallError) {
        if self.view.set_lost(error) {
            tracing::warn!(kind = %self.view.kind, %error, "cannot follow");
            self.tell(News::Lost);
        }
    }

    fn tell(&self, news: News) {
        (self.told)(&self.view, news);
    }
}

fn garbled(error: serde_json::Error) -> CallError {
    CallError::Garbled(error.to_string())
}

/// As part of a query.
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
        let read = timeout(SILENCE, stream.fill_buf()).await.map_err(|_| CallError::Silent(SILENCE))?;
        let buffer = read.map_err(|error| CallError::Unreachable(error.to_string()))?;
        if buffer.is_empty() {
            // What is left is half an event: the watch goes on from before it.
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
