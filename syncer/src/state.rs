//! What the mailbox asked for last, on disk: so that it is enforced also when the syncer starts and Holon is away.
//!
//! ```text
//!   <directory>/cluster           which physical cluster this is about, and whether this syncer led last
//!   <directory>/<16 digits>       one object of the mailbox, as it was read
//! ```
//!
//! A file is written beside its place and moved there, so it is whole or absent. With a key its content is sealed
//! (AES-256-GCM, under a new random nonce each time, bound to the file's name): secrets are among what is placed.
//!
//! A file that cannot be read is reported and left alone. It makes nothing happen: what is missing here is not deleted
//! anywhere, it is only not enforced until Holon is back. If none can be read the key is another one, which is an error.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use controller::informer::Key;
use controller::kind::Kind;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::spawn_blocking;
use xxhash_rust::xxh3::xxh3_64;

const ABOUT: &str = "cluster";

/// What the directory is about.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct About {
    /// The mailbox, so that a directory is not taken for another's.
    pub(crate) mailbox: String,
    /// The uid of the physical cluster.
    pub(crate) cluster: Option<String>,
    /// Whether this syncer was the one that may write.
    pub(crate) led: bool,
    /// What this syncer is known by below, also after a restart.
    #[serde(default)]
    pub(crate) identity: String,
}

/// An object of the mailbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    group: String,
    version: String,
    plural: String,
    kind: String,
    namespaced: bool,
    namespace: String,
    name: String,
    pub(crate) object: Value,
}

impl Kept {
    /// Without what is of no use below.
    pub(crate) fn new(kind: &Kind, key: &Key, object: &Value) -> Kept {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let Kind { group, version, plural, name: kind, namespaced } = kind.clone();
        let (namespace, name) = (key.namespace.clone(), key.name.clone());
        Kept { group, version, plural, kind, namespaced, namespace, name, object }
    }

    pub(crate) fn kind(&self) -> Kind {
        Kind::new(&self.group, &self.version, &self.plural, &self.kind, self.namespaced)
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    fn file(&self) -> String {
        file(&self.group, &self.plural, &self.key())
    }
}

fn file(group: &str, plural: &str, key: &Key) -> String {
    // None of these can have a line's end in it.
    let text = [group, plural, &key.namespace, &key.name].join("\n");
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

/// A directory with the last that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
    seal: Option<[u8; 32]>,
}

impl Disk {
    pub(crate) fn new(directory: PathBuf, seal: Option<[u8; 32]>) -> Disk {
        Disk { directory, seal }
    }

    /// All of it. What cannot be read is said and left out.
    pub(crate) async fn load(&self, mailbox: &str) -> io::Result<(About, Vec<Kept>)> {
        let (disk, mailbox) = (self.clone(), mailbox.to_owned());
        blocking(move || disk.read_all(&mailbox)).await
    }

    pub(crate) async fn save(&self, kept: Kept) -> io::Result<()> {
        let disk = self.clone();
        blocking(move || disk.write(&kept.file(), &serde_json::to_vec(&kept)?)).await
    }

    pub(crate) async fn save_about(&self, about: About) -> io::Result<()> {
        let disk = self.clone();
        blocking(move || disk.write(ABOUT, &serde_json::to_vec(&about)?)).await
    }

    pub(crate) async fn remove(&self, group: &str, plural: &str, key: &Key) -> io::Result<()> {
        let (directory, name) = (self.directory.clone(), file(group, plural, key));
        blocking(move || match std::fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // Whoever relies on its being gone does so after a power cut, too.
            removed => removed.and_then(|()| std::fs::File::open(directory)?.sync_all()),
        })
        .await
    }

