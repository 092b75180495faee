//! What `kubectl logs` and `kubectl exec` are told about containers that do not exist.

mod session;
mod shell;
mod socket;

use std::sync::{Arc, Mutex};

use apiserver::connect::{Connect, Wish};
use apiserver::server::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::TokioIo;
use openapi::status::Status;
use serde_json::Value;
use storage::Boxed;
use tokio::task::JoinSet;

use crate::logs::{Line, Logs};
use crate::object::{list, name, text, uid};
use session::Session;
use shell::Scene;

/// All containers of a stand-in, and the sessions with them.
#[derive(Debug)]
pub(crate) struct Containers {
    logs: Arc<Logs>,
    sessions: Mutex<JoinSet<()>>,
}

impl Connect for Containers {
    fn parts(&self) -> &[&str] {
        &["exec", "log"]
    }

    fn connect(&self, wish: Wish) -> Boxed<'_, Result<Response<Body>, Status>> {
        Box::pin(async move {
            match wish.part.as_str() {
                "log" => self.log(&wish),
                _ => self.exec(wish),
            }
        })
    }
}

impl Containers {
    pub(crate) fn new(logs: Arc<Logs>) -> Containers {
        Containers { logs, sessions: Mutex::default() }
    }

    /// Answers that the connection changes over, and begins the session on it.
    fn exec(&self, mut wish: Wish) -> Result<Response<Body>, Status> {
        let container = container(&wish.pod, wish.text("container"))?;
        if !is_running(&wish.pod, &container) {
            let (pod, space) = (name(&wish.pod), crate::object::namespace(&wish.pod));
            return Err(Status::internal(&format!(
                "container not found ({container:?}) in pod {pod}_{space}"
            )));
        }
        let answer = socket::accept(&wish.headers)?;
        let upgrade = wish.upgrade.take().ok_or_else(|| Status::bad_request("Upgrade request required"))?;
        let session = Session {
            command: wish.all("command").map(str::to_owned).collect(),
            stdin: is_true(wish.text("stdin")),
            tty: is_true(wish.text("tty")),
            scene: Scene::of(&wish.pod, &container),
        };
        let mut sessions = self.sessions.lock().expect("no holder of this lock panics");
        while sessions.try_join_next().is_some() {}
        sessions.spawn(async move {
            let ended = match upgrade.await {
                Ok(upgraded) => session.run(TokioIo::new(upgraded)).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a session with a container broke off");
            }
        });
        Ok(answer)
    }

    fn log(&self, wish: &Wish) -> Result<Response<Body>, Status> {
        let pod = &wish.pod;
        let container = container(pod, wish.text("container"))?;
        let shown = Shown::of(wish)?;
        if is_true(wish.text("previous")) {
            let lines = self.logs.previous(uid(pod), &container).ok_or_else(|| {
                Status::bad_request(format!(
                    "previous terminated container {container:?} in pod {:?} not found",
                    name(pod)
                ))
            })?;
            return Ok(plain(Full::new(shown.print(lines)).boxed_unsync()));
        }
        waiting(pod, &container)?;
        let (lines, seen) = self.logs.read(uid(pod), &container, 0);
        let first = shown.print(lines);
        if !is_true(wish.text("follow")) {
            return Ok(plain(Full::new(first).boxed_unsync()));
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
    let statuses = list(pod, "/status/containerStatuses").iter();
    let mut statuses = statuses.chain(list(pod, "/status/initContainerStatuses"));
    let status = statuses.find(|status| text(status, "/name") == container);
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

fn is_running(pod: &Value, container: &str) -> bool {
    let mut statuses = list(pod, "/status/containerStatuses").iter();
    statuses.any(|status| text(status, "/name") == container && !status["state"]["running"].is_null())
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
