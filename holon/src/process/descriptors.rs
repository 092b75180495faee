//! File descriptors: as many as the system lets this process have.
//!
//! Every connection is one. Shells start programs with a limit of 1,024 for the sake of those that use select(2); a process
//! that does not may raise it to the hard limit, and a thousand clients are not many for a server.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where there is no hard limit, as many as Linux gives a process unless it is told otherwise.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit to the hard one.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum.unwrap_or(UNLIMITED).min(UNLIMITED);
    if limit.current.is_some_and(|now| now < current)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit })
    {
        tracing::warn!(%error, limit = limit.current, "cannot raise the limit on open files; raise it with ulimit -n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_the_hard_one() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        let most = limit.maximum.unwrap_or(UNLIMITED).min(UNLIMITED);
        assert!(limit.current.is_none_or(|current| current >= most), "{limit:?}");
    }
}
