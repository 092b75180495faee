//! Metrics of the server, for Prometheus.
//!
//! The number of series is bounded at compile time: verbs, built-in resources, status codes. No client-chosen value
//! becomes a label, and neither do logical clusters, namespaces or names: a million of them must cost nothing here.

mod process;

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use openapi::catalog::resource_info::Verb;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::endpoints::version;
use crate::http::body::Body;
use crate::http::limits::Limits;
use crate::kinds::Kinds;
use crate::request::info::RequestInfo;
use crate::response::render;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Seconds, from a read in memory to the maximum duration of a request.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0];
/// The label for all custom resources and all unknown methods.
const OTHER: &str = "other";

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<ByVerb, Histogram, fn() -> Histogram>,
    inflight: Family<InflightLabels, Gauge>,
    watches: Family<ByVerb, Gauge>,
    revision: Gauge,
    entries: Gauge,
    build: Family<Build, Gauge>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    group: Arc<str>,
    resource: Arc<str>,
    code: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByVerb {
    verb: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct InflightLabels {
    request_kind: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Build {
    version: &'static str,
    commit: &'static str,
    compiler: &'static str,
}

/// Metrics of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreMetrics {
    pub(crate) revision: u64,
    pub(crate) entries: usize,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            inflight: Family::default(),
            watches: Family::default(),
            revision: Gauge::default(),
            entries: Gauge::default(),
            build: Family::default(),
        };
        metrics.register();
        metrics.set_build_info("");
        metrics
    }
}

impl Metrics {
    /// Registers the metrics. Names are those of kube-apiserver where it has the same metric, so that its dashboards
    /// work.
    fn register(&mut self) {
        let registry = &mut self.registry;
        let requests = self.requests.clone();
        registry.register("apiserver_request", "Requests by verb, resource and status code", requests);
        let durations = self.durations.clone();
        registry.register(
            "apiserver_request_duration_seconds",
            "Request duration in seconds, without watches",
            durations,
        );
        let inflight = self.inflight.clone();
        registry.register("apiserver_current_inflight_requests", "Requests in progress", inflight);
        let watches = self.watches.clone();
        registry.register("apiserver_longrunning_requests", "Open watches", watches);
        registry.register("holon_store_revision", "The newest revision of the store", self.revision.clone());
        registry.register("holon_store_entries", "Entries in the store", self.entries.clone());
        registry.register("holon_build_info", "Build information", self.build.clone());
        registry.register_collector(Box::new(process::Process));
    }

    /// Sets the labels of `holon_build_info`.
    pub(crate) fn set_build_info(&self, commit: &'static str) {
        let labels = Build { version: version::VERSION, commit, compiler: version::LANGUAGE };
        self.build.clear();
        self.build.get_or_create(&labels).set(1);
    }

    /// Counts a request. An open watch is counted until its response ends.
    pub(crate) fn count(
        &self,
        kinds: &Kinds,
        info: &RequestInfo,
        took: Duration,
        response: &mut Response<Body>,
    ) {
        let verb = verb(info);
        let (group, resource) = resource(kinds, info);
        let code = u32::from(response.status().as_u16());
        self.requests.get_or_create(&RequestLabels { verb, group, resource, code }).inc();
        if !info.is_watch() {
            self.durations.get_or_create(&ByVerb { verb }).observe(took.as_secs_f64());
        } else if [StatusCode::OK, StatusCode::SWITCHING_PROTOCOLS].contains(&response.status()) {
            let open = Open::new(self.watches.get_or_create_owned(&ByVerb { verb }));
            let body = std::mem::replace(response.body_mut(), render::nothing());
            // The body owns the count and decrements it when dropped.
            *response.body_mut() = body
                .map_frame(move |frame| {
                    let _ = &open;
                    frame
                })
                .boxed_unsync();
        }
    }

