//! Keys and ranges of keys.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// A key: bytes, ordered as bytes, cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Key(bytes.into())
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        Key(bytes.into())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Key(text.as_bytes().into())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Key(text.into_bytes().into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A range of keys: from `start` up to, not including, `end`.
///
/// A prefix must end in a delimiter if its neighbours share its beginning: the prefix `pods/a` also covers
/// `pods/ab`, the prefix `pods/a/` does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    start: Key,
    /// `None` means to the end of all keys.
    end: Option<Key>,
    /// How many leading bytes of `start` every key of the range shares. The index of watches uses it.
    stem_len: usize,
}

impl Range {
    pub fn all() -> Self {
        Self::prefix("")
    }

    /// Returns the range of one key.
    pub fn key(key: impl Into<Key>) -> Self {
        let start = key.into();
        let end = [start.as_bytes(), &[0]].concat().into();
        let stem_len = start.as_bytes().len();
        Range { start, end: Some(end), stem_len }
    }

    /// Returns the range of all keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Key>) -> Self {
        let start = prefix.into();
        let stem_len = start.as_bytes().len();
        let end = successor(start.as_bytes());
        Range { start, end, stem_len }
    }

    /// Returns the range from `start` up to, but not including, `end`.
    pub fn between(start: impl Into<Key>, end: impl Into<Key>) -> Self {
        let (start, end) = (start.into(), end.into());
        let stem_len =
            start.as_bytes().iter().zip(end.as_bytes()).take_while(|(from, to)| from == to).count();
        Range { start, end: Some(end), stem_len }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_bytes() && self.end.as_ref().is_none_or(|end| key < end.as_bytes())
    }

    pub fn start(&self) -> &Key {
        &self.start
    }

    pub fn end(&self) -> Option<&Key> {
        self.end.as_ref()
    }

    /// Returns the bytes with which every key of this range begins.
    pub(crate) fn stem(&self) -> &[u8] {
        &self.start.as_bytes()[..self.stem_len]
    }
}

/// Returns the smallest key greater than every key that begins with `prefix`; none if there is no such key.
fn successor(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_exactly_their_keys() {
        let check = |range: &Range, key: &[u8], expected: bool| {
            assert_eq!(range.contains(key), expected, "{range:?} and {}", key.escape_ascii());
            assert!(!expected || key.starts_with(range.stem()), "{range:?} has a stem {key:?} lacks");
        };
        let pods = Range::prefix("pods/a/");
        check(&pods, b"pods/a/x", true);
        check(&pods, b"pods/a/", true);
        check(&pods, b"pods/ab/x", false);
        check(&pods, b"pods/a", false);
        let one = Range::key("pods/a");
        check(&one, b"pods/a", true);
        check(&one, b"pods/a\0", false);
        check(&one, b"pods/aa", false);
        let high = Range::prefix(&[7, 255, 255][..]);
        check(&high, &[7, 255, 255, 255], true);
        check(&high, &[8], false);
        check(&Range::prefix(&[255][..]), &[255, 255], true);
        check(&Range::all(), b"", true);
        check(&Range::all(), &[255, 255, 255], true);
        let between = Range::between("pods/b", "pods/d");
        check(&between, b"pods/c", true);
        check(&between, b"pods/d", false);
        check(&Range::between("b", "a"), b"aa", false);
    }
}
