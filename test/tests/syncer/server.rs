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
use apiserver::kinds::{Own, Registry};
use apiserver::local;
use apiserver::request::path::Cluster;
use apiserver::stack::Stack;
use bytes::Bytes;
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

pub(crate) struct Server {
    stack: Arc<Stack>,
    store: Arc<dyn Store>,
    _tasks: Tasks,
}

/// The moment of a write at which a link breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// Before the server receives the write.
    Before,
    /// After the server has executed it, so that the response is lost.
    After,
}

/// A link to a server. It counts writes, can be cut, and can answer in the server's place.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    cut: Arc<AtomicBool>,
    /// How often requests in flight were broken off.
    broken: watch::Sender<u64>,
    written: Arc<Mutex<Vec<(Instant, String)>>>,
    /// The watched paths.
    watched: Arc<Mutex<BTreeSet<String>>>,
    /// How often a lease was renewed.
    renewed: Arc<AtomicUsize>,
    /// After so many more writes the link is cut.
    left: Arc<Mutex<Option<(usize, Moment)>>>,
    /// The delay of requests for paths with this ending.
    slow: Arc<Mutex<Option<(&'static str, Duration)>>>,
    /// The response to all requests instead of the server's.
    answer: Arc<Mutex<Option<(u16, &'static str)>>>,
}

impl Server {
    pub(crate) async fn start() -> Result<Server> {
        let (memory, mut tasks): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), Tasks::new());
        let surroundings =
            BootstrapOptions { authority: "an authority", address: ([127, 0, 0, 1], 6443).into() };
        let store = BootstrapStore::open(memory.clone(), bootstrap::objects(&surroundings)).await?;
        let kinds = Arc::new(Registry::new(memory.clone()).with_own(Own::read(api::fleet::DEFINITIONS)?));
        kinds.load().await?;
        tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
        let controllers = Controllers::new(store.clone(), memory, String::new()).with_kinds(kinds.clone());
        tasks.spawn("controllers", controllers.run(tasks.stop()));
        let stack = Stack::new(store.clone(), "127.0.0.1:6443".to_owned(), tasks.stop()).with_kinds(kinds);
        Ok(Server { stack: Arc::new(stack), store, _tasks: tasks })
    }

    /// Compacts the history, as servers do after some minutes. A client that was disconnected has to list again.
    pub(crate) async fn forget_history(&self) -> Result<()> {
        Ok(self.store.compact(Revision(u64::MAX)).await?)
    }

    /// Returns a client of the administrator for a logical cluster.
    pub(crate) fn reach(&self, cluster: &Cluster) -> Client {
        local::client(self.stack.clone(), administrator(), cluster)
    }

    /// Returns a client of the administrator with an undisturbed link.
    pub(crate) fn client(&self) -> Client {
        self.through(&Link::new())
    }

    pub(crate) fn through(&self, link: &Link) -> Client {
        let (stack, link) = (self.stack.clone(), link.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (stack, link) = (stack.clone(), link.clone());
            async move {
                link.carry(request, async |request| Ok(stack.respond(administrator(), request).await)).await
            }
        });
        Client::new(service, "default")
    }
}

fn administrator() -> Identity {
    let groups = vec!["system:masters".to_owned()];
    Identity::known(User { name: "admin".to_owned(), groups, ..User::default() })
}

impl Link {
    pub(crate) fn new() -> Link {
        Link {
            cut: Arc::default(),
            broken: watch::Sender::new(0),
            written: Arc::default(),
            watched: Arc::default(),
            renewed: Arc::default(),
            left: Arc::default(),
            slow: Arc::default(),
            answer: Arc::default(),
        }
    }

    /// Returns a client whose requests pass through this link.
    pub(crate) fn over(&self, client: Client) -> Client {
        let link = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, link) = (client.clone(), link.clone());
            async move {
                let respond = async |request| client.send(request).await.map_err(io::Error::other);
                link.carry(request, respond).await
            }
        });
        Client::new(service, "default")
    }

    /// Answers all requests with this from now on, and breaks off those in flight.
    pub(crate) fn answer(&self, answer: Option<(u16, &'static str)>) {
        *self.answer.lock().unwrap() = answer;
        self.break_off();
    }

    /// Accepts requests and never answers from now on, and breaks off those in flight.
    pub(crate) fn mute(&self) {
        self.slow("", FOREVER);
        self.break_off();
    }

    /// Delays requests for paths with this ending from now on.
    pub(crate) fn slow(&self, path: &'static str, delay: Duration) {
        *self.slow.lock().unwrap() = Some((path, delay));
    }

    /// Cuts the link at the write after so many more.
    pub(crate) fn cut_at(&self, writes: usize, moment: Moment) {
        *self.left.lock().unwrap() = Some((writes, moment));
    }

    /// Returns the moment of the break, if this write is the last one.
    fn breaks(&self) -> Option<Moment> {
        let mut left = self.left.lock().unwrap();
        match &mut *left {
            Some((0, _)) => left.take().map(|(_, moment)| moment),
            Some((writes, _)) => {
                *writes -= 1;
                None
            }
            None => None,
        }
    }

    /// Removes all faults.
    pub(crate) fn mend(&self) {
        *self.left.lock().unwrap() = None;
        *self.slow.lock().unwrap() = None;
        *self.answer.lock().unwrap() = None;
        self.cut(false);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
        if cut {
            self.break_off();
        }
    }

    /// Breaks off requests in flight.
    fn break_off(&self) {
        self.broken.send_modify(|times| *times += 1);
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

    fn passes(&self) -> io::Result<()> {
        match self.is_cut() {
            true => Err(io::ErrorKind::ConnectionRefused.into()),
            false => Ok(()),
        }
    }

    async fn carry<B>(
        &self,
        request: Request<Body>,
        respond: impl AsyncFnOnce(Request<Body>) -> io::Result<Response<B>>,
    ) -> io::Result<Response<UnsyncBoxBody<Bytes, io::Error>>>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let breaks = (request.method() != Method::GET).then(|| self.breaks()).flatten();
        if breaks == Some(Moment::Before) {
            self.cut(true);
        }
        self.passes()?;
        let broken = self.broken.subscribe();
        let slow = self.slow.lock().unwrap().filter(|(path, _)| request.uri().path().ends_with(path));
        if let Some((_, delay)) = slow {
            tokio::time::sleep(delay).await;
        }
        if let Some((code, text)) = *self.answer.lock().unwrap() {
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
        if breaks == Some(Moment::After) {
            self.cut(true);
        }
        self.passes()?;
        let frames = stream::try_unfold((body, broken), |(mut body, mut broken)| async move {
            let frame = tokio::select! {
                frame = body.frame() => frame.transpose().map_err(io::Error::other)?,
                _ = broken.changed() => return Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            };
            Ok(frame.map(|frame| (frame, (body, broken))))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }
}
