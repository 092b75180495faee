//! Runs operations on two stores, one at a time.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{Belief, Disagreement, Op, RevisionOffset, key};
use crate::range::{Key, Range};
use crate::store::watch::Watch;
use crate::store::{
    At, Change, CommitError, Entry, Event, Expect, Listing, Page, ReadError, Revision, Store,
};

/// Maximum number of open watches, and of unfinished lists: enough to overlap, few enough to be used again.
const OPEN_MAX: usize = 4;
/// A watch that has not caught up after this time is stuck.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(30);

/// Whether an operation returned a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepResult {
    Done,
    /// The subject returned no result. It must be reopened before the next operation.
    Interrupted,
}

/// A model and a subject that must return the same.
#[derive(Debug)]
pub struct LockStep {
    model: Arc<dyn Store>,
    subject: Arc<dyn Store>,
    /// All events so far, as both stores returned them; `current` is the resulting state.
    log: Vec<Event>,
    current: BTreeMap<Key, Entry>,
    compacted: Revision,
    lists: Vec<(Range, Page)>,
    watches: Vec<WatchPair>,
    /// A commit for which the subject returned no result: only reopening it shows the outcome.
    in_doubt: Option<(Key, Expect, Change)>,
    /// A compaction for which the subject returned no result.
    compaction_in_doubt: Option<Revision>,
}

#[derive(Debug)]
struct WatchPair {
    range: Range,
    read_through: Revision,
    model: Watch,
    subject: Watch,
}

/// The end of reading a watch.
#[derive(PartialEq)]
enum Progress {
    /// The newest revision.
    Caught,
    /// The error `Compacted`.
    Compacted,
    Interrupted,
}

impl LockStep {
    /// Creates a pair. Both stores must be new.
    pub fn new(model: Arc<dyn Store>, subject: Arc<dyn Store>) -> Self {
        LockStep {
            model,
            subject,
            log: Vec::new(),
            current: BTreeMap::new(),
            compacted: Revision::ZERO,
            lists: Vec::new(),
            watches: Vec::new(),
            in_doubt: None,
            compaction_in_doubt: None,
        }
    }

    /// Returns the newest revision that both stores have returned.
    pub fn head(&self) -> Revision {
        self.log.last().map_or(Revision::ZERO, |event| event.revision)
    }

    /// Runs `op` on both stores. If this future is dropped, or returns [`StepResult::Interrupted`], reopen the subject
    /// before the next step.
    pub async fn step(&mut self, op: &Op) -> Result<StepResult, Disagreement> {
        match op.clone() {
            Op::Put { key: nth, expect, value } => {
                let expect = self.resolve(&key(nth), expect);
                self.commit(key(nth), expect, Change::Put(value.into())).await
            }
            Op::Delete { key: nth, expect } => {
                let expect = self.resolve(&key(nth), expect);
                self.commit(key(nth), expect, Change::Delete).await
            }
            Op::Get { key: nth } => {
                let subject = self.subject.get(&key(nth)).await;
                compare_reads(op, self.model.get(&key(nth)).await, subject)
            }
            Op::List { of, after, limit, count, at } => {
                let at = (at != RevisionOffset::Now).then(|| self.revision(at));
                let page = Page { after: after.map(key), limit, at, count };
                self.list(op, of.range(), page).await
            }
            Op::NextPage { list } if list < self.lists.len() => {
                let (range, page) = self.lists.remove(list);
                self.list(&(op, &range, &page), range.clone(), page.clone()).await
            }
            Op::Watch { of, after } => self.watch(op, of.range(), self.revision(after)).await,
            Op::Read { watch } if watch < self.watches.len() => {
                let mut pair = self.watches.remove(watch);
                let progress = self.read(&mut pair).await?;
                if progress != Progress::Compacted {
                    self.watches.insert(watch, pair);
                }
                Ok(if progress == Progress::Interrupted { StepResult::Interrupted } else { StepResult::Done })
            }
            Op::Close { watch } if watch < self.watches.len() => {
                self.watches.remove(watch);
                Ok(StepResult::Done)
            }
            Op::Compact { through } => {
                let through = self.revision(through);
                self.compaction_in_doubt = Some(through);
                let subject = self.subject.compact(through).await;
                self.compaction_in_doubt = None;
                let step = compare_reads(op, self.model.compact(through).await, subject);
                self.compacted = self.compacted.max(through.min(self.head()));
                step
            }
            Op::NextPage { .. } | Op::Read { .. } | Op::Close { .. } => Ok(StepResult::Done),
        }
    }

