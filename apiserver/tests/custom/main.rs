//! Stories of kinds that logical clusters define themselves.

mod elsewhere;
mod leaving;
mod serving;
mod world;
