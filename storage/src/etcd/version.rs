//! Which etcd versions have correct watches.

/// The oldest releases whose watches neither lose events nor report progress ahead of them (etcd issues 15220 and
/// 17507). A View must be fed by one of these or a later one.
const OLDEST: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];

/// Reports whether a View fed by this version contains everything up to the revision it reports.
pub(super) fn can_feed_reads(version: &str) -> bool {
    let Some((major, minor, patch)) = parse(version) else { return false };
    match OLDEST.iter().find(|oldest| (oldest.0, oldest.1) == (major, minor)) {
        Some(oldest) => patch >= oldest.2,
        None => (major, minor) > (3, 5),
    }
}

/// Parses a version. `3.6.0-rc.1` counts as 3.6.0.
fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let release = version.split(['-', '+']).next()?;
    let mut numbers = release.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faulty_and_unknown_versions_do_not_feed_reads() {
        let check =
            |version: &str, expected: bool| assert_eq!(can_feed_reads(version), expected, "{version}");
        check("3.3.27", false);
        check("3.4.23", false);
        check("3.4.30", false);
        check("3.4.31", true);
        check("3.5.1", false);
        check("3.5.12", false);
        check("3.5.13", true);
        check("3.5.21", true);
        check("3.6.0-rc.1", true);
        check("3.6.16", true);
        check("3.10.0", true);
        check("4.0.0", true);
        check("2.3.8", false);
        check("", false);
        check("not decided", false);
    }
}
