//! Quotas of logical clusters: objects, bytes, requests and watches.
//!
//! The limits are in the LogicalCluster object, which is in the parent: only users of the parent can write it.
//!
//! ```text
//!   kind: LogicalCluster
//!   spec: { limits: { objects: 10000, bytes: 100Mi, requestsPerSecond: 200, watches: 500 } }
//! ```
//!
//! A limit covers the logical cluster and all below it; otherwise a tenant that may create logical clusters would have
//! no limits. Usage is counted from the store's history ([`usage`]), so a decision compares a few numbers. Writes on
//! their way to the store are counted as reservations, so that concurrent writers do not all take the last place.
//! Servers that share a store do not share their reservations, request rates and watches: each server grants these
//! limits on its own.
//!
//! A tenant at its limit can still delete.

mod rate;
mod usage;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::cluster::Id;
use api::meta::field::FieldError;
use api::meta::quantity::Quantity;
use openapi::meta::status::{GroupResource, Status};
use serde::Deserialize;
use serde_json::Value;
use storage::{Entry, Event, Range, Revision, Store};

use crate::clusters::logical_cluster;
use crate::clusters::records::LogicalClusterRecord;
use crate::keys;
use crate::keys::ObjectKey;
use crate::objects::replica;
use crate::objects::replica::Replica;
use crate::objects::store_errors::unreadable;
use crate::objects::stored;
use crate::quota::rate::RateLimits;
pub(crate) use crate::quota::usage::Size;
use crate::quota::usage::UsageTotals;

/// The limits of a logical cluster. None: unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) objects: Option<i64>,
    pub(crate) bytes: Option<i64>,
    pub(crate) requests_per_second: Option<i64>,
    pub(crate) watches: Option<i64>,
}

impl Limits {
    /// Parses the limits of a LogicalCluster object. An invalid limit is ignored here, because validation refuses it.
    fn of(entry: &Entry) -> Option<(Id, Limits)> {
        #[derive(Deserialize)]
        struct LogicalClusterFields {
            #[serde(default)]
            spec: SpecFields,
            status: StatusFields,
        }
        #[derive(Deserialize, Default)]
        struct SpecFields {
            #[serde(default)]
            limits: Value,
        }
        #[derive(Deserialize)]
        struct StatusFields {
            id: String,
        }
        let object: LogicalClusterFields = serde_json::from_slice(stored::json(entry)?).ok()?;
        let [objects, bytes, requests_per_second, watches] =
            NAMES.map(|name| amount(&object.spec.limits[name]));
        let limits = Limits { objects, bytes, requests_per_second, watches };
        Some((object.status.id.parse().ok()?, limits))
    }
}

/// The fields of `spec.limits`, in the order of [`Limits`].
const NAMES: [&str; 4] = ["objects", "bytes", "requestsPerSecond", "watches"];

/// Parses a number or a quantity.
fn amount(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.parse::<Quantity>().ok()?.ceil(),
        number => number.as_i64(),
    }
}

/// Validates `spec.limits`.
pub(crate) fn check(limits: &Value) -> Vec<FieldError> {
    let set_limits = NAMES.iter().filter(|name| !limits[**name].is_null());
    let wrong = set_limits.filter(|name| amount(&limits[**name]).is_none_or(|amount| amount < 0));
    let error = |name: &&str| {
        let path = format!("spec.limits.{name}");
        FieldError::invalid(&path, limits[*name].clone(), "must be a number or a quantity, and not negative")
    };
    wrong.map(error).collect()
}

/// The usage of all logical clusters that have a limit, on themselves or above them.
#[derive(Debug)]
pub struct Quotas {
    counted: Replica<Counted>,
    paces: Mutex<RateLimits>,
}

#[derive(Debug, Default)]
struct Counted(Mutex<UsageTotals>);

impl Counted {
    fn lock(&self) -> MutexGuard<'_, UsageTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Quotas {
    pub fn new(inner_store: Arc<dyn Store>) -> Quotas {
        Quotas {
            counted: Replica::new(inner_store, Range::all(), Counted::default()),
            paces: Mutex::default(),
        }
    }

    /// Follows the store's history, so that a request does not have to catch up. Never returns.
    pub async fn follow(&self) -> Infallible {
        self.counted.follow().await
    }

