//! The user that the simulated components and administrators are to the API server.

use apiserver::authn::identity::{Identity, User};

pub(crate) const USER: &str = "standin";

/// A member of `system:masters`, which may do everything.
pub(crate) fn identity() -> Identity {
    let groups = vec!["system:masters".to_owned()];
    Identity::known(User { name: USER.to_owned(), groups, ..User::default() })
}
