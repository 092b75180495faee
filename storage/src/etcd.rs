//! Several equal servers share one etcd.
//!
//! ```text
//!   commit ──► one transaction ──► etcd ──► one watch ──► Feed ──► View ──► get, list, watch
//!                                   ▲                              ▲
//!                                   └── which revision? ───────────┘   (before a get or a list)
//! ```
//!
//! etcd orders and stores the writes; each server keeps all current entries in memory and reads from there. A read is
//! consistent because it first requests etcd's revision, with one request for all waiting readers, and waits until the
//! View has reached it. When etcd has no quorum, reads and writes fail; no read is ever served from a View that may be
//! behind.
//!
//! etcd's own leases, locks and multi-key transactions are not used: a lease would delete entries without the store's
//! knowledge, and writes that share a transaction would share a revision.

mod commit;
mod compaction;
mod consistent_read;
mod direct;
mod errors;
mod feed;
mod history;
mod lost_write;

mod layout;
mod load;
mod members;
mod options;
mod slots;
mod stream;
mod version;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use etcd_client::proto::PbResponseHeader;
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::range::{Key, Range};
use crate::store::watch::Watch;
use crate::store::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Listing, Page, ReadError, Revision, Store,
};
use crate::view::{TailLimits, View};
use compaction::Mark;
use errors::EtcdReadError;
pub use feed::Feed;
use history::EtcdHistory;
use layout::{Layout, WriteId};
use members::Members;
pub use options::{Compaction, Options, Timeouts, Tls, User};
use slots::Slots;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the etcd options are wrong: {reason}")]
    Options { reason: String },
    #[error("etcd cannot be reached: {reason}")]
    Unavailable { reason: String },
    #[error("the store under {prefix} is in format {found:?}; this version knows format 1")]
    Format { prefix: String, found: String },
}

/// Where gets and lists read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In memory, after requesting etcd's revision.
    View,
    /// In etcd itself, because its version has faulty watches. Slower, but equally correct. Watches have no
    /// alternative, and are as good as those of that version.
    Direct,
}

/// A store in etcd. Cheap to clone; the [`Feed`] ends when the last clone is dropped.
#[derive(Clone)]
pub struct Etcd {
    shared: Arc<EtcdState>,
    _handle: Arc<watch::Sender<()>>,
}

struct EtcdState {
    remote: Arc<Remote>,
    view: Arc<View>,
    /// The newest revision that a reader waits for.
    requested_revision: watch::Sender<Revision>,
    readers: mpsc::Sender<consistent_read::Reader>,
    slots: Slots,
    mark: Mutex<Mark>,
    writer: u64,
    writes: AtomicU64,
}

/// The etcd cluster, and the layout of the store in it.
struct Remote {
    members: Members,
    layout: Layout,
    direct: AtomicBool,
    /// Notified when a reader needs an event: see `feed::write_barriers`.
    barrier: Notify,
}

impl Etcd {
    /// Connects, checks the format, and loads everything. The caller then runs the feed.
    pub async fn connect(options: Options) -> Result<(Etcd, Feed), ConnectError> {
        options.check()?;
        let remote = Arc::new(Remote::new(options));
        remote.write_format().await?;
        remote.check_versions().await;
        let loaded = load::load(&remote).await.map_err(unavailable)?;
        let past = Box::new(EtcdHistory(remote.clone()));
        let view = View::new(loaded.snapshot, loaded.mark.through, TailLimits::default(), past);
        let (readers, questions) = consistent_read::channel();
        let shared = Arc::new(EtcdState {
            remote,
            requested_revision: watch::Sender::new(view.head()),
            view,
            readers,
            slots: Slots::new(rand::random()),
            mark: Mutex::new(loaded.mark),
            writer: rand::random(),
            writes: AtomicU64::new(0),
        });
        let (handle, handles) = watch::channel(());
        let feed = Feed { shared: shared.clone(), readers: questions, handles };
        Ok((Etcd { shared, _handle: Arc::new(handle) }, feed))
    }

    pub fn mode(&self) -> Mode {
        match self.shared.remote.is_direct() {
            true => Mode::Direct,
            false => Mode::View,
        }
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etcd({:?}, {:?})", self.shared.remote.members, self.shared.view)
    }
}

impl Store for Etcd {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        Box::pin(self.shared.get(key))
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        Box::pin(self.shared.list(range, page))
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(self.shared.commit(key, expect, change))
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        Box::pin(async move {
            self.shared.reach(after).await?;
            self.shared.view.watch(range, after)
        })
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        Box::pin(self.shared.compact(through))
    }
}

impl EtcdState {
    async fn get(&self, key: &Key) -> Result<At<Option<Entry>>, ReadError> {
        if self.remote.is_direct() {
            return direct::get(&self.remote, key).await;
        }
        self.refresh().await?;
        Ok(self.view.get(key))
    }

