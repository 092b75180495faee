//! The key that encrypts the state of a syncer on disk.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Returns a new key, in base64.
pub(crate) fn generate() -> String {
    STANDARD.encode(rand::random::<[u8; 32]>())
}

/// Reads the key from a file.
pub(crate) fn read(file: &Path) -> Result<[u8; 32]> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the state encryption key {}", file.display()))?;
    let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    bytes.with_context(|| {
        format!(
            "{} is not a key of 32 bytes in base64; `openssl rand -base64 32` creates one",
            file.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_thirty_two_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{}\n", generate())).unwrap();
        let first = read(file.path()).unwrap();
        assert_ne!(first, [0; 32]);
        for wrong in ["", "secret", "aGVsbG8="] {
            std::fs::write(file.path(), wrong).unwrap();
            let error = read(file.path()).unwrap_err().to_string();
            assert!(error.contains("32 bytes in base64"), "{error}");
        }
    }
}
