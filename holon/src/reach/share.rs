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

use std::sync::{Arc, Mutex, PoisonError};

use http::Request;

/// A kube-apiserver allows 100 requests at a time on a connection (`--http2-max-streams-per-connection`), some load balancers
/// 128. Half of that leaves room for those that end while others begin.
const WATCHES_MAX: usize = 50;

/// Clients of one server, each with a connection of its own.
pub(super) struct Shared<T> {
    calls: T,
    make: Box<dyn Fn() -> T + Send + Sync>,
    watches: Mutex<Vec<(T, Arc<()>)>>,
}

/// That a watch is under way, for as long as this is kept.
#[derive(Clone, Debug)]
pub(super) struct Place(#[allow(dead_code, reason = "that it is kept says everything")] Option<Arc<()>>);

impl<T: Clone> Shared<T> {
    pub(super) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Shared<T> {
        Shared { calls: make(), make: Box::new(make), watches: Mutex::default() }
    }

    /// The one that a request goes by.
    pub(super) fn pick<B>(&self, request: &Request<B>) -> (T, Place) {
        if !is_watch(request) {
            return (self.calls.clone(), Place(None));
        }
        let open = |taken: &Arc<()>| Arc::strong_count(taken) - 1;
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        // Of those nobody needs any more one is kept.
        let mut idle = 0;
        watches.retain(|(_, taken)| {
            idle += usize::from(open(taken) == 0);
            open(taken) > 0 || idle == 1
        });
        let found = watches.iter().find(|(_, taken)| open(taken) < WATCHES_MAX);
        if let Some((client, taken)) = found {
            return (client.clone(), Place(Some(taken.clone())));
        }
        let (client, taken) = ((self.make)(), Arc::new(()));
        watches.push((client.clone(), taken.clone()));
        (client, Place(Some(taken)))
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
        let of = |number: usize| open.iter().filter(|(client, _)| *client == number).count();
        assert_eq!([of(0), of(1), of(2), of(3)], [0, WATCHES_MAX, WATCHES_MAX, 1]);
        for path in ["/api/v1/pods", "/api/v1/pods?watch=false", "/api/v1/pods?fieldManager=watch"] {
            assert_eq!(pick(path).0, 0, "{path}");
        }
        // Whoever ends leaves a place.
        open.retain(|(client, _)| *client != 1);
        assert_eq!(watch().0, 1);
        open.clear();
        assert_eq!(watch().0, 1);
        assert_eq!(shared.watches.lock().unwrap().len(), 1);
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }
}
