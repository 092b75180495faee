//! Tests of the executor: equal stores agree, and the difference of a wrong one is found and reduced to its cause.

use super::*;
use crate::memory::Memory;
use crate::store::watch::Watch;
use crate::store::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Listing, Page, ReadError, Revision,
};

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

/// A store with one bug.
#[derive(Debug)]
struct Flawed {
    inner: Memory,
    flaw: Flaw,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Flaw {
    DeletesWhatIsExpectedAbsent,
    ForgetsToCount,
    IgnoresCompaction,
    WatchesFromNow,
    /// Returns "unknown" for the third write, which has or has not happened.
    Dies {
        after_writing: bool,
    },
}

impl Store for Flawed {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        self.inner.get(key)
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        let count = page.count && self.flaw != Flaw::ForgetsToCount;
        self.inner.list(range, Page { count, ..page })
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(async move {
            let now = self.inner.get(&key).await.expect("memory answers");
            let right = now.value.as_ref().map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
            let expect = match (self.flaw, expect, &change) {
                (Flaw::DeletesWhatIsExpectedAbsent, Expect::Absent, Change::Delete) => right,
                _ => expect,
            };
            let unknown = Err(CommitError::Unknown { reason: "died".into() });
            match self.flaw {
                Flaw::Dies { after_writing: false } if now.revision == Revision(2) => unknown,
                Flaw::Dies { after_writing: true } if now.revision == Revision(2) => {
                    self.inner.commit(key, expect, change).await.and(unknown)
                }
                _ => self.inner.commit(key, expect, change).await,
            }
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        Box::pin(async move {
            let watch = self.inner.watch(range.clone(), after).await?;
            match self.flaw {
                Flaw::WatchesFromNow => {
                    let now = self.inner.get(&key(0)).await?.revision;
                    self.inner.watch(range, now).await
                }
                _ => Ok(watch),
            }
        })
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        match self.flaw {
            Flaw::IgnoresCompaction => Box::pin(async { Ok(()) }),
            _ => self.inner.compact(through),
        }
    }
}

#[tokio::test]
async fn a_flaw_is_found_and_reduced_to_its_cause() {
    let check = async |flaw: Flaw, fewest: usize| {
        let open = async || (memory(), Arc::new(Flawed { inner: Memory::new(), flaw }) as Arc<dyn Store>);
        let mut found = None;
        for seed in 0..20 {
            let ops = random(seed, 200);
            let (model, subject) = open().await;
            if let Err(disagreement) = run(&ops, model, subject).await {
                found = Some(shrink(ops, disagreement, open).await);
                break;
            }
        }
        let (ops, disagreement) = found.unwrap_or_else(|| panic!("{flaw:?} was not found"));
        assert!(ops.len() <= fewest, "{flaw:?} needs {fewest} operations, not {ops:#?}: {disagreement}");
    };
    check(Flaw::DeletesWhatIsExpectedAbsent, 2).await;
    check(Flaw::ForgetsToCount, 1).await;
    check(Flaw::IgnoresCompaction, 4).await;
    check(Flaw::WatchesFromNow, 3).await;
}

/// A commit without a result has or has not happened; the model follows the reopened subject.
#[tokio::test]
async fn a_subject_that_crashes_in_a_write_may_have_written_it_or_not() {
    for after_writing in [false, true] {
        let inner = Memory::new();
        let mut pair = LockStep::new(
            memory(),
            Arc::new(Flawed { inner: inner.clone(), flaw: Flaw::Dies { after_writing } }),
        );
        let mut interruptions = 0;
        for op in random(3, 200) {
            if pair.step(&op).await.expect("agrees") == StepResult::Interrupted {
                interruptions += 1;
                pair.reopen(Arc::new(inner.clone())).await.expect("agrees");
            }
        }
        pair.finish().await.expect("agrees");
        assert_eq!(interruptions, 1);
    }
}

#[tokio::test]
async fn a_subject_that_lost_an_acknowledged_write_is_caught() {
    let mut pair = LockStep::new(memory(), memory());
    let put = |key| Op::Put { key, expect: Belief::Right, value: vec![key] };
    pair.step(&put(1)).await.expect("agrees");
    let survived: Arc<dyn Store> = memory();
    assert!(pair.reopen(survived).await.is_err(), "the acknowledged write is missing");
}
