//! A server in this process, and the link to it.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use apiserver::authn::identity::{Identity, User};
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore};
use apiserver::controllers::Controllers;
use apiserver::history::history;
use apiserver::kinds::{Own, Registry};
use apiserver::local;
use apiserver::request::path::Cluster;
use apiserver::stack::Stack;
use bytes::Bytes;
use controller::history::History;
use controller::tasks::Tasks;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use storage::memory::Memory;
use storage::{Revision, Store};
use tokio::sync::watch;
use tokio::time::Instant;

/// Longer than any timeout.
const FOREVER: Duration = Duration::from_secs(1 << 20);

/// A complete server in this process, over a store in memory.
pub(crate) struct InProcessServer {
    stack: Arc<Stack>,
    store: Arc<dyn Store>,
    _tasks: Tasks,
}

/// The point of a write at which a link is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CutPoint {
    /// Before the server receives the write.
    BeforeWrite,
    /// After the server has executed it, so that the response is lost.
    AfterWrite,
}

/// A link to a server. It counts writes, can be cut, and can answer in the server's place.
#[derive(Clone, Debug)]
pub(crate) struct TestLink {
    cut: Arc<AtomicBool>,
    /// How often requests in flight were aborted.
    aborts: watch::Sender<u64>,
    written: Arc<Mutex<Vec<(Instant, String)>>>,
    /// The watched paths.
    watched: Arc<Mutex<BTreeSet<String>>>,
    /// How often a lease was renewed.
    renewed: Arc<AtomicUsize>,
    /// After so many more writes the link is cut.
    writes_until_cut: Arc<Mutex<Option<(usize, CutPoint)>>>,
    /// The delay of requests for paths with this ending.
    delayed: Arc<Mutex<Option<(&'static str, Duration)>>>,
    /// The response to all requests instead of the server's.
    response: Arc<Mutex<Option<(u16, &'static str)>>>,
}

impl InProcessServer {
    pub(crate) async fn start() -> Result<InProcessServer> {
        let (memory, mut tasks): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), Tasks::new());
        let bootstrap_options =
            BootstrapOptions { authority: "an authority", address: ([127, 0, 0, 1], 6443).into() };
        let store = BootstrapStore::open(memory.clone(), bootstrap::objects(&bootstrap_options)).await?;
        let kinds = Arc::new(Registry::new(memory.clone()).with_own(Own::read(api::fleet::DEFINITIONS)?));
        kinds.load().await?;
        tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
        let controllers = Controllers::new(store.clone(), memory, String::new()).with_kinds(kinds.clone());
        tasks.spawn("controllers", controllers.run(tasks.stop()));
        let stack = Stack::new(store.clone(), "127.0.0.1:6443".to_owned(), tasks.stop()).with_kinds(kinds);
        Ok(InProcessServer { stack: Arc::new(stack), store, _tasks: tasks })
    }

    /// Compacts the history, as servers do after some minutes. A client that was disconnected has to list again.
    pub(crate) async fn forget_history(&self) -> Result<()> {
        Ok(self.store.compact(Revision(u64::MAX)).await?)
    }

    /// Returns a client of the administrator for a logical cluster.
    pub(crate) fn reach(&self, cluster: &Cluster) -> Client {
        local::client(self.stack.clone(), administrator(), cluster)
    }

    /// Returns the history as the administrator reads it.
    pub(crate) fn history(&self) -> Arc<dyn History> {
        history(&self.stack, administrator())
    }

    /// Returns a client of the administrator with an undisturbed link.
    pub(crate) fn client(&self) -> Client {
        self.through(&TestLink::new())
    }

    /// Returns a client of the administrator whose requests pass through this link.
    pub(crate) fn through(&self, link: &TestLink) -> Client {
        let (stack, link) = (self.stack.clone(), link.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (stack, link) = (stack.clone(), link.clone());
            async move {
                link.forward(request, async |request| Ok(stack.respond(administrator(), request).await)).await
            }
        });
        Client::new(service, "default")
    }
}

fn administrator() -> Identity {
    let groups = vec!["system:masters".to_owned()];
    Identity::known(User { name: "admin".to_owned(), groups, ..User::default() })
}

impl TestLink {
    pub(crate) fn new() -> TestLink {
        TestLink {
            cut: Arc::default(),
            aborts: watch::Sender::new(0),
            written: Arc::default(),
            watched: Arc::default(),
            renewed: Arc::default(),
            writes_until_cut: Arc::default(),
            delayed: Arc::default(),
            response: Arc::default(),
        }
    }

