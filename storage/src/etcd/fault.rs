//! What etcd's errors mean for us.
//!
//! A read that fails can simply be tried again. A write cannot: what matters about its error is whether the
//! write may still have happened, or may yet happen.

use std::error::Error as _;

use etcd_client::Error;
use tonic::{Code, Status};

use crate::store::CommitError;

/// What became of a write that got an error for an answer.
#[derive(Debug, PartialEq)]
pub(super) enum WriteFault {
    /// Not written, and the same again would end the same way.
    Refused(CommitError),
    /// Not written; another member, or the same one a moment later, may do it.
    Rejected(String),
    /// Written or not, but decided: etcd carries out the write that fills it up, and then says it is full.
    Full(CommitError),
    /// Perhaps written, perhaps about to be.
    Lost(String),
}

/// What became of a read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReadFault {
    Compacted,
    Future,
    /// The answer was too big to take. Ask for less.
    TooLarge,
    /// Asking again would end the same way.
    Refused(String),
    /// Ask another member, or later.
    Failed(String),
}

enum Meaning {
    TooLarge,
    Full,
    Forbidden,
    NotNow,
}

/// Errors after which a write will certainly not happen, by how etcd spells them. Any other is taken as
/// "perhaps", above all the timeouts and everything that says a leader or a connection was lost on the way.
const DEFINITE: &[(&str, Meaning)] = &[
    ("etcdserver: request is too large", Meaning::TooLarge),
    ("grpc: received message larger than max", Meaning::TooLarge),
    ("etcdserver: mvcc: database space exceeded", Meaning::Full),
    ("etcdserver: permission denied", Meaning::Forbidden),
    ("etcdserver: user name is empty", Meaning::Forbidden),
    ("etcdserver: user name not found", Meaning::Forbidden),
    ("etcdserver: authentication failed", Meaning::Forbidden),
    ("etcdserver: invalid auth token", Meaning::NotNow),
    ("etcdserver: revision of auth store is old", Meaning::NotNow),
    ("etcdserver: too many requests", Meaning::NotNow),
    // Said before the request is looked at: see require_leader in options.rs.
    ("etcdserver: no leader", Meaning::NotNow),
    ("etcdserver: not capable", Meaning::NotNow),
    ("etcdserver: rpc not supported for learner", Meaning::NotNow),
    ("raft proposal dropped", Meaning::NotNow),
];

const FULL: &str = "etcd's database is full (alarm NOSPACE). Compact and defragment every member, or raise \
                    --quota-backend-bytes, then run `etcdctl alarm disarm`";

pub(super) fn of_write(error: &Error) -> WriteFault {
    let Error::GRpcStatus(status) = error else { return WriteFault::Lost(error.to_string()) };
    let said = status.message();
    let reason = said.to_owned();
    if never_sent(status) {
        return WriteFault::Rejected(reason);
    }
    let found = DEFINITE.iter().find(|(text, _)| said.contains(text)).map(|(_, meaning)| meaning);
    match found {
        Some(Meaning::TooLarge) => WriteFault::Refused(CommitError::Refused {
            reason: format!("larger than etcd takes; see its --max-request-bytes ({said})"),
        }),
        Some(Meaning::Full) => WriteFault::Full(CommitError::ReadOnly { reason: FULL.into() }),
        Some(Meaning::Forbidden) => WriteFault::Refused(CommitError::ReadOnly {
            reason: format!("etcd does not let us write ({said}); check the user's role"),
        }),
        Some(Meaning::NotNow) => WriteFault::Rejected(reason),
        None => WriteFault::Lost(reason),
    }
}

pub(super) fn of_read(error: &Error) -> ReadFault {
    let Error::GRpcStatus(status) = error else { return ReadFault::Failed(error.to_string()) };
    let said = status.message();
    if said.contains("required revision has been compacted") {
        return ReadFault::Compacted;
    }
    if said.contains("required revision is a future revision") {
        return ReadFault::Future;
    }
    if status.code() == Code::OutOfRange && said.contains("decoded message length too large") {
        return ReadFault::TooLarge;
    }
    match DEFINITE.iter().find(|(text, _)| said.contains(text)) {
        Some((_, Meaning::Forbidden)) => ReadFault::Refused(format!("etcd does not let us read ({said})")),
        _ => ReadFault::Failed(said.to_owned()),
    }
}

/// No connection, so nothing can have gone out.
fn never_sent(status: &Status) -> bool {
    if status.code() == Code::Unknown && status.message().starts_with("Service was not ready") {
        return true;
    }
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl ReadFault {
    pub(super) fn reason(self) -> String {
        match self {
            ReadFault::Failed(reason) | ReadFault::Refused(reason) => reason,
            ReadFault::Compacted => "the revision is compacted".into(),
            ReadFault::Future => "the member has not come so far".into(),
            ReadFault::TooLarge => "the answer is too large".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: Code, message: &str) -> WriteFault {
        of_write(&Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn only_errors_that_exclude_a_write_are_definite() {
        let lost = |code, message: &str| {
            assert!(matches!(told(code, message), WriteFault::Lost(_)), "{message}");
        };
        lost(Code::Unavailable, "etcdserver: request timed out");
        lost(Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure");
        lost(Code::Unavailable, "etcdserver: leader changed");
        lost(Code::Unavailable, "etcdserver: server stopped");
        lost(Code::Unavailable, "transport error");
        lost(Code::Cancelled, "Timeout expired");
        lost(Code::Unknown, "something new");

        let rejected = |code, message: &str| {
            assert!(matches!(told(code, message), WriteFault::Rejected(_)), "{message}");
        };
        rejected(Code::Unavailable, "etcdserver: no leader");
        rejected(Code::ResourceExhausted, "etcdserver: too many requests");
        rejected(Code::Unauthenticated, "etcdserver: invalid auth token");

        let full = told(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        let WriteFault::Full(CommitError::ReadOnly { reason }) = full else { panic!("{full:?}") };
        assert!(reason.contains("defragment") && reason.contains("alarm disarm"), "{reason}");
        for message in
            ["etcdserver: request is too large", "grpc: received message larger than max (9 vs. 8)"]
        {
            let large = told(Code::InvalidArgument, message);
            assert!(matches!(large, WriteFault::Refused(CommitError::Refused { .. })), "{large:?}");
        }
        let denied = told(Code::PermissionDenied, "etcdserver: permission denied");
        assert!(matches!(denied, WriteFault::Refused(CommitError::ReadOnly { .. })), "{denied:?}");
    }

    #[test]
    fn a_connection_that_never_was_carried_no_write() {
        let refused = tonic::ConnectError("connection refused".into());
        let error = Error::GRpcStatus(Status::from_error(Box::new(refused)));
        assert!(matches!(of_write(&error), WriteFault::Rejected(_)), "{error:?}");
    }

    #[test]
    fn reads_know_the_errors_that_asking_again_does_not_cure() {
        let read = |message: &str| of_read(&Error::GRpcStatus(Status::out_of_range(message)));
        assert_eq!(read("etcdserver: mvcc: required revision has been compacted"), ReadFault::Compacted);
        assert_eq!(read("etcdserver: mvcc: required revision is a future revision"), ReadFault::Future);
        assert_eq!(
            read("Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes"),
            ReadFault::TooLarge
        );
        assert_eq!(read("etcdserver: no leader"), ReadFault::Failed("etcdserver: no leader".into()));
    }
}
