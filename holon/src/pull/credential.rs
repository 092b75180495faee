//! The credential of a pull syncer, and where it is stored.
//!
//! ```text
//!   ticket ─► credential ─► disk:               found after a restart of the container
//!                        └► Secret downstream:  found by a new pod
//! ```
//!
//! A ticket is revoked once it is exchanged, so the credential must outlive the pod.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use apiserver::http::pki::write_private;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::kind::ResourceKind;
use controller::remote::{CallError, ObjectPath, Patch, Remote};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::manifest::CREDENTIAL_SECRET;

/// The name of the file, and the key of the Secret.
const CREDENTIAL_FILE: &str = "credential";
const TOKEN_FILE: &str = "token";
const FIELD_MANAGER: &str = "holon-syncer-credential";

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Credential {
    /// The mailbox it gives access to.
    pub(crate) mailbox: String,
    /// The id of the ticket that it was exchanged for.
    pub(crate) ticket: String,
    /// Whether that ticket is revoked.
    #[serde(alias = "isSpent")]
    pub(crate) is_revoked: bool,
    pub(crate) token: String,
    /// When the token was made, in seconds since 1970.
    pub(crate) made: u64,
    /// The certificate authority of the server, as PEM.
    pub(crate) authority: String,
    /// Whether the server rejects it for another reason than its expiry. Then the syncer enforces nothing.
    #[serde(default)]
    pub(crate) is_fenced: bool,
}

impl Credential {
    /// Returns whether its token has reached an age. A token from the future has an unknown age, because the clock was
    /// set back, and counts as old.
    pub(crate) fn is_older_than(&self, age: Duration, now: u64) -> bool {
        now.checked_sub(self.made).is_none_or(|seconds| Duration::from_secs(seconds) >= age)
    }
}

/// Returns the seconds since 1970. They are compared only with times of this same clock.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the credential to use: the newest of this ticket, or else the newest for the same mailbox.
pub(crate) fn newest(found: Vec<Credential>, ticket: &str, mailbox: &str) -> Option<Credential> {
    let of_mailbox = found.into_iter().filter(|credential| credential.mailbox == mailbox);
    of_mailbox.max_by_key(|credential| (credential.ticket == ticket, credential.made, credential.is_revoked))
}

/// The places where a credential is stored.
#[derive(Clone)]
pub(crate) struct CredentialStore {
    directory: PathBuf,
    downstream: Remote,
    namespace: String,
}

impl CredentialStore {
    pub(crate) fn new(directory: &Path, downstream: Remote, namespace: &str) -> CredentialStore {
        CredentialStore { directory: directory.to_owned(), downstream, namespace: namespace.to_owned() }
    }

    /// Returns the file with the token alone, for clients that reload it.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.directory.join(TOKEN_FILE)
    }

    pub(crate) fn read_disk(&self) -> Option<Credential> {
        let text = std::fs::read_to_string(self.directory.join(CREDENTIAL_FILE)).ok()?;
        let read = serde_json::from_str(&text);
        read.inspect_err(|error| tracing::warn!(%error, "cannot parse the credential on disk")).ok()
    }

    /// Removes it from disk. The Secret is deleted with its namespace.
    pub(crate) fn clear(&self) {
        for name in [CREDENTIAL_FILE, TOKEN_FILE] {
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }

    /// Returns the credential in the Secret, if it exists and may be read.
    pub(crate) async fn read_secret(&self) -> Result<Option<Credential>, CallError> {
        let kind = secrets();
        let found =
            match self.downstream.get(ObjectPath::new(&kind, &self.namespace, CREDENTIAL_SECRET)).await {
                Err(error) if error.code() == 403 => {
                    tracing::warn!(%error, "the syncer may not read its credential in the physical cluster");
                    None
                }
                other => other?,
            };
        Ok(found.as_ref().and_then(parse))
    }

    /// Stores it on disk and in the Secret. Fails if the Secret exists and cannot be written.
    pub(crate) async fn store(&self, credential: &Credential) -> Result<()> {
        let text = serde_json::to_string(credential)?;
        for (name, text) in [(CREDENTIAL_FILE, &text), (TOKEN_FILE, &credential.token)] {
            let (path, new) = (self.directory.join(name), self.directory.join(format!("{name}.new")));
            write_private(&new, text)?;
            std::fs::rename(&new, &path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": CREDENTIAL_SECRET },
            "data": { CREDENTIAL_FILE: STANDARD.encode(&text) },
        });
        let (kind, apply) = (secrets(), Patch::Apply { manager: FIELD_MANAGER });
        match self
            .downstream
            .patch(ObjectPath::new(&kind, &self.namespace, CREDENTIAL_SECRET), apply, &object)
            .await
        {
            // A syncer that runs elsewhere has no namespace in the physical cluster, but it has a disk that persists.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) if error.code() == 403 => {
                tracing::warn!(%error, "the syncer may not store its credential in the physical cluster: a new pod will need a new ticket");
                Ok(())
            }
            other => other.map(drop).context("cannot store the credential in the physical cluster"),
        }
    }
}

fn secrets() -> ResourceKind {
    ResourceKind::new("", "v1", "secrets", "Secret", true)
}

fn parse(secret: &Value) -> Option<Credential> {
    let bytes = STANDARD.decode(secret["data"][CREDENTIAL_FILE].as_str()?).ok()?;
    let read = serde_json::from_slice(&bytes);
    read.inspect_err(|error| tracing::warn!(%error, "cannot parse the credential in the Secret")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(mailbox: &str, ticket: &str, made: u64) -> Credential {
        let [mailbox, ticket] = [mailbox, ticket].map(str::to_owned);
        let (token, authority) = (format!("{ticket}-{made}"), String::new());
        Credential { mailbox, ticket, token, authority, made, is_revoked: true, is_fenced: false }
    }

    #[test]
    fn a_token_from_the_future_is_renewed_like_an_old_one() {
        let (token, hour) = (credential("~m", "a", 10_000), Duration::from_secs(3600));
        for (now, expected) in [(10_000, false), (13_599, false), (13_600, true), (9_999, true), (0, true)] {
            assert_eq!(token.is_older_than(hour, now), expected, "at {now}");
        }
    }

    #[test]
    fn the_newest_credential_of_the_ticket_is_used_and_none_of_another_mailbox() {
        let check = |found: &[(&str, &str, u64)], expected: Option<&str>| {
            let all = found.iter().map(|(mailbox, ticket, made)| credential(mailbox, ticket, *made));
            let chosen = newest(all.collect(), "b", "~m").map(|chosen| chosen.token);
            assert_eq!(chosen.as_deref(), expected, "{found:?}");
        };
        check(&[], None);
        check(&[("~m", "b", 1), ("~m", "b", 2)], Some("b-2"));
        // An old disk, and the credential of another pod.
        check(&[("~m", "a", 9), ("~m", "b", 2)], Some("b-2"));
        check(&[("~m", "a", 1), ("~m", "a", 2)], Some("a-2"));
        check(&[("~old", "b", 1)], None);
    }
}
