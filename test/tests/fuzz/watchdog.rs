//! Notices when a request takes longer than anything may. The server runs on the thread of the test, which cannot
//! look at a clock while it hangs; another thread can.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::request::Request;

/// Far beyond what the slowest machine needs; this is no measurement.
const PATIENCE: Duration = Duration::from_secs(60);

type Current = Mutex<Option<(Instant, Request)>>;

pub(crate) struct Watchdog(Arc<Current>);

impl Watchdog {
    pub(crate) fn start() -> Watchdog {
        let current = Arc::<Current>::default();
        let watched = Arc::downgrade(&current);
        std::thread::spawn(move || watch(&watched));
        Watchdog(current)
    }

    pub(crate) fn begin(&self, request: &Request) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), request.clone()));
    }

    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Ends with the watchdog, or with the process.
fn watch(watched: &Weak<Current>) {
    while let Some(current) = watched.upgrade() {
        if let Some((since, request)) = &*current.lock().unwrap_or_else(PoisonError::into_inner)
            && since.elapsed() > PATIENCE
        {
            eprintln!("no answer within {PATIENCE:?} to\n{request:?}");
            // The thread that hangs cannot be told; a test that hangs tells nobody.
            std::process::exit(1);
        }
        drop(current);
        std::thread::sleep(Duration::from_millis(200));
    }
}
