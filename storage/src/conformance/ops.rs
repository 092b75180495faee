//! Random operations on two stores in lock-step: both must return the same.
//!
//! An [`Op`] contains nothing absolute: neither revisions nor entries, only "the third key" and "ten revisions back".
//! So every sequence of operations is valid, and so is every part of it. That allows [`agree`] to remove operations
//! until only those remain that cause the difference.
//!
//! Both stores must be new and have no other clients: they start at revision zero and have no gaps.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use storage::{Store, conformance::ops::{self, LockStep, StepResult}, memory::Memory};
//! # fn subject() -> Arc<dyn Store> { Arc::new(Memory::new()) }
//! # async fn agrees() -> Result<(), ops::Disagreement> {
//! ops::agree(7, 300, async || (Arc::new(Memory::new()) as Arc<dyn Store>, subject())).await;
//!
//! // Or step by step, with a subject that is killed and reopened in between.
//! let mut pair = LockStep::new(Arc::new(Memory::new()), subject());
//! for op in ops::random(7, 300) {
//!     if pair.step(&op).await? == StepResult::Interrupted {
//!         pair.reopen(subject()).await?;
//!     }
//! }
//! pair.finish().await?;
//! # Ok(())
//! # }
//! ```

mod lockstep;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::range::{Key, Range};
use crate::store::Store;
pub use lockstep::{LockStep, StepResult};

/// The keys: few, so that operations conflict; unusual, so that encodings are tested.
const NAMES: &[&[u8]] =
    &[b"", b"\0", b"a", b"a\0", b"a/", b"a/1", b"a/2", b"a/\xff", b"a0", b"ab/1", b"b", b"\xff", b"\xff\xff"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Put {
        key: u8,
        expect: Belief,
        value: Vec<u8>,
    },
    Delete {
        key: u8,
        expect: Belief,
    },
    Get {
        key: u8,
    },
    List {
        of: EventSpan,
        after: Option<u8>,
        limit: Option<usize>,
        count: bool,
        at: RevisionOffset,
    },
    /// Continues an earlier list that had more entries.
    NextPage {
        list: usize,
    },
    Watch {
        of: EventSpan,
        after: RevisionOffset,
    },
    /// Reads a watch up to the newest revision.
    Read {
        watch: usize,
    },
    Close {
        watch: usize,
    },
    Compact {
        through: RevisionOffset,
    },
}

/// The state of the key that a writer expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Belief {
    /// The actual state.
    Right,
    Absent,
    /// The revision that many events ago.
    Earlier(u8),
    /// A revision in the future.
    Ahead,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RevisionOffset {
    Now,
    Back(u8),
    Ahead(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventSpan {
    All,
    Key(u8),
    Prefix(u8),
    Between(u8, u8),
}

fn key(nth: u8) -> Key {
    NAMES[usize::from(nth) % NAMES.len()].into()
}

impl EventSpan {
    fn range(self) -> Range {
        match self {
            EventSpan::All => Range::all(),
            EventSpan::Key(nth) => Range::key(key(nth)),
            EventSpan::Prefix(nth) => Range::prefix(key(nth)),
            EventSpan::Between(from, to) => Range::between(key(from), key(to)),
        }
    }
}

/// Returns `count` operations, which depend only on the seed.
pub fn random(seed: u64, count: usize) -> Vec<Op> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..count).map(|nth| random_op(&mut rng, nth)).collect()
}

fn random_op(rng: &mut StdRng, nth: usize) -> Op {
    let key = rng.random_range(0..NAMES.len() as u8);
    let other = rng.random_range(0..NAMES.len() as u8);
    let of = [EventSpan::All, EventSpan::Key(key), EventSpan::Prefix(key), EventSpan::Between(key, other)]
        [rng.random_range(0..4)];
    let offset = match rng.random_range(0..10) {
        0..4 => RevisionOffset::Now,
        4..9 => RevisionOffset::Back(rng.random_range(0..40)),
        _ => RevisionOffset::Ahead(rng.random_range(1..5)),
    };
    let expect = match rng.random_range(0..10) {
        0..7 => Belief::Right,
        7 => Belief::Absent,
        8 => Belief::Earlier(rng.random_range(0..20)),
        _ => Belief::Ahead,
    };
    match rng.random_range(0..100) {
        0..35 => {
            let mut value = nth.to_be_bytes().to_vec();
            value.resize(rng.random_range(0..40), 0xff);
            Op::Put { key, expect, value }
        }
        35..50 => Op::Delete { key, expect },
        50..57 => Op::Get { key },
        57..72 => Op::List {
            of,
            after: rng.random_bool(0.3).then_some(other),
            limit: rng.random_bool(0.7).then(|| rng.random_range(0..6)),
            count: rng.random_bool(0.5),
            at: offset,
        },
        72..80 => Op::NextPage { list: rng.random_range(0..4) },
        80..86 => Op::Watch { of, after: offset },
        86..95 => Op::Read { watch: rng.random_range(0..4) },
        95..97 => Op::Close { watch: rng.random_range(0..4) },
        _ => Op::Compact { through: offset },
    }
}

/// Different results of two stores that should be equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// The operation.
    pub description: String,
    pub model: String,
    pub subject: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  model:   {}\n  subject: {}", self.description, self.model, self.subject)
    }
}

/// Runs all of `ops` on both stores.
pub async fn run(ops: &[Op], model: Arc<dyn Store>, subject: Arc<dyn Store>) -> Result<(), Disagreement> {
    let mut pair = LockStep::new(model, subject);
    for op in ops {
        if pair.step(op).await? == StepResult::Interrupted {
            let (description, model) = (format!("{op:?}"), "an answer".into());
            return Err(Disagreement { description, model, subject: "no answer".into() });
        }
    }
    pair.finish().await
}

/// Runs random operations on new stores (the model first, then the subject). If the stores disagree, panics with the
/// seed and the fewest operations that show it.
pub async fn agree(seed: u64, count: usize, open: impl AsyncFn() -> (Arc<dyn Store>, Arc<dyn Store>)) {
    let ops = random(seed, count);
    let (model, subject) = open().await;
    let Err(disagreement) = run(&ops, model, subject).await else { return };
    let (fewest, disagreement) = shrink(ops, disagreement, open).await;
    let ops: Vec<_> = fewest.iter().map(|op| format!("  {op:?}")).collect();
    panic!("seed {seed} disagrees after\n{}\non {disagreement}", ops.join("\n"));
}

/// Removes as many operations as possible, many at a time first, as long as the stores still disagree.
async fn shrink(
    mut ops: Vec<Op>,
    mut disagreement: Disagreement,
    open: impl AsyncFn() -> (Arc<dyn Store>, Arc<dyn Store>),
) -> (Vec<Op>, Disagreement) {
    let mut removed = ops.len() / 2;
    while removed > 0 {
        let mut from = 0;
        while from < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(from..(from + removed).min(ops.len()));
            let (model, subject) = open().await;
            match run(&fewer, model, subject).await {
                Err(still) => (ops, disagreement) = (fewer, still),
                Ok(()) => from += removed,
            }
        }
        removed /= 2;
    }
    (ops, disagreement)
}
