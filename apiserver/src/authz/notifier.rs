//! Tells those who wait for something that it may have changed, and nobody else.
//!
//! Thousands of watches are open, each good for as long as some policies and some objects say so. One look-up finds those
//! a change concerns; the others sleep on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::cluster::Id;
use storage::Key;
use tokio::sync::Notify;

/// What somebody waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Topic {
    /// The roles and bindings of a logical cluster.
    Policy(Id),
    Object(Key),
}

#[derive(Debug, Default)]
pub(crate) struct Bells {
    by_topic: Mutex<HashMap<Topic, HashMap<u64, Arc<Notify>>>>,
    /// Tells bells apart.
    next: AtomicU64,
}

impl Bells {
    /// A bell that rings when one of these may have changed, from now on.
    pub(crate) fn hang(self: &Arc<Bells>, topics: Vec<Topic>) -> Bell {
        let (number, rung) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(Notify::new()));
        let mut by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in &topics {
            by_topic.entry(topic.clone()).or_default().insert(number, rung.clone());
        }
        drop(by_topic);
        Bell { bells: self.clone(), number, topics, rung }
    }

    pub(crate) fn ring(&self, topics: impl IntoIterator<Item = Topic>) {
        let by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        for bells in topics.into_iter().filter_map(|topic| by_topic.get(&topic)) {
            bells.values().for_each(|rung| rung.notify_one());
        }
    }

    /// What changed is not known: all of it may have.
    pub(crate) fn ring_all(&self) {
        let by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        by_topic.values().flat_map(HashMap::values).for_each(|rung| rung.notify_one());
    }
}

#[derive(Debug)]
pub(crate) struct Bell {
    bells: Arc<Bells>,
    number: u64,
    topics: Vec<Topic>,
    rung: Arc<Notify>,
}

impl Bell {
    /// Returns once it has rung since this last returned. Cancel-safe.
    pub(crate) async fn rung(&self) {
        self.rung.notified().await;
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut by_topic = self.bells.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in &self.topics {
            let Some(bells) = by_topic.get_mut(topic) else { continue };
            bells.remove(&self.number);
            if bells.is_empty() {
                by_topic.remove(topic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_change_is_heard_by_those_it_concerns() {
        let bells = Arc::new(Bells::default());
        let policy = |number| Topic::Policy(Id::new(number));
        let one = bells.hang(vec![policy(1), Topic::Object(Key::from("a".to_owned()))]);
        let other = bells.hang(vec![policy(2)]);
        let heard = || [&one, &other].map(|bell| bell.rung().now_or_never().is_some());
        assert_eq!(heard(), [false, false]);
        bells.ring([policy(1), policy(3)]);
        assert_eq!((heard(), heard()), ([true, false], [false, false]), "once");
        bells.ring([Topic::Object(Key::from("a".to_owned()))]);
        assert_eq!(heard(), [true, false]);
        bells.ring_all();
        assert_eq!(heard(), [true, true]);
        drop((one, other));
        assert!(bells.by_topic.lock().unwrap().is_empty(), "nothing of them is left");
    }
}
