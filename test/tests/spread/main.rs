//! Users' objects on physical clusters, as a user tells it: applied, divided, moved, taken away.
//!
//! The whole of Holon runs in this process ([`scenarios::fleet`]), with stand-ins for physical clusters. What must hold at
//! every instant is checked on the recorded history of all mailboxes ([`scenarios::history`]), never by looking now and then.

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
