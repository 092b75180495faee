//! kubectl with pods of a physical cluster, through the mailbox: with push over a connection of the server, and with
//! pull over a tunnel that the syncer dialled.

use std::path::Path;

use serde_json::{Value, json};
use testkit::until;

use crate::transcripts::{KubectlRoute, SPDY, compare, compare_copies};
use crate::{EastFleet, MAILBOX, PODS};

/// Creates an app and returns the name of a pod of it that can be reached.
pub(crate) fn reachable_pod(fleet: &EastFleet) -> String {
    fleet.put_app();
    until("three pods are projected", || fleet.pods().len() == 3);
    let pod = fleet.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    // A pull syncer dials its tunnel only after its first report.
    let log = format!("{MAILBOX}{PODS}/{pod}/log");
    until("the log can be read", || fleet.admin.get(&log).code == 200);
    pod
}

/// Returns kubectl for the mailbox and for the physical cluster.
pub(crate) fn routes(fleet: &EastFleet, kubectl: &Path) -> [KubectlRoute; 2] {
    let mailbox = fleet.server.file("mailbox.kubeconfig");
    std::fs::write(&mailbox, fleet.server.kubeconfig("root:mailbox-east")).unwrap();
    [mailbox, fleet.server.file("east.kubeconfig")].map(|kubeconfig| KubectlRoute {
        kubectl: kubectl.to_owned(),
        kubeconfig,
        cache: fleet.server.file("cache"),
        protocol_env: Vec::new(),
    })
}

#[test]
#[ignore = "needs kubectl"]
fn pods_are_reached_over_a_connection_of_the_server() {
    let kubectl = testkit::peers::program("kubectl");
    check_pods_are_reached(&EastFleet::joined(), &kubectl);
}

#[test]
#[ignore = "needs kubectl"]
fn pods_are_reached_through_a_dialled_tunnel() {
    let kubectl = testkit::peers::program("kubectl");
    check_pods_are_reached(&EastFleet::with_syncer(), &kubectl);
}

fn check_pods_are_reached(fleet: &EastFleet, kubectl: &Path) {
    let pod = reachable_pod(fleet);
    let [through, direct] = routes(fleet, kubectl);
    let commands = [
        &["logs", &pod][..],
        &["logs", &pod, "--timestamps"],
        &["logs", &pod, "--tail=1", "-c", "web"],
        &["logs", &pod, "-c", "missing"],
        &["exec", &pod, "--", "echo", "hello"],
        &["exec", &pod, "--", "sh", "-c", "echo hello; exit 3"],
        &["exec", &pod, "-c", "missing", "--", "echo"],
    ];
    compare(&through, &direct, &commands);
    let (worked, hello) = through.run(&["exec", &pod, "--", "echo", "hello"]);
    assert!(worked && hello.contains("hello"), "{hello}");
    let typed = |route: &KubectlRoute| {
        route.type_in_shell(&["exec", "-it", &pod, "--", "sh"], "echo it is $HOSTNAME\nexit\n")
    };
    let screen = typed(&through);
    assert_eq!(screen, typed(&direct));
    assert!(screen.contains(&format!("it is {pod}")), "{screen}");
    let forwarded = through.port_forward(&pod, 8080, "ping #\n");
    assert_eq!(forwarded, direct.port_forward(&pod, 8080, "ping #\n"));
    assert_eq!(forwarded, "ping 0\nping 1\nping 2\n");
    assert_eq!(
        through.port_forward(&pod, 8080, "GET /# HTTP/1.1\r\nHost: web\r\n\r\n"),
        "HTTP/1.1 200 OK\r\n".repeat(3)
    );
    check_logs(fleet, &through, &direct, &pod);
    let [spdy, direct_spdy] =
        routes(fleet, kubectl).map(|route| KubectlRoute { protocol_env: SPDY.to_vec(), ..route });
    check_logs(fleet, &spdy, &direct_spdy, &pod);
    assert_eq!(spdy.port_forward(&pod, 8080, "ping #\n"), forwarded);
    check_copy(fleet, &through, &direct, &pod);
    check_proxy(fleet, &pod);
    check_metrics(fleet, &through, &direct);
    check_debug(fleet, &through, &pod);
}

/// Compares the log of a container: the existing lines, and those written from now on.
fn check_logs(fleet: &EastFleet, through: &KubectlRoute, direct: &KubectlRoute, pod: &str) {
    // Makes the pod ready again, which writes a log line.
    let become_ready_again = || {
        for failure in [json!("NotReady"), Value::Null] {
            let change = json!({ "metadata": { "annotations": { "standin.holon.dev/fail": failure } } });
            fleet.send_downstream("east", "PATCH", &format!("{PODS}/{pod}"), &change).unwrap();
            let expected = if failure.is_null() { "True" } else { "False" };
            until("the pod reports the condition", || is_ready(fleet, pod) == expected);
        }
    };
    let attached = [through, direct].map(|route| route.attach(pod, "ready", become_ready_again));
    assert_eq!(attached[0], attached[1]);
    let [followed, expected] = [through, direct].map(|route| route.follow_log(pod, "ready", || {}));
    assert!(!followed.is_empty() && followed == expected, "{followed:?}, not {expected:?}");
}

