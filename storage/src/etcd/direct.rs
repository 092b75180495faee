//! Reads for an etcd version with faulty watches: each is a linearizable range request to etcd.

use etcd_client::GetOptions;

use super::Remote;
use super::errors::EtcdReadError;
use super::load::Pages;
use crate::range::{Key, Range};
use crate::store::{At, Entry, Listing, Page, ReadError, Revision};

pub(super) async fn get(remote: &Remote, key: &Key) -> Result<At<Option<Entry>>, ReadError> {
    let path = remote.layout.entry(key.as_bytes());
    let read = async {
        let mut answer = remote.members.read(&path, &GetOptions::new(), remote.deadline()).await?.0;
        let revision = super::head_of(answer.header.as_ref())?;
        let stored = answer.kvs.pop().and_then(|stored| remote.layout.decode(stored));
        Ok(At { revision, value: stored.map(|stored| stored.entry) })
    };
    read.await.map_err(|error: EtcdReadError| ReadError::Unavailable { reason: error.reason() })
}

/// Lists a range. The revision `page.at`, if given, must not be in the future. Compacted revisions are refused, even if
/// etcd still has them.
pub(super) async fn list(
    remote: &Remote,
    range: &Range,
    page: &Page,
    compacted: Revision,
) -> Result<At<Listing>, ReadError> {
    if let Some(requested) = page.at.filter(|at| *at < compacted) {
        return Err(ReadError::Compacted { requested, oldest: compacted });
    }
    let (mut from, to) = remote.layout.entries_of(range);
    if let Some(after) = &page.after {
        // The smallest key greater than `after`.
        from = from.max([&remote.layout.entry(after.as_bytes())[..], &[0]].concat());
    }
    if from >= to {
        // etcd would treat a range that ends before it begins as one key.
        from = to.clone();
    }
    let limit = page.limit.unwrap_or(usize::MAX);
    let mut pages = Pages::new((from, to), page.at);
    let mut entries = Vec::new();
    loop {
        let next = pages.next(remote, Some(limit - entries.len()), remote.deadline()).await;
        let next = next.map_err(|error| read_error(error, page.at))?;
        let mut stored = next.stored.into_iter();
        let within_limit = stored.by_ref().take(limit - entries.len());
        entries.extend(within_limit.filter_map(|stored| Some(remote.layout.decode(stored)?.entry)));
        // A limit of zero still reads one key: etcd would treat zero as no limit.
        let remaining = stored.count() + next.remaining;
        if remaining == 0 || entries.len() >= limit {
            let listing =
                Listing { entries, more: remaining > 0, remaining: page.count.then_some(remaining) };
            return Ok(At { revision: next.revision, value: listing });
        }
    }
}

fn read_error(error: EtcdReadError, at: Option<Revision>) -> ReadError {
    match (error, at) {
        // etcd does not report the oldest revision, only that it is newer.
        (EtcdReadError::Compacted, Some(requested)) => {
            ReadError::Compacted { requested, oldest: Revision(requested.0 + 1) }
        }
        (error, _) => ReadError::Unavailable { reason: error.reason() },
    }
}
