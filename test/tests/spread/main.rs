//! Users' objects on physical clusters, from a user's point of view: applied, divided, moved, deleted.
//!
//! All of Holon runs in this process ([`scenarios::fleet`]), with stand-ins as physical clusters. Invariants are
//! checked on the recorded history of all mailboxes ([`scenarios::history`]), never by sampling.

mod app;
mod bounds;
mod cluster_names;
mod cycles;
mod default;
mod doubt;
mod forged;
mod kinds;
mod moving;
mod overrides;
mod policies;
mod real;
mod replicas;
mod rollout;
mod status;
