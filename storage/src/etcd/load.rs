//! Reads a whole range, page by page, at one revision.

use etcd_client::GetOptions;
use etcd_client::proto::PbKeyValue;
use tokio::time::Instant;

use super::Remote;
use super::compaction::Mark;
use super::errors::EtcdReadError;
use crate::store::{ByKey, Revision};
use crate::view::Snapshot;

/// The target size of a page: large enough that the round trip does not matter, small enough that a member serves other
/// requests meanwhile.
const PAGE_BYTES: usize = 4 << 20;
/// The number of keys of the first page, before the size of values is known. With etcd's largest values, 1.5 MiB each,
/// it is still below the maximum size of a response.
const PAGE_KEYS_FIRST: usize = 32;
const PAGE_KEYS_MAX: usize = 10_000;
/// The maximum growth from one page to the next, because larger values may follow at any time.
const PAGE_GROWTH: usize = 4;
/// How often a long load logs its progress.
const REPORT_ENTRIES: usize = 100_000;

/// All entries at one revision, and the compaction mark.
pub(super) struct Loaded {
    pub(super) snapshot: Snapshot,
    pub(super) mark: Mark,
}

/// Loads everything. Starts over if the revision being read is compacted meanwhile.
pub(super) async fn load(remote: &Remote) -> Result<Loaded, EtcdReadError> {
    loop {
        match load_once(remote).await {
            Err(EtcdReadError::Compacted) => {
                tracing::warn!("etcd was compacted past the revision being loaded; loading again");
            }
            outcome => return outcome,
        }
    }
}

async fn load_once(remote: &Remote) -> Result<Loaded, EtcdReadError> {
    let mut pages = Pages::new(remote.layout.entries(), None);
    let mut snapshot = Snapshot::default();
    let started = Instant::now();
    loop {
        let page = pages.next(remote, None, remote.deadline()).await?;
        let reported = snapshot.entries.len() / REPORT_ENTRIES;
        for stored in page.stored {
            if let Some(stored) = remote.layout.decode(stored) {
                snapshot.entries.insert(ByKey(stored.entry));
            }
        }
        snapshot.revision = page.revision;
        let loaded = snapshot.entries.len();
        if loaded / REPORT_ENTRIES > reported {
            tracing::info!(
                loaded,
                total = loaded + page.remaining,
                revision = page.revision.0,
                "loading from etcd"
            );
        }
        if page.remaining == 0 {
            break;
        }
    }
    let mark = Mark::read(remote, Some(snapshot.revision), remote.deadline()).await?;
    let (entries, millis) = (snapshot.entries.len(), started.elapsed().as_millis());
    tracing::info!(entries, revision = snapshot.revision.0, millis, "loaded from etcd");
    Ok(Loaded { snapshot, mark })
}

/// Iterates over a range of etcd's keys in pages. All pages are at the revision of the first.
pub(super) struct Pages {
    from: Vec<u8>,
    to: Vec<u8>,
    at: Option<Revision>,
    /// The number of keys with which the next page should have its target size.
    keys: usize,
}

pub(super) struct PageOf {
    pub(super) stored: Vec<PbKeyValue>,
    pub(super) revision: Revision,
    /// The number of keys after this page.
    pub(super) remaining: usize,
}

impl Pages {
    pub(super) fn new((from, to): (Vec<u8>, Vec<u8>), at: Option<Revision>) -> Self {
        Pages { from, to, at, keys: PAGE_KEYS_FIRST }
    }

    /// Reads the next page, with at most `most` keys.
    pub(super) async fn next(
        &mut self,
        remote: &Remote,
        most: Option<usize>,
        deadline: Instant,
    ) -> Result<PageOf, EtcdReadError> {
        loop {
            let limit = self.keys.min(most.unwrap_or(usize::MAX)).max(1);
            match self.read(remote, limit, deadline).await {
                Err(EtcdReadError::TooLarge) if limit > 1 => self.keys = limit / 4,
                outcome => return outcome,
            }
        }
    }

    async fn read(
        &mut self,
        remote: &Remote,
        limit: usize,
        deadline: Instant,
    ) -> Result<PageOf, EtcdReadError> {
        let options = GetOptions::new()
            .with_range(self.to.clone())
            .with_limit(limit as i64)
            .with_revision(self.at.map_or(0, super::layout::number));
        let answer = remote.members.read(&self.from, &options, deadline).await?.0;
        let head = super::head_of(answer.header.as_ref())?;
        let at = *self.at.get_or_insert(head);
        if let Some(last) = answer.kvs.last() {
            self.from = [&last.key[..], &[0]].concat();
            let bytes: usize = answer.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
            let most = (limit * PAGE_GROWTH).min(PAGE_KEYS_MAX);
            self.keys = (answer.kvs.len() * PAGE_BYTES / bytes.max(1)).clamp(1, most);
        }
        let count = usize::try_from(answer.count).unwrap_or(0);
        let remaining = count.saturating_sub(answer.kvs.len());
        Ok(PageOf { stored: answer.kvs, revision: at, remaining })
    }
}
