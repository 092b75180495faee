//! kubectl with pods of a physical cluster, through the mailbox: with push over a connection of the server, and with
//! pull over a tunnel that the syncer dialled.

use std::path::Path;

use serde_json::{Value, json};
use testkit::until;

use crate::transcripts::{SPDY, Way, compare, compare_copies};
use crate::{EastFleet, MAILBOX, PODS};

/// Creates an app and returns the name of a pod of it that can be reached.
pub(crate) fn reached(fleet: &EastFleet) -> String {
    fleet.put_app();
    until("three pods are shown", || fleet.pods().len() == 3);
    let pod = fleet.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    // A pull syncer dials its tunnel only after its first report.
    let log = format!("{MAILBOX}{PODS}/{pod}/log");
    until("there is a way", || fleet.admin.get(&log).code == 200);
    pod
}

/// Returns kubectl for the mailbox and for the physical cluster.
pub(crate) fn ways(fleet: &EastFleet, kubectl: &Path) -> [Way; 2] {
    let mailbox = fleet.server.file("mailbox.kubeconfig");
    std::fs::write(&mailbox, fleet.server.kubeconfig("root:mailbox-east")).unwrap();
    [mailbox, fleet.server.file("east.kubeconfig")].map(|kubeconfig| Way {
        kubectl: kubectl.to_owned(),
        kubeconfig,
        cache: fleet.server.file("cache"),
        speaks: Vec::new(),
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
    let pod = reached(fleet);
    let [through, direct] = ways(fleet, kubectl);
    let commands = [
        &["logs", &pod][..],
        &["logs", &pod, "--timestamps"],
        &["logs", &pod, "--tail=1", "-c", "web"],
        &["logs", &pod, "-c", "nobody"],
        &["exec", &pod, "--", "echo", "hello"],
        &["exec", &pod, "--", "sh", "-c", "echo hello; exit 3"],
        &["exec", &pod, "-c", "nobody", "--", "echo"],
    ];
    compare(&through, &direct, &commands);
    let (worked, hello) = through.says(&["exec", &pod, "--", "echo", "hello"]);
    assert!(worked && hello.contains("hello"), "{hello}");
    let typed = |way: &Way| way.types(&["exec", "-it", &pod, "--", "sh"], "echo it is $HOSTNAME\nexit\n");
    let screen = typed(&through);
    assert_eq!(screen, typed(&direct));
    assert!(screen.contains(&format!("it is {pod}")), "{screen}");
    let forwarded = through.forwards(&pod, 8080, "ping #\n");
    assert_eq!(forwarded, direct.forwards(&pod, 8080, "ping #\n"));
    assert_eq!(forwarded, "ping 0\nping 1\nping 2\n");
    assert_eq!(
        through.forwards(&pod, 8080, "GET /# HTTP/1.1\r\nHost: web\r\n\r\n"),
        "HTTP/1.1 200 OK\r\n".repeat(3)
    );
    looked_at(fleet, &through, &direct, &pod);
    let [spdy, direct_spdy] = ways(fleet, kubectl).map(|way| Way { speaks: SPDY.to_vec(), ..way });
    looked_at(fleet, &spdy, &direct_spdy, &pod);
    assert_eq!(spdy.forwards(&pod, 8080, "ping #\n"), forwarded);
    copies(fleet, &through, &direct, &pod);
    proxied(fleet, &pod);
    measured(fleet, &through, &direct);
    debugged(fleet, &through, &pod);
}

/// Compares the log of a container: the existing lines, and those written from now on.
fn looked_at(fleet: &EastFleet, through: &Way, direct: &Way, pod: &str) {
    // Makes the pod ready again, which writes a log line.
    let again = || {
        for trouble in [json!("NotReady"), Value::Null] {
            let change = json!({ "metadata": { "annotations": { "standin.holon.dev/fail": trouble } } });
            fleet.send_downstream("east", "PATCH", &format!("{PODS}/{pod}"), &change).unwrap();
            let wanted = if trouble.is_null() { "True" } else { "False" };
            until("it has heard of it", || is_ready(fleet, pod) == wanted);
        }
    };
    let attached = [through, direct].map(|way| way.attaches(pod, "ready", again));
    assert_eq!(attached[0], attached[1]);
    let [followed, expected] = [through, direct].map(|way| way.follows(pod, "ready", || {}));
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
fn copies(fleet: &EastFleet, through: &Way, direct: &Way, pod: &str) {
    let source = fleet.server.file("source");
    // Every byte value, and more than fits into one message.
    let bytes: Vec<u8> = (0..300_000u32).map(|number| (number % 251) as u8).chain(0..=255).collect();
    std::fs::write(&source, &bytes).unwrap();
    let target = format!("{pod}:/srv/copied");
    let (worked, said) = through.says(&["cp", source.to_str().unwrap(), &target]);
    assert!(worked, "{said}");
    compare_copies(through, direct, &target, &fleet.server.file(""));
    let back = fleet.server.file("back");
    let (worked, said) = through.says(&["cp", &target, back.to_str().unwrap()]);
    assert!(worked && std::fs::read(&back).unwrap() == bytes, "{said}");
}

/// Compares `kubectl top`.
fn measured(fleet: &EastFleet, through: &Way, direct: &Way) {
    let group = format!("{MAILBOX}/apis/metrics.k8s.io/v1beta1");
    until("the mailbox says so", || fleet.admin.get(&group).code == 200);
    compare(through, direct, &[&["top", "pods"], &["top", "pods", "-l", "app=web", "--containers"]]);
    let (worked, said) = through.says(&["top", "pods"]);
    assert!(worked && said.contains("web-"), "{said}");
    // Metrics are read-only.
    let made = fleet.admin.ask("POST", &format!("{group}/namespaces/shop/pods"), &json!({}));
    assert_eq!(made.code, 405, "{}", made.body);
}

/// Checks that an ephemeral container added in the mailbox is in the real pod.
fn debugged(fleet: &EastFleet, through: &Way, pod: &str) {
    let (worked, said) =
        through.says(&["debug", pod, "--image=busybox", "--container=look", "--", "sleep", "1"]);
    assert!(worked, "{said}");
    let path = format!("{PODS}/{pod}");
    until("it runs", || {
        let real = fleet.get_downstream("east", &path).unwrap();
        real["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object()
    });
    until("the mailbox shows it", || {
        let shown = fleet.admin.get(&format!("{MAILBOX}{path}")).json();
        shown["spec"]["ephemeralContainers"][0]["name"] == "look"
            && shown["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object()
    });
}

/// Checks `kubectl get --raw …/proxy/…`, also with request bodies.
fn proxied(fleet: &EastFleet, pod: &str) {
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
    let pod = reached(&fleet);
    let path = format!("{MAILBOX}{PODS}/{pod}/log");
    assert_eq!(fleet.admin.get(&path).code, 200);
    // A user who may read pods, but not their logs.
    fleet.admin.bind(MAILBOX, "holon:access", "User ann");
    let ann = fleet.admin.with("Impersonate-User: ann");
    assert_eq!(ann.get(&path).code, 403);
}
