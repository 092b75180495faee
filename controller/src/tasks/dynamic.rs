//! Tasks that start and end while their owner runs.
//!
//! [`KeyedTasks`] are replaced, aborted and observed by key: one informer per kind, one syncer per physical cluster.
//! [`StreamTasks`] end by themselves: one per connection or stream. Dropping either aborts what still runs.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// Tasks by key, at most one each.
#[derive(Debug)]
pub struct KeyedTasks<K, T> {
    set: JoinSet<T>,
    by_key: HashMap<K, AbortHandle>,
    keys: HashMap<Id, K>,
}

impl<K, T: 'static> Default for KeyedTasks<K, T> {
    fn default() -> Self {
        KeyedTasks { set: JoinSet::new(), by_key: HashMap::new(), keys: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, T: Send + 'static> KeyedTasks<K, T> {
    /// Starts a task, and aborts the one that runs under the same key.
    pub fn spawn(&mut self, key: K, task: impl Future<Output = T> + Send + 'static) {
        self.abort(&key);
        let handle = self.set.spawn(task);
        self.keys.insert(handle.id(), key.clone());
        self.by_key.insert(key, handle);
    }

    /// Aborts a task. [`next_ended`](KeyedTasks::next_ended) will not report it.
    pub fn abort(&mut self, key: &K) {
        if let Some(handle) = self.by_key.remove(key) {
            handle.abort();
            self.keys.remove(&handle.id());
        }
    }

    /// Aborts all tasks, and returns when they have ended.
    pub async fn shutdown(&mut self) {
        self.by_key.clear();
        self.keys.clear();
        self.set.shutdown().await;
    }

    /// Reports whether a task runs under a key, or has ended and was not yet reported.
    pub fn contains(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// Returns the number of tasks that run, or have ended and were not yet reported.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Waits for the next task that ends by itself. Returns its key, and its output or why it panicked. None if there
    /// are no tasks. Cancel-safe.
    pub async fn next_ended(&mut self) -> Option<(K, Result<T, String>)> {
        loop {
            let (id, output) = match self.set.join_next_with_id().await? {
                Ok((id, output)) => (id, Ok(output)),
                Err(error) => (error.id(), Err(error.to_string())),
            };
            // A task may have ended before its abort took effect.
            if let Some(key) = self.keys.remove(&id) {
                self.by_key.remove(&key);
                return Some((key, output));
            }
        }
    }
}

/// Tasks that end by themselves.
#[derive(Debug, Default)]
pub struct StreamTasks(Mutex<JoinSet<()>>);

impl StreamTasks {
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = set.try_join_next() {
            log_panic(ended);
        }
        set.spawn(task);
    }

    /// Waits until all tasks have ended, those that are spawned meanwhile included.
    pub async fn drain(&self) {
        loop {
            let mut running = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            if running.is_empty() {
                return;
            }
            while let Some(ended) = running.join_next().await {
                log_panic(ended);
            }
        }
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "the task of a stream panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn a_task_that_ends_is_reported_once_and_one_that_is_aborted_or_replaced_is_not() {
        let mut tasks = KeyedTasks::default();
        assert_eq!(tasks.next_ended().await, None);
        tasks.spawn("aborted", ready(1));
        tasks.abort(&"aborted");
        tasks.spawn("replaced", ready(2));
        tasks.spawn("replaced", ready(3));
        assert!(tasks.contains(&"replaced") && !tasks.contains(&"aborted"));
        assert_eq!(tasks.next_ended().await, Some(("replaced", Ok(3))));
        assert!(!tasks.contains(&"replaced"));
        assert_eq!(tasks.next_ended().await, None);
        tasks.spawn("broken", async { panic!("no luck") });
        let (key, ended) = tasks.next_ended().await.unwrap();
        assert!(key == "broken" && ended.unwrap_err().contains("panic"));
    }

    #[tokio::test]
    async fn tasks_end_with_their_owner() {
        let alive = Arc::new(());
        let held = |alive: Arc<()>| async move {
            pending::<()>().await;
            drop(alive);
        };
        let (mut keyed, streams) = (KeyedTasks::default(), StreamTasks::default());
        keyed.spawn(1, held(alive.clone()));
        streams.spawn(held(alive.clone()));
        assert_eq!(Arc::strong_count(&alive), 3);
        drop((keyed, streams));
        let ended = async {
            while Arc::strong_count(&alive) > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), ended).await.expect("both tasks are aborted");
    }
}
