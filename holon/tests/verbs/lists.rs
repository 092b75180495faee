//! Lists and watches: past, future and invalid resource versions.

use serde_json::json;
use testkit::Server;

use crate::common::HOLON;
use crate::wire::WireClient;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Selects the objects that a test created; every namespace has one more from the beginning.
const CREATED: &str = "fieldSelector=metadata.name!%3Dkube-root-ca.crt";

/// Each row has the response of kube-apiserver 1.36.4.
#[test]
fn invalid_queries_are_refused_with_the_messages_of_kubernetes() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let check = |query: &str, code: u16, expected: &str| {
        let answer = client.get(&format!("{MAPS}?{query}"));
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!((answer.code, message.as_str()), (code, expected), "{query}");
    };
    let syntax = "strconv.ParseInt: parsing \"abc\": invalid syntax";
    check("limit=abc", 400, syntax);
    check("timeoutSeconds=abc", 400, syntax);
    check("watch=1&timeoutSeconds=abc", 400, syntax);
    let version = |text: &str, reason: &str| {
        format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {reason}")
    };
    let (negative, huge) =
        (version("-1", "invalid syntax"), version("99999999999999999999", "value out of range"));
    check("resourceVersion=-1", 400, &format!("invalid resource version: {negative}"));
    check("resourceVersion=99999999999999999999", 400, &format!("invalid resource version: {huge}"));
    check("watch=1&resourceVersion=-1", 400, &negative);
    let exact = "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]";
    check("watch=1&resourceVersionMatch=Exact&resourceVersion=1", 422, exact);
    assert_eq!(client.get(&format!("{MAPS}?limit=-1&resourceVersion=01")).code, 200);
}

/// Informers that switch servers check for exactly this cause.
#[test]
fn a_version_from_the_future_is_waited_for_and_then_refused() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    client.create(MAPS, &json!({ "metadata": { "name": "a" } }));
    for path in [
        format!("{MAPS}?resourceVersion=99999999"),
        format!("{MAPS}/a?resourceVersion=99999999"),
        format!("{MAPS}?watch=1&resourceVersion=99999999"),
    ] {
        let answer = client.get(&path);
        let status = answer.json();
        assert_eq!((answer.code, &status["reason"]), (504, &json!("Timeout")), "{path}");
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{path}");
        assert_eq!(status["details"]["retryAfterSeconds"], 1, "{path}");
    }
    // A request for the next version waits until it exists.
    let now: u64 = client.get(MAPS).json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let delayed = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.get(&format!("{MAPS}?{CREATED}&resourceVersion={}", now + 1)));
        client.create(MAPS, &json!({ "metadata": { "name": "b" } }));
        waiting.join().unwrap()
    });
    assert_eq!(delayed.names(), ["a", "b"]);
}

#[test]
fn a_list_of_many_chunks_is_one_list() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let filler = "x".repeat(20_000);
    for number in 0..20 {
        client.create(
            MAPS,
            &json!({ "metadata": { "name": format!("m{number:02}") }, "data": { "k": filler } }),
        );
    }
    let names = client.get(&format!("{MAPS}?{CREATED}")).names();
    assert_eq!((names.len(), names[0].as_str(), names[19].as_str()), (20, "m00", "m19"));
    let events = client.watched(&format!("{MAPS}?{CREATED}&watch=1&timeoutSeconds=1"));
    assert!(events.len() == 20 && events.iter().all(|(kind, _)| kind == "ADDED"), "{}", events.len());
}
