//! Objects that may be somebody's, once that is known here.

use std::collections::{BTreeSet, HashMap};

use crate::sides::Subject;

/// In namespaces of ours there is little that is not ours; what is more than this finds its owner at the next relist.
const MAX: usize = 100_000;

/// Who waits for whom: by the uid below of whoever it would be, and by who waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    by_uid: HashMap<String, BTreeSet<Subject>>,
    by_subject: HashMap<Subject, BTreeSet<String>>,
    count: usize,
}

impl Waiting {
    pub(crate) fn wait(&mut self, uid: &str, subject: &Subject) {
        if self.count >= MAX {
            return;
        }
        if self.by_uid.entry(uid.to_owned()).or_default().insert(subject.clone()) {
            self.by_subject.entry(subject.clone()).or_default().insert(uid.to_owned());
            self.count += 1;
        }
    }

    /// Somebody of this uid is known. Those who waited for them may wait for others still.
    pub(crate) fn wake(&mut self, uid: &str) -> BTreeSet<Subject> {
        let woken = self.by_uid.remove(uid).unwrap_or_default();
        for subject in &woken {
            drop_from(&mut self.by_subject, subject, uid);
        }
        self.count -= woken.len();
        woken
    }

    /// It is gone. Events come and go all the time, and most are about what is not ours: whoever kept them would soon have
    /// no room for the others.
    pub(crate) fn leave(&mut self, subject: &Subject) {
        let uids = self.by_subject.remove(subject).unwrap_or_default();
        for uid in &uids {
            drop_from(&mut self.by_uid, uid, subject);
        }
        self.count -= uids.len();
    }
}

/// Takes one out of a set of many, and with the last one the set.
fn drop_from<K: Eq + std::hash::Hash, T: Ord + std::borrow::Borrow<Q>, Q: Ord + ?Sized>(
    sets: &mut HashMap<K, BTreeSet<T>>,
    key: &K,
    one: &Q,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(one);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KindName;
    use controller::informer::Key;

    fn event(name: &str) -> Subject {
        Subject::new(&KindName::new("", "events"), Key::new("shop", name))
    }

    /// Events of others were waited for long after they were gone. When there had been a hundred thousand of them, what was
    /// read before its owner was never shown.
    #[test]
    fn what_is_gone_leaves_room_for_what_comes() {
        let mut waiting = Waiting::default();
        for number in 0..MAX + 10 {
            let theirs = event(&format!("theirs-{number}"));
            waiting.wait(&format!("uid-{number}"), &theirs);
            waiting.wait("another", &theirs);
            waiting.leave(&theirs);
        }
        waiting.wait("ours", &event("early"));
        assert_eq!(waiting.wake("ours"), BTreeSet::from([event("early")]));
        assert!(waiting.count == 0 && waiting.by_uid.is_empty() && waiting.by_subject.is_empty());
    }

    #[test]
    fn who_waits_for_two_is_woken_by_either() {
        let mut waiting = Waiting::default();
        for uid in ["one", "two", "one"] {
            waiting.wait(uid, &event("a"));
        }
        waiting.wait("one", &event("b"));
        assert_eq!(waiting.count, 3);
        assert_eq!(waiting.wake("one"), BTreeSet::from([event("a"), event("b")]));
        assert_eq!(waiting.wake("one"), BTreeSet::new());
        assert_eq!(waiting.wake("two"), BTreeSet::from([event("a")]));
        waiting.leave(&event("a"));
        assert!(waiting.count == 0 && waiting.by_subject.is_empty());
    }
}