    /// Continues with a subject that was closed or killed and opened again. It must have every acknowledged write, and
    /// besides at most the one that is in doubt. Watches resume where they were.
    pub async fn reopen(&mut self, subject: Arc<dyn Store>) -> Result<(), Disagreement> {
        self.subject = subject;
        let now = self.subject.get(&key(0)).await.map(|read| read.revision);
        if let Some((key, expect, change)) = self.in_doubt.take()
            && now == Ok(self.head().next())
        {
            let event = self.model.commit(key, expect, change).await;
            self.record(event.map_err(|error| differ("a commit in uncertainty", error, "it happened"))?);
        }
        compare("the newest revision after reopening", Ok(self.head()), now)?;
        if let Some(through) = self.compaction_in_doubt.take() {
            self.settle_compaction(through).await?;
        }
        self.compare_all().await?;
        for mut pair in std::mem::take(&mut self.watches) {
            // Reopening does not compact memory, so it may have history that the subject no longer has.
            let model = self.model.watch(pair.range.clone(), pair.read_through).await;
            match (model, self.subject.watch(pair.range.clone(), pair.read_through).await) {
                (Ok(model), Ok(subject)) => {
                    (pair.model, pair.subject) = (model, subject);
                    self.watches.push(pair);
                }
                (model, subject) => compare("resuming a watch", model.map(drop), subject.map(drop))?,
            }
        }
        Ok(())
    }

