//! Health checks: `/healthz`, `/livez`, `/readyz`.
//!
//! | check    | healthz | livez | readyz | fails when                                     |
//! |----------|---------|-------|--------|------------------------------------------------|
//! | ping     | yes     | yes   | yes    | never: the response proves it                  |
//! | store    | yes     |       | yes    | the store cannot be read                       |
//! | shutdown |         |       | yes    | the server is stopping                         |
//!
//! Liveness does not include the store, because restarting this process does not repair a remote etcd. Any client may
//! read these endpoints, so the response does not contain the reason of a failure; the log does.

use std::time::Duration;

use http::{Response, StatusCode};
use storage::{Key, Store};

use crate::http::body::Body;
use crate::request::path::Health;
use crate::request::query::Query;
use crate::response::render;

/// A store that takes longer to read one key counts as unreadable.
const STORE_LIMIT: Duration = Duration::from_secs(2);

/// The state that the checks read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HealthState<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) stopping: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Ping,
    Store,
    Shutdown,
}

impl Check {
    fn all(endpoint: Health) -> &'static [Check] {
        match endpoint {
            Health::Healthz => &[Check::Ping, Check::Store],
            Health::Livez => &[Check::Ping],
            Health::Readyz => &[Check::Ping, Check::Store, Check::Shutdown],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Check::Ping => "ping",
            Check::Store => "store",
            Check::Shutdown => "shutdown",
        }
    }

    async fn run(self, state: HealthState<'_>) -> Result<(), String> {
        match self {
            Check::Ping => Ok(()),
            Check::Store => match tokio::time::timeout(STORE_LIMIT, state.store.get(&Key::from(""))).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {STORE_LIMIT:?}")),
            },
            Check::Shutdown if state.stopping => Err("the server is stopping".to_owned()),
            Check::Shutdown => Ok(()),
        }
    }
}

/// Answers a probe: with all checks of an endpoint, or with the one in the path.
pub(crate) async fn answer(
    state: HealthState<'_>,
    endpoint: Health,
    check: Option<&str>,
    query: &Query,
) -> Response<Body> {
    match check {
        None => everything(state, endpoint, query).await,
        Some(name) => match Check::all(endpoint).iter().find(|check| check.name() == name) {
            Some(check) => one(state, *check).await,
            None => render::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        },
    }
}

async fn one(state: HealthState<'_>, check: Check) -> Response<Body> {
    match check.run(state).await {
        Ok(()) => render::text(StatusCode::OK, "ok"),
        Err(reason) => {
            tracing::info!(check = check.name(), reason, "health check failed");
            let response = format!("internal server error: {} failed: reason withheld\n", check.name());
            render::text(StatusCode::INTERNAL_SERVER_ERROR, response)
        }
    }
}

async fn everything(state: HealthState<'_>, endpoint: Health, query: &Query) -> Response<Body> {
    let label = match endpoint {
        Health::Healthz => "healthz",
        Health::Livez => "livez",
        Health::Readyz => "readyz",
    };
    let mut excluded: Vec<&str> = query.all("exclude").collect();
    let (mut lines, mut failed) = (String::new(), false);
    for check in Check::all(endpoint) {
        let name = check.name();
        let before = excluded.len();
        excluded.retain(|excluded_name| *excluded_name != name);
        if excluded.len() < before {
            lines += &format!("[+]{name} excluded: ok\n");
            continue;
        }
        match check.run(state).await {
            Ok(()) => lines += &format!("[+]{name} ok\n"),
            Err(reason) => {
                tracing::info!(check = name, reason, "health check failed");
                lines += &format!("[-]{name} failed: reason withheld\n");
                failed = true;
            }
        }
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        lines +=
            &format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(", "));
    }
    match failed {
        true => render::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{label} check failed\n")),
        false if query.all("verbose").next().is_some() => {
            render::text(StatusCode::OK, format!("{lines}{label} check passed\n"))
        }
        false => render::text(StatusCode::OK, "ok"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::info::RequestInfo;
    use crate::request::path::Target;
    use http_body_util::BodyExt;
    use storage::memory::Memory;

    async fn response(stopping: bool, path: &str) -> (u16, String) {
        let info = RequestInfo::line(&format!("GET {path}"));
        let Some(Target::Health { endpoint, check }) = info.target() else { panic!("{path} is no probe") };
        let store = Memory::new();
        let state = HealthState { store: &store, stopping };
        let response = answer(state, *endpoint, check.as_deref(), &info.query).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn probes_get_the_responses_of_kubernetes() {
        let check = async |stopping: bool, path: &str, code: u16, body: &str| {
            assert_eq!(response(stopping, path).await, (code, body.to_owned()), "{path}");
        };
        check(false, "/healthz", 200, "ok").await;
        check(false, "/livez/ping", 200, "ok").await;
        check(false, "/livez/store", 404, "404 page not found\n").await;
        check(
            false,
            "/readyz?verbose",
            200,
            "[+]ping ok\n[+]store ok\n[+]shutdown ok\nreadyz check passed\n",
        )
        .await;
        check(
            false,
            "/livez?verbose&exclude=ping&exclude=etcd&exclude=log",
            200,
            "[+]ping excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"etcd\", \"log\"\nlivez check passed\n",
        )
        .await;
        // A stopping server is alive but not ready.
        check(true, "/livez", 200, "ok").await;
        check(true, "/healthz", 200, "ok").await;
        let failed = "[+]ping ok\n[+]store ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n";
        check(true, "/readyz", 500, failed).await;
        check(true, "/readyz?exclude=shutdown", 200, "ok").await;
        let failed = "internal server error: shutdown failed: reason withheld\n";
        check(true, "/readyz/shutdown", 500, failed).await;
    }
}
