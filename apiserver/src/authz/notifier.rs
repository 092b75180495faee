//! Wakes the watches whose authorization may have changed, and no others.
//!
//! Thousands of watches may be open, each of which depends on some policies and objects. One look-up finds the watches
//! that a change affects; the others are not woken.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::cluster::Id;
use storage::Key;
use tokio::sync::Notify;

/// The topic of a subscription.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Topic {
    /// The roles and bindings of a logical cluster.
    Policy(Id),
    Object(Key),
}

#[derive(Debug, Default)]
pub(crate) struct PolicyNotifier {
    by_topic: Mutex<HashMap<Topic, HashMap<u64, Arc<Notify>>>>,
    /// The number of the next subscription.
    next: AtomicU64,
}

impl PolicyNotifier {
    /// Subscribes to changes of these topics.
    pub(crate) fn subscribe(self: &Arc<PolicyNotifier>, topics: Vec<Topic>) -> PolicySubscription {
        let (number, notified) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(Notify::new()));
        let mut by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in &topics {
            by_topic.entry(topic.clone()).or_default().insert(number, notified.clone());
        }
        drop(by_topic);
        PolicySubscription { notifier: self.clone(), number, topics, notified }
    }

    pub(crate) fn notify(&self, topics: impl IntoIterator<Item = Topic>) {
        let by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        for notifier in topics.into_iter().filter_map(|topic| by_topic.get(&topic)) {
            notifier.values().for_each(|notified| notified.notify_one());
        }
    }

    /// Notifies all subscriptions, if the changes are unknown.
    pub(crate) fn notify_all(&self) {
        let by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        by_topic.values().flat_map(HashMap::values).for_each(|notified| notified.notify_one());
    }
}

#[derive(Debug)]
pub(crate) struct PolicySubscription {
    notifier: Arc<PolicyNotifier>,
    number: u64,
    topics: Vec<Topic>,
    notified: Arc<Notify>,
}

impl PolicySubscription {
    /// Returns once one of the topics has changed since the last call. Cancel-safe.
    pub(crate) async fn notified(&self) {
        self.notified.notified().await;
    }
}

impl Drop for PolicySubscription {
    fn drop(&mut self) {
        let mut by_topic = self.notifier.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in &self.topics {
            let Some(notifier) = by_topic.get_mut(topic) else { continue };
            notifier.remove(&self.number);
            if notifier.is_empty() {
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
    async fn a_change_notifies_only_its_subscribers() {
        let notifier = Arc::new(PolicyNotifier::default());
        let policy = |number| Topic::Policy(Id::new(number));
        let one = notifier.subscribe(vec![policy(1), Topic::Object(Key::from("a".to_owned()))]);
        let other = notifier.subscribe(vec![policy(2)]);
        let notified_subscriptions =
            || [&one, &other].map(|subscription| subscription.notified().now_or_never().is_some());
        assert_eq!(notified_subscriptions(), [false, false]);
        notifier.notify([policy(1), policy(3)]);
        assert_eq!(
            (notified_subscriptions(), notified_subscriptions()),
            ([true, false], [false, false]),
            "once"
        );
        notifier.notify([Topic::Object(Key::from("a".to_owned()))]);
        assert_eq!(notified_subscriptions(), [true, false]);
        notifier.notify_all();
        assert_eq!(notified_subscriptions(), [true, true]);
        drop((one, other));
        assert!(notifier.by_topic.lock().unwrap().is_empty(), "all subscriptions are removed");
    }
}
