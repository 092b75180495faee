//! Which kinds are watched on both sides ([`informers`]), and what their events requeue ([`events`]).

mod events;
pub(crate) mod informers;
