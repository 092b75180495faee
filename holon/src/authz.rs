//! What Holon's own controllers may do ([`roles`]), and what everybody else may not ([`reserved`]).

pub(crate) mod reserved;
pub(crate) mod roles;
