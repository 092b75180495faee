//! The files of simulated containers, which `kubectl cp` writes and reads.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

/// The most that all containers together may hold.
const BYTES_MAX: usize = 64 << 20;

/// Files by path. A directory exists if it contains a file.
type Tree = BTreeMap<String, Bytes>;

/// By pod uid and container.
#[derive(Debug, Default)]
pub(crate) struct ContainerFiles(Mutex<HashMap<(String, String), Tree>>);

impl ContainerFiles {
    pub(crate) fn remove_pod(&self, pod: &str) {
        self.lock().retain(|(uid, _), _| uid != pod);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Tree>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// The file system of one container.
#[derive(Clone, Debug, Default)]
pub(super) struct FileSystem {
    files: Arc<ContainerFiles>,
    /// Pod uid and container.
    owner: (String, String),
}

impl FileSystem {
    pub(super) fn new(files: Arc<ContainerFiles>, pod: &str, container: &str) -> FileSystem {
        FileSystem { files, owner: (pod.to_owned(), container.to_owned()) }
    }

    pub(super) fn read(&self, path: &str) -> Option<Bytes> {
        self.files.lock().get(&self.owner)?.get(&normalize(path)).cloned()
    }

    /// The root and some common directories always exist.
    pub(super) fn is_directory(&self, path: &str) -> bool {
        let path = normalize(path);
        let inside = format!("{path}/");
        ["", "/tmp", "/etc", "/bin"].contains(&&*path)
            || self.paths().iter().any(|found| found.starts_with(&inside))
    }

    /// Returns the entries of a directory.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let inside = format!("{}/", normalize(path));
        let paths = self.paths();
        let relative = paths.iter().filter_map(|found| found.strip_prefix(&inside));
        let mut names: Vec<String> =
            relative.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.dedup();
        names
    }

    fn paths(&self) -> Vec<String> {
        self.files.lock().get(&self.owner).map_or_else(Vec::new, |tree| tree.keys().cloned().collect())
    }

    fn write(&self, path: String, bytes: Bytes) -> Result<(), String> {
        let mut files = self.files.lock();
        let used: usize = files.values().flat_map(BTreeMap::values).map(Bytes::len).sum();
        if used + bytes.len() > BYTES_MAX {
            return Err(format!("{path}: Cannot write: No space left on device"));
        }
        files.entry(self.owner.clone()).or_default().insert(path, bytes);
        Ok(())
    }

    /// Extracts an archive into a directory.
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
            self.write(normalize(&format!("{directory}/{name}")), bytes.into())?;
        }
        Ok(())
    }

    /// Returns an archive of files and directories.
    pub(super) fn pack(&self, paths: &[&str]) -> Result<Vec<u8>, String> {
        let mut archive = tar::Builder::new(Vec::new());
        for requested in paths {
            let (file, inside) = (normalize(requested), format!("{}/", normalize(requested)));
            let paths = self.paths();
            let found: Vec<&String> =
                paths.iter().filter(|path| **path == file || path.starts_with(&inside)).collect();
            if found.is_empty() {
                return Err(format!("{requested}: Cannot stat: No such file or directory"));
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

/// Returns the normalized absolute path; empty for the root.
fn normalize(path: &str) -> String {
    let mut components: Vec<&str> = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => drop(components.pop()),
            component => components.push(component),
        }
    }
    components.iter().map(|component| format!("/{component}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_unpacked_can_be_packed_again() {
        let files = Arc::new(ContainerFiles::default());
        let file_system = FileSystem::new(files.clone(), "pod", "web");
        file_system.write("/srv/a/one".to_owned(), "1".into()).unwrap();
        file_system.write("/srv/two".to_owned(), "2".into()).unwrap();
        let archive = file_system.pack(&["/srv"]).unwrap();
        let other = FileSystem::new(files.clone(), "pod", "other");
        other.unpack(&archive, "/tmp/./x/..").unwrap();
        assert_eq!(other.read("/tmp/srv/a/one").as_deref(), Some(&b"1"[..]));
        assert_eq!(other.names("/tmp/srv"), ["a", "two"]);
        assert!(other.is_directory("/tmp/srv/a") && !other.is_directory("/tmp/srv/two"));
        assert_eq!(
            file_system.pack(&["/none"]).unwrap_err(),
            "/none: Cannot stat: No such file or directory"
        );
        assert!(file_system.write("/large".to_owned(), vec![0; BYTES_MAX].into()).is_err());
        files.remove_pod("pod");
        assert_eq!(other.read("/tmp/srv/two"), None);
    }
}