    /// Reserves quota for an object that grows by `growth`. Returns an error that names the exceeded limit.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        cluster: Id,
        object: (GroupResource<'_>, &str),
        growth: Size,
    ) -> Result<QuotaReservation, Status> {
        let reservation =
            |growth| QuotaReservation { quotas: self.clone(), cluster, growth, committed_at: None };
        if self.counted.state().lock().is_unlimited(cluster) {
            return Ok(reservation(Size::default()));
        }
        self.counted.catch_up().await.map_err(unreadable)?;
        match self.counted.state().lock().reserve(cluster, growth) {
            Ok(()) => Ok(reservation(growth)),
            Err(over) => {
                let (resource, name) = object;
                Err(Status::forbidden(resource, name, &format!("exceeded quota: {over}")))
            }
        }
    }

    /// Admits a request, unless the rate is exceeded.
    pub(crate) fn pace(&self, cluster: Id) -> Result<(), Status> {
        let line = self.counted.state().lock().limited(cluster);
        self.paces().request(&line)
    }

    /// Admits a watch, unless there are too many. It counts until the returned value is dropped.
    pub(crate) async fn watch(self: &Arc<Self>, cluster: Id) -> Result<WatchReservation, Status> {
        self.counted.catch_up().await.map_err(unreadable)?;
        let line = self.counted.state().lock().limited(cluster);
        self.paces().watch(&line)?;
        Ok(WatchReservation { quotas: self.clone(), line: line.into_iter().map(|(id, _)| id).collect() })
    }

    fn paces(&self) -> MutexGuard<'_, RateLimits> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reserved quota of a write in progress. Dropping it releases the quota: at once if nothing was written, otherwise
/// once the write is counted.
#[derive(Debug)]
pub(crate) struct QuotaReservation {
    quotas: Arc<Quotas>,
    cluster: Id,
    growth: Size,
    committed_at: Option<Revision>,
}

impl QuotaReservation {
    /// Marks the write as committed at a revision.
    pub(crate) fn keep(mut self, at: Revision) {
        self.committed_at = Some(at);
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        if self.growth == Size::default() {
            return;
        }
        let mut tallies = self.quotas.counted.state().lock();
        match self.committed_at {
            // The lock is still held, so the write cannot be counted in between.
            Some(at) if tallies.through < at => tallies.release_after(at, self.cluster, self.growth),
            _ => tallies.release(self.cluster, self.growth),
        }
    }
}

/// A watch that counts against the limits.
#[derive(Debug)]
pub(crate) struct WatchReservation {
    quotas: Arc<Quotas>,
    line: Vec<Id>,
}

impl Drop for WatchReservation {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.quotas.paces().unwatch(&self.line);
        }
    }
}

impl replica::State for Counted {
    type Draft = UsageTotals;

    fn add(draft: &mut UsageTotals, entry: &Entry) {
        count(draft, entry.key(), None, Some(entry));
    }

    fn replace(&self, draft: UsageTotals, at: Revision) {
        let mut tallies = self.lock();
        let before = std::mem::take(&mut *tallies);
        *tallies = draft;
        tallies.begin(at, before);
    }

    fn apply(&self, events: &[Event], through: Revision) {
        let mut tallies = self.lock();
        for event in events {
            count(&mut tallies, &event.key, event.previous.as_ref(), event.current.as_ref());
        }
        tallies.release_through(through);
    }
}

/// Counts one change.
fn count(tallies: &mut UsageTotals, key: &storage::Key, old: Option<&Entry>, new: Option<&Entry>) {
    if let Some(id) = keys::cluster_record_id(key) {
        return match new {
            Some(record) => {
                tallies.add_cluster(id, LogicalClusterRecord::decode(record).and_then(|record| record.parent))
            }
            None => tallies.remove_cluster(id),
        };
    }
    let Some(place) = ObjectKey::of(key) else { return };
    tallies.add(place.cluster, Size::of(new) - Size::of(old));
    if place.collection == logical_cluster::COLLECTION {
        match (new.and_then(Limits::of), old.and_then(Limits::of)) {
            (Some((id, limits)), _) => tallies.limit(id, limits),
            (None, Some((id, _))) => tallies.limit(id, Limits::default()),
            (None, None) => {}
        }
    }
}
