//! The state directory: the desired objects as last read from the mailbox. A syncer that starts while Holon is
//! unreachable enforces them.
//!
//! ```text
//!   <directory>/cluster           the header: which mailbox and physical cluster, and whether this syncer led last
//!   <directory>/<16 digits>       one object of the mailbox
//! ```
//!
//! A file is written under another name and renamed, so it is complete or absent. With a key its content is encrypted
//! (AES-256-GCM with a random nonce, bound to the name of the file): Secrets are among the objects.
//!
//! A file that cannot be read is logged and left alone. It never causes a deletion: its object is just not enforced
//! until Holon is reachable. If no file can be read, the key is wrong, which is an error.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use controller::informer::Key;
use controller::kind::ResourceKind;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::spawn_blocking;
use xxhash_rust::xxh3::xxh3_64;

const HEADER_FILE: &str = "cluster";

/// The header of the state directory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StateHeader {
    /// The mailbox. The directory of another mailbox is not used.
    pub(crate) mailbox: String,
    /// The uid of the physical cluster.
    pub(crate) cluster: Option<String>,
    /// Whether this syncer held the lease last.
    pub(crate) led: bool,
    /// The identity of this syncer in the annotation of namespaces. It survives restarts.
    #[serde(default)]
    pub(crate) identity: String,
}

/// A stored object of the mailbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredObject {
    group: String,
    version: String,
    plural: String,
    kind: String,
    namespaced: bool,
    namespace: String,
    name: String,
    pub(crate) object: Value,
}

impl StoredObject {
    /// Returns the stored object, without status and managedFields, which are not applied.
    pub(crate) fn new(kind: &ResourceKind, key: &Key, object: &Value) -> StoredObject {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let ResourceKind { group, version, plural, name: kind, namespaced } = kind.clone();
        let (namespace, name) = (key.namespace.clone(), key.name.clone());
        StoredObject { group, version, plural, kind, namespaced, namespace, name, object }
    }

