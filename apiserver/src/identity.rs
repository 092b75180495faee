//! Who is asking.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a client has proved to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Nothing.
    Anonymous,
    User {
        name: String,
        groups: Vec<String>,
    },
}

/// Members may do everything everywhere, and are asked nothing.
const MASTERS: &str = "system:masters";

impl Identity {
    /// Whether this is somebody who may look at all logical clusters, and name them by id.
    pub(crate) fn is_privileged(&self) -> bool {
        matches!(self, Identity::User { groups, .. } if groups.iter().any(|group| group == MASTERS))
    }

    /// From certificates that TLS has already verified. The first is the client's own.
    pub(crate) fn of(certificates: Option<&[CertificateDer<'_>]>) -> Identity {
        let Some(certificate) = certificates.and_then(|chain| chain.first()) else {
            return Identity::Anonymous;
        };
        // Verified by TLS, so it parses; if two parsers disagree about it, it proves nothing.
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Identity::Anonymous };
        let subject = certificate.subject();
        let name = subject.iter_common_name().find_map(|name| name.as_str().ok());
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        match name {
            Some(name) => {
                Identity::User { name: name.to_owned(), groups: groups.map(str::to_owned).collect() }
            }
            None => Identity::Anonymous,
        }
    }
}
