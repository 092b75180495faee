//! How a syncer that dials in is known from then on, and where that is kept.
//!
//! ```text
//!   ticket ─► credential ─► disk:          a container that starts again finds it
//!                        └► Secret below:  a new Pod finds it
//! ```
//!
//! A ticket is worth nothing once it was exchanged, so what came of it must outlive the Pod it came to.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use apiserver::pki::write_private;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::kind::Kind;
use controller::remote::{CallError, Patch, Place, Remote};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::manifest::CREDENTIAL;

/// Of the files, and of the field of the Secret.
const NAME: &str = "credential";
const TOKEN: &str = "token";
const MANAGER: &str = "holon-syncer-seat";

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Credential {
    /// The mailbox it leads to.
    pub(crate) mailbox: String,
    /// Which ticket it came of.
    pub(crate) ticket: String,
    /// Whether that ticket is worth nothing by now.
    pub(crate) is_spent: bool,
    pub(crate) token: String,
    /// When the token was made, in seconds since 1970.
    pub(crate) made: u64,
    /// Whom to trust as the server, as PEM.
    pub(crate) authority: String,
    /// The server knows nobody by it any more, and not because its time is over: nothing is enforced.
    #[serde(default)]
    pub(crate) is_fenced: bool,
}

impl Credential {
    /// Whether its token is so old. One that was made in the future is of an age nobody knows: the clock was put back.
    pub(crate) fn is_older_than(&self, age: Duration, now: u64) -> bool {
        now.checked_sub(self.made).is_none_or(|seconds| Duration::from_secs(seconds) >= age)
    }
}

/// Seconds since 1970. They are compared with our own only.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The one to go on with: the last of this ticket, or else the last that leads to the same mailbox.
pub(crate) fn choose(found: Vec<Credential>, ticket: &str, mailbox: &str) -> Option<Credential> {
    let fits = found.into_iter().filter(|one| one.mailbox == mailbox);
    fits.max_by_key(|one| (one.ticket == ticket, one.made, one.is_spent))
}

/// Where it is kept.
#[derive(Clone)]
pub(crate) struct Places {
    directory: PathBuf,
    below: Remote,
    namespace: String,
}

impl Places {
    pub(crate) fn new(directory: &Path, below: Remote, namespace: &str) -> Places {
        Places { directory: directory.to_owned(), below, namespace: namespace.to_owned() }
    }

    /// The token by itself, for clients that read it again when it is replaced.
    pub(crate) fn token(&self) -> PathBuf {
        self.directory.join(TOKEN)
    }

    pub(crate) fn on_disk(&self) -> Option<Credential> {
        let text = std::fs::read_to_string(self.directory.join(NAME)).ok()?;
        let read = serde_json::from_str(&text);
        read.inspect_err(|error| tracing::warn!(%error, "the credential on disk cannot be read")).ok()
    }

    /// Forgets it on disk. The Secret goes with its namespace.
    pub(crate) fn clear(&self) {
        for name in [NAME, TOKEN] {
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }

    /// What is in the Secret, if there is one and it may be looked at.
    pub(crate) async fn below(&self) -> Result<Option<Credential>, CallError> {
        let kind = secrets();
        let found = match self.below.get(Place::new(&kind, &self.namespace, CREDENTIAL)).await {
            Err(error) if error.code() == 403 => {
                tracing::warn!(%error, "may not look for a credential in the physical cluster");
                None
            }
            other => other?,
        };
        Ok(found.as_ref().and_then(read))
    }

    /// Keeps it in both places. An error where it could be kept in the Secret and was not.
    pub(crate) async fn keep(&self, credential: &Credential) -> Result<()> {
        let text = serde_json::to_string(credential)?;
        for (name, text) in [(NAME, &text), (TOKEN, &credential.token)] {
            let (path, new) = (self.directory.join(name), self.directory.join(format!("{name}.new")));
            write_private(&new, text)?;
            std::fs::rename(&new, &path).with_context(|| format!("writing {}", path.display()))?;
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": CREDENTIAL },
            "data": { NAME: STANDARD.encode(&text) },
        });
        let (kind, apply) = (secrets(), Patch::Apply { manager: MANAGER });
        match self.below.patch(Place::new(&kind, &self.namespace, CREDENTIAL), apply, &object).await {
            // Who runs elsewhere has no namespace there, and a disk that stays.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) if error.code() == 403 => {
                tracing::warn!(%error, "may not keep the credential in the physical cluster: a new Pod will need a new ticket");
                Ok(())
            }
            other => other.map(drop).context("keeping the credential in the physical cluster"),
        }
    }
}

fn secrets() -> Kind {
    Kind::new("", "v1", "secrets", "Secret", true)
}

fn read(secret: &Value) -> Option<Credential> {
    let bytes = STANDARD.decode(secret["data"][NAME].as_str()?).ok()?;
    let read = serde_json::from_slice(&bytes);
    read.inspect_err(|error| tracing::warn!(%error, "the credential in the Secret cannot be read")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(mailbox: &str, ticket: &str, made: u64) -> Credential {
        let [mailbox, ticket] = [mailbox, ticket].map(str::to_owned);
        let (token, authority) = (format!("{ticket}-{made}"), String::new());
        Credential { mailbox, ticket, token, authority, made, is_spent: true, is_fenced: false }
    }

    #[test]
    fn a_token_of_tomorrow_is_renewed_as_one_of_yesterday_is() {
        let (token, hour) = (credential("~m", "a", 10_000), Duration::from_secs(3600));
        for (now, expected) in [(10_000, false), (13_599, false), (13_600, true), (9_999, true), (0, true)] {
            assert_eq!(token.is_older_than(hour, now), expected, "at {now}");
        }
    }

    #[test]
    fn the_last_of_the_ticket_at_hand_counts_and_none_of_another_mailbox() {
        let check = |found: &[(&str, &str, u64)], expected: Option<&str>| {
            let all = found.iter().map(|(mailbox, ticket, made)| credential(mailbox, ticket, *made));
            let chosen = choose(all.collect(), "b", "~m").map(|chosen| chosen.token);
            assert_eq!(chosen.as_deref(), expected, "{found:?}");
        };
        check(&[], None);
        check(&[("~m", "b", 1), ("~m", "b", 2)], Some("b-2"));
        // A disk that was left behind, and what another Pod made meanwhile.
        check(&[("~m", "a", 9), ("~m", "b", 2)], Some("b-2"));
        check(&[("~m", "a", 1), ("~m", "a", 2)], Some("a-2"));
        check(&[("~old", "b", 1)], None);
    }
}
