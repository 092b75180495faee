//! The kinds that are watched on both sides ([`informers`]), and the objects that their events requeue ([`events`]).

mod events;
pub(crate) mod informers;
