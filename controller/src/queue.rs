//! A work queue of keys to reconcile.
//!
//! ```text
//!   add ──► waiting ──► next ──► processing ──► done
//!             ▲  ▲                  │ added meanwhile, or requeued
//!       later ┘  └──────────────────┘
//! ```
//!
//! A key names an object, never an event. So a key that is added twice before a worker takes it is in the queue once,
//! and a key that is added while a worker processes it is not given to a second one: it is queued again when the first
//! is done. A key that failed is queued again after a delay that doubles each time.
//!
//! The queue holds at most one entry per key, so its size is bounded by the number of objects.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The delay after the first failure. Conflicts with other writers resolve within this time.
const RETRY_FIRST: Duration = Duration::from_millis(10);
/// The longest delay. A key that has failed for hours must not wait for hours once it can succeed.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The result of reconciling a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done until the next event.
    Done,
    /// Requeue after this long.
    RequeueAfter(Duration),
    /// Requeue after a delay that grows with every failure.
    Failed,
}

/// Keys to reconcile, each at most once.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<QueueState<K>>,
    /// Notified when a key can be taken, or becomes due earlier than before.
    changed: Notify,
}

#[derive(Debug)]
struct QueueState<K> {
    /// Queued keys, in order.
    waiting: VecDeque<K>,
    /// The keys in `waiting`, as a set.
    queued: HashSet<K>,
    /// Keys being processed, and whether they were added again meanwhile.
    processing: HashMap<K, bool>,
    /// Keys to add later. The number distinguishes keys that are due at the same instant.
    later: BTreeMap<(Instant, u64), K>,
    /// When the keys in `later` are due.
    due: HashMap<K, (Instant, u64)>,
    /// Consecutive failures.
    failures: HashMap<K, u32>,
    ticket: u64,
}

impl<K: Clone + Eq + Hash + fmt::Debug> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug> Queue<K> {
    pub fn new() -> Queue<K> {
        Queue { state: Mutex::new(QueueState::new()), changed: Notify::new() }
    }

    /// Queues a key.
    pub fn add(&self, key: K) {
        self.state().add(key);
        self.changed.notify_one();
    }

    /// Queues a key after a delay. The earlier of two delays counts.
    pub fn add_after(&self, key: K, wait: Duration) {
        self.state().add_at(key, Instant::now() + wait);
        self.changed.notify_one();
    }

