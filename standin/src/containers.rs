//! What `kubectl logs`, `exec`, `attach`, `cp`, `port-forward`, `proxy` and `top` are told about containers that do not exist.

mod attach;
mod files;
mod forward;
mod proxy;
mod session;
mod shell;
mod socket;
mod spdy;
mod streams;
mod usage;

use std::sync::{Arc, Mutex, OnceLock, Weak};

use api::metrics::METRICS;
use apiserver::endpoints::connect::{Connect, Part, Wish};
use apiserver::http::body::{Body, whole};
use apiserver::stack::Stack;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use openapi::meta::status::Status;
use serde_json::Value;
use storage::Boxed;
use tokio::task::JoinSet;

use crate::logs::{Line, Logs};
use crate::object::{list, name, text, uid};
use attach::Attached;
use files::Disk;
pub(crate) use files::Files;
use forward::Ports;
use session::{Carrier, Session};
use shell::Scene;
use streams::Streams;

/// The parts of a pod that are answered for.
const PARTS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// All containers of a stand-in, and the sessions with them.
#[derive(Debug)]
pub(crate) struct Containers {
    logs: Arc<Logs>,
    files: Arc<Files>,
    sessions: Mutex<JoinSet<()>>,
    /// The server they are asked through, for what there is.
    stack: OnceLock<Weak<Stack>>,
}

impl Connect for Containers {
    fn leads(&self, part: Part<'_>) -> bool {
        match part.group {
            "" => part.plural == "pods" && PARTS.contains(&part.part),
            group => group == METRICS.0 && part.part.is_empty(),
        }
    }

    fn connect(&self, wish: Wish) -> Boxed<'_, Result<Response<Body>, Status>> {
        Box::pin(async move {
            if wish.group == METRICS.0 {
                let stack = self.stack.get().and_then(Weak::upgrade);
                return usage::answer(stack.ok_or_else(Status::unknown_path)?, wish).await;
            }
            match wish.part.as_str() {
                "log" => self.log(&wish),
                "proxy" => proxy::answer(&wish),
                "portforward" => self.forward(wish),
                _ => self.converse(wish),
            }
        })
    }
}

impl Containers {
    pub(crate) fn new(logs: Arc<Logs>, files: Arc<Files>) -> Containers {
        Containers { logs, files, sessions: Mutex::default(), stack: OnceLock::new() }
    }

    /// They are asked through this server. To be said once.
    pub(crate) fn behind(&self, stack: &Arc<Stack>) {
        // Only the first counts, and there is one.
        let _ = self.stack.set(Arc::downgrade(stack));
    }

    /// Answers that the connection changes over, and begins the session on it: a command, or a look.
    fn converse(&self, mut wish: Wish) -> Result<Response<Body>, Status> {
        let container = container(&wish.object, wish.text("container"))?;
        if !is_running(&wish.object, &container) {
            let (pod, space) = (name(&wish.object), crate::object::namespace(&wish.object));
            return Err(Status::internal(&format!(
                "container not found ({container:?}) in pod {pod}_{space}"
            )));
        }
        let is_spdy = spdy::is_wanted(&wish.headers);
        let answer = match is_spdy {
            true => streams::accept(&wish.headers)?,
            false => socket::accept(&wish.headers)?,
        };
        let upgrade = wish.upgrade.take().ok_or_else(|| Status::bad_request("Upgrade request required"))?;
        let (pod, tty) = (uid(&wish.object).to_owned(), is_true(wish.text("tty")));
        let wanted = streams::Wanted {
            stdin: is_true(wish.text("stdin")),
            stdout: is_true(wish.text("stdout")),
            // A terminal has one stream.
            stderr: is_true(wish.text("stderr")) && !tty,
        };
        if wish.part == "attach" {
            let attached = Attached { logs: self.logs.clone(), pod, container, tty };
            self.begin(async move {
                let stream = upgrade.open().await?;
                match is_spdy {
                    true => attached.run_spdy(Streams::open(stream, wanted).await?).await,
                    false => attached.run(stream).await,
                }
            });
            return Ok(answer);
        }
        let disk = Disk::new(self.files.clone(), &pod, &container);
        let session = Session {
            command: wish.all("command").map(str::to_owned).collect(),
            stdin: wanted.stdin,
            tty,
            scene: Scene::of(&wish.object, &container, disk),
        };
        self.begin(async move {
            let stream = upgrade.open().await?;
            let carrier = match is_spdy {
                true => Carrier::spdy(stream, wanted).await?,
                false => Carrier::websocket(stream),
            };
            session.run(carrier).await
        });
        Ok(answer)
    }

    fn forward(&self, mut wish: Wish) -> Result<Response<Body>, Status> {
        if text(&wish.object, "/status/phase") != "Running" {
            let phase = text(&wish.object, "/status/phase");
            return Err(Status::bad_request(format!("pod is not running, its phase is {phase}")));
        }
        let answer = forward::accept(&wish.headers)?;
        let upgrade = wish.upgrade.take().ok_or_else(|| Status::bad_request("Upgrade request required"))?;
        let ports = Ports::of(&wish.object);
        self.begin(async move { ports.run(upgrade.open().await?).await });
        Ok(answer)
    }

    fn begin(&self, session: impl Future<Output = std::io::Result<()>> + Send + 'static) {
        let mut sessions = self.sessions.lock().expect("no holder of this lock panics");
        while sessions.try_join_next().is_some() {}
        sessions.spawn(async move {
            if let Err(error) = session.await {
                tracing::debug!(%error, "a session with a container broke off");
            }
        });
    }