    pub(crate) fn kind(&self) -> ResourceKind {
        ResourceKind::new(&self.group, &self.version, &self.plural, &self.kind, self.namespaced)
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    fn file(&self) -> String {
        file(&self.group, &self.plural, &self.key())
    }
}

fn file(group: &str, plural: &str, key: &Key) -> String {
    // None of these contains a line break.
    let text = [group, plural, &key.namespace, &key.name].join("\n");
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

/// A directory with the desired objects.
#[derive(Clone, Debug)]
pub(crate) struct StateDirectory {
    directory: PathBuf,
    encryption_key: Option<[u8; 32]>,
    /// Part of the names of incomplete files.
    writer: u64,
}

impl StateDirectory {
    pub(crate) fn new(directory: PathBuf, encryption_key: Option<[u8; 32]>) -> StateDirectory {
        static WRITERS: AtomicU64 = AtomicU64::new(0);
        StateDirectory { directory, encryption_key, writer: WRITERS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns the header and all objects. Files that cannot be read are logged and skipped.
    pub(crate) async fn load(&self, mailbox: &str) -> io::Result<(StateHeader, Vec<StoredObject>)> {
        let (directory, mailbox) = (self.clone(), mailbox.to_owned());
        blocking(move || directory.read_all(&mailbox)).await
    }

    pub(crate) async fn save(&self, stored: StoredObject) -> io::Result<()> {
        let directory = self.clone();
        blocking(move || directory.write(&stored.file(), &serde_json::to_vec(&stored)?)).await
    }

    pub(crate) async fn save_header(&self, header: StateHeader) -> io::Result<()> {
        let directory = self.clone();
        blocking(move || directory.write(HEADER_FILE, &serde_json::to_vec(&header)?)).await
    }

    pub(crate) async fn remove(&self, group: &str, plural: &str, key: &Key) -> io::Result<()> {
        let (directory, name) = (self.directory.clone(), file(group, plural, key));
        blocking(move || match std::fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // The removal must survive a power cut.
            removed => removed.and_then(|()| std::fs::File::open(directory)?.sync_all()),
        })
        .await
    }

    fn read_all(&self, mailbox: &str) -> io::Result<(StateHeader, Vec<StoredObject>)> {
        std::fs::create_dir_all(&self.directory)?;
        let fresh = StateHeader { mailbox: mailbox.to_owned(), ..StateHeader::default() };
        let (mut files, mut unread) = (HashMap::new(), 0);
        for entry in std::fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let path = self.directory.join(&name);
            if name.ends_with(PARTIAL) {
                // Left by a syncer that was killed, or about to be renamed by one that was. Either is without effect.
                let _ = std::fs::remove_file(path);
                continue;
            }
            match std::fs::read(path) {
                // A syncer that was aborted has removed the object since the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => match self.decrypt(&name, read?) {
                    Ok(bytes) => drop(files.insert(name, bytes)),
                    Err(error) if name == HEADER_FILE => return Err(self.wrong_key(&error)),
                    Err(error) => {
                        unread += 1;
                        tracing::warn!(file = name, %error, "cannot read a stored object");
                    }
                },
            }
        }
        if files.is_empty() && unread > 0 {
            return Err(self.wrong_key(&io::Error::other("no file can be read")));
        }
        let header = match files.remove(HEADER_FILE) {
            Some(bytes) => serde_json::from_slice::<StateHeader>(&bytes)
                .map_err(|_| self.wrong_key(&io::Error::other("the header is encrypted or damaged")))?,
            None => fresh,
        };
        if header.mailbox != mailbox {
            return Err(io::Error::other(format!("the directory belongs to mailbox {}", header.mailbox)));
        }
        let stored = |(name, bytes): (String, Vec<u8>)| match serde_json::from_slice::<StoredObject>(&bytes) {
            Ok(stored) if stored.file() == name => Some(stored),
            _ => {
                tracing::warn!(file = name, "the file is not a stored object");
                None
            }
        };
        Ok((header, files.into_iter().filter_map(stored).collect()))
    }

    /// Returns the error for a wrong key, which must not look like an empty directory.
    fn wrong_key(&self, error: &io::Error) -> io::Error {
        let directory = self.directory.display();
        let key = match self.encryption_key {
            Some(_) => "give the key that it was encrypted with",
            None => "give the key if it was encrypted with one",
        };
        io::Error::other(format!(
            "{directory}: {error}; {key} (--state-key-file), or remove the directory, which deletes nothing in the physical cluster"
        ))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // The write of a syncer that was aborted may still be in progress in another thread.
        let (process, writer) = (std::process::id(), self.writer);
        let partial = self.directory.join(format!("{name}.{process}-{writer}{PARTIAL}"));
        let path = self.directory.join(name);
        write_synced(&partial, &self.encrypt(name, bytes)?)?;
        std::fs::rename(partial, path)?;
        // Without this a power cut could bring back an older file.
        std::fs::File::open(&self.directory)?.sync_all()
    }

    fn encrypt(&self, name: &str, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let Some(encryption_key) = &self.encryption_key else { return Ok(bytes.to_vec()) };
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| io::Error::other("the system has no randomness"))?;
        let mut encrypted = bytes.to_vec();
        let aad = Aad::from(name.as_bytes());
        let tag = key(encryption_key).seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            aad,
            &mut encrypted,
        );
        let tag = tag.map_err(|_| io::Error::other("cannot encrypt"))?;
        Ok([&nonce[..], &encrypted, tag.as_ref()].concat())
    }

    fn decrypt(&self, name: &str, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let Some(encryption_key) = &self.encryption_key else { return Ok(bytes) };
        let wrong = || io::Error::other("the file was not encrypted with this key");
        if bytes.len() < NONCE_LEN {
            return Err(wrong());
        }
        let mut rest = bytes.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&bytes).map_err(|_| wrong())?;
        let opened = key(encryption_key).open_in_place(nonce, Aad::from(name.as_bytes()), &mut rest);
        Ok(opened.map_err(|_| wrong())?.to_vec())
    }
}

/// The suffix of a file that is being written.
const PARTIAL: &str = ".partial";

