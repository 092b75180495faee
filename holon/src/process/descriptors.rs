//! The limit on file descriptors, raised as far as the system allows.
//!
//! Every connection takes one. Shells start programs with a limit of 1,024 because of select(2), which this process
//! does not use; a server has more clients than that.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit if there is no hard limit: the default maximum of Linux.
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
        let hard_limit = limit.maximum.unwrap_or(UNLIMITED).min(UNLIMITED);
        assert!(limit.current.is_none_or(|current| current >= hard_limit), "{limit:?}");
    }
}
