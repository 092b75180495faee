//! Namespaces of mailboxes that are being deleted.

use std::collections::HashSet;
use std::sync::Mutex;

use api::cluster::Id;

use super::lock;

/// A namespace of a mailbox.
type MailboxNamespace = (Id, String);

/// The namespaces that are being deleted at the moment.
#[derive(Debug, Default)]
pub(crate) struct TerminatingNamespaces(pub(crate) Mutex<HashSet<MailboxNamespace>>);

/// While this guard exists, nothing is sent to the namespace.
pub(crate) struct TerminationGuard<'a> {
    terminating: &'a TerminatingNamespaces,
    name: MailboxNamespace,
}

impl TerminatingNamespaces {
    /// The queue gives a user's namespace to one reconcile at a time, and every mailbox namespace belongs to one of them.
    pub(crate) fn begin(&self, mailbox: Id, namespace: &str) -> TerminationGuard<'_> {
        let name = (mailbox, namespace.to_owned());
        lock(&self.0).insert(name.clone());
        TerminationGuard { terminating: self, name }
    }
}

impl Drop for TerminationGuard<'_> {
    fn drop(&mut self) {
        lock(&self.terminating.0).remove(&self.name);
    }
}
