//! Users' objects on physical clusters, from a user's point of view: applied, divided, moved, deleted.
//!
//! All of Holon runs in this process ([`scenarios::fleet`]), with stand-ins as physical clusters. Invariants are
//! checked on the recorded history of all mailboxes ([`scenarios::history`]), never by sampling.

mod app;
mod both;
mod bounds;
mod circles;
mod claims;
mod custom;
mod default;
mod doubt;
mod forged;
mod jobs;
mod kinds;
mod meaning;
mod moving;
mod numbers;
mod overrides;
mod policies;
mod real;
mod rollout;
mod single;
mod told;
