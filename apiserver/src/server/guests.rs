//! Connections of those who have shown no certificate.
//!
//! Anybody can open one, so there is room for so many. When it is full, whoever comes takes the place of the one that has
//! asked for nothing for the longest time; who waits for an answer or watches something is never sent away. So strangers
//! who hold connections open in order to shut others out only get in each other's way.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Notify;

use super::{Body, Broken};

#[derive(Debug)]
pub(super) struct Guests {
    max: usize,
    present: Mutex<Present>,
}

#[derive(Debug, Default)]
struct Present {
    /// Counts what happens, as a clock would, so that what happened longest ago is the least.
    now: u64,
    seats: HashMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    /// Answers under way.
    busy: usize,
    /// When it last had any.
    since: u64,
    leave: Arc<Notify>,
}

/// A place, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    guests: Arc<Guests>,
    number: u64,
    leave: Arc<Notify>,
}

impl Guests {
    pub(super) fn new(max: usize) -> Guests {
        Guests { max, present: Mutex::default() }
    }

    /// Takes a place, if need be somebody's who does not use it. None if all of them are used.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Arc<Seat>> {
        let mut present = self.lock();
        if present.seats.len() >= self.max {
            let idle = present.seats.iter().filter(|(_, taken)| taken.busy == 0);
            let (number, _) = idle.min_by_key(|(_, taken)| taken.since)?;
            let number = *number;
            if let Some(gone) = present.seats.remove(&number) {
                gone.leave.notify_one();
            }
        }
        present.now += 1;
        let (number, leave) = (present.now, Arc::new(Notify::new()));
        present.seats.insert(number, Taken { busy: 0, since: number, leave: leave.clone() });
        Some(Arc::new(Seat { guests: self.clone(), number, leave }))
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Returns when somebody else has the place.
    pub(super) async fn lost(&self) {
        self.leave.notified().await;
    }

    /// Uses the place until the returned value is dropped.
    pub(super) fn used(self: &Arc<Self>) -> Use {
        if let Some(taken) = self.guests.lock().seats.get_mut(&self.number) {
            taken.busy += 1;
        }
        Use(self.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.guests.lock().seats.remove(&self.number);
    }
}

/// An answer under way.
#[derive(Debug)]
pub(super) struct Use(Arc<Seat>);

impl Drop for Use {
    fn drop(&mut self) {
        let mut present = self.0.guests.lock();
        present.now += 1;
        let now = present.now;
        if let Some(taken) = present.seats.get_mut(&self.0.number) {
            taken.busy -= 1;
            taken.since = now;
        }
    }
}

/// A body that is under way for as long as it lasts.
#[derive(Debug)]
pub(super) struct Held {
    body: Body,
    _use: Use,
}

impl Held {
    pub(super) fn new(body: Body, held: Use) -> Held {
        Held { body, _use: held }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
    use super::*;

    fn is_lost(seat: &Seat) -> bool {
        let lost = std::pin::pin!(seat.lost());
        lost.poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn who_comes_takes_the_place_of_who_was_idle_longest() {
        let guests = Arc::new(Guests::new(3));
        let [first, second, third] = [0; 3].map(|_| guests.enter().unwrap());
        // The first has asked for something since, and the second still waits for an answer.
        drop(first.used());
        let answer = second.used();
        let fourth = guests.enter().unwrap();
        assert!(is_lost(&third) && !is_lost(&first) && !is_lost(&second));
        let fifth = guests.enter().unwrap();
        assert!(is_lost(&first) && !is_lost(&fourth) && !is_lost(&second));
        let answers = [fourth.used(), fifth.used()];
        assert!(guests.enter().is_none(), "everybody is busy");
        drop((answer, answers));
        assert!(guests.enter().is_some());
        assert!(is_lost(&second));
        // A place that was lost is not given back twice.
        drop((first, second, third, fourth, fifth));
        assert_eq!(guests.lock().seats.len(), 0);
    }
}
