//! Open connections, and which of them are closed if there are too many.
//!
//! ```text
//!   accept ─► anonymous, by address ─► a certificate or a valid token ─► authenticated, by tenant
//!               the oldest is evicted                                      an idle one is evicted first
//! ```
//!
//! Any client can open a connection, so anonymous connections have their own pool. A full pool does not refuse a new
//! connection but evicts another one ([`fair_pool`](crate::http::fair_pool)). So a client that holds connections open
//! to shut out others only evicts its own, and never an authenticated one.

use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Notify;

use crate::http::backlog::{Backlog, TrackedChunk};
use crate::http::body::{Body, Broken};
use crate::http::fair_pool::{Bounds, FairPool, Lease};
use crate::http::limits::Tenant;

/// Anonymous connections. Clients behind one NAT share an address; a thousand of them that reconnect in the same second
/// have finished their handshakes before the pool is full.
const ANONYMOUS: Bounds = Bounds { per_owner: 1024, total: 3072 };
/// Authenticated connections. A client with many watches has about ten.
const AUTHENTICATED: Bounds = Bounds { per_owner: 2048, total: 6144 };
/// Concurrent connections. One costs some 50 KiB in TLS and HTTP/2 buffers before its first request, so all of them
/// together about 450 MiB. The sum exceeds the pools, so that evicted connections can end.
pub(super) const CONNECTIONS_MAX: usize = ANONYMOUS.total + AUTHENTICATED.total + 256;

#[derive(Debug)]
pub(super) struct Connections {
    anonymous: Arc<FairPool<IpAddr>>,
    authenticated: Arc<FairPool<Tenant>>,
}

/// An open connection. It is an extension of each request, so that authentication can mark it.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    authenticated: Arc<FairPool<Tenant>>,
    state: Mutex<ConnectionState>,
    evicted: Arc<Notify>,
}

#[derive(Debug)]
struct ConnectionState {
    pool: PoolLease,
    /// Responses in progress.
    answering: usize,
    has_sent_request: bool,
}

#[derive(Debug)]
enum PoolLease {
    Anonymous(Lease<IpAddr>),
    Authenticated(Lease<Tenant>),
}

impl Connections {
    pub(super) fn new() -> Connections {
        Connections {
            anonymous: Arc::new(FairPool::new(ANONYMOUS)),
            authenticated: Arc::new(FairPool::new(AUTHENTICATED)),
        }
    }

    /// Adds a connection, which is anonymous at first.
    pub(super) fn open(&self, from: IpAddr) -> Arc<OpenConnection> {
        let evicted = Arc::new(Notify::new());
        let pool = PoolLease::Anonymous(self.anonymous.enter(network(from), 1, evicted.clone()));
        Arc::new(OpenConnection {
            authenticated: self.authenticated.clone(),
            state: Mutex::new(ConnectionState { pool, answering: 0, has_sent_request: false }),
            evicted,
        })
    }

    /// Evicts the next connection in order: an anonymous one, or, if there is none, an idle one of the tenant that has
    /// most.
    pub(super) fn evict_one(&self) {
        if !self.anonymous.evict_one() {
            self.authenticated.evict_one();
        }
    }
}

/// Returns the network that counts as one owner: an IPv4 address, or a /64 in IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

impl OpenConnection {
    /// Returns when the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Marks the connection as authenticated. It counts for this tenant from now on.
    pub(crate) fn authenticated(&self, tenant: &Tenant) {
        let mut state = self.lock();
        if let PoolLease::Anonymous(_) = state.pool {
            let lease = self.authenticated.enter(tenant.clone(), 1, self.evicted.clone());
            state.pool = PoolLease::Authenticated(lease);
            state.mark();
        }
    }

    /// Returns if an anonymous client sends no request within this time.
    pub(super) async fn overdue(&self, within: Duration) {
        tokio::time::sleep(within).await;
        let is_overdue = {
            let state = self.lock();
            !state.has_sent_request && matches!(state.pool, PoolLease::Anonymous(_))
        };
        if !is_overdue {
            std::future::pending().await
        }
    }

