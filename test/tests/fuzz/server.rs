//! The server under test: the whole stack over a store in memory, with a few objects in it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use apiserver::authn::identity::{Identity, User};
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore};
use apiserver::stack::Stack;
use bytes::BytesMut;
use controller::tasks::Tasks;
use futures::FutureExt;
use http_body_util::BodyExt;
use serde_json::Value;
use storage::memory::Memory;

use crate::request::{MAPS, Request};
use crate::response::{self, FuzzResponse};

/// How much of an endless watch is read.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// The objects that the corpus refers to.
const FIXTURES: &[(&str, &str)] = &[
    ("/apis/holon.dev/v1alpha1/logicalclusters", r#"{"metadata":{"name":"team"}}"#),
    ("/api/v1/namespaces", r#"{"metadata":{"name":"shop"}}"#),
    (MAPS, r#"{"metadata":{"name":"kept","labels":{"a":"b"}},"data":{"x":"y"}}"#),
    (
        "/apis/apps/v1/namespaces/default/deployments",
        r#"{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}}}"#,
    ),
    (
        "/api/v1/namespaces/default/pods",
        r#"{"metadata":{"name":"one"},"spec":{"containers":[{"name":"one","image":"one"}]}}"#,
    ),
];

pub(crate) struct FuzzServer {
    stack: Arc<Stack>,
    /// Watches end with their group.
    _tasks: Tasks,
}

impl FuzzServer {
    pub(crate) async fn start() -> Result<FuzzServer> {
        let tasks = Tasks::new();
        let bootstrap_options =
            BootstrapOptions { authority: "an authority", address: ([127, 0, 0, 1], 6443).into() };
        let objects = bootstrap::objects(&bootstrap_options);
        let store = BootstrapStore::open(Arc::new(Memory::new()), objects).await?;
        let stack = Arc::new(Stack::new(store, "127.0.0.1:6443".to_owned(), tasks.stop()));
        let server = FuzzServer { stack, _tasks: tasks };
        for (path, body) in FIXTURES {
            let request = Request::new("POST", path, "application/json", *body);
            let response = server.response(&request).await?.context("the request is not valid HTTP")?;
            ensure!(response.code == 201, "{path}: {response:?}");
        }
        Ok(server)
    }

    /// Sends a request and checks the response. Returns the status code, or 0 if the request is not valid HTTP.
    pub(crate) async fn send_checked(&self, request: &Request) -> Result<u16> {
        match self.response(request).await? {
            Some(response) => response::check(request, &response)
                .map(|()| response.code)
                .with_context(|| format!("{response:?}")),
            None => Ok(0),
        }
    }

    async fn response(&self, request: &Request) -> Result<Option<FuzzResponse>> {
        let Some(sent) = request.http() else { return Ok(None) };
        let groups = vec!["system:masters".to_owned()];
        let administrator = Identity::known(User { name: "admin".to_owned(), groups, ..User::default() });
        let responding = async {
            let (head, mut body) = self.stack.respond(administrator, sent).await.into_parts();
            let mut bytes = BytesMut::new();
            // A watch without pending events is fine; the test does not wait for its end.
            while let Some(Some(frame)) = body.frame().now_or_never()
                && bytes.len() < RESPONSE_BYTES_MAX
            {
                let frame = frame.expect("a body in this process does not fail");
                bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
            }
            FuzzResponse { code: head.status.as_u16(), headers: head.headers, body: bytes.freeze() }
        };
        match AssertUnwindSafe(responding).catch_unwind().await {
            Ok(response) => Ok(Some(response)),
            Err(_) => bail!("the server panicked"),
        }
    }

    /// Checks that everything can still be listed, in every form.
    pub(crate) async fn still_works(&self) -> Result<()> {
        for path in ["/api/v1/configmaps", "/api/v1/pods", "/apis/apps/v1/deployments", "/api/v1/namespaces"]
        {
            for form in ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
                let mut request = Request::new("GET", path, "", "");
                request.set_header("accept", form);
                let response = self.response(&request).await?.context("the request is not valid HTTP")?;
                ensure!(response.code == 200, "{path} as {form}: {response:?}");
                let listed: Value = serde_json::from_slice(&response.body)?;
                ensure!(
                    listed["items"].is_array() || listed["rows"].is_array(),
                    "{path} as {form}: {listed}"
                );
            }
        }
        Ok(())
    }
}

/// The resident memory of this process, in bytes.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) now: u64,
    /// The peak.
    pub(crate) most: u64,
}

pub(crate) fn resident() -> Result<Resident> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<u64> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .context("/proc/self/status lacks the field")?;
        let kibibytes: u64 = line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").trim().parse()?;
        Ok(kibibytes << 10)
    };
    Ok(Resident { now: field("VmRSS")?, most: field("VmHWM")? })
}
