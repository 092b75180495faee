//! Aborts the test when a request takes too long. The server runs on the thread of the test, which cannot check a clock
//! while it hangs; another thread can.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::request::Request;

/// Far more than the slowest machine needs.
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

/// Runs until the watchdog or the process ends.
fn watch(watched: &Weak<Current>) {
    while let Some(current) = watched.upgrade() {
        if let Some((since, request)) = &*current.lock().unwrap_or_else(PoisonError::into_inner)
            && since.elapsed() > PATIENCE
        {
            eprintln!("no response within {PATIENCE:?} to\n{request:?}");
            // A thread that hangs cannot be interrupted, so the process ends.
            std::process::exit(1);
        }
        drop(current);
        std::thread::sleep(Duration::from_millis(200));
    }
}