    async fn list(&self, range: Range, page: Page) -> Result<At<Listing>, ReadError> {
        match page.at {
            // A past revision does not change, so no request to etcd is needed.
            Some(revision) => self.reach(revision).await?,
            None if self.remote.is_direct() => {}
            None => self.refresh().await?,
        }
        match self.remote.is_direct() {
            true => direct::list(&self.remote, &range, &page, self.view.compacted()).await,
            false => self.view.list(range, page).await,
        }
    }

    /// Waits until the View has reached `revision`, or returns an error if etcd has not.
    async fn reach(&self, revision: Revision) -> Result<(), ReadError> {
        if revision <= self.view.head() {
            return Ok(());
        }
        let deadline = self.remote.deadline();
        let newest = self.newest(deadline).await?;
        if revision > newest {
            return Err(ReadError::Future { requested: revision, newest });
        }
        self.catch_up(revision, deadline).await
    }

    fn next_id(&self) -> WriteId {
        WriteId::new(self.writer, self.writes.fetch_add(1, Ordering::Relaxed))
    }
}

impl Remote {
    fn new(options: Options) -> Self {
        let layout = Layout::new(&options.prefix);
        let direct = AtomicBool::new(false);
        Remote { members: Members::new(options), layout, direct, barrier: Notify::new() }
    }

    /// Returns the time by which a read or a commit that begins now must have ended.
    fn deadline(&self) -> Instant {
        Instant::now() + self.members.options.timeouts.overall
    }

    fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Switches permanently to direct reads, because the View may lack changes.
    fn switch_to_direct(&self, endpoint: &str, version: &str) {
        if !self.direct.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                member = endpoint,
                version,
                "this etcd version has known faults in its watches, so every get and list will be a read of etcd \
                 itself, which is slower; watches may miss changes. Use 3.4.31, 3.5.13, 3.6 or later, and \
                 restart this server after the upgrade"
            );
        }
    }

    async fn check_versions(&self) {
        let deadline = Instant::now() + self.members.options.timeouts.request;
        let version_of = async |index| {
            let member = self.members.member(index).await?;
            Ok::<_, etcd_client::Error>((member.version().await?, member.endpoint))
        };
        let versions = (0..self.members.len()).map(|index| members::within(deadline, version_of(index)));
        for (index, answer) in join_all(versions).await.into_iter().enumerate() {
            match answer {
                Ok(Ok((version, endpoint))) if !version::can_feed_reads(&version) => {
                    self.switch_to_direct(&endpoint, &version);
                }
                Ok(Ok((version, member))) => tracing::debug!(%member, version, "an etcd member"),
                // The feed requests the version again before it relies on this member.
                Ok(Err(error)) => tracing::warn!(index, %error, "cannot get the version of an etcd member"),
                Err(reason) => tracing::warn!(index, reason, "cannot get the version of an etcd member"),
            }
        }
    }

    /// Writes the format into an empty store, and refuses a store in another format.
    async fn write_format(&self) -> Result<(), ConnectError> {
        // Read first, so that a store can be opened even if etcd accepts no writes.
        let read = self.members.read(&self.layout.format(), &GetOptions::new(), self.deadline()).await;
        if let Some(found) = read.map_err(unavailable)?.0.kvs.pop() {
            return self.check_format(&found.value);
        }
        let write = |member: members::Chosen| async move {
            let path = self.layout.format();
            let txn = Txn::new()
                .when([Compare::mod_revision(path.clone(), CompareOp::Equal, 0)])
                .and_then([TxnOp::put(path.clone(), layout::FORMAT, None)])
                .or_else([TxnOp::get(path, None)]);
            member.kv().txn(txn).await
        };
        // The write is idempotent: a retry finds the format that the first attempt has written.
        let answer = self.members.attempt(self.deadline(), write).await.map_err(unavailable)?;
        let found =
            answer.0.responses.into_iter().find_map(|response| commit::range_in(response.response)?.pop());
        found.map_or(Ok(()), |found| self.check_format(&found.value))
    }

    fn check_format(&self, found: &[u8]) -> Result<(), ConnectError> {
        if found == layout::FORMAT {
            return Ok(());
        }
        Err(ConnectError::Format {
            prefix: self.members.options.prefix.clone(),
            found: String::from_utf8_lossy(found).into_owned(),
        })
    }
}

fn unavailable(error: EtcdReadError) -> ConnectError {
    ConnectError::Unavailable { reason: error.reason() }
}

/// Returns etcd's revision from the header of a response.
fn head_of(header: Option<&PbResponseHeader>) -> Result<Revision, EtcdReadError> {
    let header = header.ok_or_else(|| EtcdReadError::Failed("etcd's answer has no header".into()))?;
    Ok(layout::revision(header.revision))
}
