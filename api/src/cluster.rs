//! Paths and ids of logical clusters.
//!
//! A **path** is for people: `root:team-a:web`, from the outermost logical cluster to the innermost. It can be used
//! again after a logical cluster is deleted. An **id** is for the store: it is drawn at random when the logical cluster
//! is created and never used again, so no object of a deleted logical cluster can appear in a new one.

use std::fmt;
use std::str::FromStr;

/// The outermost logical cluster, which always exists.
pub const ROOT: &str = "root";
const SEPARATOR: char = ':';
/// As for a Kubernetes namespace.
const SEGMENT_BYTES_MAX: usize = 63;
/// Maximum nesting. Without a limit a path could be as long as a request.
const SEGMENTS_MAX: usize = 16;

/// The path of a logical cluster: `root:team-a:web`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(String);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameError {
    Empty,
    TooLong {
        bytes: usize,
    },
    TooDeep {
        segments: usize,
    },
    /// A name with other characters than lower-case letters, digits and inner dashes.
    Malformed {
        segment: String,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Empty => write!(f, "a logical cluster needs a name"),
            NameError::TooLong { bytes } => {
                write!(f, "name has {bytes} bytes; the maximum is {SEGMENT_BYTES_MAX}")
            }
            NameError::TooDeep { segments } => {
                write!(f, "path has {segments} names; the maximum is {SEGMENTS_MAX}")
            }
            NameError::Malformed { segment } => {
                write!(f, "name {segment:?} must consist of lower-case letters, digits and inner dashes")
            }
        }
    }
}

impl std::error::Error for NameError {}

impl Path {
    pub fn root() -> Path {
        Path(ROOT.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last name of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit(SEPARATOR).next().unwrap_or(&self.0)
    }

    /// Returns the logical cluster that contains this one; none for the outermost.
    pub fn parent(&self) -> Option<Path> {
        self.0.rsplit_once(SEPARATOR).map(|(parent, _)| Path(parent.to_owned()))
    }

    pub fn child(&self, name: &str) -> Result<Path, NameError> {
        check_segment(name)?;
        format!("{}{SEPARATOR}{name}", self.0).parse()
    }
}

impl FromStr for Path {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Path, NameError> {
        let segments: Vec<&str> = text.split(SEPARATOR).collect();
        if segments.len() > SEGMENTS_MAX {
            return Err(NameError::TooDeep { segments: segments.len() });
        }
        segments.into_iter().try_for_each(check_segment)?;
        Ok(Path(text.to_owned()))
    }
}

fn check_segment(segment: &str) -> Result<(), NameError> {
    if segment.is_empty() {
        return Err(NameError::Empty);
    }
    if segment.len() > SEGMENT_BYTES_MAX {
        return Err(NameError::TooLong { bytes: segment.len() });
    }
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let dashed = segment.starts_with('-') || segment.ends_with('-');
    if dashed || !segment.bytes().all(inner) {
        return Err(NameError::Malformed { segment: segment.to_owned() });
    }
    Ok(())
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a logical cluster in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

/// No letters that are easily confused, and no vowels, so that no words occur.
const DIGITS: &[u8; 16] = b"bcdfghjkmnpqrstv";
const ID_CHARS: usize = 16;
/// The first character of an id. No path begins with it, because it is not a lower-case letter or digit.
const MARK: char = '~';

impl Id {
    /// The id of the outermost logical cluster. No other logical cluster ever gets it.
    pub const ROOT: Id = Id(0);

    pub const fn new(number: u64) -> Id {
        Id(number)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}")?;
        let digit = |place: usize| char::from(DIGITS[(self.0 >> (60 - 4 * place)) as usize & 15]);
        (0..ID_CHARS).try_for_each(|place| write!(f, "{}", digit(place)))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Id {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Id, NameError> {
        let malformed = || NameError::Malformed { segment: text.to_owned() };
        let digits =
            text.strip_prefix(MARK).filter(|digits| digits.len() == ID_CHARS).ok_or_else(malformed)?;
        let mut number = 0;
        for byte in digits.bytes() {
            let digit = DIGITS.iter().position(|digit| *digit == byte).ok_or_else(malformed)?;
            number = number << 4 | digit as u64;
        }
        Ok(Id(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_with_colons() {
        let check = |text: &str, expected: bool| {
            assert_eq!(text.parse::<Path>().is_ok(), expected, "{text:?}: {:?}", text.parse::<Path>());
        };
        for good in ["root", "root:team-a", "root:team-a:web", "a:b:c:d", "x1", &"a".repeat(63)] {
            check(good, true);
        }
        let (long, deep) = ("a".repeat(64), ["a"; 17].join(":"));
        for bad in [
            "", ":", "root:", ":root", "a::b", "Root", "a_b", "-a", "a-", "a/b", "a.b", "*", "..", "~bcd",
            "ä", &long, &deep,
        ] {
            check(bad, false);
        }
        let web: Path = "root:team-a:web".parse().unwrap();
        assert_eq!((web.name(), web.parent().unwrap().as_str()), ("web", "root:team-a"));
        assert_eq!(Path::root().parent(), None);
        assert_eq!(Path::root().child("team-a").unwrap().as_str(), "root:team-a");
        assert!(Path::root().child("a:b").is_err(), "a child has one name");
    }

    #[test]
    fn ids_are_not_paths_and_sort_like_their_numbers() {
        let numbers = [0, 1, 15, 16, 0xdead_beef, u64::MAX - 1, u64::MAX];
        let ids: Vec<String> = numbers.iter().map(|number| Id::new(*number).to_string()).collect();
        assert!(ids.is_sorted());
        for (id, number) in ids.iter().zip(numbers) {
            assert_eq!(id.parse(), Ok(Id::new(number)));
            assert!(id.parse::<Path>().is_err(), "{id} is also a path");
        }
        for bad in
            ["", "~", "bcdfghjkmnpqrstv", "~bcdfghjkmnpqrst", "~bcdfghjkmnpqrstvb", "~aaaaaaaaaaaaaaaa"]
        {
            assert!(bad.parse::<Id>().is_err(), "{bad}");
        }
    }
}
