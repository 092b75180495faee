//! What is in the file systems of containers that do not exist: what somebody has copied there.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

/// Of all containers together.
const BYTES_MAX: usize = 64 << 20;

/// By path. A directory is there if something is in it.
type Tree = BTreeMap<String, Bytes>;

/// By pod uid and container.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<HashMap<(String, String), Tree>>);

impl Files {
    pub(crate) fn forget(&self, pod: &str) {
        self.lock().retain(|(known, _), _| known != pod);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Tree>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// The file system of one container.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    files: Arc<Files>,
    whose: (String, String),
}

impl Disk {
    pub(super) fn new(files: Arc<Files>, pod: &str, container: &str) -> Disk {
        Disk { files, whose: (pod.to_owned(), container.to_owned()) }
    }

    pub(super) fn read(&self, path: &str) -> Option<Bytes> {
        self.files.lock().get(&self.whose)?.get(&whole(path)).cloned()
    }

    /// The root is always there, and so is what every container has.
    pub(super) fn is_directory(&self, path: &str) -> bool {
        let path = whole(path);
        let inside = format!("{path}/");
        ["", "/tmp", "/etc", "/bin"].contains(&&*path)
            || self.paths().iter().any(|found| found.starts_with(&inside))
    }

    /// What is directly in a directory.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let inside = format!("{}/", whole(path));
        let paths = self.paths();
        let below = paths.iter().filter_map(|found| found.strip_prefix(&inside));
        let mut names: Vec<String> =
            below.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.dedup();
        names
    }

    fn paths(&self) -> Vec<String> {
        self.files.lock().get(&self.whose).map_or_else(Vec::new, |tree| tree.keys().cloned().collect())
    }

    fn write(&self, path: String, bytes: Bytes) -> Result<(), String> {
        let mut files = self.files.lock();
        let used: usize = files.values().flat_map(BTreeMap::values).map(Bytes::len).sum();
        if used + bytes.len() > BYTES_MAX {
            return Err(format!("{path}: Cannot write: No space left on device"));
        }
        files.entry(self.whose.clone()).or_default().insert(path, bytes);
        Ok(())
    }

    /// Puts what is in an archive below a directory.
    pub(super) fn unpack(&self, archive: &[u8], directory: &str) -> Result<(), String> {
        let wrong = |error: std::io::Error| error.to_string();
        for entry in tar::Archive::new(archive).entries().map_err(wrong)? {
            let mut entry = entry.map_err(wrong)?;
            let name = entry.path().map_err(wrong)?.to_string_lossy().into_owned();
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(wrong)?;
            self.write(whole(&format!("{directory}/{name}")), bytes.into())?;
        }
        Ok(())
    }

    /// An archive of files and of what is in directories.
    pub(super) fn pack(&self, paths: &[&str]) -> Result<Vec<u8>, String> {
        let mut archive = tar::Builder::new(Vec::new());
        for wanted in paths {
            let (one, inside) = (whole(wanted), format!("{}/", whole(wanted)));
            let paths = self.paths();
            let found: Vec<&String> =
                paths.iter().filter(|path| **path == one || path.starts_with(&inside)).collect();
            if found.is_empty() {
                return Err(format!("{wanted}: Cannot stat: No such file or directory"));
            }
            for path in found {
                let bytes = self.read(path).unwrap_or_default();
                let mut header = tar::Header::new_gnu();
                header.set_size(bytes.len() as u64);
                header.set_mode(0o644);
                let added = archive.append_data(&mut header, path.trim_start_matches('/'), bytes.as_ref());
                added.map_err(|error| error.to_string())?;
            }
        }
        archive.into_inner().map_err(|error| error.to_string())
    }
}

/// A path from the root, without what says nothing; empty for the root itself.
fn whole(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.iter().map(|part| format!("/{part}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_in_comes_out_again() {
        let files = Arc::new(Files::default());
        let disk = Disk::new(files.clone(), "pod", "web");
        disk.write("/srv/a/one".to_owned(), "1".into()).unwrap();
        disk.write("/srv/two".to_owned(), "2".into()).unwrap();
        let archive = disk.pack(&["/srv"]).unwrap();
        let other = Disk::new(files.clone(), "pod", "other");
        other.unpack(&archive, "/tmp/./x/..").unwrap();
        assert_eq!(other.read("/tmp/srv/a/one").as_deref(), Some(&b"1"[..]));
        assert_eq!(other.names("/tmp/srv"), ["a", "two"]);
        assert!(other.is_directory("/tmp/srv/a") && !other.is_directory("/tmp/srv/two"));
        assert_eq!(disk.pack(&["/none"]).unwrap_err(), "/none: Cannot stat: No such file or directory");
        assert!(disk.write("/large".to_owned(), vec![0; BYTES_MAX].into()).is_err());
        files.forget("pod");
        assert_eq!(other.read("/tmp/srv/two"), None);
    }
}
