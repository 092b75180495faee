//! A watch on all entries and marks, as etcd sends it.
//!
//! etcd may split one revision into several messages. They are joined here, so that readers of a stream only see whole
//! revisions.

use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{WatchOptions, WatchRequestSender, WatchResponseStream};
use tokio::time::Instant;

use super::Remote;
use super::errors;
use super::layout::{number, revision};
use super::members::{Chosen, within};
use crate::store::Revision;

pub(super) struct Stream {
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    assembly: Assembly,
}

/// A message from etcd.
#[derive(Debug, PartialEq)]
pub(super) enum Received {
    /// Whole revisions, oldest first, and the last of them. Never empty.
    Events(Vec<PbEvent>, Revision),
    /// Everything up to this revision has been received.
    Progress(Revision),
    /// The next changes are compacted; the oldest revision kept is this one.
    Compacted(Revision),
    /// A message without content.
    Nothing,
}

/// Whether events include the previous value.
#[derive(Clone, Copy)]
pub(super) enum Previous {
    Requested,
    Known,
}

impl Stream {
    /// Watches all changes after `after`.
    ///
    /// The watch starts one revision earlier, and that revision is left out again. A watch may start at the revision to
    /// which etcd was compacted, and may then lack a delete made there; with the earlier start it is refused as
    /// compacted. And a watch that starts in the future would report no progress.
    pub(super) async fn open(
        remote: &Remote,
        member: &Chosen,
        after: Revision,
        previous: Previous,
        deadline: Instant,
    ) -> Result<Self, String> {
        let (from, to) = remote.layout.watched();
        let options = WatchOptions::new()
            .with_range(to)
            .with_start_revision(number(after).max(1))
            .with_progress_notify()
            .with_fragment();
        let options = match previous {
            Previous::Requested => options.with_prev_key(),
            Previous::Known => options,
        };
        let stream = within(deadline, member.watch().watch(from, Some(options))).await?;
        let (requests, responses) = stream.map_err(|error| errors::classify_read(&error).reason())?.split();
        Ok(Stream { requests, responses, assembly: Assembly { passed_on: after, incomplete: Vec::new() } })
    }

    /// Waits for the next message. Cancel-safe. An error ends the stream.
    pub(super) async fn next(&mut self) -> Result<Received, String> {
        match self.responses.message().await {
            Ok(Some(response)) => self.assembly.add(response.0),
            Ok(None) => Err("etcd ended the watch".into()),
            Err(error) => Err(errors::classify_read(&error).reason()),
        }
    }

    /// Requests progress. The answer is a [`Received::Progress`], which etcd sends only once the stream has caught up;
    /// repeat the request until then.
    pub(super) async fn request_progress(&mut self) -> Result<(), String> {
        self.requests.request_progress().await.map_err(|error| error.to_string())
    }
}

#[derive(Default)]
struct Assembly {
    /// Changes up to this revision are not passed on.
    passed_on: Revision,
    /// The newest revision, which may be incomplete.
    incomplete: Vec<PbEvent>,
}

impl Assembly {
    fn add(&mut self, response: PbWatchResponse) -> Result<Received, String> {
        if response.compact_revision > 0 {
            return Ok(Received::Compacted(revision(response.compact_revision)));
        }
        if response.canceled {
            return Err(format!("etcd ended the watch: {}", response.cancel_reason));
        }
        if response.events.is_empty() {
            let progress = response.header.filter(|_| !response.created && self.incomplete.is_empty());
            return Ok(
                progress.map_or(Received::Nothing, |header| Received::Progress(revision(header.revision)))
            );
        }
        let mut events = std::mem::take(&mut self.incomplete);
        events.extend(response.events.into_iter().filter(|event| revision_of(event) > self.passed_on));
        if response.fragment {
            let newest = events.last().map(revision_of);
            let complete = events.partition_point(|event| Some(revision_of(event)) < newest);
            self.incomplete = events.split_off(complete);
        }
        Ok(match events.last().map(revision_of) {
            Some(through) => Received::Events(events, through),
            None => Received::Nothing,
        })
    }
}

/// Returns the revision of a change.
pub(super) fn revision_of(event: &PbEvent) -> Revision {
    revision(event.kv.as_ref().map_or(0, |kv| kv.mod_revision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd_client::proto::{PbKeyValue, PbResponseHeader};

    fn event(revision: i64) -> PbEvent {
        PbEvent {
            kv: Some(PbKeyValue { mod_revision: revision, ..Default::default() }),
            ..Default::default()
        }
    }

    fn message(revisions: &[i64], fragment: bool) -> PbWatchResponse {
        let events = revisions.iter().map(|revision| event(*revision)).collect();
        // The header has the revision of the member, which may be ahead of the events.
        let header = Some(PbResponseHeader { revision: 99, ..Default::default() });
        PbWatchResponse { header, events, fragment, ..Default::default() }
    }

    fn events(revisions: &[i64], through: u64) -> Result<Received, String> {
        Ok(Received::Events(revisions.iter().map(|revision| event(*revision)).collect(), Revision(through)))
    }

    #[test]
    fn a_revision_is_passed_on_once_it_is_complete() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.add(message(&[4, 5], false)), events(&[4, 5], 5));
        assert_eq!(assembly.add(message(&[6, 7], true)), events(&[6], 6));
        assert_eq!(assembly.add(message(&[7], true)), Ok(Received::Nothing));
        assert_eq!(assembly.add(message(&[7, 8], true)), events(&[7, 7, 7], 7));
        assert_eq!(assembly.add(message(&[], false)), Ok(Received::Nothing), "8 is not complete");
        assert_eq!(assembly.add(message(&[9], false)), events(&[8, 9], 9));
        assert_eq!(assembly.add(message(&[], false)), Ok(Received::Progress(Revision(99))));
    }

    #[test]
    fn events_already_passed_on_are_skipped() {
        let mut assembly = Assembly { passed_on: Revision(5), ..Assembly::default() };
        assert_eq!(assembly.add(message(&[5], false)), Ok(Received::Nothing));
        assert_eq!(assembly.add(message(&[5, 6], false)), events(&[6], 6));
    }

    #[test]
    fn the_created_response_is_not_progress_and_the_end_is_reported() {
        let mut assembly = Assembly::default();
        let created = PbWatchResponse { created: true, ..message(&[], false) };
        assert_eq!(assembly.add(created), Ok(Received::Nothing));
        let compacted = PbWatchResponse { canceled: true, compact_revision: 12, ..message(&[], false) };
        assert_eq!(assembly.add(compacted), Ok(Received::Compacted(Revision(12))));
        let cancelled =
            PbWatchResponse { canceled: true, cancel_reason: "no leader".into(), ..message(&[], false) };
        assert!(assembly.add(cancelled).is_err_and(|reason| reason.contains("no leader")));
    }
}