fn key(encryption_key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(
        UnboundKey::new(&AES_256_GCM, encryption_key).expect("the key has this algorithm's length"),
    )
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(name: &str) -> StoredObject {
        let object = json!({ "data": { "password": "hunter2" }, "metadata": { "name": name, "managedFields": [] }, "status": {} });
        StoredObject::new(
            &ResourceKind::new("", "v1", "secrets", "Secret", true),
            &Key::new("shop", name),
            &object,
        )
    }

    #[tokio::test]
    async fn stored_objects_are_loaded_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        for (encryption_key, place) in [(None, "open"), (Some([7; 32]), "encrypted")] {
            let directory = StateDirectory::new(directory.path().join(place), encryption_key);
            let header = StateHeader {
                mailbox: "~b".to_owned(),
                cluster: Some("uid".to_owned()),
                led: true,
                identity: "me".to_owned(),
            };
            assert_eq!(
                directory.load("~b").await.unwrap().0,
                StateHeader { mailbox: "~b".to_owned(), ..StateHeader::default() }
            );
            directory.save_header(header.clone()).await.unwrap();
            directory.save(stored("a")).await.unwrap();
            directory.save(stored("b")).await.unwrap();
            directory.remove("", "secrets", &Key::new("shop", "b")).await.unwrap();
            directory.remove("", "secrets", &Key::new("shop", "never")).await.unwrap();
            assert_eq!(directory.load("~b").await.unwrap(), (header, vec![stored("a")]));
            assert!(directory.load("~other").await.is_err(), "the directory of another mailbox is refused");
        }
    }

    /// A syncer was aborted while a thread of it removed an object. The next one listed the file, could not read it, and did
    /// not start.
    #[tokio::test]
    async fn a_file_that_an_aborted_syncer_removes_meanwhile_is_no_error() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = StateDirectory::new(temporary.path().to_owned(), None);
        let (header, _) = directory.load("~m").await.unwrap();
        directory.save_header(header).await.unwrap();
        directory.save(stored("a")).await.unwrap();
        // Listed, and not there when it is opened.
        std::os::unix::fs::symlink("nowhere", temporary.path().join("0123456789abcdef")).unwrap();
        std::fs::write(temporary.path().join(format!("x{PARTIAL}")), "half").unwrap();
        let (_, objects) = directory.load("~m").await.unwrap();
        assert_eq!(objects.iter().map(|object| &*object.name).collect::<Vec<_>>(), ["a"]);
        let left = std::fs::read_dir(temporary.path()).unwrap();
        let is_partial = |name: &str| name.ends_with(PARTIAL);
        assert!(!left.flatten().any(|entry| is_partial(&entry.file_name().to_string_lossy())));
    }

    #[tokio::test]
    async fn an_encrypted_file_is_read_with_its_key_and_under_its_name_only() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("state");
        let directory = |encryption_key| StateDirectory::new(place.clone(), Some(encryption_key));
        directory([1; 32]).load("~b").await.unwrap();
        directory([1; 32]).save(stored("a")).await.unwrap();
        let written = std::fs::read(place.join(stored("a").file())).unwrap();
        assert!(!String::from_utf8_lossy(&written).contains("hunter2"));
        let with = async |encryption_key| {
            StateDirectory::new(place.clone(), encryption_key)
                .load("~b")
                .await
                .map_err(|error| error.to_string())
        };
        let error = with(Some([2; 32])).await.unwrap_err();
        assert!(error.contains("give the key that it was encrypted with (--state-key-file)"), "{error}");
        directory([1; 32])
            .save_header(StateHeader { mailbox: "~b".to_owned(), ..StateHeader::default() })
            .await
            .unwrap();
        for (encryption_key, expected) in
            [(Some([2; 32]), "give the key that"), (None, "give the key if it was")]
        {
            let error = with(encryption_key).await.unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        std::fs::copy(place.join(stored("a").file()), place.join(stored("b").file())).unwrap();
        std::fs::write(place.join("0123456789abcdef.partial"), "half").unwrap();
        std::fs::write(place.join("0123456789abcdef"), "nonsense").unwrap();
        assert_eq!(directory([1; 32]).load("~b").await.unwrap().1, [stored("a")]);
    }
}