    fn log(&self, wish: &Wish) -> Result<Response<Body>, Status> {
        let pod = &wish.object;
        let container = container(pod, wish.text("container"))?;
        let shown = Shown::of(wish)?;
        if is_true(wish.text("previous")) {
            let lines = self.logs.previous(uid(pod), &container).ok_or_else(|| {
                Status::bad_request(format!(
                    "previous terminated container {container:?} in pod {:?} not found",
                    name(pod)
                ))
            })?;
            return Ok(plain(whole(Full::new(shown.print(lines)))));
        }
        waiting(pod, &container)?;
        let (lines, seen) = self.logs.read(uid(pod), &container, 0);
        let first = shown.print(lines);
        if !is_true(wish.text("follow")) {
            return Ok(plain(whole(Full::new(first))));
        }
        Ok(plain(self.follow(uid(pod).to_owned(), container, shown, first, seen)))
    }

    /// The lines there are, and then those that come, until the pod is gone.
    fn follow(&self, pod: String, container: String, shown: Shown, first: Bytes, seen: usize) -> Body {
        let (logs, news) = (self.logs.clone(), self.logs.follow());
        let begun = (Some(first), seen, news);
        let pieces = futures::stream::unfold(begun, move |(first, mut seen, mut news)| {
            let (logs, pod, container, shown) = (logs.clone(), pod.clone(), container.clone(), shown.clone());
            async move {
                if let Some(first) = first.filter(|first| !first.is_empty()) {
                    return Some((Ok(Frame::data(first)), (None, seen, news)));
                }
                loop {
                    news.borrow_and_update();
                    let (lines, now) = logs.read(&pod, &container, seen);
                    seen = now;
                    if !lines.is_empty() {
                        let piece = shown.clone().without_tail().print(lines);
                        return Some((Ok(Frame::data(piece)), (None, seen, news)));
                    }
                    // Fails when the stand-in is gone.
                    if !logs.knows(&pod) || news.changed().await.is_err() {
                        return None;
                    }
                }
            }
        });
        StreamBody::new(pieces).boxed_unsync()
    }
}

/// Which lines, and how they are printed.
#[derive(Clone, Debug)]
struct Shown {
    tail: Option<usize>,
    bytes: Option<usize>,
    timestamps: bool,
    since: Option<jiff::Timestamp>,
}

impl Shown {
    fn of(wish: &Wish) -> Result<Shown, Status> {
        let number = |field: &str| match wish.text(field) {
            "" => Ok(None),
            text => text.parse::<usize>().map(Some).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        };
        let age = number("sinceSeconds")?.map(|seconds| {
            let age = std::time::Duration::from_secs(seconds as u64);
            jiff::Timestamp::now().checked_sub(age).unwrap_or(jiff::Timestamp::MIN)
        });
        Ok(Shown {
            tail: number("tailLines")?,
            bytes: number("limitBytes")?,
            timestamps: is_true(wish.text("timestamps")),
            since: wish.text("sinceTime").parse().ok().or(age),
        })
    }

    fn without_tail(mut self) -> Shown {
        self.tail = None;
        self
    }

    fn print(&self, lines: Vec<Line>) -> Bytes {
        let recent: Vec<&Line> =
            lines.iter().filter(|(at, _)| self.since.is_none_or(|since| *at >= since)).collect();
        let skipped = self.tail.map_or(0, |tail| recent.len().saturating_sub(tail));
        let mut out = String::new();
        for (at, line) in &recent[skipped..] {
            if self.timestamps {
                out += &format!("{} ", at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ"));
            }
            out += line;
            out.push('\n');
        }
        let mut bytes = out.into_bytes();
        bytes.truncate(self.bytes.unwrap_or(usize::MAX));
        bytes.into()
    }
}

/// The container that is meant: the one named, the one annotated, or the only one.
pub(crate) fn container(pod: &Value, wanted: &str) -> Result<String, Status> {
    let lists = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"];
    let names = |pointer: &str| {
        list(pod, pointer).iter().map(|container| text(container, "/name").to_owned()).collect::<Vec<_>>()
    };
    let all: Vec<String> = lists.iter().flat_map(|pointer| names(pointer)).collect();
    let main = names("/spec/containers");
    if wanted.is_empty() {
        return match main.as_slice() {
            [only] => Ok(only.clone()),
            several => Err(Status::bad_request(format!(
                "a container name must be specified for pod {}, choose one of: [{}]",
                name(pod),
                several.join(" ")
            ))),
        };
    }
    match all.iter().find(|name| *name == wanted) {
        Some(found) => Ok(found.clone()),
        None => Err(Status::bad_request(format!("container {wanted} is not valid for pod {}", name(pod)))),
    }
}

/// Refuses what a container that was never started cannot do.
fn waiting(pod: &Value, container: &str) -> Result<(), Status> {
    if text(pod, "/spec/nodeName").is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", name(pod))));
    }
    let status = statuses(pod).find(|status| text(status, "/name") == container);
    let reason = status.map_or("ContainerCreating", |status| text(status, "/state/waiting/reason"));
    let told = match reason {
        "ContainerCreating" => "ContainerCreating",
        "ImagePullBackOff" | "ErrImagePull" => "trying and failing to pull image",
        _ => return Ok(()),
    };
    Err(Status::bad_request(format!(
        "container {container:?} in pod {:?} is waiting to start: {told}",
        name(pod)
    )))
}

/// Of all containers, whatever they are for.
fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    lists.into_iter().flat_map(|field| pod["status"][field].as_array().into_iter().flatten())
}

fn is_running(pod: &Value, container: &str) -> bool {
    statuses(pod).any(|status| text(status, "/name") == container && !status["state"]["running"].is_null())
}

fn is_true(text: &str) -> bool {
    matches!(text, "true" | "1")
}

fn plain(body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::OK;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}
