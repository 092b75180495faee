//! Endpoints for operators: probes, version, metrics, request ids, deadlines.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Server};

use crate::common::HOLON;

#[test]
fn every_response_has_the_audit_id_of_the_client_or_a_new_one() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let response = client.get("/api");
    assert_eq!(response.header("Audit-Id").len(), 36, "{}", response.header("Audit-Id"));
    assert_ne!(response.header("Audit-Id"), client.get("/api").header("Audit-Id"));
    assert_eq!(client.with("Audit-ID: my-own.id").get("/nothing").header("Audit-Id"), "my-own.id");
    assert_ne!(client.with("Audit-ID: two words").get("/api").header("Audit-Id"), "two words");
    let anonymous = Client::anonymous(&server);
    assert_eq!(anonymous.with("Audit-ID: x").get("/api").header("Audit-Id"), "x");
}

#[test]
fn operators_see_health_version_and_metrics() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let anonymous = Client::anonymous(&server);
    let expected = "[+]ping ok\n[+]store ok\n[+]shutdown ok\nreadyz check passed\n";
    assert_eq!(anonymous.get("/readyz?verbose").body, expected);
    assert_eq!(anonymous.get("/readyz/store").body, "ok");
    assert_eq!(anonymous.get("/readyz/etcd").code, 404);

    let version = anonymous.get("/version").json();
    for field in ["major", "minor", "gitVersion", "buildDate", "goVersion", "compiler", "platform"] {
        assert!(version[field].as_str().is_some_and(|text| !text.is_empty()), "{field} in {version}");
    }

    let index = client.get("/").json();
    let paths = index["paths"].as_array().unwrap();
    for path in ["/api/v1", "/apis/apps", "/apis/apps/v1", "/metrics", "/openapi/v3/apis/apps/v1", "/readyz"]
    {
        assert!(paths.contains(&json!(path)), "{path} in {index}");
    }

    let holon = |argument: &str| {
        let output = Command::new(HOLON).arg(argument).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = holon("version");
    let [first, commit, rustc] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert_eq!(format!("{first}\n"), holon("--version"));
    assert!(rustc.starts_with("rustc 1."), "{printed}");
    let (number, commit) = (first.strip_prefix("holon ").unwrap(), commit.strip_prefix("commit ").unwrap());
    assert_eq!(version["gitCommit"], commit, "{version}");
    assert_ne!(commit, "");
    let build_info = format!(r#"holon_build_info{{version="{number}",commit="{commit}","#);

    assert_eq!(anonymous.get("/metrics").code, 401);
    assert_eq!(client.get("/api/v1/limitranges").code, 200);
    let metrics = client.get("/metrics").body;
    for line in [
        r#"apiserver_request_total{verb="LIST",group="",resource="limitranges",code="200"} 1"#,
        r#"apiserver_request_duration_seconds_count{verb="LIST"} "#,
        r#"apiserver_current_inflight_requests{request_kind="readOnly"} 1"#,
        "holon_store_entries ",
        &build_info,
        "process_cpu_seconds_total ",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line} in\n{metrics}");
    }
}

#[test]
fn a_timeout_of_the_client_is_used_if_it_is_valid() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let check = |path: &str, code: u16, message: &str| {
        let answer = client.get(path);
        let found = answer.json();
        assert_eq!((answer.code, found["message"].as_str().unwrap_or_default()), (code, message), "{path}");
    };
    check("/api/v1/pods?timeout=32s", 200, "");
    check("/api/v1/pods?timeout=0s", 200, "");
    let text = "invalid timeout specified in the request URL - time: invalid duration \"bogus\"";
    check("/api/v1/pods?timeout=bogus", 400, text);
    // A body that is announced and never sent.
    let slow = client.with("Content-Length: 10");
    let late = slow.ask("POST", "/api/v1/namespaces?timeout=100ms", &Value::Null);
    assert_eq!((late.code, &late.json()["reason"]), (504, &json!("Timeout")), "{}", late.body);
    assert_eq!(
        late.header("Retry-After"),
        "",
        "a request that may have been executed is not retried automatically"
    );
}

#[test]
fn a_wrong_method_is_answered_with_the_allowed_ones() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let check = |method: &str, path: &str, allow: &str| {
        let answer = client.ask(method, path, &Value::Null);
        let status = answer.json();
        let text = "the server does not allow this method on the requested resource";
        assert_eq!((answer.code, &status["message"], &status["details"]), (405, &json!(text), &json!({})));
        assert_eq!(answer.header("Allow"), allow, "{method} {path}");
    };
    check("PUT", "/api/v1/namespaces/default/configmaps", "GET, HEAD, POST, DELETE");
    check("POST", "/api/v1/namespaces/default", "GET, HEAD, PUT, PATCH, DELETE");
    check("DELETE", "/api/v1/namespaces/default/status", "GET, HEAD, PUT, PATCH");
    check("GET", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "POST");
    check("BREW", "/api/v1/namespaces", "GET, HEAD, POST");
    check("POST", "/version", "GET, HEAD");
    check("DELETE", "/openapi/v3", "GET, HEAD");
}

#[test]
fn a_stopping_server_fails_readyz_and_still_serves() {
    // Longer than the test takes, so that the server still serves at every check.
    let server = Server::start_in(HOLON, tempfile::tempdir().unwrap(), &["--shutdown-delay", "600"]);
    let client = Client::admin(&server);
    assert_eq!(client.get("/readyz").code, 200);
    server.signal_stop();
    // The signal takes effect asynchronously.
    let readyz = (0..500).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        Some(client.get("/readyz")).filter(|answer| answer.code != 200)
    });
    let readyz = readyz.expect("readyz fails after the signal to stop");
    assert_eq!(readyz.code, 500);
    assert!(readyz.body.contains("[-]shutdown failed: reason withheld\n"), "{}", readyz.body);
    assert_eq!(client.get("/livez").code, 200);
    assert_eq!(client.get("/api/v1/namespaces").code, 200);
}

/// A server listened for signals only after it had printed its address: on a busy machine, a signal in between killed
/// it. Several servers at once make the machine busy.
#[test]
fn a_server_that_printed_its_address_stops_gracefully() {
    std::thread::scope(|scope| {
        let servers: Vec<_> = (0..8).map(|_| scope.spawn(|| Server::start(HOLON).stop())).collect();
        for server in servers {
            assert!(server.join().unwrap());
        }
    });
}
