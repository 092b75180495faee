//! A stable hash of names.
//!
//! It breaks ties between clusters and is part of the names of namespaces on physical clusters. Its input is names,
//! never uids or times, so that an app that is deleted and applied again is placed where it was. The function must
//! never change: its results are recorded in users' clusters.

use xxhash_rust::xxh3::Xxh3;

/// All of them are allowed anywhere in a Kubernetes name.
const LETTERS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Returns the hash of several texts. `ab`, `c` and `a`, `bc` have different hashes.
pub fn hash(texts: &[&str]) -> u64 {
    let mut state = Xxh3::new();
    for text in texts {
        state.update(&(text.len() as u64).to_le_bytes());
        state.update(text.as_bytes());
    }
    state.digest()
}

/// Returns the first characters of a hash, which are allowed in any name.
pub fn word(texts: &[&str], chars: usize) -> String {
    let number = hash(texts);
    (0..chars.min(12)).map(|place| char::from(LETTERS[(number >> (59 - 5 * place)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_the_recorded_ones() {
        // Recorded results. If one changes, apps move and namespaces are abandoned.
        assert_eq!(hash(&[]), 0x2d06_8005_38d3_94c2);
        assert_eq!(word(&["~gchtrspnbgkpnvqb", "shop"], 8), "m41cmv47");
    }

    #[test]
    fn boundaries_between_texts_change_the_hash() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["ab"]), hash(&["ab", ""]));
        assert_eq!(word(&["x"], 8).len(), 8);
    }
}
