//! The members of the etcd cluster: which one to call, and failover.
//!
//! All requests go to one member until it fails; then all go to the next. Each member has its own connection instead of
//! one that is balanced over all, because a balancer keeps choosing a failed member.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, Error, GetOptions, GetResponse, KvClient, MaintenanceClient, WatchClient};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};

use super::errors::{self, EtcdReadError};
use super::options::Options;

/// Maximum size of a response. Values have at most 8 MiB, and pages are smaller than this.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Delays between attempts: long enough not to overload etcd, short against the five seconds that recovery may take.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// etcd's errors for an expired login. The client library handles the first by itself, but not on watches; where tokens
/// are signed, the second follows every change of users and roles.
const STALE_LOGIN: [&str; 2] = ["invalid auth token", "revision of auth store is old"];

pub(super) struct Members {
    members: Vec<Member>,
    current: AtomicUsize,
    pub(super) options: Options,
}

struct Member {
    endpoint: Arc<str>,
    connection: OnceCell<Arc<Connection>>,
}

struct Connection {
    client: Client,
    kv: KvClient,
    watch: WatchClient,
    maintenance: MaintenanceClient,
}

/// A member and its connection.
#[derive(Clone)]
pub(super) struct Chosen {
    index: usize,
    pub(super) endpoint: Arc<str>,
    connection: Arc<Connection>,
}

impl Chosen {
    pub(super) fn kv(&self) -> KvClient {
        self.connection.kv.clone()
    }

    pub(super) fn watch(&self) -> WatchClient {
        self.connection.watch.clone()
    }

    pub(super) async fn version(&self) -> Result<String, Error> {
        Ok(self.connection.maintenance.clone().status().await?.version().to_owned())
    }
}

impl Connection {
    async fn open(endpoint: &str, options: &Options) -> Result<Arc<Self>, Error> {
        let client = Client::connect([endpoint], Some(options.client())).await?;
        Ok(Arc::new(Connection {
            kv: client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX),
            watch: client.watch_client().max_decoding_message_size(ANSWER_BYTES_MAX),
            maintenance: client.maintenance_client(),
            client,
        }))
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = self.members.iter().map(|member| &member.endpoint);
        f.debug_list().entries(endpoints).finish()
    }
}

impl Members {
    pub(super) fn new(options: Options) -> Self {
        let member =
            |endpoint: &String| Member { endpoint: endpoint.as_str().into(), connection: OnceCell::new() };
        let members = options.endpoints.iter().map(member).collect();
        Members { members, current: AtomicUsize::new(0), options }
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the member that all requests go to at the moment.
    pub(super) async fn current(&self) -> Result<Chosen, Error> {
        let index = self.current.load(Ordering::Relaxed) % self.members.len();
        let chosen = self.member(index).await;
        if chosen.is_err() {
            self.advance(index);
        }
        chosen
    }

    pub(super) async fn member(&self, index: usize) -> Result<Chosen, Error> {
        let member = &self.members[index];
        // Without a user this does no I/O. With one it logs in, which can fail.
        let open = || Connection::open(&member.endpoint, &self.options);
        let connection = member.connection.get_or_try_init(open).await?.clone();
        Ok(Chosen { index, endpoint: member.endpoint.clone(), connection })
    }

    /// Moves all requests to the next member after this one `failed`, unless they have moved already.
    pub(super) async fn avoid(&self, failed: &Chosen, reason: &str) {
        self.advance(failed.index);
        if STALE_LOGIN.iter().any(|stale| reason.contains(stale)) {
            // Renewed here, because every following request would fail.
            let deadline = Instant::now() + self.options.timeouts.request;
            let renewed = within(deadline, failed.connection.client.refresh_token()).await;
            tracing::debug!(member = %failed.endpoint, ?renewed, "renewed the login to etcd");
        }
    }

    fn advance(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        let _ = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Reads from one member after another until `deadline`. Only for idempotent requests.
    pub(super) async fn read(
        &self,
        key: &[u8],
        options: &GetOptions,
        deadline: Instant,
    ) -> Result<GetResponse, EtcdReadError> {
        let get = |member: Chosen| async move { member.kv().get(key, Some(options.clone())).await };
        self.attempt(deadline, get).await
    }

    /// Calls one member after another until one answers or `deadline` passes.
    pub(super) async fn attempt<T, Call>(
        &self,
        deadline: Instant,
        call: impl Fn(Chosen) -> Call,
    ) -> Result<T, EtcdReadError>
    where
        Call: Future<Output = Result<T, Error>>,
    {
        let mut backoff = Backoff::new();
        let mut last = "no member was reached before the deadline".to_owned();
        while Instant::now() < deadline {
            match self.once(deadline, &call).await {
                Ok(answer) => return Ok(answer),
                Err(EtcdReadError::Failed(reason)) => last = reason,
                // The member lags behind the one that reported the revision.
                Err(EtcdReadError::Future) => last = EtcdReadError::Future.reason(),
                Err(error) => return Err(error),
            }
            backoff.wait(deadline).await;
        }
        Err(EtcdReadError::Failed(last))
    }

    async fn once<T, Call>(
        &self,
        deadline: Instant,
        call: &impl Fn(Chosen) -> Call,
    ) -> Result<T, EtcdReadError>
    where
        Call: Future<Output = Result<T, Error>>,
    {
        let until = deadline.min(Instant::now() + self.options.timeouts.request);
        let member = match within(until, self.current()).await {
            Ok(member) => member.map_err(|error| errors::classify_read(&error))?,
            Err(reason) => return Err(EtcdReadError::Failed(reason)),
        };
        let answer = match within(until, call(member.clone())).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => errors::classify_read(&error),
            Err(reason) => EtcdReadError::Failed(reason),
        };
        if let EtcdReadError::Failed(reason) = &answer {
            tracing::debug!(member = %member.endpoint, reason, "a request to etcd failed");
            self.avoid(&member, reason).await;
        }
        Err(answer)
    }
}

/// Runs `work` until `deadline`.
pub(super) async fn within<T>(deadline: Instant, work: impl Future<Output = T>) -> Result<T, String> {
    timeout_at(deadline, work).await.map_err(|_| "etcd did not answer in time".to_owned())
}

/// Growing delays between attempts.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff(BACKOFF_FIRST)
    }

    pub(super) fn is_first(&self) -> bool {
        self.0 == BACKOFF_FIRST
    }

    pub(super) async fn wait(&mut self, deadline: Instant) {
        // With jitter, so that servers that lost the same member do not retry at the same time.
        let jittered = self.0.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        sleep(jittered.min(deadline.saturating_duration_since(Instant::now()))).await;
        self.0 = (self.0 * 2).min(BACKOFF_MAX);
    }
}
