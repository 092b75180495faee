//! Views of many kinds that follow one history.
//!
//! ```text
//!   history: list at r ─► changes after r ─► one task ─► put, remove in views ─► news (to a queue) ─► reached: r'
//! ```
//!
//! All views are equal to the server at one revision, which only grows: an object, its namespace, the policies that
//! select it and the writes of the controller itself are observed in the order in which they were committed. So a
//! controller waits for its own writes by one number ([`Follower::reach`]).

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::object::CachedObject;
use super::view::{News, View};
use crate::history::{ChangeBatch, Changes, History, HistoryError, ObjectChange, SharedObject};
use crate::key::Key;
use crate::remote::CallError;

/// Pause before the history is read again after an error.
const RETRY: Duration = Duration::from_secs(1);

type Keep = dyn Fn(&CachedObject) -> bool + Send + Sync;

/// A view, and which objects it keeps.
#[derive(Clone)]
pub struct FollowedView {
    view: Arc<View>,
    keep: Option<Arc<Keep>>,
}

impl std::fmt::Debug for FollowedView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.view.kind)
    }
}

impl FollowedView {
    fn is_forbidden(&self) -> bool {
        self.view.forbidden().is_some()
    }

    /// Keeps all objects of the kind.
    pub fn all(view: &Arc<View>) -> FollowedView {
        FollowedView { view: view.clone(), keep: None }
    }

    /// Keeps the objects for which `keep` returns true. The others cost nothing.
    pub fn filtered(
        view: &Arc<View>,
        keep: impl Fn(&CachedObject) -> bool + Send + Sync + 'static,
    ) -> FollowedView {
        FollowedView { view: view.clone(), keep: Some(Arc::new(keep)) }
    }
}

/// Keeps views equal to a history.
#[derive(Debug)]
pub struct Follower {
    history: Arc<dyn History>,
    /// The revision that all views have reached. Zero before the first list.
    reached: watch::Sender<u64>,
    /// The highest revision that a caller waits for.
    goal: watch::Sender<u64>,
    requests: mpsc::UnboundedSender<FollowedView>,
    /// Taken by [`Follower::run`].
    requested: Mutex<Option<mpsc::UnboundedReceiver<FollowedView>>>,
}

impl Follower {
    pub fn new(history: Arc<dyn History>) -> Follower {
        let (requests, requested) = mpsc::unbounded_channel();
        Follower {
            history,
            reached: watch::Sender::new(0),
            goal: watch::Sender::new(0),
            requests,
            requested: Mutex::new(Some(requested)),
        }
    }

    /// Follows one more view, or lists the objects of a followed one again. A view of the same resource in another
    /// version replaces the earlier one.
    pub fn follow(&self, view: FollowedView) {
        // The receiver is dropped only when the controller stops.
        let _ = self.requests.send(view);
    }

    /// Waits until the views include every change up to a revision. Returns at once if they do.
    pub async fn reach(&self, revision: u64) {
        let mut reached = self.reached.subscribe();
        // Revision 0 is reached by the first complete list.
        let revision = revision.max(1);
        if *reached.borrow_and_update() >= revision {
            return;
        }
        self.goal.send_if_modified(|goal| {
            let is_later = revision > *goal;
            *goal = revision.max(*goal);
            is_later
        });
        // The sender is a field of `self`.
        let _ = reached.wait_for(|reached| *reached >= revision).await;
    }

    /// Waits until the views include every write that was acknowledged before the call.
    pub async fn catch_up(&self) -> Result<(), HistoryError> {
        let newest = self.history.newest().await?;
        self.reach(newest).await;
        Ok(())
    }

    /// Keeps these views equal to the history, for as long as it is polled. `notify` is called with every change, in the
    /// order of revisions; in the first list, in the order of the views.
    ///
    /// # Panics
    ///
    /// If it is called twice.
    pub async fn run(&self, views: Vec<FollowedView>, notify: impl Fn(&View, News)) -> Infallible {
        let requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner).take();
        let requested = requested.expect("a follower runs once");
        let mut run = FollowerRun { follower: self, required: views.len(), views, requested, notify };
        loop {
            let mut is_following = false;
            let Err(error) = run.list_and_follow(&mut is_following).await;
            // A cursor that fell behind starts again. A list that takes longer than history is kept would never end.
            if error != HistoryError::Compacted || !is_following {
                run.lost(&error);
                sleep(RETRY).await;
            }
        }
    }
}

struct FollowerRun<'a, N> {
    follower: &'a Follower,
    views: Vec<FollowedView>,
    /// So many of the views were there from the start. Without one of them there are no decisions.
    required: usize,
    requested: mpsc::UnboundedReceiver<FollowedView>,
    notify: N,
}

