//! Classifies etcd's errors.
//!
//! A failed read can be retried. A write cannot, unless its error proves that it has not happened and will not happen.

use std::error::Error as _;

use etcd_client::Error;
use tonic::{Code, Status};

use crate::store::CommitError;

/// The error of a write.
#[derive(Debug, PartialEq)]
pub(super) enum EtcdWriteError {
    /// Not written, and a retry would fail the same way.
    Refused(CommitError),
    /// Not written; a retry, or another member, may succeed.
    Rejected(String),
    /// Written or not, but decided: etcd executes the write that fills it, and then reports that it is full.
    Full(CommitError),
    /// Perhaps written, or will be written.
    Lost(String),
}

/// The error of a read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EtcdReadError {
    Compacted,
    Future,
    /// The response was too large. Request less.
    TooLarge,
    /// A retry would fail the same way.
    Refused(String),
    /// Retry, or try another member.
    Failed(String),
}

enum ErrorClass {
    TooLarge,
    Full,
    Forbidden,
    NotNow,
}

/// Errors after which a write certainly does not happen, by their text. After any other error it may happen, above all
/// after timeouts and lost leaders or connections.
const DEFINITE: &[(&str, ErrorClass)] = &[
    ("etcdserver: request is too large", ErrorClass::TooLarge),
    ("grpc: received message larger than max", ErrorClass::TooLarge),
    ("etcdserver: mvcc: database space exceeded", ErrorClass::Full),
    ("etcdserver: permission denied", ErrorClass::Forbidden),
    ("etcdserver: user name is empty", ErrorClass::Forbidden),
    ("etcdserver: user name not found", ErrorClass::Forbidden),
    ("etcdserver: authentication failed", ErrorClass::Forbidden),
    ("etcdserver: invalid auth token", ErrorClass::NotNow),
    ("etcdserver: revision of auth store is old", ErrorClass::NotNow),
    ("etcdserver: too many requests", ErrorClass::NotNow),
    // Reported before the request is executed: see require_leader in options.rs.
    ("etcdserver: no leader", ErrorClass::NotNow),
    ("etcdserver: not capable", ErrorClass::NotNow),
    ("etcdserver: rpc not supported for learner", ErrorClass::NotNow),
    ("raft proposal dropped", ErrorClass::NotNow),
];

const FULL: &str = "etcd's database is full (alarm NOSPACE). Compact and defragment every member, or raise \
                    --quota-backend-bytes, then run `etcdctl alarm disarm`";

pub(super) fn classify_write(error: &Error) -> EtcdWriteError {
    let Error::GRpcStatus(status) = error else { return EtcdWriteError::Lost(error.to_string()) };
    let message = status.message();
    let reason = message.to_owned();
    if never_sent(status) {
        return EtcdWriteError::Rejected(reason);
    }
    let class = DEFINITE.iter().find(|(text, _)| message.contains(text)).map(|(_, class)| class);
    match class {
        Some(ErrorClass::TooLarge) => EtcdWriteError::Refused(CommitError::Refused {
            reason: format!("larger than etcd accepts; see its --max-request-bytes ({message})"),
        }),
        Some(ErrorClass::Full) => EtcdWriteError::Full(CommitError::ReadOnly { reason: FULL.into() }),
        Some(ErrorClass::Forbidden) => EtcdWriteError::Refused(CommitError::ReadOnly {
            reason: format!("etcd denies writes ({message}); check the role of the etcd user"),
        }),
        Some(ErrorClass::NotNow) => EtcdWriteError::Rejected(reason),
        None => EtcdWriteError::Lost(reason),
    }
}

pub(super) fn classify_read(error: &Error) -> EtcdReadError {
    let Error::GRpcStatus(status) = error else { return EtcdReadError::Failed(error.to_string()) };
    let message = status.message();
    if message.contains("required revision has been compacted") {
        return EtcdReadError::Compacted;
    }
    if message.contains("required revision is a future revision") {
        return EtcdReadError::Future;
    }
    if status.code() == Code::OutOfRange && message.contains("decoded message length too large") {
        return EtcdReadError::TooLarge;
    }
    match DEFINITE.iter().find(|(text, _)| message.contains(text)) {
        Some((_, ErrorClass::Forbidden)) => {
            EtcdReadError::Refused(format!("etcd denies reads ({message}); check the role of the etcd user"))
        }
        _ => EtcdReadError::Failed(message.to_owned()),
    }
}

/// Reports whether there was no connection, so that the request was not sent.
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

impl EtcdReadError {
    pub(super) fn reason(self) -> String {
        match self {
            EtcdReadError::Failed(reason) | EtcdReadError::Refused(reason) => reason,
            EtcdReadError::Compacted => "the revision is compacted".into(),
            EtcdReadError::Future => "the member has not reached the revision".into(),
            EtcdReadError::TooLarge => "the response is too large".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(code: Code, message: &str) -> EtcdWriteError {
        classify_write(&Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn only_errors_that_exclude_a_write_are_definite() {
        let lost = |code, message: &str| {
            assert!(matches!(classify(code, message), EtcdWriteError::Lost(_)), "{message}");
        };
        lost(Code::Unavailable, "etcdserver: request timed out");
        lost(Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure");
        lost(Code::Unavailable, "etcdserver: leader changed");
        lost(Code::Unavailable, "etcdserver: server stopped");
        lost(Code::Unavailable, "transport error");
        lost(Code::Cancelled, "Timeout expired");
        lost(Code::Unknown, "something new");

        let rejected = |code, message: &str| {
            assert!(matches!(classify(code, message), EtcdWriteError::Rejected(_)), "{message}");
        };
        rejected(Code::Unavailable, "etcdserver: no leader");
        rejected(Code::ResourceExhausted, "etcdserver: too many requests");
        rejected(Code::Unauthenticated, "etcdserver: invalid auth token");

        let full = classify(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        let EtcdWriteError::Full(CommitError::ReadOnly { reason }) = full else { panic!("{full:?}") };
        assert!(reason.contains("defragment") && reason.contains("alarm disarm"), "{reason}");
        for message in
            ["etcdserver: request is too large", "grpc: received message larger than max (9 vs. 8)"]
        {
            let large = classify(Code::InvalidArgument, message);
            assert!(matches!(large, EtcdWriteError::Refused(CommitError::Refused { .. })), "{large:?}");
        }
        let denied = classify(Code::PermissionDenied, "etcdserver: permission denied");
        assert!(matches!(denied, EtcdWriteError::Refused(CommitError::ReadOnly { .. })), "{denied:?}");
    }

    #[test]
    fn a_write_without_a_connection_is_rejected() {
        let refused = tonic::ConnectError("connection refused".into());
        let error = Error::GRpcStatus(Status::from_error(Box::new(refused)));
        assert!(matches!(classify_write(&error), EtcdWriteError::Rejected(_)), "{error:?}");
    }

    #[test]
    fn permanent_read_errors_are_classified() {
        let read = |message: &str| classify_read(&Error::GRpcStatus(Status::out_of_range(message)));
        assert_eq!(read("etcdserver: mvcc: required revision has been compacted"), EtcdReadError::Compacted);
        assert_eq!(read("etcdserver: mvcc: required revision is a future revision"), EtcdReadError::Future);
        assert_eq!(
            read("Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes"),
            EtcdReadError::TooLarge
        );
        assert_eq!(read("etcdserver: no leader"), EtcdReadError::Failed("etcdserver: no leader".into()));
    }
}
