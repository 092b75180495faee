//! The open connections to physical clusters, by mailbox.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::cluster::Id;
use kube::Client;

use crate::connection::{CloseGuard, ClusterConnection, TunnelError};
use crate::dialed::DialedConnection;

/// The open connections. Clones share them.
#[derive(Clone, Default)]
pub struct Tunnels {
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Default)]
struct OpenConnections {
    /// By mailbox, in the order in which they were opened. The last one is used: a syncer that dials again may have
    /// lost a connection that still looks open here.
    by_mailbox: HashMap<Id, BTreeMap<u64, Arc<ClusterConnection>>>,
    /// How many have been opened, the source of their numbers.
    count: u64,
}

/// Keeps a connection registered. Dropping it ends every stream on the connection.
pub struct OpenTunnel {
    tunnels: Tunnels,
    mailbox: Id,
    /// Identifies the connection among those of its mailbox.
    number: u64,
    connection: Arc<ClusterConnection>,
    _guard: CloseGuard,
}

impl OpenTunnel {
    pub fn connection(&self) -> &Arc<ClusterConnection> {
        &self.connection
    }
}

impl fmt::Debug for OpenTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tunnel {} of mailbox {}", self.number, self.mailbox)
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        let mut open = self.tunnels.open();
        let Some(connections) = open.by_mailbox.get_mut(&self.mailbox) else { return };
        connections.remove(&self.number);
        if connections.is_empty() {
            open.by_mailbox.remove(&self.mailbox);
        }
    }
}

impl fmt::Debug for Tunnels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tunnels of {} mailboxes", self.open().by_mailbox.len())
    }
}

impl Tunnels {
    /// Registers a physical cluster that the server connects to.
    pub fn open_push(&self, mailbox: Id, downstream: Client) -> OpenTunnel {
        self.register(mailbox, ClusterConnection::push(downstream))
    }

    /// Registers a connection that a syncer dialled.
    pub fn open_pull(&self, mailbox: Id, dialed: DialedConnection) -> OpenTunnel {
        self.register(mailbox, ClusterConnection::pull(dialed))
    }

    /// Returns the mailboxes whose physical clusters are connected.
    pub fn mailboxes(&self) -> Vec<Id> {
        self.open().by_mailbox.keys().copied().collect()
    }

    /// Returns the connection to the physical cluster of a mailbox that was opened last.
    pub fn get(&self, mailbox: Id) -> Result<Arc<ClusterConnection>, TunnelError> {
        let open = self.open();
        let connections = open.by_mailbox.get(&mailbox);
        connections.and_then(|all| all.values().next_back().cloned()).ok_or(TunnelError::NotConnected)
    }

    fn register(&self, mailbox: Id, (connection, guard): (ClusterConnection, CloseGuard)) -> OpenTunnel {
        let connection = Arc::new(connection);
        let mut open = self.open();
        open.count += 1;
        let number = open.count;
        open.by_mailbox.entry(mailbox).or_default().insert(number, connection.clone());
        drop(open);
        OpenTunnel { tunnels: self.clone(), mailbox, number, connection, _guard: guard }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use http::{Request, Response};

    fn client() -> Client {
        let service = tower::service_fn(|_: Request<kube::client::Body>| async {
            Ok::<_, Infallible>(Response::new(kube::client::Body::empty()))
        });
        Client::new(service, "default")
    }

    /// Regression: each of two syncers of one mailbox dialled. When the later connection ended, requests failed until
    /// the other syncer had dialled again.
    #[tokio::test]
    async fn when_a_connection_ends_one_that_is_still_open_is_used() {
        let (tunnels, mailbox) = (Tunnels::default(), Id::ROOT);
        let current = || tunnels.get(mailbox).ok();
        let is =
            |opened: &OpenTunnel| current().is_some_and(|found| Arc::ptr_eq(&found, opened.connection()));
        let [first, second, third] = [(); 3].map(|()| tunnels.open_push(mailbox, client()));
        assert!(is(&third));
        drop(second);
        assert!(is(&third));
        drop(third);
        assert!(is(&first));
        drop(first);
        assert!(current().is_none() && tunnels.mailboxes().is_empty());
    }
}
