//! The user as which the simulated components and administrators call the API server.

use apiserver::authn::identity::{Identity, User};

pub(crate) const USER: &str = "standin";

/// Returns a member of `system:masters`, which has all rights.
pub(crate) fn identity() -> Identity {
    let groups = vec!["system:masters".to_owned()];
    Identity::known(User { name: USER.to_owned(), groups, ..User::default() })
}
