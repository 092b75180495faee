//! A pool that decides which requests share a connection.
//!
//! ```text
//!   list, get, apply … ───► one connection
//!   watch 1 … 50       ───► a second
//!   watch 51 … 100     ───► a third, and so on
//! ```
//!
//! A server limits the concurrent requests of a connection; a request beyond the limit waits until another ends, and a
//! watch does not end. A syncer that has rights in some namespaces only watches each kind in each of them: soon more
//! watches than the limit. Calls would then wait behind watches for minutes, and the lease would expire. So calls have
//! a connection of their own, and watches share one only up to a number that every server allows.
//!
//! Whether a connection can be shared is known once it is open. Requests that start together before that would each
//! open one, and a watch would keep it for minutes; so the first request is sent alone, and the others wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// kube-apiserver allows 100 concurrent requests on a connection (`--http2-max-streams-per-connection`), some load
/// balancers 128. Half of that leaves room for requests that end while others begin.
const WATCHES_PER_CONNECTION: usize = 50;

/// How long requests wait for the first one. If it takes longer, each opens its own connection.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients of one server, each with its own connection.
pub(super) struct ConnectionPool<T> {
    calls: Arc<PooledConnection<T>>,
    make: Box<dyn Fn() -> T + Send + Sync>,
    watches: Mutex<Vec<Arc<PooledConnection<T>>>>,
}

/// A client with its own connection. Each clone of the Arc is a request on it.
pub(super) struct PooledConnection<T> {
    pub(super) client: T,
    /// Whether the last request succeeded.
    is_open: AtomicBool,
    first_request: Semaphore,
}

impl<T> PooledConnection<T> {
    fn new(client: T) -> Arc<PooledConnection<T>> {
        Arc::new(PooledConnection {
            client,
            is_open: AtomicBool::new(false),
            first_request: Semaphore::new(1),
        })
    }

    /// Sends a request, after the first one has opened the connection.
    pub(super) async fn send<A, E>(&self, sending: impl Future<Output = Result<A, E>>) -> Result<A, E> {
        let mut first_request = None;
        if !self.is_open.load(Ordering::Relaxed) {
            first_request = timeout(FIRST_REQUEST_TIMEOUT, self.first_request.acquire()).await.ok();
        }
        if self.is_open.load(Ordering::Relaxed) {
            first_request = None;
        }
        let sent = sending.await;
        self.is_open.store(sent.is_ok(), Ordering::Relaxed);
        drop(first_request);
        sent
    }

    /// Marks the connection as broken: the next request opens it again.
    pub(super) fn mark_broken(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }
}

impl<T> ConnectionPool<T> {
    pub(super) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> ConnectionPool<T> {
        ConnectionPool {
            calls: PooledConnection::new(make()),
            make: Box::new(make),
            watches: Mutex::default(),
        }
    }

    /// Returns the client for a request. The caller keeps it until the response ends.
    pub(super) fn pick<B>(&self, request: &Request<B>) -> Arc<PooledConnection<T>> {
        if !is_watch(request) {
            return self.calls.clone();
        }
        let open = |connection: &Arc<PooledConnection<T>>| Arc::strong_count(connection) - 1;
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        // One idle connection is kept.
        let mut idle = 0;
        watches.retain(|connection| {
            idle += usize::from(open(connection) == 0);
            open(connection) > 0 || idle == 1
        });
        if let Some(connection) = watches.iter().find(|connection| open(connection) < WATCHES_PER_CONNECTION)
        {
            return connection.clone();
        }
        let connection = PooledConnection::new((self.make)());
        watches.push(connection.clone());
        connection
    }
}

fn is_watch<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|part| matches!(part, "watch=true" | "watch=1" | "watch"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn watches_fill_one_connection_after_the_other_and_calls_none_of_them() {
        let count = Arc::new(AtomicUsize::new(0));
        let made = count.clone();
        let pool = ConnectionPool::new(move || made.fetch_add(1, Ordering::Relaxed));
        let pick = |path: &str| pool.pick(&Request::get(path).body(()).unwrap());
        let watch = || pick("/api/v1/pods?limit=5&watch=true");
        let mut open: Vec<_> = (0..2 * WATCHES_PER_CONNECTION + 1).map(|_| watch()).collect();
        let of = |number: usize| open.iter().filter(|connection| connection.client == number).count();
        assert_eq!([of(0), of(1), of(2), of(3)], [0, WATCHES_PER_CONNECTION, WATCHES_PER_CONNECTION, 1]);
        for path in ["/api/v1/pods", "/api/v1/pods?watch=false", "/api/v1/pods?fieldManager=watch"] {
            assert_eq!(pick(path).client, 0, "{path}");
        }
        // A watch that ends leaves room for another.
        open.retain(|connection| connection.client != 1);
        assert_eq!(watch().client, 1);
        open.clear();
        assert_eq!(watch().client, 1);
        assert_eq!(pool.watches.lock().unwrap().len(), 1);
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }

    /// All watches begin at once when a syncer starts, and when a server comes back.
    #[tokio::test(start_paused = true)]
    async fn the_first_request_is_sent_alone_and_others_wait_for_a_limited_time() {
        let connection = PooledConnection::new(());
        let in_flight = &AtomicUsize::new(0);
        let send = |takes: Duration, result: Result<(), ()>| {
            connection.send(async move {
                let concurrent = in_flight.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(takes).await;
                in_flight.fetch_sub(1, Ordering::Relaxed);
                result.map(|()| concurrent)
            })
        };
        let second = Duration::from_secs(1);
        for _ in 0..2 {
            let (first, next, last) =
                tokio::join!(send(second, Err(())), send(second, Ok(())), send(second, Ok(())));
            assert_eq!((first, next, last), (Err(()), Ok(0), Ok(0)));
            let both = tokio::join!(send(second, Ok(())), send(second, Ok(())));
            assert_eq!(both, (Ok(0), Ok(1)));
            connection.mark_broken();
        }
        let started = tokio::time::Instant::now();
        let (_, other) = tokio::join!(send(60 * second, Ok(())), async {
            (send(second, Ok(())).await, started.elapsed())
        });
        assert_eq!(other, (Ok(1), FIRST_REQUEST_TIMEOUT + second));
    }
}