impl<N: Fn(&View, News)> FollowerRun<'_, N> {
    /// Lists all objects, and follows their changes until that fails. `is_following` is set once all are listed.
    async fn list_and_follow(&mut self, is_following: &mut bool) -> Result<Infallible, HistoryError> {
        let history = self.follower.history.clone();
        let at = history.newest().await?;
        // Opened before the lists, so that what they take a while for is not compacted.
        let mut changes = history.changes(at).await?;
        // All are read before any view changes, so that readers see as little as possible of an old and a new state at once.
        let mut lists = Vec::new();
        for (number, followed) in self.views.iter().enumerate() {
            changes.follow(&followed.view.kind, number);
            let list = history.list(&followed.view.kind, at).await;
            lists.push(self.lost_if_forbidden(followed, number, list)?);
        }
        for (followed, list) in self.views.iter().zip(&mut lists) {
            if let Some(list) = list.take() {
                self.replace(followed, list);
            }
        }
        self.views.iter().filter(|followed| !followed.is_forbidden()).for_each(|one| self.synced(&one.view));
        // Kinds that the listed objects define are part of the first complete state.
        while let Ok(followed) = self.requested.try_recv() {
            self.add(followed, &mut *changes, at).await?;
        }
        self.set_reached(at);
        *is_following = true;
        let mut goals = self.follower.goal.subscribe();
        loop {
            let goal =
                Some(*goals.borrow_and_update()).filter(|goal| *goal > *self.follower.reached.borrow());
            tokio::select! {
                Some(followed) = self.requested.recv() => {
                    let through = *self.follower.reached.borrow();
                    self.add(followed, &mut *changes, through).await?;
                }
                // The follower owns the sender.
                _ = goals.changed(), if goal.is_none() => {}
                batch = changes.next(goal) => self.apply(batch?),
            }
        }
    }

    /// Follows one more view from a revision on.
    async fn add(
        &mut self,
        followed: FollowedView,
        changes: &mut dyn Changes,
        through: u64,
    ) -> Result<(), HistoryError> {
        let same = |known: &FollowedView| {
            (&known.view.kind.group, &known.view.kind.plural)
                == (&followed.view.kind.group, &followed.view.kind.plural)
        };
        let number = self.views.iter().position(same).unwrap_or(self.views.len());
        match self.views.get_mut(number) {
            // A kind of a tenant must not take the place of one that the controller needs.
            Some(known) if number < self.required && !Arc::ptr_eq(&known.view, &followed.view) => {
                tracing::warn!(kind = %followed.view.kind, "the kind is followed already");
                return Ok(());
            }
            Some(known) => *known = followed.clone(),
            None => self.views.push(followed.clone()),
        }
        changes.follow(&followed.view.kind, number);
        let list = self.follower.history.list(&followed.view.kind, through).await;
        if let Some(list) = self.lost_if_forbidden(&followed, number, list)? {
            self.replace(&followed, list);
            self.synced(&followed.view);
        }
        Ok(())
    }

    /// Returns the objects of a kind, or None if they are forbidden. A kind that was added later may be, because tenants
    /// choose the groups of their kinds; that must not keep the others from being followed.
    fn lost_if_forbidden(
        &self,
        followed: &FollowedView,
        number: usize,
        list: Result<Vec<SharedObject>, HistoryError>,
    ) -> Result<Option<Vec<SharedObject>>, HistoryError> {
        match list {
            Err(HistoryError::Forbidden(message)) if number >= self.required => {
                let error = CallError::Refused { code: 403, reason: "Forbidden".to_owned(), message };
                if followed.view.set_lost(&error) {
                    tracing::warn!(kind = %followed.view.kind, %error, "the kind is not followed");
                    (self.notify)(&followed.view, News::Lost);
                }
                Ok(None)
            }
            list => list.map(Some),
        }
    }

    /// Makes a view equal to a complete list.
    fn replace(&self, followed: &FollowedView, objects: Vec<SharedObject>) {
        let view = &followed.view;
        let mut listed = HashSet::new();
        for object in objects.into_iter().map(CachedObject::from) {
            if followed.keep.as_ref().is_none_or(|keep| keep(&object)) {
                listed.insert(object.key.clone());
                self.put(view, object);
            }
        }
        let gone = view.retain(&listed);
        gone.iter().for_each(|last| (self.notify)(view, News::Gone { last, witnessed: false }));
    }

    fn apply(&self, batch: ChangeBatch) {
        for change in batch.changes {
            match change {
                ObjectChange::Put { number, object } => {
                    let Some(followed) = self.views.get(number) else { continue };
                    let object = CachedObject::from(object);
                    match followed.keep.as_ref().is_none_or(|keep| keep(&object)) {
                        true => self.put(&followed.view, object),
                        false => self.remove(&followed.view, &object.key),
                    }
                }
                ObjectChange::Deleted { number, key, .. } => {
                    if let Some(followed) = self.views.get(number) {
                        self.remove(&followed.view, &key);
                    }
                }
            }
        }
        self.set_reached(batch.through);
    }

    fn put(&self, view: &View, object: CachedObject) {
        let object = Arc::new(object);
        if let Some(new) = view.put(&object) {
            (self.notify)(view, News::Put { now: &object, new });
        }
    }

    fn remove(&self, view: &View, key: &Key) {
        if let Some(last) = view.remove(key) {
            (self.notify)(view, News::Gone { last: &last, witnessed: true });
        }
    }

    fn set_reached(&self, through: u64) {
        self.follower.reached.send_if_modified(|reached| {
            let is_later = through > *reached;
            *reached = through.max(*reached);
            is_later
        });
    }

    fn synced(&self, view: &View) {
        if view.set_synced() {
            (self.notify)(view, News::Synced);
        }
    }

    fn lost(&self, error: &HistoryError) {
        tracing::warn!(%error, "cannot read the history of the server; retrying");
        let error = CallError::Unreachable(error.to_string());
        for FollowedView { view, .. } in &self.views {
            if view.set_lost(&error) {
                (self.notify)(view, News::Lost);
            }
        }
    }
}

#[cfg(test)]
mod tests;