    /// Counts a request until the returned value is dropped.
    pub(super) fn answer(self: &Arc<Self>) -> Answering {
        let mut state = self.lock();
        state.answering += 1;
        state.has_sent_request = true;
        state.mark();
        Answering(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionState {
    /// Updates the rank in the pool. An authenticated connection with a response in progress counts as busy: a watch
    /// may be old without being idle. An anonymous client must not keep a connection by never reading a response.
    fn mark(&self) {
        match &self.pool {
            PoolLease::Anonymous(lease) => lease.mark(false),
            PoolLease::Authenticated(lease) => lease.mark(self.answering > 0),
        }
    }
}

/// A response in progress.
#[derive(Debug)]
pub(super) struct Answering(Arc<OpenConnection>);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.answering -= 1;
        state.mark();
    }
}

/// A response body that counts as in progress until it ends.
#[derive(Debug)]
pub(super) struct Answered {
    body: Body,
    /// The part of the body that waits for the client.
    backlog: Arc<Backlog>,
    _answering: Option<Answering>,
}

impl Answered {
    pub(super) fn new(body: Body, answering: Option<Answering>) -> Answered {
        Answered { body, backlog: Arc::default(), _answering: answering }
    }
}

impl HttpBody for Answered {
    type Data = TrackedChunk;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<TrackedChunk>, Self::Error>>> {
        ready!(self.backlog.poll_ready(context));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| Ok(frame?.map_data(|bytes| self.backlog.chunk(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn connections(anonymous: usize, authenticated: usize) -> Connections {
        let bounds = |total| Bounds { per_owner: total, total };
        Connections {
            anonymous: Arc::new(FairPool::new(bounds(anonymous))),
            authenticated: Arc::new(FairPool::new(bounds(authenticated))),
        }
    }

    fn is_closed(connection: &OpenConnection) -> bool {
        connection.evicted().now_or_never().is_some()
    }

    const SOMEWHERE: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn new_anonymous_connections_evict_only_anonymous_ones() {
        let connections = connections(2, 2);
        let ann = Tenant::User("ann".into());
        let authenticated = connections.open(SOMEWHERE);
        authenticated.authenticated(&ann);
        let [first, second, third] = [0; 3].map(|_| connections.open(SOMEWHERE));
        assert!(is_closed(&first) && !is_closed(&second) && !is_closed(&third) && !is_closed(&authenticated));
        // A request makes its connection the newest, but an unread response does not protect an anonymous one.
        let answering = second.answer();
        let fourth = connections.open(SOMEWHERE);
        assert!(is_closed(&third) && !is_closed(&second));
        let fifth = connections.open(SOMEWHERE);
        assert!(is_closed(&second) && !is_closed(&fourth) && !is_closed(&fifth));
        drop(answering);
    }

    #[test]
    fn an_authenticated_client_keeps_its_connections_in_use() {
        let connections = connections(10, 2);
        let ann = Tenant::User("ann".into());
        let open = || {
            let connection = connections.open(SOMEWHERE);
            connection.authenticated(&ann);
            connection
        };
        let (watching, idle) = (open(), open());
        let watch = watching.answer();
        drop(idle.answer());
        let third = open();
        assert!(is_closed(&idle) && !is_closed(&watching) && !is_closed(&third));
        drop(watch);
        let fourth = open();
        assert!(is_closed(&third) && !is_closed(&watching) && !is_closed(&fourth));
    }

    #[tokio::test(start_paused = true)]
    async fn an_anonymous_connection_must_send_a_request() {
        let connections = connections(10, 10);
        let within = Duration::from_secs(10);
        let is_overdue = async |connection: &OpenConnection| {
            tokio::time::timeout(2 * within, connection.overdue(within)).await.is_ok()
        };
        let [silent, requesting, authenticated] = [0; 3].map(|_| connections.open(SOMEWHERE));
        drop(requesting.answer());
        authenticated.authenticated(&Tenant::User("ann".into()));
        assert!(
            is_overdue(&silent).await && !is_overdue(&requesting).await && !is_overdue(&authenticated).await
        );
    }

    #[test]
    fn a_network_is_one_address() {
        let check = |address: &str, expected: &str| {
            assert_eq!(network(address.parse().unwrap()), expected.parse::<IpAddr>().unwrap(), "{address}");
        };
        check("192.0.2.7", "192.0.2.7");
        check("::ffff:192.0.2.7", "192.0.2.7");
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::");
    }
}
