//! Who asks, and what they may do.
//!
//! ```text
//!   known as (identity) ─► reaches this logical cluster? ─► acts as somebody else? ─► may do this? ─► answered
//!                          no: as if there were none        no: 403                   no: 403
//! ```
//!
//! [`gate`] puts that in order. [`rbac`] decides, [`impersonate`] reads what a request says about acting as somebody
//! else, [`escalation`] keeps people from handing out what they have not, [`signers`] from having certificates made.
//! [`accounts`] are users of a logical cluster's own.
//! A [`mandate`] is what parts of this process may do.
//! Who stays after they were let in is looked at again when something changes that they were let in by ([`standing`],
//! [`bells`], [`proof`]).

pub mod access;
pub mod accounts;
pub(crate) mod bells;
pub(crate) mod escalation;
pub(crate) mod gate;
mod impersonate;
pub mod mandate;
pub mod proof;
pub mod rbac;
pub(crate) mod signers;
pub(crate) mod standing;