    /// Responds with all metrics.
    pub(crate) fn answer(&self, limits: &Limits, store: Option<StoreMetrics>) -> Response<Body> {
        for (request_kind, lane) in [("readOnly", &limits.reads), ("mutating", &limits.writes)] {
            self.inflight.get_or_create(&InflightLabels { request_kind }).set(signed(lane.now()));
        }
        // The metrics of an unreadable store keep their last values; the health checks report the failure.
        if let Some(store) = store {
            self.revision.set(store.revision as i64);
            self.entries.set(signed(store.entries));
        }
        let mut body = String::new();
        text::encode(&mut body, &self.registry).expect("writing to memory does not fail");
        render::typed(StatusCode::OK, CONTENT_TYPE, body)
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns the verb as the dashboards of kube-apiserver expect it: a mix of methods and verbs.
fn verb(info: &RequestInfo) -> &'static str {
    match info.verb() {
        Some(Verb::Get) => "GET",
        Some(Verb::List) => "LIST",
        Some(Verb::Watch) => "WATCH",
        Some(Verb::Create) => "POST",
        Some(Verb::Update) => "PUT",
        Some(Verb::Patch) => "PATCH",
        Some(Verb::Delete) => "DELETE",
        Some(Verb::DeleteCollection) => "DELETECOLLECTION",
        None if matches!(info.method, Method::GET | Method::HEAD) => "GET",
        None => OTHER,
    }
}

/// Returns group and plural of a resource in `kinds`, the common set. Empty for other paths.
fn resource(kinds: &Kinds, info: &RequestInfo) -> (Arc<str>, Arc<str>) {
    let Some(named) = info.resource() else { return ("".into(), "".into()) };
    match kinds.find(&named.group, &named.version, &named.resource) {
        Some(resource) => (resource.group.clone(), resource.plural.clone()),
        None => (OTHER.into(), OTHER.into()),
    }
}

/// One open watch.
struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Open {
        gauge.inc();
        Open(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn count(metrics: &Metrics, line: &str) -> Response<Body> {
        let mut response = render::json(StatusCode::OK, Bytes::new());
        metrics.count(Kinds::built_in(), &RequestInfo::line(line), Duration::from_millis(1), &mut response);
        response
    }

    async fn exposition(metrics: &Metrics) -> String {
        let store = StoreMetrics { revision: 7, entries: 3 };
        let response = metrics.answer(&Limits::default(), Some(store));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn unknown_names_in_requests_create_no_metric_series() {
        let metrics = Metrics::default();
        for number in 0..50 {
            count(
                &metrics,
                &format!("GET /clusters/root:c{number}/api/v1/namespaces/n{number}/pods/p{number}"),
            );
            count(&metrics, &format!("X{number} /api/v1/thing{number}s/a"));
            count(&metrics, &format!("GET /apis/group{number}.example/v1/things"));
            count(&metrics, &format!("GET /nothing/{number}"));
        }
        let exposition = exposition(&metrics).await;
        let series: Vec<_> =
            exposition.lines().filter(|line| line.starts_with("apiserver_request_total")).collect();
        assert_eq!(series.len(), 4, "{series:#?}");
        let pods = r#"apiserver_request_total{verb="GET",group="",resource="pods",code="200"} 50"#;
        assert!(series.contains(&pods), "{series:#?}");
        for expected in ["holon_store_revision 7", "holon_store_entries 3", "process_resident_memory_bytes "]
        {
            assert!(exposition.contains(expected), "{exposition}");
        }
    }

    #[tokio::test]
    async fn a_watch_counts_as_long_as_it_is_open() {
        let metrics = Metrics::default();
        let line = |count: u32| format!("apiserver_longrunning_requests{{verb=\"WATCH\"}} {count}\n");
        let watch = count(&metrics, "GET /api/v1/pods?watch=1");
        assert!(exposition(&metrics).await.contains(&line(1)));
        drop(watch);
        assert!(exposition(&metrics).await.contains(&line(0)));
    }
}
