//! Limits on concurrent requests and on the bytes of their bodies.
//!
//! ```text
//!   head ─► slot ─► authorization ─┬─► no slot, bytes counted: the body arrives ─► slot ─► verb
//!                                └─► no body ────────────────────────────────────────────┘
//! ```
//!
//! Each request uses memory while it lasts, so reads and writes have a maximum number of concurrent requests each;
//! further requests get 429. A watch counts only while it starts. Health checks, administrators and controllers are
//! exempt.
//!
//! A tenant may have as many requests as there are free slots. So one tenant alone gets half of the slots, two tenants
//! get a third each, and one more tenant always finds a slot. This needs no configuration, and a tenant without
//! requests costs nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::cluster::Id;
use bytes::Bytes;
use http::Method;
use openapi::meta::status::Status;
use tokio::sync::Notify;

use crate::authn::identity::Identity;
use crate::http::fair_pool::{Bounds, FairPool, Lease};
use crate::http::incoming;
use crate::http::incoming::Incoming;
use crate::request::info::RequestInfo;
use crate::request::path::Target;

/// As in Kubernetes. At 3 MiB a body, writes hold some 600 MiB at worst.
const READS_MAX: usize = 400;
const WRITES_MAX: usize = 200;
/// Signatures of tokens that are verified concurrently, at a tenth of a millisecond each. Tokens that were verified
/// before are not limited.
const UNVERIFIED_MAX: usize = 32;
/// Retry-After.
const RETRY_SECONDS: u32 = 1;
/// Bytes of bodies that have not arrived completely. One tenant can send twenty of the largest bodies at the same time,
/// and four such tenants exhaust the total.
const ARRIVING: Bounds = Bounds { per_owner: 64 << 20, total: 256 << 20 };
/// The size of a request before its body: the largest head.
const HEAD_BYTES: usize = 64 << 10;

/// The tenant that a request or a connection counts for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Tenant {
    Anonymous,
    /// A user from the static token file or with a certificate.
    User(Arc<str>),
    /// All identities of one tenant's logical clusters.
    Cluster(Id),
}

/// The limits and their current use.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) reads: Lane,
    pub(crate) writes: Lane,
    /// Requests whose token is being verified.
    unverified: AtomicUsize,
    arriving: Arc<FairPool<Tenant>>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            reads: Lane::new(READS_MAX),
            writes: Lane::new(WRITES_MAX),
            unverified: AtomicUsize::new(0),
            arriving: Arc::new(FairPool::new(ARRIVING)),
        }
    }
}

impl Limits {
    /// Takes a slot, which is free again when the returned value is dropped.
    pub(crate) fn enter(
        self: &Arc<Self>,
        tenant: &Tenant,
        identity: &Identity,
        info: &RequestInfo,
    ) -> Result<RequestSlot, Status> {
        let is_read = matches!(info.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let is_exempt =
            matches!(info.target(), Some(Target::Health { .. })) || identity.is_at_home_everywhere();
        let (limits, tenant) = (self.clone(), tenant.clone());
        let mut slot = RequestSlot { limits, is_read, tenant, is_exempt, is_acquired: false };
        slot.enter()?;
        Ok(slot)
    }

    /// Takes a slot for verifying a token: any client can request this, and it costs CPU time.
    pub(crate) fn begin_verification(&self) -> Result<VerificationSlot<'_>, Status> {
        let meeting = VerificationSlot { unverified: &self.unverified };
        match self.unverified.fetch_add(1, Ordering::Relaxed) < UNVERIFIED_MAX {
            true => Ok(meeting),
            false => Err(full()),
        }
    }
}

fn full() -> Status {
    Status::too_many_requests("Too many requests, please try again later.", RETRY_SECONDS)
}

/// The slots for reads or for writes.
#[derive(Debug)]
pub(crate) struct Lane {
    max: usize,
    usage: Mutex<LaneUsage>,
}

