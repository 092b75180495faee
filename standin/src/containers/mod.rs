//! Simulated containers, reached by `kubectl logs`, `exec`, `attach`, `cp`, `port-forward`, `proxy` and `top`.

mod attach;
mod exec;
mod files;
pub(crate) mod logs;
mod metrics;
mod port_forward;
mod proxy;
mod shell;
mod spdy;
mod spdy_session;
mod websocket;

use std::sync::{Arc, OnceLock, Weak};

use api::metrics::METRICS;
use apiserver::endpoints::connect::{Connect, ConnectRequest, Part};
use apiserver::http::body::{Body, whole};
use apiserver::stack::Stack;
use bytes::Bytes;
use controller::tasks::StreamTasks;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use openapi::meta::status::Status;
use serde_json::Value;
use storage::Boxed;

use crate::objects::fields::{list, name, namespace, text, uid};
use attach::AttachSession;
use exec::{ExecSession, Transport};
pub(crate) use files::ContainerFiles;
use files::FileSystem;
use logs::{Line, Logs};
use port_forward::PortForwardSession;
use shell::Environment;

/// The subresources of pods that this module serves.
const SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// All containers of a stand-in, and the sessions with them.
#[derive(Debug)]
pub(crate) struct Containers {
    logs: Arc<Logs>,
    files: Arc<ContainerFiles>,
    sessions: StreamTasks,
    /// The API server, from which metrics read pods and nodes.
    stack: OnceLock<Weak<Stack>>,
}

impl Connect for Containers {
    fn leads(&self, part: Part<'_>) -> bool {
        match part.group {
            "" => part.plural == "pods" && SUBRESOURCES.contains(&part.part),
            group => group == METRICS.0 && part.part.is_empty(),
        }
    }

    fn connect(&self, request: ConnectRequest) -> Boxed<'_, Result<Response<Body>, Status>> {
        Box::pin(async move {
            if request.group == METRICS.0 {
                let stack = self.stack.get().and_then(Weak::upgrade);
                return metrics::respond(stack.ok_or_else(Status::unknown_path)?, request).await;
            }
            match request.part.as_str() {
                "log" => self.log(&request),
                "proxy" => proxy::respond(&request),
                "portforward" => self.forward(request),
                _ => self.exec_or_attach(request),
            }
        })
    }
}

impl Containers {
    pub(crate) fn new(logs: Arc<Logs>, files: Arc<ContainerFiles>) -> Containers {
        Containers { logs, files, sessions: StreamTasks::default(), stack: OnceLock::new() }
    }

    /// Sets the API server. Must be called once.
    pub(crate) fn set_server(&self, stack: &Arc<Stack>) {
        // This fails only if it was called before.
        let _ = self.stack.set(Arc::downgrade(stack));
    }

    /// Switches protocols, and starts an exec or attach session on the connection.
    fn exec_or_attach(&self, mut request: ConnectRequest) -> Result<Response<Body>, Status> {
        let container = container(&request.object, request.text("container"))?;
        if !is_running(&request.object, &container) {
            let (pod, ns) = (name(&request.object), namespace(&request.object));
            return Err(Status::internal(&format!("container not found ({container:?}) in pod {pod}_{ns}")));
        }
        let is_spdy = spdy::is_requested(&request.headers);
        let response = match is_spdy {
            true => spdy_session::accept(&request.headers)?,
            false => websocket::accept(&request.headers)?,
        };
        let upgrade =
            request.upgrade.take().ok_or_else(|| Status::bad_request("Upgrade request required"))?;
        let (pod, tty) = (uid(&request.object).to_owned(), is_true(request.text("tty")));
        let requested = spdy_session::RequestedStreams {
            stdin: is_true(request.text("stdin")),
            stdout: is_true(request.text("stdout")),
            // A terminal has one output stream.
            stderr: is_true(request.text("stderr")) && !tty,
        };
        let transport = async move {
            let stream = upgrade.open().await?;
            match is_spdy {
                true => Transport::spdy(stream, requested).await,
                false => Ok(Transport::websocket(stream).await),
            }
        };
        if request.part == "attach" {
            let session = AttachSession { logs: self.logs.clone(), pod, container, tty };
            self.spawn_session(async move { session.run(transport.await?).await });
            return Ok(response);
        }
        let file_system = FileSystem::new(self.files.clone(), &pod, &container);
        let session = ExecSession {
            command: request.all("command").map(str::to_owned).collect(),
            stdin: requested.stdin,
            tty,
            environment: Environment::new(&request.object, &container, file_system),
        };
        self.spawn_session(async move { session.run(transport.await?).await });
        Ok(response)
    }

    fn forward(&self, mut request: ConnectRequest) -> Result<Response<Body>, Status> {
        if text(&request.object, "/status/phase") != "Running" {
            let phase = text(&request.object, "/status/phase");
            return Err(Status::bad_request(format!("pod is not running, its phase is {phase}")));
        }
        let response = port_forward::accept(&request.headers)?;
        let upgrade =
            request.upgrade.take().ok_or_else(|| Status::bad_request("Upgrade request required"))?;
        let session = PortForwardSession::new(&request.object);
        self.spawn_session(async move { session.run(upgrade.open().await?).await });
        Ok(response)
    }