    /// Determines how much of a compaction without a result has happened: all, part or none of it.
    async fn settle_compaction(&mut self, through: Revision) -> Result<(), Disagreement> {
        match self.subject.watch(Range::all(), self.compacted).await {
            Err(ReadError::Compacted { oldest, .. }) if oldest <= through.min(self.head()) => {
                self.compacted = oldest;
                compare("a compaction in uncertainty", self.model.compact(oldest).await, Ok(()))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(differ("a compaction in uncertainty", through, error)),
        }
    }

    /// Reads every watch to its end, and compares the whole state and the whole history.
    pub async fn finish(&mut self) -> Result<(), Disagreement> {
        self.compare_all().await?;
        self.watch(&"the whole history", Range::all(), self.compacted).await?;
        for mut pair in std::mem::take(&mut self.watches) {
            if self.read(&mut pair).await? == Progress::Interrupted {
                return Err(differ(&format!("{pair:?}"), "the rest of the events", "no answer"));
            }
        }
        Ok(())
    }

    async fn compare_all(&self) -> Result<(), Disagreement> {
        let subject = self.subject.list(Range::all(), Page::default()).await;
        compare("the whole state", self.model.list(Range::all(), Page::default()).await, subject)
    }

    fn resolve(&self, key: &Key, belief: Belief) -> Expect {
        let right = self.current.get(key).map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
        match belief {
            Belief::Right => right,
            Belief::Absent => Expect::Absent,
            Belief::Earlier(back) => Expect::Revision(self.revision(RevisionOffset::Back(back))),
            Belief::Ahead => Expect::Revision(self.revision(RevisionOffset::Ahead(1))),
        }
    }

    fn revision(&self, offset: RevisionOffset) -> Revision {
        let head = self.head().0;
        Revision(match offset {
            RevisionOffset::Now => head,
            RevisionOffset::Back(back) => head.saturating_sub(back.into()),
            RevisionOffset::Ahead(ahead) => head + u64::from(ahead),
        })
    }

    /// Commits to the subject first: if its result is unknown, the model must not have written.
    async fn commit(&mut self, key: Key, expect: Expect, change: Change) -> Result<StepResult, Disagreement> {
        let description = format!("{change:?} of {key:?} expecting {expect:?}");
        self.in_doubt = Some((key.clone(), expect, change.clone()));
        let subject = self.subject.commit(key.clone(), expect, change.clone()).await;
        if matches!(subject, Err(CommitError::Unknown { .. })) {
            return Ok(StepResult::Interrupted);
        }
        self.in_doubt = None;
        if matches!(subject, Err(CommitError::Unavailable { .. } | CommitError::ReadOnly { .. })) {
            return Ok(StepResult::Interrupted);
        }
        let model = self.model.commit(key, expect, change).await;
        if let Ok(event) = &model {
            self.record(event.clone());
        }
        compare(&description, model, subject)?;
        Ok(StepResult::Done)
    }

    fn record(&mut self, event: Event) {
        match &event.current {
            Some(entry) => self.current.insert(event.key.clone(), entry.clone()),
            None => self.current.remove(&event.key),
        };
        self.log.push(event);
    }

    async fn list(
        &mut self,
        description: &impl Debug,
        range: Range,
        page: Page,
    ) -> Result<StepResult, Disagreement> {
        let subject = self.subject.list(range.clone(), page.clone()).await;
        let model = self.model.list(range.clone(), page.clone()).await;
        let next = model.as_ref().ok().and_then(|read| next_page(read, page));
        let step = compare_reads(description, model, subject)?;
        if let Some(next) = next.filter(|_| step == StepResult::Done) {
            self.lists.push((range, next));
            self.lists.drain(..self.lists.len().saturating_sub(OPEN_MAX));
        }
        Ok(step)
    }

    async fn watch(
        &mut self,
        description: &impl Debug,
        range: Range,
        after: Revision,
    ) -> Result<StepResult, Disagreement> {
        let subject = self.subject.watch(range.clone(), after).await;
        let model = self.model.watch(range.clone(), after).await;
        match (model, subject) {
            (Ok(model), Ok(subject)) => {
                self.watches.push(WatchPair { range, read_through: after, model, subject });
                self.watches.drain(..self.watches.len().saturating_sub(OPEN_MAX));
                Ok(StepResult::Done)
            }
            (model, subject) => compare_reads(description, model.map(drop), subject.map(drop)),
        }
    }

    /// Reads both watches up to the newest revision. Both must deliver the events of the log. Only a watch that is
    /// behind compaction may return `Compacted` instead; whether it does depends on how its cursor works, so the two
    /// need not agree on that.
    async fn read(&self, pair: &mut WatchPair) -> Result<Progress, Disagreement> {
        let expected: Vec<_> = (self.log.iter())
            .filter(|event| event.revision > pair.read_through && pair.range.contains(event.key.as_bytes()))
            .cloned()
            .collect();
        let description = format!("a watch of {:?} after {:?}", pair.range, pair.read_through);
        let behind = pair.read_through < self.compacted;
        let subject = drain(&mut pair.subject, self.head()).await;
        if matches!(subject, Err(ReadError::Unavailable { .. })) {
            return Ok(Progress::Interrupted);
        }
        let model = drain(&mut pair.model, self.head()).await;
        pair.read_through = self.head();
        let is_compacted = |read: &Result<_, _>| behind && matches!(read, Err(ReadError::Compacted { .. }));
        let progress = if is_compacted(&model) || is_compacted(&subject) {
            Progress::Compacted
        } else {
            Progress::Caught
        };
        for read in [model, subject].into_iter().filter(|read| !is_compacted(read)) {
            compare(&description, Ok(expected.clone()), read)?;
        }
        Ok(progress)
    }
}

fn next_page(read: &At<Listing>, page: Page) -> Option<Page> {
    let last = read.value.entries.last().map(|entry| entry.key().clone());
    read.value.more.then(|| Page { after: last.or(page.after.clone()), at: Some(read.revision), ..page })
}

/// Reads until the watch is complete up to `goal`.
async fn drain(watch: &mut Watch, goal: Revision) -> Result<Vec<Event>, ReadError> {
    let mut events = Vec::new();
    let started = Instant::now();
    let mut patience = Duration::from_millis(1);
    while watch.through() < goal {
        assert!(started.elapsed() < CATCH_UP_LIMIT, "stuck at {:?} before {goal:?}", watch.through());
        match timeout(patience, watch.next()).await {
            Ok(batch) => events.extend(batch?.events),
            Err(_) => patience *= 2,
        }
    }
    Ok(events)
}

fn differ(description: &str, model: impl Debug, subject: impl Debug) -> Disagreement {
    Disagreement {
        description: description.into(),
        model: format!("{model:?}"),
        subject: format!("{subject:?}"),
    }
}

fn compare<T, E>(description: &str, model: Result<T, E>, subject: Result<T, E>) -> Result<(), Disagreement>
where
    Result<T, E>: PartialEq + Debug,
{
    if model == subject { Ok(()) } else { Err(differ(description, model, subject)) }
}

fn compare_reads<T: PartialEq + Debug>(
    description: &impl Debug,
    model: Result<T, ReadError>,
    subject: Result<T, ReadError>,
) -> Result<StepResult, Disagreement> {
    if matches!(subject, Err(ReadError::Unavailable { .. })) {
        return Ok(StepResult::Interrupted);
    }
    compare(&format!("{description:?}"), model, subject)?;
    Ok(StepResult::Done)
}