    /// Returns a client whose requests pass through this link.
    pub(crate) fn over(&self, client: Client) -> Client {
        let link = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, link) = (client.clone(), link.clone());
            async move {
                let respond = async |request| client.send(request).await.map_err(io::Error::other);
                link.forward(request, respond).await
            }
        });
        Client::new(service, "default")
    }

    /// Answers all requests with this response from now on, and aborts those in flight.
    pub(crate) fn respond_with(&self, response: Option<(u16, &'static str)>) {
        *self.response.lock().unwrap() = response;
        self.abort_requests();
    }

    /// Accepts requests without answering them from now on, and aborts those in flight.
    pub(crate) fn stop_responding(&self) {
        self.delay("", FOREVER);
        self.abort_requests();
    }

    /// Delays requests for paths with this ending from now on.
    pub(crate) fn delay(&self, path: &'static str, delay: Duration) {
        *self.delayed.lock().unwrap() = Some((path, delay));
    }

    /// Cuts the link at the write after so many more.
    pub(crate) fn cut_at(&self, writes: usize, point: CutPoint) {
        *self.writes_until_cut.lock().unwrap() = Some((writes, point));
    }

    /// Returns the cut point, if this write is the last one.
    fn cut_point(&self) -> Option<CutPoint> {
        let mut writes_until_cut = self.writes_until_cut.lock().unwrap();
        match &mut *writes_until_cut {
            Some((0, _)) => writes_until_cut.take().map(|(_, point)| point),
            Some((writes, _)) => {
                *writes -= 1;
                None
            }
            None => None,
        }
    }

    /// Removes all faults.
    pub(crate) fn clear_faults(&self) {
        *self.writes_until_cut.lock().unwrap() = None;
        *self.delayed.lock().unwrap() = None;
        *self.response.lock().unwrap() = None;
        self.cut(false);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
        if cut {
            self.abort_requests();
        }
    }

    /// Aborts requests in flight.
    fn abort_requests(&self) {
        self.aborts.send_modify(|times| *times += 1);
    }

    /// Returns the writes since the last call, as `PATCH /api/…`, without those of leases.
    pub(crate) fn written(&self) -> Vec<String> {
        self.written_when().into_iter().map(|(_, call)| call).collect()
    }

    /// Returns the same with the times of the writes.
    pub(crate) fn written_when(&self) -> Vec<(Instant, String)> {
        std::mem::take(&mut self.written.lock().unwrap())
    }

    /// Returns how often a lease was written since the last call.
    pub(crate) fn renewed(&self) -> usize {
        self.renewed.swap(0, Ordering::Relaxed)
    }

    /// Returns all paths that were ever watched.
    pub(crate) fn watched(&self) -> BTreeSet<String> {
        self.watched.lock().unwrap().clone()
    }

    fn check_uncut(&self) -> io::Result<()> {
        match self.is_cut() {
            true => Err(io::ErrorKind::ConnectionRefused.into()),
            false => Ok(()),
        }
    }

    async fn forward<B>(
        &self,
        request: Request<Body>,
        respond: impl AsyncFnOnce(Request<Body>) -> io::Result<Response<B>>,
    ) -> io::Result<Response<UnsyncBoxBody<Bytes, io::Error>>>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let cut_point = (request.method() != Method::GET).then(|| self.cut_point()).flatten();
        if cut_point == Some(CutPoint::BeforeWrite) {
            self.cut(true);
        }
        self.check_uncut()?;
        let aborts = self.aborts.subscribe();
        let delayed = self.delayed.lock().unwrap().filter(|(path, _)| request.uri().path().ends_with(path));
        if let Some((_, delay)) = delayed {
            tokio::time::sleep(delay).await;
        }
        if let Some((code, text)) = *self.response.lock().unwrap() {
            let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
            return Response::builder().status(code).body(body).map_err(io::Error::other);
        }
        let path = request.uri().path();
        if request.uri().query().is_some_and(|query| query.contains("watch=")) {
            self.watched.lock().unwrap().insert(path.to_owned());
        }
        if request.method() != Method::GET {
            match path.contains("/leases") {
                true => drop(self.renewed.fetch_add(1, Ordering::Relaxed)),
                false => {
                    let call = format!("{} {path}", request.method());
                    self.written.lock().unwrap().push((Instant::now(), call));
                }
            }
        }
        let (head, body) = respond(request).await?.into_parts();
        if cut_point == Some(CutPoint::AfterWrite) {
            self.cut(true);
        }
        self.check_uncut()?;
        let frames = stream::try_unfold((body, aborts), |(mut body, mut aborts)| async move {
            let frame = tokio::select! {
                frame = body.frame() => frame.transpose().map_err(io::Error::other)?,
                _ = aborts.changed() => return Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            };
            Ok(frame.map(|frame| (frame, (body, aborts))))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }
}
