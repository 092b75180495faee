//! Looking after keys, several at a time.

use std::fmt;
use std::hash::Hash;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::queue::{Outcome, Queue};

/// Takes keys from the queue and looks after them, at most `hands` at once, for as long as it is polled.
///
/// A key is never in two hands, so `look` may read, decide and write without minding itself.
pub async fn work<K, F, L>(queue: &Queue<K>, hands: usize, look: L) -> std::convert::Infallible
where
    K: Clone + Eq + Hash + fmt::Debug,
    L: Fn(K) -> F,
    F: Future<Output = Outcome>,
{
    let mut busy = FuturesUnordered::new();
    loop {
        tokio::select! {
            key = queue.next(), if busy.len() < hands => {
                let looked = look(key.clone());
                busy.push(async move { (key, looked.await) });
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
    async fn every_key_is_looked_after_until_it_is_done() {
        let queue = Queue::new();
        (0..10).for_each(|key| queue.add(key));
        let looks = Mutex::new(vec![0; 10]);
        let look = async |key: usize| {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let mut looks = looks.lock().unwrap();
            looks[key] += 1;
            if looks[key] <= key { Outcome::Failed } else { Outcome::Done }
        };
        let _ = tokio::time::timeout(Duration::from_secs(600), work(&queue, 3, look)).await;
        assert_eq!(*looks.lock().unwrap(), (1..=10).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }
}
