//! Workers, which reconcile the keys of a queue.

use std::fmt;
use std::hash::Hash;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::queue::{Outcome, Queue};

/// Reconciles keys of the queue, at most `workers` at once, for as long as it is polled.
///
/// No key is reconciled twice at once.
pub async fn work<K, F, L>(queue: &Queue<K>, workers: usize, reconcile: L) -> std::convert::Infallible
where
    K: Clone + Eq + Hash + fmt::Debug,
    L: Fn(K) -> F,
    F: Future<Output = Outcome>,
{
    let mut busy = FuturesUnordered::new();
    loop {
        tokio::select! {
            key = queue.next(), if busy.len() < workers => {
                let reconciling = reconcile(key.clone());
                busy.push(async move { (key, reconciling.await) });
            }
            Some((key, outcome)) = busy.next() => queue.done(key, outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_key_is_reconciled_until_it_is_done() {
        let queue = Queue::new();
        (0..10).for_each(|key| queue.add(key));
        let attempts = Mutex::new(vec![0; 10]);
        let reconcile = async |key: usize| {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let mut attempts = attempts.lock().unwrap();
            attempts[key] += 1;
            if attempts[key] <= key { Outcome::Failed } else { Outcome::Done }
        };
        let _ = tokio::time::timeout(Duration::from_secs(600), work(&queue, 3, reconcile)).await;
        assert_eq!(*attempts.lock().unwrap(), (1..=10).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }
}