    fn spawn_session(&self, session: impl Future<Output = std::io::Result<()>> + Send + 'static) {
        self.sessions.spawn(async move {
            if let Err(error) = session.await {
                tracing::debug!(%error, "a session with a container failed");
            }
        });
    }

    fn log(&self, request: &ConnectRequest) -> Result<Response<Body>, Status> {
        let pod = &request.object;
        let container = container(pod, request.text("container"))?;
        let options = LogOptions::parse(request)?;
        if is_true(request.text("previous")) {
            let lines = self.logs.previous(uid(pod), &container).ok_or_else(|| {
                Status::bad_request(format!(
                    "previous terminated container {container:?} in pod {:?} not found",
                    name(pod)
                ))
            })?;
            return Ok(plain_text(whole(Full::new(options.print(lines)))));
        }
        check_started(pod, &container)?;
        let (lines, seen) = self.logs.read(uid(pod), &container, 0);
        let first = options.print(lines);
        if !is_true(request.text("follow")) {
            return Ok(plain_text(whole(Full::new(first))));
        }
        Ok(plain_text(self.follow(uid(pod).to_owned(), container, options, first, seen)))
    }

    /// Streams the lines so far, and then new ones until the pod is deleted.
    fn follow(&self, pod: String, container: String, options: LogOptions, first: Bytes, seen: usize) -> Body {
        let (logs, updates) = (self.logs.clone(), self.logs.subscribe());
        let start = (Some(first), seen, updates);
        let chunks = futures::stream::unfold(start, move |(first, mut seen, mut updates)| {
            let (logs, pod, container, options) =
                (logs.clone(), pod.clone(), container.clone(), options.clone());
            async move {
                if let Some(first) = first.filter(|first| !first.is_empty()) {
                    return Some((Ok(Frame::data(first)), (None, seen, updates)));
                }
                loop {
                    updates.borrow_and_update();
                    let (lines, now) = logs.read(&pod, &container, seen);
                    seen = now;
                    if !lines.is_empty() {
                        let chunk = options.clone().without_tail().print(lines);
                        return Some((Ok(Frame::data(chunk)), (None, seen, updates)));
                    }
                    // This fails only after the stand-in is dropped.
                    if !logs.contains_pod(&pod) || updates.changed().await.is_err() {
                        return None;
                    }
                }
            }
        });
        StreamBody::new(chunks).boxed_unsync()
    }
}

/// The options of `kubectl logs`: which lines, and how they are printed.
#[derive(Clone, Debug)]
struct LogOptions {
    tail: Option<usize>,
    bytes: Option<usize>,
    timestamps: bool,
    since: Option<jiff::Timestamp>,
}

impl LogOptions {
    fn parse(request: &ConnectRequest) -> Result<LogOptions, Status> {
        let number = |field: &str| match request.text(field) {
            "" => Ok(None),
            text => text.parse::<usize>().map(Some).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        };
        let age = number("sinceSeconds")?.map(|seconds| {
            let age = std::time::Duration::from_secs(seconds as u64);
            jiff::Timestamp::now().checked_sub(age).unwrap_or(jiff::Timestamp::MIN)
        });
        Ok(LogOptions {
            tail: number("tailLines")?,
            bytes: number("limitBytes")?,
            timestamps: is_true(request.text("timestamps")),
            since: request.text("sinceTime").parse().ok().or(age),
        })
    }

    fn without_tail(mut self) -> LogOptions {
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

/// Returns the container of a request: the one it names, or the only one.
fn container(pod: &Value, requested: &str) -> Result<String, Status> {
    let lists = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"];
    let names = |pointer: &str| {
        list(pod, pointer).iter().map(|container| text(container, "/name").to_owned()).collect::<Vec<_>>()
    };
    let all: Vec<String> = lists.iter().flat_map(|pointer| names(pointer)).collect();
    let main = names("/spec/containers");
    if requested.is_empty() {
        return match main.as_slice() {
            [only] => Ok(only.clone()),
            several => Err(Status::bad_request(format!(
                "a container name must be specified for pod {}, choose one of: [{}]",
                name(pod),
                several.join(" ")
            ))),
        };
    }
    match all.iter().find(|name| *name == requested) {
        Some(found) => Ok(found.clone()),
        None => Err(Status::bad_request(format!("container {requested} is not valid for pod {}", name(pod)))),
    }
}

/// Rejects a request to a container that was never started.
fn check_started(pod: &Value, container: &str) -> Result<(), Status> {
    if text(pod, "/spec/nodeName").is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", name(pod))));
    }
    let status = statuses(pod).find(|status| text(status, "/name") == container);
    let reason = status.map_or("ContainerCreating", |status| text(status, "/state/waiting/reason"));
    let message = match reason {
        "ContainerCreating" => "ContainerCreating",
        "ImagePullBackOff" | "ErrImagePull" => "trying and failing to pull image",
        _ => return Ok(()),
    };
    Err(Status::bad_request(format!(
        "container {container:?} in pod {:?} is waiting to start: {message}",
        name(pod)
    )))
}

/// Returns the statuses of all containers, including init and ephemeral ones.
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

fn plain_text(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