/// Returns the Ready condition of a pod downstream.
fn is_ready(fleet: &EastFleet, pod: &str) -> String {
    let real = fleet.get_downstream("east", &format!("{PODS}/{pod}")).unwrap();
    let conditions = real["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    ready.and_then(|ready| ready["status"].as_str()).unwrap_or_default().to_owned()
}

/// Checks that a file copied in through the mailbox arrives, and comes out the same both ways.
fn check_copy(fleet: &EastFleet, through: &KubectlRoute, direct: &KubectlRoute, pod: &str) {
    let source = fleet.server.file("source");
    // Every byte value, and more than fits into one message.
    let bytes: Vec<u8> = (0..300_000u32).map(|number| (number % 251) as u8).chain(0..=255).collect();
    std::fs::write(&source, &bytes).unwrap();
    let target = format!("{pod}:/srv/copied");
    let (worked, output) = through.run(&["cp", source.to_str().unwrap(), &target]);
    assert!(worked, "{output}");
    compare_copies(through, direct, &target, &fleet.server.file(""));
    let back = fleet.server.file("back");
    let (worked, output) = through.run(&["cp", &target, back.to_str().unwrap()]);
    assert!(worked && std::fs::read(&back).unwrap() == bytes, "{output}");
}

/// Compares `kubectl top`.
fn check_metrics(fleet: &EastFleet, through: &KubectlRoute, direct: &KubectlRoute) {
    let group = format!("{MAILBOX}/apis/metrics.k8s.io/v1beta1");
    until("the mailbox serves metrics", || fleet.admin.get(&group).code == 200);
    compare(through, direct, &[&["top", "pods"], &["top", "pods", "-l", "app=web", "--containers"]]);
    let (worked, output) = through.run(&["top", "pods"]);
    assert!(worked && output.contains("web-"), "{output}");
    // Metrics are read-only.
    let created = fleet.admin.ask("POST", &format!("{group}/namespaces/shop/pods"), &json!({}));
    assert_eq!(created.code, 405, "{}", created.body);
}

/// Checks that an ephemeral container added in the mailbox is in the real pod.
fn check_debug(fleet: &EastFleet, through: &KubectlRoute, pod: &str) {
    let (worked, output) =
        through.run(&["debug", pod, "--image=busybox", "--container=look", "--", "sleep", "1"]);
    assert!(worked, "{output}");
    let path = format!("{PODS}/{pod}");
    until("the ephemeral container runs", || {
        let real = fleet.get_downstream("east", &path).unwrap();
        real["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object()
    });
    until("the ephemeral container is projected", || {
        let projected = fleet.admin.get(&format!("{MAILBOX}{path}")).json();
        projected["spec"]["ephemeralContainers"][0]["name"] == "look"
            && projected["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object()
    });
}

/// Checks `kubectl get --raw …/proxy/…`, also with request bodies.
fn check_proxy(fleet: &EastFleet, pod: &str) {
    let at = |name: &str, rest: &str| format!("{PODS}/{name}/proxy{rest}");
    for (method, name, rest, body) in [
        ("GET", pod.to_owned(), "/".to_owned(), ""),
        ("GET", format!("{pod}:8080"), "/a/b%20c?x=1&y=2".to_owned(), ""),
        ("POST", format!("http:{pod}:http"), "/form".to_owned(), "what is sent"),
        ("DELETE", format!("{pod}:8080"), "/one".to_owned(), ""),
        ("GET", format!("{pod}:9"), "/".to_owned(), ""),
        ("GET", format!("{pod}:9:9:9"), "/".to_owned(), ""),
    ] {
        let path = at(&name, &rest);
        let through = fleet.admin.say(method, &format!("{MAILBOX}{path}"), body);
        let request = http::Request::builder().method(method).uri(&path).body(body.as_bytes().to_vec());
        let direct = fleet.runtime.block_on(async {
            let client = fleet.east().client();
            let request = request.unwrap().map(kube::client::Body::from);
            let answer = client.send(request).await.unwrap();
            let status = answer.status().as_u16();
            let bytes = answer.into_body().collect_bytes().await.unwrap();
            (status, String::from_utf8_lossy(&bytes).into_owned())
        });
        assert_eq!(through.code, direct.0, "{method} {path}: {}", through.body);
        assert!(through.body.contains(direct.1.trim()), "{method} {path}: {} {}", through.body, direct.1);
    }
    // A user with only `get` may not send a POST: the verb follows the method.
    fleet.admin.bind(MAILBOX, "holon:access", "User ann");
    let ann = fleet.admin.with("Impersonate-User: ann");
    assert_eq!(ann.get(&format!("{MAILBOX}{}", at(pod, "/"))).code, 403);
    let refused = ann.say("POST", &format!("{MAILBOX}{}", at(pod, "/")), "");
    assert!(refused.body.contains("cannot create resource \\\"pods/proxy\\\""), "{}", refused.body);
}

#[test]
fn a_user_without_the_right_to_logs_cannot_read_them() {
    let fleet = EastFleet::joined();
    let pod = reachable_pod(&fleet);
    let path = format!("{MAILBOX}{PODS}/{pod}/log");
    assert_eq!(fleet.admin.get(&path).code, 200);
    // A user who may read pods, but not their logs.
    fleet.admin.bind(MAILBOX, "holon:access", "User ann");
    let ann = fleet.admin.with("Impersonate-User: ann");
    assert_eq!(ann.get(&path).code, 403);
}
