//! A server in this process, and the link to it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use api::cluster::Id;
use apiserver::births::{self, Birth};
use apiserver::controllers::Controllers;
use apiserver::identity::{Identity, User};
use apiserver::kinds::{Own, Registry};
use apiserver::newborn::{self, Newborn, Surroundings, Template};
use apiserver::stack::Stack;
use bytes::Bytes;
use controller::tasks::Tasks;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use storage::Store;
use storage::memory::Memory;
use tokio::sync::watch;

pub(crate) struct Server {
    stack: Arc<Stack>,
    _tasks: Tasks,
}

/// When a link breaks at a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// The server never hears of it.
    Before,
    /// It is done, and nobody hears of that.
    After,
}

/// A way to a server. It counts what is written, can be cut, and can answer in the server's place.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    cut: watch::Sender<bool>,
    written: Arc<Mutex<Vec<String>>>,
    /// After so many more writes it is cut.
    left: Arc<Mutex<Option<(usize, Moment)>>>,
    /// What is asked for at such paths takes so long.
    slow: Arc<Mutex<Option<(&'static str, Duration)>>>,
    /// What everybody is answered.
    answer: Arc<Mutex<Option<(u16, &'static str)>>>,
}

impl Server {
    pub(crate) async fn start() -> Result<Server> {
        let (memory, mut tasks): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), Tasks::new());
        let surroundings = Surroundings { authority: "an authority", address: ([127, 0, 0, 1], 6443).into() };
        let template = Template::new(newborn::objects(&surroundings));
        let store: Arc<dyn Store> = Arc::new(Newborn::new(memory.clone(), template));
        births::write(&*store, Id::ROOT, &Birth::root()).await?;
        let kinds = Arc::new(Registry::new(memory.clone()).with_own(Own::read(api::fleet::DEFINITIONS)?));
        kinds.load().await?;
        tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
        let controllers = Controllers::new(store.clone(), memory, String::new()).with_kinds(kinds.clone());
        tasks.spawn("controllers", controllers.run(tasks.stop()));
        let stack = Stack::new(store, "127.0.0.1:6443".to_owned(), tasks.stop()).with_kinds(kinds);
        Ok(Server { stack: Arc::new(stack), _tasks: tasks })
    }

    /// As the administrator, past every link.
    pub(crate) fn client(&self) -> Client {
        self.through(&Link::new())
    }

    pub(crate) fn through(&self, link: &Link) -> Client {
        let (stack, link) = (self.stack.clone(), link.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (stack, link) = (stack.clone(), link.clone());
            async move { link.carry(&stack, request).await }
        });
        Client::new(service, "default")
    }
}

impl Link {
    pub(crate) fn new() -> Link {
        Link {
            cut: watch::Sender::new(false),
            written: Arc::default(),
            left: Arc::default(),
            slow: Arc::default(),
            answer: Arc::default(),
        }
    }

    /// From now on everybody is answered this; what is under way breaks.
    pub(crate) fn answer(&self, answer: Option<(u16, &'static str)>) {
        *self.answer.lock().unwrap() = answer;
        self.cut.send_replace(true);
        self.cut.send_replace(false);
    }

    /// What is asked for at paths that end like this takes so long from now on.
    pub(crate) fn slow(&self, path: &'static str, delay: Duration) {
        *self.slow.lock().unwrap() = Some((path, delay));
    }

    /// Is cut at the write after so many more.
    pub(crate) fn cut_at(&self, writes: usize, moment: Moment) {
        *self.left.lock().unwrap() = Some((writes, moment));
    }

    /// When this write is to be the last.
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

    /// Is as new.
    pub(crate) fn mend(&self) {
        *self.left.lock().unwrap() = None;
        self.cut(false);
    }

    pub(crate) fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    /// What was written since it was asked last, as `PATCH /api/…`. Leases are no news.
    pub(crate) fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.written.lock().unwrap())
    }

    fn passes(&self) -> io::Result<()> {
        match *self.cut.borrow() {
            true => Err(io::ErrorKind::ConnectionRefused.into()),
            false => Ok(()),
        }
    }

    async fn carry(
        &self,
        stack: &Stack,
        request: Request<Body>,
    ) -> io::Result<Response<http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>>> {
        let breaks = (request.method() != Method::GET).then(|| self.breaks()).flatten();
        if breaks == Some(Moment::Before) {
            self.cut(true);
        }
        self.passes()?;
        let slow = self.slow.lock().unwrap().filter(|(path, _)| request.uri().path().ends_with(path));
        if let Some((_, delay)) = slow {
            tokio::time::sleep(delay).await;
        }
        if let Some((code, text)) = *self.answer.lock().unwrap() {
            let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
            return Response::builder().status(code).body(body).map_err(io::Error::other);
        }
        let path = request.uri().path();
        if request.method() != Method::GET && !path.contains("/leases") {
            self.written.lock().unwrap().push(format!("{} {path}", request.method()));
        }
        let groups = vec!["system:masters".to_owned()];
        let administrator = Identity::known(User { name: "admin".to_owned(), groups, ..User::default() });
        let (head, body) = stack.respond(administrator, request).await.into_parts();
        if breaks == Some(Moment::After) {
            self.cut(true);
        }
        self.passes()?;
        // What is cut breaks in the middle.
        let frames = stream::try_unfold((body, self.cut.subscribe()), |(mut body, mut cut)| async move {
            let frame = tokio::select! {
                frame = body.frame() => frame.transpose().unwrap_or_else(|never| match never {}),
                _ = cut.wait_for(|cut| *cut) => return Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            };
            Ok(frame.map(|frame| (frame, (body, cut))))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }
}
