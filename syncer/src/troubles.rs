//! What does not work at the moment, by object.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};

use controller::remote::CallError;

use crate::mirror::Hold;
use crate::sides::Subject;

/// So many are kept; of more than that only which they are, as eight bytes each. Who has a thousand reads no list.
const KEPT_MAX: usize = 1000;
/// So many are told in a report.
const TOLD_MAX: usize = 20;
/// Of what a server says, so much.
const MESSAGE_BYTES_MAX: usize = 512;

/// The physical cluster found an object invalid, as when somebody else there has the node port it asks for.
pub(crate) const REFUSED: &str = "Refused";
/// The physical cluster did not let a claim have another amount of storage.
pub(crate) const CANNOT_RESIZE: &str = "CannotResize";

/// Why something was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trouble {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) cure: Cure,
}

/// What may help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cure {
    /// Trying again, later each time.
    Retry,
    /// The same, and nobody need know: somebody else was faster.
    Reread,
    /// An event that will make us look again.
    Event,
    /// Somebody's doing that no event tells us of.
    Time,
}

impl Trouble {
    pub(crate) fn failed(reason: &'static str) -> impl Fn(CallError) -> Trouble {
        move |error| {
            let cure = if error.is_conflict() { Cure::Reread } else { Cure::Retry };
            Trouble { reason, message: shortened(error.to_string()), cure }
        }
    }

    /// Of a change that names what it was decided on: it is refused when that has changed.
    pub(crate) fn stale(reason: &'static str) -> impl Fn(CallError) -> Trouble {
        move |error| {
            let cure = if matches!(error.code(), 409 | 422) { Cure::Reread } else { Cure::Retry };
            Trouble { cure, ..Trouble::failed(reason)(error) }
        }
    }

    /// Whether the physical cluster refused what the user asked for, so that the user can do something about it.
    pub(crate) fn is_for_user(&self) -> bool {
        [REFUSED, CANNOT_RESIZE].contains(&self.reason)
    }

    /// Whether it is about this object rather than about all of them.
    pub(crate) fn is_of_one(&self) -> bool {
        const OF_ALL: &[Hold] = &[
            Hold::MailboxNotSynced,
            Hold::BelowNotSynced,
            Hold::NotLeading,
            Hold::OtherCluster,
            Hold::UnknownCluster,
        ];
        !OF_ALL.iter().any(|hold| hold.reason() == self.reason)
    }
}

impl From<Hold> for Trouble {
    fn from(hold: Hold) -> Trouble {
        let cure = match hold {
            Hold::NotOurs | Hold::OtherMailbox | Hold::OtherOrigin | Hold::NoTombstone => Cure::Time,
            _ => Cure::Event,
        };
        Trouble { reason: hold.reason(), message: hold.to_string(), cure }
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().find(|(place, _)| *place >= MESSAGE_BYTES_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    known: Mutex<Known>,
    hashes: RandomState,
}

#[derive(Debug, Default)]
struct Known {
    by_subject: BTreeMap<Subject, Trouble>,
    /// Those there was no room for.
    others: HashSet<u64>,
}

impl Troubles {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no holder of this lock panics")
    }

    /// Whether that is news.
    pub(crate) fn set(&self, subject: &Subject, trouble: &Trouble) -> bool {
        let mut known = self.known();
        let other = self.hashes.hash_one(subject);
        if known.by_subject.len() >= KEPT_MAX && !known.by_subject.contains_key(subject) {
            known.others.insert(other);
            return false;
        }
        known.others.remove(&other);
        let before = known.by_subject.insert(subject.clone(), trouble.clone());
        // Other messages change with the moment; what a user is told is about what the user wrote.
        before.is_none_or(|before| {
            before.reason != trouble.reason || trouble.is_for_user() && before.message != trouble.message
        })
    }

    /// Whether there is one.
    pub(crate) fn has(&self, subject: &Subject) -> bool {
        let known = self.known();
        known.by_subject.contains_key(subject) || known.others.contains(&self.hashes.hash_one(subject))
    }

    /// Whether there was one.
    pub(crate) fn clear(&self, subject: &Subject) -> bool {
        let mut known = self.known();
        known.by_subject.remove(subject).is_some() || known.others.remove(&self.hashes.hash_one(subject))
    }

    /// How many there are, and the first of them in a few lines.
    pub(crate) fn told(&self) -> (usize, String) {
        let known = self.known();
        let line = |(subject, trouble): (&Subject, &Trouble)| {
            format!("{} {}: {}: {}", subject.kind.plural, subject.key, trouble.reason, trouble.message)
        };
        let count = known.by_subject.len() + known.others.len();
        let mut lines: Vec<_> = known.by_subject.iter().take(TOLD_MAX).map(line).collect();
        if count > lines.len() {
            lines.push(format!("and {} more", count - lines.len()));
        }
        (count, lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KindName;
    use controller::informer::Key;

    #[test]
    fn troubles_are_news_once_and_bounded() {
        let troubles = Troubles::default();
        let subject =
            |n: usize| Subject::new(&KindName::new("", "configmaps"), Key::new("shop", &format!("m{n:05}")));
        let trouble = Trouble::from(Hold::NotOurs);
        assert!(troubles.set(&subject(0), &trouble));
        assert!(!troubles.set(&subject(0), &trouble));
        assert!(troubles.set(&subject(0), &Hold::OtherMailbox.into()));
        let (count, told) = troubles.told();
        assert_eq!(count, 1);
        assert!(told.starts_with("configmaps shop/m00000: OtherMailbox: "), "{told}");
        for n in 0..2 * KEPT_MAX {
            troubles.set(&subject(n), &trouble);
        }
        let (count, told) = troubles.told();
        assert_eq!((count, told.lines().count()), (2 * KEPT_MAX, TOLD_MAX + 1));
        assert!(told.ends_with(&format!("and {} more", 2 * KEPT_MAX - TOLD_MAX)), "{told}");
        // When there is room, one of the others is told about as well; it is still the same one.
        assert!(troubles.clear(&subject(0)));
        assert!(troubles.set(&subject(2 * KEPT_MAX - 1), &trouble));
        assert_eq!(troubles.told().0, 2 * KEPT_MAX - 1);
        assert!(!troubles.has(&subject(0)) && (1..2 * KEPT_MAX).all(|n| troubles.has(&subject(n))));
        assert_eq!((0..2 * KEPT_MAX).filter(|n| troubles.clear(&subject(*n))).count(), 2 * KEPT_MAX - 1);
        assert_eq!(troubles.told(), (0, String::new()));
    }

    #[test]
    fn long_answers_are_cut_between_letters() {
        assert_eq!(shortened("short".to_owned()), "short");
        assert!(shortened("ä".repeat(1000)).len() <= MESSAGE_BYTES_MAX + 5);
    }
}
