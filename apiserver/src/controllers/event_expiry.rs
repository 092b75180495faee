//! Deletes events an hour after they were last written.
//!
//! The revision of an entry tells how old it is, without reading it. So the controller records the newest revision
//! every minute, and removes all events up to the revision recorded an hour ago. After a restart the hour begins again.

use std::collections::VecDeque;
use std::time::Duration;

use storage::{Page, Revision};
use tokio::time::Instant;

use crate::controllers::write::ReconcileError;
use crate::controllers::{Controllers, delete_collection};
use crate::keys::Collection;

/// As in Kubernetes.
const LASTS: Duration = Duration::from_secs(60 * 60);
/// How often expired events are removed, and so how exact the hour is.
const EVERY: Duration = Duration::from_secs(60);
/// Page size of a list.
const PAGE_ENTRIES: usize = 1000;
const EVENTS: Collection<'static> = Collection { group: "", plural: "events" };

/// The newest revision at each of several points in time.
#[derive(Debug, Default)]
struct Calendar(VecDeque<(Instant, Revision)>);

impl Calendar {
    fn note(&mut self, now: Instant, newest: Revision) {
        self.0.push_back((now, newest));
    }

    /// Returns the newest revision that is at least `age` old.
    fn before(&mut self, now: Instant, age: Duration) -> Option<Revision> {
        let old = self.0.iter().take_while(|(noted, _)| now.duration_since(*noted) >= age).count();
        let revision = old.checked_sub(1).map(|last| self.0[last].1);
        // The newest of the old ones stays, because there may be no newer one for a while.
        self.0.drain(..old.saturating_sub(1));
        revision
    }
}

/// Removes expired events periodically. Never returns.
pub(super) async fn run(controllers: &Controllers) -> std::convert::Infallible {
    let mut calendar = Calendar::default();
    loop {
        if let Err(error) = reconcile(controllers, &mut calendar).await {
            tracing::warn!(controller = "event_expiry", %error, "reconcile failed; requeued");
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn reconcile(controllers: &Controllers, calendar: &mut Calendar) -> Result<(), ReconcileError> {
    let store = &*controllers.inner_store;
    let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
    let mut through = None;
    loop {
        let read = store.list(EVENTS.everywhere(), page.clone()).await?;
        if page.after.is_none() {
            let now = Instant::now();
            calendar.note(now, read.revision);
            through = calendar.before(now, LASTS);
        }
        let Some(through) = through else { return Ok(()) };
        page.after = read.value.entries.last().map(|entry| entry.key().clone());
        let old = read.value.entries.into_iter().filter(|entry| entry.revision() <= through);
        // An event that was written again meanwhile has not expired, so it stays.
        delete_collection::remove_each(store, old.collect()).await?;
        if !read.value.more {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_maps_an_age_to_a_revision() {
        let mut calendar = Calendar::default();
        let begun = Instant::now();
        let at = |minutes: u64| begun + Duration::from_secs(60 * minutes);
        for minute in 0..=90 {
            calendar.note(at(minute), Revision(100 + minute));
        }
        assert_eq!(calendar.before(at(30), LASTS), None);
        assert_eq!(calendar.before(at(90), LASTS), Some(Revision(130)));
        assert_eq!(calendar.before(at(90), LASTS), Some(Revision(130)));
        assert_eq!(calendar.0.len(), 61, "only the needed revisions are kept");
        assert_eq!(calendar.before(at(1000), LASTS), Some(Revision(190)));
    }
}
