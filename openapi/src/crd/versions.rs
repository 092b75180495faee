//! The order of versions: `v2`, `v1`, `v1beta2`, `v1alpha1`, then names of another form in alphabetical order.

use std::cmp::{Ordering, Reverse};

/// Compares two versions by Kubernetes' priority; the preferred one comes first.
pub fn order(left: &str, right: &str) -> Ordering {
    match (rank(left), rank(right)) {
        (Some(left), Some(right)) => Reverse(left).cmp(&Reverse(right)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cmp(right),
    }
}

/// Returns the stability of a version (alpha, beta, stable), its major number, and the number of its alpha or beta.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let number =
        |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('0') && !text.starts_with('+'));
    for (word, finished) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((finished, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_stable_version_comes_first() {
        let mut versions = [
            "foo1",
            "v1alpha2",
            "v10beta3",
            "v2",
            "v3beta1",
            "v10",
            "v11alpha2",
            "foo10",
            "v1",
            "v1beta1",
            "v12alpha1",
        ];
        versions.sort_by(|left, right| order(left, right));
        let expected = [
            "v10",
            "v2",
            "v1",
            "v10beta3",
            "v3beta1",
            "v1beta1",
            "v12alpha1",
            "v11alpha2",
            "v1alpha2",
            "foo1",
            "foo10",
        ];
        assert_eq!(versions, expected);
    }
}