#[derive(Debug, Default)]
struct LaneUsage {
    total: usize,
    /// Only tenants with requests.
    by_tenant: HashMap<Tenant, usize>,
}

impl Lane {
    fn new(max: usize) -> Lane {
        Lane { max, usage: Mutex::default() }
    }

    /// Returns the number of concurrent requests.
    pub(crate) fn now(&self) -> usize {
        self.lock().total
    }

    fn take(&self, tenant: &Tenant, is_exempt: bool) -> bool {
        let mut usage = self.lock();
        let held_by_tenant = usage.by_tenant.get(tenant).copied().unwrap_or(0);
        let free = self.max.saturating_sub(usage.total);
        if held_by_tenant >= free && !is_exempt {
            return false;
        }
        usage.total += 1;
        usage.by_tenant.insert(tenant.clone(), held_by_tenant + 1);
        true
    }

    fn give_back(&self, tenant: &Tenant) {
        let mut usage = self.lock();
        usage.total -= 1;
        if let Some(held_by_tenant) = usage.by_tenant.get_mut(tenant) {
            *held_by_tenant -= 1;
            if *held_by_tenant == 0 {
                usage.by_tenant.remove(tenant);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, LaneUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of a request.
#[derive(Debug)]
pub(crate) struct RequestSlot {
    limits: Arc<Limits>,
    is_read: bool,
    tenant: Tenant,
    is_exempt: bool,
    is_acquired: bool,
}

impl RequestSlot {
    fn lane(&self) -> &Lane {
        if self.is_read { &self.limits.reads } else { &self.limits.writes }
    }

    /// Receives a body. Gives up the slot meanwhile: a client that sends slowly or never must not block others.
    pub(crate) async fn receive(&mut self, incoming: impl Incoming) -> Result<Bytes, Status> {
        if incoming.is_end_stream() {
            return Ok(Bytes::new());
        }
        self.release();
        let arrival = Arrival::new(&self.limits, &self.tenant);
        let bytes = incoming::read(incoming, &arrival).await?;
        self.enter()?;
        Ok(bytes)
    }

    fn enter(&mut self) -> Result<(), Status> {
        self.is_acquired = self.lane().take(&self.tenant, self.is_exempt);
        if self.is_acquired { Ok(()) } else { Err(full()) }
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_acquired) {
            self.lane().give_back(&self.tenant);
        }
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.release();
    }
}

/// A body that is arriving, counted by its bytes.
#[derive(Debug)]
pub(crate) struct Arrival {
    lease: Lease<Tenant>,
    evicted: Arc<Notify>,
}

impl Arrival {
    fn new(limits: &Limits, tenant: &Tenant) -> Arrival {
        let evicted = Arc::new(Notify::new());
        Arrival { lease: limits.arriving.enter(tenant.clone(), HEAD_BYTES, evicted.clone()), evicted }
    }

    /// Counts arrived bytes.
    pub(crate) fn add(&self, bytes: usize) {
        self.lease.grow(bytes);
    }

    /// Returns when another tenant needs the memory.
    pub(crate) async fn evicted(&self) -> Status {
        self.evicted.notified().await;
        Status::too_many_requests(
            "too many request bodies are arriving at once, please try again later",
            RETRY_SECONDS,
        )
    }
}

/// A slot for verifying a token.
#[derive(Debug)]
pub(crate) struct VerificationSlot<'a> {
    unverified: &'a AtomicUsize,
}

impl Drop for VerificationSlot<'_> {
    fn drop(&mut self) {
        self.unverified.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{FutureExt, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::User(name.into())
    }

    fn limits(reads: usize, writes: usize) -> Arc<Limits> {
        Arc::new(Limits { reads: Lane::new(reads), writes: Lane::new(writes), ..Limits::default() })
    }

    /// Takes all slots that a tenant can get.
    fn fill_lane(limits: &Arc<Limits>, name: &str, line: &str) -> Vec<RequestSlot> {
        let user = Identity::user(name, &["dev"]);
        let info = RequestInfo::line(line);
        let enter = || limits.enter(&tenant(name), &user, &info);
        std::iter::from_fn(|| enter().ok()).collect()
    }

    #[test]
    fn a_request_beyond_the_limit_gets_429_with_retry_after() {
        let limits = limits(4, 2);
        let (read, write) = ("GET /api/v1/pods", "POST /api/v1/namespaces");
        let slots = (
            fill_lane(&limits, "ann", read),
            fill_lane(&limits, "bob", read),
            fill_lane(&limits, "cat", read),
        );
        let refused = limits.enter(&tenant("dan"), &Identity::user("dan", &[]), &RequestInfo::line(read));
        let refused = refused.unwrap_err();
        assert_eq!((refused.code, refused.details.unwrap().retry_after_seconds), (429, 1));
        // Writes have their own slots, and some clients are never refused.
        let writes = (fill_lane(&limits, "ann", write), fill_lane(&limits, "bob", write));
        assert_eq!((limits.reads.now(), limits.writes.now()), (4, 2));
        let probe = limits.enter(&Tenant::Anonymous, &Identity::Anonymous, &RequestInfo::line("GET /readyz"));
        assert!(probe.is_ok());
        let admin = Identity::user("admin", &["system:masters"]);
        assert!(limits.enter(&tenant("admin"), &admin, &RequestInfo::line(write)).is_ok());
        drop((slots, writes, probe));
        assert_eq!((limits.reads.now(), limits.writes.now()), (0, 0));
        assert!(limits.reads.lock().by_tenant.is_empty());
    }

    #[test]
    fn a_tenant_holds_at_most_as_many_slots_as_are_free() {
        let limits = limits(0, 60);
        let line = "POST /api/v1/namespaces";
        let alone = fill_lane(&limits, "a", line);
        assert_eq!(alone.len(), 30);
        let second = fill_lane(&limits, "b", line);
        assert_eq!(second.len(), 15, "a used the free slots while it was alone");
        drop(alone);
        assert_eq!(fill_lane(&limits, "c", line).len(), 23);
        let others: Vec<_> = (0..5).map(|n| fill_lane(&limits, &n.to_string(), line)).collect();
        assert!(others.iter().all(|slots| !slots.is_empty()), "one more slot is free");
    }

    #[test]
    fn concurrent_token_verifications_are_limited() {
        let limits = Limits::default();
        let verifications: Vec<_> =
            (0..UNVERIFIED_MAX).map(|_| limits.begin_verification().unwrap()).collect();
        assert_eq!(limits.begin_verification().unwrap_err().code, 429);
        drop(verifications);
        assert!(limits.begin_verification().is_ok());
    }

    /// Regression: 205 writes with half a body blocked all writes for a minute.
    #[tokio::test]
    async fn a_body_that_does_not_arrive_holds_no_slot() {
        let limits = limits(0, 2);
        let ann = Identity::user("ann", &[]);
        let info = RequestInfo::line("POST /api/v1/namespaces");
        let enter = || limits.enter(&tenant("ann"), &ann, &info);
        let mut slot = enter().unwrap();
        assert!(enter().is_err());
        let half = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{\"a\":")))]);
        let half = StreamBody::new(futures::StreamExt::chain(half, stream::pending()));
        {
            let mut receiving = std::pin::pin!(slot.receive(half));
            assert!(receiving.as_mut().now_or_never().is_none());
            let other = enter().unwrap();
            assert_eq!(limits.writes.now(), 1);
            drop(other);
        }
        let all = http_body_util::Full::<Bytes>::from("{}");
        assert_eq!(slot.receive(all).await.unwrap(), "{}");
        assert_eq!(limits.writes.now(), 1, "the request with a complete body runs");
        drop(slot);
        assert_eq!(limits.writes.now(), 0);
    }
}
