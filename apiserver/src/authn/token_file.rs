//! The static token file.
//!
//! ```text
//!   token,user,uid,"group one,group two"      one token a line; groups are optional
//! ```
//!
//! The operator writes the file, in the format of kube-apiserver. It is read again when it changes. If a changed file
//! cannot be read, the server logs this and its earlier tokens stay valid. Removing the file revokes its tokens. Memory
//! contains only digests of tokens, so it cannot leak them, and each look-up compares all digests in constant time.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ring::digest::{SHA256, digest};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::authn::credential::Credential;
use crate::authn::identity::{Identity, User};

/// How soon a change of the file takes effect.
const POLL_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "cannot parse the token file {}: {reason}; each line is token,user,uid,\"group1,group2\"",
        path.display()
    )]
    Parse { path: PathBuf, reason: String },
}

/// The tokens of the file.
#[derive(Debug, Default)]
pub struct Tokens(Option<Mutex<TokenFile>>);

struct TokenFile {
    path: PathBuf,
    /// When the file was last checked, and its state then.
    checked_at: Instant,
    stamp: Stamp,
    entries: Arc<[TokenEntry]>,
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens of {}", self.entries.len(), self.path.display())
    }
}

/// Identifies a state of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

struct TokenEntry {
    digest: [u8; 32],
    identity: Identity,
}

impl Tokens {
    /// Reads a file, and again whenever it changes.
    pub fn open(path: &Path) -> Result<Tokens, TokenFileError> {
        let (stamp, entries) = read(path)?;
        let file = TokenFile { path: path.to_owned(), checked_at: Instant::now(), stamp, entries };
        Ok(Tokens(Some(Mutex::new(file))))
    }

    /// Returns the identity of a token.
    pub(crate) fn find(&self, token: &str) -> Option<Identity> {
        let entries = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).current();
        Self::among(&entries, &sha256(token))
    }

    /// Returns the identity of the token with this digest.
    pub(crate) fn by_digest(&self, digest: &[u8; 32]) -> Option<Identity> {
        let entries = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).current();
        Self::among(&entries, digest)
    }

    fn among(entries: &[TokenEntry], digest: &[u8; 32]) -> Option<Identity> {
        // Constant time: the duration reveals neither whether nor where a token matched.
        let mut found = 0u64;
        for (number, entry) in (1u64..).zip(entries.iter()) {
            let is_match: Choice = entry.digest.ct_eq(digest);
            found.conditional_assign(&number, is_match);
        }
        let found = usize::try_from(found).ok()?.checked_sub(1)?;
        Some(entries[found].identity.clone())
    }
}

impl TokenFile {
    /// Returns the contents of the file, at most a second old.
    fn current(&mut self) -> Arc<[TokenEntry]> {
        if self.checked_at.elapsed() >= POLL_EVERY {
            self.checked_at = Instant::now();
            // A check costs a microsecond; the file is read only if it has changed.
            match stamp(&self.path) {
                Ok(stamp) if stamp != self.stamp => self.reread(),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.forget(),
                Err(error) => {
                    tracing::warn!(%error, file = %self.path.display(), "cannot read the token file; its earlier tokens stay valid");
                }
            }
        }
        self.entries.clone()
    }

    /// Revokes the tokens of a removed file.
    fn forget(&mut self) {
        if !self.entries.is_empty() {
            tracing::warn!(file = %self.path.display(), "the token file was removed; its tokens are no longer valid");
            (self.stamp, self.entries) = (Stamp { modified: None, length: 0 }, Arc::default());
        }
    }

    fn reread(&mut self) {
        match read(&self.path) {
            Ok((stamp, entries)) => (self.stamp, self.entries) = (stamp, entries),
            Err(error) => tracing::warn!(%error, "cannot read the token file; its earlier tokens stay valid"),
        }
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    Ok(Stamp { modified: metadata.modified().ok(), length: metadata.len() })
}

fn read(path: &Path) -> Result<(Stamp, Arc<[TokenEntry]>), TokenFileError> {
    let io = |source| TokenFileError::Read { path: path.to_owned(), source };
    // The stamp comes first: if the file changes meanwhile, it is read once too often rather than never.
    let stamp = stamp(path).map_err(io)?;
    let text = std::fs::read(path).map_err(io)?;
    let entries = parse(&text).map_err(|reason| TokenFileError::Parse { path: path.to_owned(), reason })?;
    if is_open_to_others(path).map_err(io)? {
        tracing::warn!(file = %path.display(), "the token file is readable by others than its owner; run chmod 600 on it");
    }
    Ok((stamp, entries.into()))
}

fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o077 != 0)
}

