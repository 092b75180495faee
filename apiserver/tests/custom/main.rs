//! Stories of kinds that logical clusters define themselves, and of those a server brings along.

mod elsewhere;
mod finalizers;
mod leaving;
mod own;
mod resting;
mod serving;
mod world;
