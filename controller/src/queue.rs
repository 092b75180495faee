//! A queue of keys that want attention.
//!
//! ```text
//!   add ──► waiting ──► next ──► in hand ──► done
//!             ▲  ▲                  │ added meanwhile, or again
//!       later ┘  └──────────────────┘
//! ```
//!
//! A key says where to look, never what happened there. So a key that is added twice before anybody takes it is in
//! the queue once, and a key that is added while somebody has it in hand is not given to a second one: it comes back
//! when the first is done. A key that failed comes back after a while that doubles each time.
//!
//! The queue holds at most one entry per key, so it is bounded by what the keys name.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// After the first failure. As fast as a conflict with somebody else's write passes.
const RETRY_FIRST: Duration = Duration::from_millis(10);
/// After many. What has failed for hours must not wait for hours once it could work.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// What came of looking after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should be; an event will say when to look again.
    Done,
    /// Well so far; look again after this long.
    Again(Duration),
    /// It did not work; look again after a while that grows with every failure.
    Failed,
}

/// Keys that want attention, each at most once.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    /// Rung when something can be taken, or becomes due earlier than before.
    bell: Notify,
}

#[derive(Debug)]
struct State<K> {
    /// To be taken, in order.
    waiting: VecDeque<K>,
    /// The same as a set.
    queued: HashSet<K>,
    /// Taken and not done. True: added again meanwhile.
    in_hand: HashMap<K, bool>,
    /// To be added later. The number tells apart keys that are due at the same instant.
    later: BTreeMap<(Instant, u64), K>,
    /// When a key is to be added, for those that are.
    due: HashMap<K, (Instant, u64)>,
    /// Failures in a row.
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
        Queue { state: Mutex::new(State::new()), bell: Notify::new() }
    }

    /// Asks for a key to be looked after.
    pub fn add(&self, key: K) {
        self.state().add(key);
        self.bell.notify_one();
    }

    /// Asks for it after a while. The earlier of two wishes counts.
    pub fn add_after(&self, key: K, wait: Duration) {
        self.state().add_at(key, Instant::now() + wait);
        self.bell.notify_one();
    }

    /// Waits for a key and takes it in hand. Cancel-safe.
    pub async fn next(&self) -> K {
        loop {
            let rung = self.bell.notified();
            let due = {
                let mut state = self.state();
                state.ripen(Instant::now());
                if let Some(key) = state.take() {
                    // Several may wait and only one is woken by a bell; the next one takes what is left.
                    if !state.waiting.is_empty() {
                        self.bell.notify_one();
                    }
                    return key;
                }
                state.later.first_key_value().map(|((due, _), _)| *due)
            };
            match due {
                Some(due) => tokio::select! {
                    () = rung => {}
                    () = sleep_until(due) => {}
                },
                None => rung.await,
            }
        }
    }

    /// Gives a key back.
    pub fn done(&self, key: K, outcome: Outcome) {
        let mut state = self.state();
        let added_meanwhile = state.in_hand.remove(&key).unwrap_or(false);
        let wait = match outcome {
            Outcome::Done => None,
            Outcome::Again(wait) => Some(wait),
            Outcome::Failed => Some(state.failed(&key)),
        };
        if outcome != Outcome::Failed {
            state.failures.remove(&key);
        }
        match wait {
            // Trying again at once because of news would make a failing key spin as fast as news comes.
            Some(wait) if !added_meanwhile || outcome == Outcome::Failed => {
                state.add_at(key, Instant::now() + wait);
            }
            _ if added_meanwhile => state.add(key),
            _ => {}
        }
        self.bell.notify_one();
    }

    /// Forgets everything, also what is in hand: for whoever begins anew.
    pub fn clear(&self) {
        *self.state() = State::new();
    }

    /// Keys in the queue, in hand and due later.
    pub fn len(&self) -> usize {
        let state = self.state();
        state.waiting.len() + state.in_hand.len() + state.later.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Nothing below panics while it holds the lock, so it is never poisoned.
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn new() -> State<K> {
        State {
            waiting: VecDeque::new(),
            queued: HashSet::new(),
            in_hand: HashMap::new(),
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
        if let Some(again) = self.in_hand.get_mut(&key) {
            *again = true;
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

    /// Adds what is due.
    fn ripen(&mut self, now: Instant) {
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.remove();
            self.due.remove(&key);
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.waiting.pop_front()?;
        self.queued.remove(&key);
        self.in_hand.insert(key.clone(), false);
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
    async fn a_key_is_in_the_queue_once_and_in_one_hand() {
        let queue = Queue::new();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(next(&queue).await, Some("a"));
        queue.add("a");
        assert_eq!(next(&queue).await, Some("b"));
        // Somebody has it in hand, so nobody else gets it; then it comes back, once.
        assert_eq!(next(&queue).await, None);
        queue.done("a", Outcome::Done);
        assert_eq!(next(&queue).await, Some("a"));
        queue.done("a", Outcome::Done);
        queue.done("b", Outcome::Done);
        assert_eq!(next(&queue).await, None);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_wishes_counts() {
        let queue = Queue::new();
        let begun = Instant::now();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(90));
        assert_eq!(queue.next().await, "a");
        assert_eq!(begun.elapsed().as_secs(), 5);
        queue.done("a", Outcome::Again(Duration::from_secs(60)));
        queue.add("a");
        assert_eq!(next(&queue).await, Some("a"));
        queue.done("a", Outcome::Done);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_fails_comes_back_later_each_time_whatever_the_news() {
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
        // Once it works, the past is forgotten.
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
    async fn everybody_who_waits_gets_something_when_there_is_enough() {
        let queue = Queue::new();
        let both = futures_join(&queue).await;
        assert_eq!(both, ("a", "b"));
    }

    async fn futures_join(queue: &Queue<&'static str>) -> (&'static str, &'static str) {
        let fill = async {
            tokio::task::yield_now().await;
            queue.add("a");
            queue.add("b");
        };
        let (first, second, ()) = tokio::join!(queue.next(), queue.next(), fill);
        (first, second)
    }
}