/// Parses the file. Errors contain line numbers, never contents.
fn parse(text: &[u8]) -> Result<Vec<TokenEntry>, String> {
    let mut lines =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).comment(Some(b'#')).from_reader(text);
    let mut entries = Vec::new();
    for line in lines.records() {
        let line = line.map_err(|error| match error.position() {
            Some(position) => format!("line {} cannot be read", position.line()),
            None => "it cannot be read".to_owned(),
        })?;
        let at = line.position().map_or(0, csv::Position::line);
        let field = |number: usize| line.get(number).unwrap_or_default().trim();
        if line.len() < 3 {
            return Err(format!("line {at} has {} columns instead of three or four", line.len()));
        }
        if field(0).is_empty() || field(1).is_empty() {
            return Err(format!("line {at} has no token or no user"));
        }
        let groups = field(3).split(',').map(str::trim).filter(|group| !group.is_empty());
        let digest = sha256(field(0));
        let user = User {
            name: field(1).to_owned(),
            uid: field(2).to_owned(),
            groups: groups.map(str::to_owned).collect(),
            credential: Credential::TokenFile(digest),
            ..User::default()
        };
        entries.push(TokenEntry { digest, identity: Identity::known(user) });
    }
    Ok(entries)
}

fn sha256(token: &str) -> [u8; 32] {
    digest(&SHA256, token.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Tokens, String> {
        let entries = parse(text.as_bytes())?.into();
        let stamp = Stamp { modified: None, length: 0 };
        let file = TokenFile { path: PathBuf::new(), checked_at: Instant::now(), stamp, entries };
        Ok(Tokens(Some(Mutex::new(file))))
    }

    #[test]
    fn a_line_maps_a_token_to_a_user() {
        let tokens =
            parsed("# comment\ns3cret,ann,7,\"dev, ops\"\nother,bob,8\nlast,bob,9\nlast,eve,10\n").unwrap();
        let check = |token: &str, expected: Option<(&str, &str, &[&str])>| {
            let found = tokens.find(token);
            let found = found.as_ref().map(|identity| match identity {
                Identity::User(user) => user.clone(),
                Identity::Anonymous => panic!("the token was not found"),
            });
            let groups =
                found.iter().flat_map(|user| user.groups.iter().map(String::as_str)).collect::<Vec<_>>();
            let found = found.as_ref().map(|user| (user.name.as_str(), user.uid.as_str(), groups.as_slice()));
            assert_eq!(found, expected, "{token}");
        };
        check("s3cret", Some(("ann", "7", &["dev", "ops", "system:authenticated"])));
        check("other", Some(("bob", "8", &["system:authenticated"])));
        // If two lines have the same token, the later one counts.
        check("last", Some(("eve", "10", &["system:authenticated"])));
        check("s3cre", None);
        check("", None);
        assert!(Tokens::default().find("s3cret").is_none());
        assert!(!format!("{tokens:?}").contains("s3cret"));
    }

    #[test]
    fn error_messages_do_not_contain_tokens() {
        let check = |text: &str, expected: &str| {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        };
        check("s3cret,ann", "line 1 has 2 columns");
        check("a,b,c\ns3cret,,7", "line 2 has no token or no user");
    }

    #[test]
    fn a_changed_token_file_is_read_and_an_invalid_one_is_ignored() {
        let file = std::env::temp_dir().join(format!("holon-tokens-{}", uuid::Uuid::new_v4()));
        std::fs::write(&file, "one,ann,1\n").unwrap();
        let tokens = Tokens::open(&file).unwrap();
        // Makes the next call check the file.
        let later = |tokens: &Tokens| {
            let mut file = tokens.0.as_ref().unwrap().lock().unwrap();
            file.checked_at -= POLL_EVERY;
        };
        std::fs::write(&file, "one,ann,1\ntwo,bob,2\n").unwrap();
        later(&tokens);
        assert!(tokens.find("one").is_some() && tokens.find("two").is_some());
        std::fs::write(&file, "broken").unwrap();
        later(&tokens);
        assert!(tokens.find("two").is_some());
        std::fs::write(&file, "three,eve,3\n").unwrap();
        later(&tokens);
        assert!(tokens.find("two").is_none() && tokens.find("three").is_some());
        assert!(is_open_to_others(&file).unwrap());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!is_open_to_others(&file).unwrap());
        // Removing the file revokes its tokens.
        std::fs::remove_file(&file).unwrap();
        later(&tokens);
        assert!(tokens.find("three").is_none());
        std::fs::write(&file, "three,eve,3\n").unwrap();
        later(&tokens);
        assert!(tokens.find("three").is_some(), "the earlier tokens are valid again");
        std::fs::remove_file(&file).unwrap();
        assert!(Tokens::open(&file).unwrap_err().to_string().contains("cannot read"));
    }
}
