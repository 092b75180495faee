//! Authorization that is specific to Holon: the [`roles`] of its controllers, and [`reserved`] writes, which all other
//! users are denied.

pub(crate) mod reserved;
pub(crate) mod roles;