    fn read_all(&self, mailbox: &str) -> io::Result<(About, Vec<Kept>)> {
        std::fs::create_dir_all(&self.directory)?;
        let fresh = About { mailbox: mailbox.to_owned(), ..About::default() };
        let (mut found, mut unread) = (HashMap::new(), 0);
        for entry in std::fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.ends_with(PARTIAL) {
                let bytes = std::fs::read(self.directory.join(&name))?;
                match self.open(&name, bytes) {
                    Ok(bytes) => drop(found.insert(name, bytes)),
                    Err(error) if name == ABOUT => return Err(self.wrong_key(&error)),
                    Err(error) => {
                        unread += 1;
                        tracing::warn!(file = name, %error, "cannot read what is kept on disk");
                    }
                }
            }
        }
        if found.is_empty() && unread > 0 {
            return Err(self.wrong_key(&io::Error::other("none of it can be read")));
        }
        let about = match found.remove(ABOUT) {
            Some(bytes) => serde_json::from_slice::<About>(&bytes)
                .map_err(|_| self.wrong_key(&io::Error::other("it is sealed, or damaged")))?,
            None => fresh,
        };
        if about.mailbox != mailbox {
            return Err(io::Error::other(format!("the directory belongs to mailbox {}", about.mailbox)));
        }
        let kept = |(name, bytes): (String, Vec<u8>)| match serde_json::from_slice::<Kept>(&bytes) {
            Ok(kept) if kept.file() == name => Some(kept),
            _ => {
                tracing::warn!(file = name, "is no object that was kept");
                None
            }
        };
        Ok((about, found.into_iter().filter_map(kept).collect()))
    }

    /// Nobody should believe that nothing was asked for because it cannot be read.
    fn wrong_key(&self, error: &io::Error) -> io::Error {
        let directory = self.directory.display();
        let key = match self.seal {
            Some(_) => "give it the key it was sealed with",
            None => "give it a key if it was sealed with one",
        };
        io::Error::other(format!(
            "{directory}: {error}; {key} (--state-key-file), or remove the directory, which deletes nothing in the physical cluster"
        ))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, partial) = (self.directory.join(name), self.directory.join(format!("{name}{PARTIAL}")));
        write_synced(&partial, &self.sealed(name, bytes)?)?;
        std::fs::rename(partial, path)?;
        // Or a power cut brings back what it was before, which nobody asks for any more.
        std::fs::File::open(&self.directory)?.sync_all()
    }

    fn sealed(&self, name: &str, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let Some(seal) = &self.seal else { return Ok(bytes.to_vec()) };
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| io::Error::other("no randomness"))?;
        let mut sealed = bytes.to_vec();
        let aad = Aad::from(name.as_bytes());
        let tag = key(seal).seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed);
        let tag = tag.map_err(|_| io::Error::other("cannot be sealed"))?;
        Ok([&nonce[..], &sealed, tag.as_ref()].concat())
    }

    fn open(&self, name: &str, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let Some(seal) = &self.seal else { return Ok(bytes) };
        let wrong = || io::Error::other("was not sealed with this key");
        if bytes.len() < NONCE_LEN {
            return Err(wrong());
        }
        let mut rest = bytes.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&bytes).map_err(|_| wrong())?;
        let opened = key(seal).open_in_place(nonce, Aad::from(name.as_bytes()), &mut rest);
        Ok(opened.map_err(|_| wrong())?.to_vec())
    }
}

/// What a file that is being written ends with.
const PARTIAL: &str = ".partial";

fn key(seal: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, seal).expect("the key has this algorithm's length"))
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

    fn kept(name: &str) -> Kept {
        let object = json!({ "data": { "password": "hunter2" }, "metadata": { "name": name, "managedFields": [] }, "status": {} });
        Kept::new(&Kind::new("", "v1", "secrets", "Secret", true), &Key::new("shop", name), &object)
    }

    #[tokio::test]
    async fn what_was_asked_for_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        for (seal, place) in [(None, "open"), (Some([7; 32]), "sealed")] {
            let disk = Disk::new(directory.path().join(place), seal);
            let about = About {
                mailbox: "~b".to_owned(),
                cluster: Some("uid".to_owned()),
                led: true,
                identity: "me".to_owned(),
            };
            assert_eq!(
                disk.load("~b").await.unwrap().0,
                About { mailbox: "~b".to_owned(), ..About::default() }
            );
            disk.save_about(about.clone()).await.unwrap();
            disk.save(kept("a")).await.unwrap();
            disk.save(kept("b")).await.unwrap();
            disk.remove("", "secrets", &Key::new("shop", "b")).await.unwrap();
            disk.remove("", "secrets", &Key::new("shop", "never")).await.unwrap();
            assert_eq!(disk.load("~b").await.unwrap(), (about, vec![kept("a")]));
            assert!(disk.load("~other").await.is_err(), "another mailbox's directory is not used");
        }
    }

    #[tokio::test]
    async fn what_is_sealed_is_read_with_its_key_in_its_place_and_otherwise_not() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("state");
        let disk = |seal| Disk::new(place.clone(), Some(seal));
        disk([1; 32]).load("~b").await.unwrap();
        disk([1; 32]).save(kept("a")).await.unwrap();
        let written = std::fs::read(place.join(kept("a").file())).unwrap();
        assert!(!String::from_utf8_lossy(&written).contains("hunter2"));
        let with =
            async |seal| Disk::new(place.clone(), seal).load("~b").await.map_err(|error| error.to_string());
        let said = with(Some([2; 32])).await.unwrap_err();
        assert!(said.contains("give it the key it was sealed with (--state-key-file)"), "{said}");
        disk([1; 32]).save_about(About { mailbox: "~b".to_owned(), ..About::default() }).await.unwrap();
        for (seal, expected) in [(Some([2; 32]), "give it the key"), (None, "give it a key if it was")] {
            let said = with(seal).await.unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        std::fs::copy(place.join(kept("a").file()), place.join(kept("b").file())).unwrap();
        std::fs::write(place.join("0123456789abcdef.partial"), "half").unwrap();
        std::fs::write(place.join("0123456789abcdef"), "nonsense").unwrap();
        assert_eq!(disk([1; 32]).load("~b").await.unwrap().1, [kept("a")]);
    }
}
