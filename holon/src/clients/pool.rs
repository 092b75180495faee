//! Which requests share a connection.
//!
//! ```text
//!   list, get, apply … ───► one
//!   watch 1 … 50       ───► one more
//!   watch 51 … 100     ───► and another, for as long as there are so many
//! ```
//!
//! A server allows so many requests at a time on a connection; whoever comes on top waits until one ends, and a watch does
//! not. A syncer with rights in some namespaces only has a watch for each kind in each of them, which is soon more than
//! that. Then a call would wait behind watches for minutes, and a lease be lost. So calls have a connection to themselves,
//! and no more watches share one than any server allows.
//!
//! Whether a connection can be shared is known once it is there. Those who come together before that would each open one, and
//! a watch keeps it for minutes; so one goes first, and the others wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A kube-apiserver allows 100 requests at a time on a connection (`--http2-max-streams-per-connection`), some load balancers
/// 128. Half of that leaves room for those that end while others begin.
const WATCHES_MAX: usize = 50;

/// How long others wait for the first. A server that takes longer is waited for by each for itself.
const FIRST_WITHIN: Duration = Duration::from_secs(5);

/// Clients of one server, each with a connection of its own.
pub(super) struct Shared<T> {
    calls: Arc<Line<T>>,
    make: Box<dyn Fn() -> T + Send + Sync>,
    watches: Mutex<Vec<Arc<Line<T>>>>,
}

/// One of them. Whoever keeps it has a place on it.
pub(super) struct Line<T> {
    pub(super) client: T,
    /// As far as is known.
    is_there: AtomicBool,
    turn: Semaphore,
}

impl<T> Line<T> {
    fn new(client: T) -> Arc<Line<T>> {
        Arc::new(Line { client, is_there: AtomicBool::new(false), turn: Semaphore::new(1) })
    }

    /// Sends something, after the first if there is one.
    pub(super) async fn send<A, E>(&self, sending: impl Future<Output = Result<A, E>>) -> Result<A, E> {
        let mut turn = None;
        if !self.is_there.load(Ordering::Relaxed) {
            turn = timeout(FIRST_WITHIN, self.turn.acquire()).await.ok();
        }
        if self.is_there.load(Ordering::Relaxed) {
            turn = None;
        }
        let sent = sending.await;
        self.is_there.store(sent.is_ok(), Ordering::Relaxed);
        drop(turn);
        sent
    }

    /// It broke: whoever comes next is the first.
    pub(super) fn broke(&self) {
        self.is_there.store(false, Ordering::Relaxed);
    }
}

impl<T> Shared<T> {
    pub(super) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Shared<T> {
        Shared { calls: Line::new(make()), make: Box::new(make), watches: Mutex::default() }
    }

    /// The one that a request goes by, for as long as that takes.
    pub(super) fn pick<B>(&self, request: &Request<B>) -> Arc<Line<T>> {
        if !is_watch(request) {
            return self.calls.clone();
        }
        let open = |line: &Arc<Line<T>>| Arc::strong_count(line) - 1;
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        // Of those nobody needs any more one is kept.
        let mut idle = 0;
        watches.retain(|line| {
            idle += usize::from(open(line) == 0);
            open(line) > 0 || idle == 1
        });
        if let Some(line) = watches.iter().find(|line| open(line) < WATCHES_MAX) {
            return line.clone();
        }
        let line = Line::new((self.make)());
        watches.push(line.clone());
        line
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
        let shared = Shared::new(move || made.fetch_add(1, Ordering::Relaxed));
        let pick = |path: &str| shared.pick(&Request::get(path).body(()).unwrap());
        let watch = || pick("/api/v1/pods?limit=5&watch=true");
        let mut open: Vec<_> = (0..2 * WATCHES_MAX + 1).map(|_| watch()).collect();
        let of = |number: usize| open.iter().filter(|line| line.client == number).count();
        assert_eq!([of(0), of(1), of(2), of(3)], [0, WATCHES_MAX, WATCHES_MAX, 1]);
        for path in ["/api/v1/pods", "/api/v1/pods?watch=false", "/api/v1/pods?fieldManager=watch"] {
            assert_eq!(pick(path).client, 0, "{path}");
        }
        // Whoever ends leaves a place.
        open.retain(|line| line.client != 1);
        assert_eq!(watch().client, 1);
        open.clear();
        assert_eq!(watch().client, 1);
        assert_eq!(shared.watches.lock().unwrap().len(), 1);
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }

    /// All watches begin at once, when a syncer starts and when it has lost sight of a server.
    #[tokio::test(start_paused = true)]
    async fn one_goes_first_and_the_others_do_not_wait_for_ever() {
        let line = Line::new(());
        let under_way = &AtomicUsize::new(0);
        let send = |takes: Duration, answer: Result<(), ()>| {
            line.send(async move {
                let beside = under_way.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(takes).await;
                under_way.fetch_sub(1, Ordering::Relaxed);
                answer.map(|()| beside)
            })
        };
        let second = Duration::from_secs(1);
        for _ in 0..2 {
            let (first, next, last) =
                tokio::join!(send(second, Err(())), send(second, Ok(())), send(second, Ok(())));
            assert_eq!((first, next, last), (Err(()), Ok(0), Ok(0)));
            let both = tokio::join!(send(second, Ok(())), send(second, Ok(())));
            assert_eq!(both, (Ok(0), Ok(1)));
            line.broke();
        }
        let begun = tokio::time::Instant::now();
        let (_, other) =
            tokio::join!(send(60 * second, Ok(())), async { (send(second, Ok(())).await, begun.elapsed()) });
        assert_eq!(other, (Ok(1), FIRST_WITHIN + second));
    }
}
