//! Open connections, and which of them are closed when there are too many.
//!
//! ```text
//!   accept ─► anonymous, by address ─► a certificate or a valid token ─► authenticated, by tenant
//!               oldest goes first                                          idle goes first
//! ```
//!
//! Any client can open a connection, so anonymous connections have a pool of their own. In each pool a
//! newcomer is never refused: it takes the place of another ([`fair_pool`](crate::http::fair_pool)). So a client that holds connections open
//! in order to shut others out only evicts its own, and never an authenticated connection.

use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Notify;

use crate::http::backlog::{Backlog, Piece};
use crate::http::body::{Body, Broken};
use crate::http::fair_pool::{Bounds, FairPool, Lease};
use crate::http::limits::Tenant;

/// Anonymous connections. Clients behind one address translation share an address; a thousand
/// of them that connect again in the same second are done with their handshakes before so many are waiting.
const ANONYMOUS: Bounds = Bounds { per_owner: 1024, total: 3072 };
/// Authenticated connections. A client of many watches has some ten.
const AUTHENTICATED: Bounds = Bounds { per_owner: 2048, total: 6144 };
/// Connections at a time. One costs some 50 KiB in TLS and HTTP/2 buffers before it has asked for anything, so all of
/// them together about 450 MiB. It is more than the pools hold, so that those that were evicted can end.
pub(super) const CONNECTIONS_MAX: usize = ANONYMOUS.total + AUTHENTICATED.total + 256;

#[derive(Debug)]
pub(super) struct Connections {
    anonymous: Arc<FairPool<IpAddr>>,
    authenticated: Arc<FairPool<Tenant>>,
}

/// An open connection. Requests carry it along, so that authentication can mark it.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    authenticated: Arc<FairPool<Tenant>>,
    state: Mutex<State>,
    evicted: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    pool: Pool,
    /// Answers under way.
    answering: usize,
    has_asked: bool,
}

#[derive(Debug)]
enum Pool {
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

    /// Takes up a connection, which is anonymous at first.
    pub(super) fn open(&self, from: IpAddr) -> Arc<OpenConnection> {
        let evicted = Arc::new(Notify::new());
        let pool = Pool::Anonymous(self.anonymous.enter(network(from), 1, evicted.clone()));
        Arc::new(OpenConnection {
            authenticated: self.authenticated.clone(),
            state: Mutex::new(State { pool, answering: 0, has_asked: false }),
            evicted,
        })
    }

    /// Closes the connection that would have to go next: one that has not proved who it is, or, if there is none, an idle one
    /// of the tenant that has most.
    pub(super) fn evict_one(&self) {
        if !self.anonymous.evict_one() {
            self.authenticated.evict_one();
        }
    }
}

/// What one owner has of addresses: a whole network in version 6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

impl OpenConnection {
    /// Returns when the connection has to make room for another.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// The client has authenticated. The connection counts as the tenant's from now on.
    pub(crate) fn authenticated(&self, tenant: &Tenant) {
        let mut state = self.lock();
        if let Pool::Anonymous(_) = state.pool {
            let lease = self.authenticated.enter(tenant.clone(), 1, self.evicted.clone());
            state.pool = Pool::Authenticated(lease);
            state.mark();
        }
    }

    /// Returns if an anonymous client sent no request within a time.
    pub(super) async fn overdue(&self, within: Duration) {
        tokio::time::sleep(within).await;
        let is_overdue = {
            let state = self.lock();
            !state.has_asked && matches!(state.pool, Pool::Anonymous(_))
        };
        if !is_overdue {
            std::future::pending().await
        }
    }

    /// A request came, and is answered until the returned value is dropped.
    pub(super) fn answer(self: &Arc<Self>) -> Answering {
        let mut state = self.lock();
        state.answering += 1;
        state.has_asked = true;
        state.mark();
        Answering(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Who is known keeps what they use: a watch is old, and still not idle. Who is not known must not keep a connection
    /// by never reading an answer.
    fn mark(&self) {
        match &self.pool {
            Pool::Anonymous(lease) => lease.mark(false),
            Pool::Authenticated(lease) => lease.mark(self.answering > 0),
        }
    }
}

/// An answer under way.
#[derive(Debug)]
pub(super) struct Answering(Arc<OpenConnection>);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.answering -= 1;
        state.mark();
    }
}

/// A body that is under way for as long as it lasts.
#[derive(Debug)]
pub(super) struct Answered {
    body: Body,
    /// The response body.
    backlog: Arc<Backlog>,
    _answering: Option<Answering>,
}

impl Answered {
    pub(super) fn new(body: Body, answering: Option<Answering>) -> Answered {
        Answered { body, backlog: Arc::default(), _answering: answering }
    }
}

impl HttpBody for Answered {
    type Data = Piece;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Self::Error>>> {
        ready!(self.backlog.poll_ready(context));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| Ok(frame?.map_data(|bytes| self.backlog.piece(bytes)))))
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
    fn strangers_make_room_for_each_other_and_nobody_else_does() {
        let connections = connections(2, 2);
        let ann = Tenant::User("ann".into());
        let known = connections.open(SOMEWHERE);
        known.authenticated(&ann);
        let [first, second, third] = [0; 3].map(|_| connections.open(SOMEWHERE));
        assert!(is_closed(&first) && !is_closed(&second) && !is_closed(&third) && !is_closed(&known));
        // Who asks for something is the newest; who does not read the answer is no better than the others.
        let answering = second.answer();
        let fourth = connections.open(SOMEWHERE);
        assert!(is_closed(&third) && !is_closed(&second));
        let fifth = connections.open(SOMEWHERE);
        assert!(is_closed(&second) && !is_closed(&fourth) && !is_closed(&fifth));
        drop(answering);
    }

    #[test]
    fn who_is_known_keeps_the_connections_that_are_used() {
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
    async fn a_stranger_has_to_ask_for_something() {
        let connections = connections(10, 10);
        let within = Duration::from_secs(10);
        let is_overdue = async |connection: &OpenConnection| {
            tokio::time::timeout(2 * within, connection.overdue(within)).await.is_ok()
        };
        let [silent, asking, known] = [0; 3].map(|_| connections.open(SOMEWHERE));
        drop(asking.answer());
        known.authenticated(&Tenant::User("ann".into()));
        assert!(is_overdue(&silent).await && !is_overdue(&asking).await && !is_overdue(&known).await);
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