    /// Waits for a key and takes it. Cancel-safe.
    pub async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut state = self.state();
                state.queue_due(Instant::now());
                if let Some(key) = state.take() {
                    // A notification wakes only one of several waiting workers, which wakes the next.
                    if !state.waiting.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.later.first_key_value().map(|((due, _), _)| *due)
            };
            match due {
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(due) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Hands back a key after it was reconciled.
    pub fn done(&self, key: K, outcome: Outcome) {
        let mut state = self.state();
        let added_meanwhile = state.processing.remove(&key).unwrap_or(false);
        let wait = match outcome {
            Outcome::Done => None,
            Outcome::RequeueAfter(wait) => Some(wait),
            Outcome::Failed => Some(state.failed(&key)),
        };
        if outcome != Outcome::Failed {
            state.failures.remove(&key);
        }
        match wait {
            // Requeuing at once because of an event would make a failing key spin as fast as events arrive.
            Some(wait) if !added_meanwhile || outcome == Outcome::Failed => {
                state.add_at(key, Instant::now() + wait);
            }
            _ if added_meanwhile => state.add(key),
            _ => {}
        }
        self.changed.notify_one();
    }

    /// Removes all keys, also those being processed: for a controller that starts over.
    pub fn clear(&self) {
        *self.state() = QueueState::new();
    }

    /// Returns the number of keys that are queued, being processed or due later.
    pub fn len(&self) -> usize {
        let state = self.state();
        state.waiting.len() + state.processing.len() + state.later.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, QueueState<K>> {
        // Nothing below panics while it holds the lock, so it is never poisoned.
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl<K: Clone + Eq + Hash> QueueState<K> {
    fn new() -> QueueState<K> {
        QueueState {
            waiting: VecDeque::new(),
            queued: HashSet::new(),
            processing: HashMap::new(),
            later: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            ticket: 0,
        }
    }

    fn add(&mut self, key: K) {
        if let Some(due) = self.due.remove(&key) {
            self.later.remove(&due);
        }
        if let Some(is_changed) = self.processing.get_mut(&key) {
            *is_changed = true;
        } else if self.queued.insert(key.clone()) {
            self.waiting.push_back(key);
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if self.queued.contains(&key) {
            return;
        }
        match self.due.get(&key) {
            Some((earlier, _)) if *earlier <= at => return,
            Some(later) => drop(self.later.remove(later)),
            None => {}
        }
        self.ticket += 1;
        self.due.insert(key.clone(), (at, self.ticket));
        self.later.insert((at, self.ticket), key);
    }

    /// Queues the keys that are due.
    fn queue_due(&mut self, now: Instant) {
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.remove();
            self.due.remove(&key);
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.waiting.pop_front()?;
        self.queued.remove(&key);
        self.processing.insert(key.clone(), false);
        Some(key)
    }

    fn failed(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = RETRY_FIRST.saturating_mul(1 << (*failures).min(16)).min(RETRY_MAX);
        *failures += 1;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next(queue: &Queue<&'static str>) -> Option<&'static str> {
        tokio::time::timeout(Duration::from_millis(1), queue.next()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_processed_by_one_worker() {
        let queue = Queue::new();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(next(&queue).await, Some("a"));
        queue.add("a");
        assert_eq!(next(&queue).await, Some("b"));
        // While a key is processed, no other worker gets it. Afterwards it is queued again, once.
        assert_eq!(next(&queue).await, None);
        queue.done("a", Outcome::Done);
        assert_eq!(next(&queue).await, Some("a"));
        queue.done("a", Outcome::Done);
        queue.done("b", Outcome::Done);
        assert_eq!(next(&queue).await, None);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_delays_counts() {
        let queue = Queue::new();
        let begun = Instant::now();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(90));
        assert_eq!(queue.next().await, "a");
        assert_eq!(begun.elapsed().as_secs(), 5);
        queue.done("a", Outcome::RequeueAfter(Duration::from_secs(60)));
        queue.add("a");
        assert_eq!(next(&queue).await, Some("a"));
        queue.done("a", Outcome::Done);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_key_is_retried_with_growing_delays_despite_new_events() {
        let queue = Queue::new();
        queue.add("a");
        let mut waits = Vec::new();
        for _ in 0..20 {
            let begun = Instant::now();
            assert_eq!(queue.next().await, "a");
            waits.push(begun.elapsed());
            queue.add("a");
            queue.done("a", Outcome::Failed);
        }
        assert!(waits.windows(2).skip(1).all(|pair| pair[0] <= pair[1]), "{waits:?}");
        assert_eq!(waits.last().map(Duration::as_secs), Some(60));
        // A success resets the delay.
        queue.next().await;
        queue.done("a", Outcome::Done);
        queue.add("a");
        queue.next().await;
        queue.done("a", Outcome::Failed);
        let begun = Instant::now();
        queue.next().await;
        assert!(begun.elapsed() <= RETRY_FIRST + Duration::from_millis(1));
    }

    #[tokio::test(start_paused = true)]
    async fn every_waiting_worker_gets_a_key_if_enough_are_queued() {
        let queue = Queue::new();
        let both = futures_join(&queue).await;
        assert_eq!(both, ("a", "b"));
    }

    async fn futures_join(queue: &Queue<&'static str>) -> (&'static str, &'static str) {
        let add_both = async {
            tokio::task::yield_now().await;
            queue.add("a");
            queue.add("b");
        };
        let (first, second, ()) = tokio::join!(queue.next(), queue.next(), add_both);
        (first, second)
    }
}
