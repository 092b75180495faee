//! kubectl with a stand-in: rollouts, rollbacks, describe, logs and deletions work as with any cluster.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use standin::{Delays, Options, Standin};
use tempfile::TempDir;
use testkit::Kubectl;

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1", resources: {requests: {cpu: 100m, memory: 64Mi}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: pg}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}
"#;

/// Starts a stand-in, and returns kubectl with its kubeconfig. The stand-in and the directory of the kubeconfig exist as
/// long as the other value.
async fn start(options: Options) -> (Kubectl, (Standin, TempDir)) {
    let program = testkit::peers::program("kubectl");
    let (standin, dir) = (Standin::start(options).await.unwrap(), tempfile::tempdir().unwrap());
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, standin.kubeconfig().unwrap()).unwrap();
    (Kubectl::with_kubeconfig(&program, kubeconfig, dir.path().join("cache")), (standin, dir))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn rollouts_are_waited_for_and_undone() {
    let delays = Delays { ready: Duration::from_millis(50), ..Delays::NONE };
    let (kubectl, _running) = start(Options { delays, ..Options::new("east") }).await;
    kubectl.output(&format!("apply -f {}", kubectl.file("manifest.yaml", MANIFEST)));
    let message = kubectl.output("rollout status deployment/web --timeout=60s");
    assert!(message.contains("deployment \"web\" successfully rolled out"), "{message}");
    for set in ["statefulset/db", "daemonset/agent"] {
        kubectl.output(&format!("rollout status {set} --timeout=60s"));
    }
    kubectl.output("wait --for=condition=complete job/once --timeout=60s");
    kubectl.output("wait --for=condition=available deployment/web --timeout=60s");
    kubectl.output("wait --for=condition=ready pod -l app=web --timeout=60s");

    kubectl.output("set image deployment/web web=nginx:2");
    kubectl.output("rollout status deployment/web --timeout=60s");
    let history = kubectl.output("rollout history deployment/web");
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    kubectl.output("rollout undo deployment/web");
    kubectl.output("rollout status deployment/web --timeout=60s");
    let image = kubectl.output("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}");
    assert_eq!(image, "nginx:1");

    kubectl.output("set image statefulset/db db=pg:2");
    kubectl.output("rollout status statefulset/db --timeout=60s");
    kubectl.output("rollout undo statefulset/db");
    kubectl.output("rollout status statefulset/db --timeout=60s");
    let image = kubectl.output("get pod db-0 -o jsonpath={.spec.containers[0].image}");
    assert_eq!(image, "pg");
    kubectl.output("rollout restart daemonset/agent");
    kubectl.output("rollout status daemonset/agent --timeout=60s");

    kubectl.output("scale deployment/web --replicas=5");
    kubectl.output("rollout status deployment/web --timeout=60s");
    kubectl.output("delete deployment/web --cascade=foreground --timeout=60s");
    assert_eq!(kubectl.output("get pods,replicasets -l app=web -o name"), "");
    kubectl.output("create namespace shop");
    kubectl.output("-n shop create deployment tea --image=tea --replicas=2");
    kubectl.output("-n shop rollout status deployment/tea --timeout=60s");
    kubectl.output("delete namespace shop --timeout=60s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn kubectl_works_as_with_any_cluster() {
    let (kubectl, _running) = start(Options::new("east")).await;
    kubectl.output(&format!("apply -f {}", kubectl.file("manifest.yaml", MANIFEST)));
    kubectl.output("rollout status deployment/web --timeout=60s");
    kubectl.output("wait --for=condition=complete job/once --timeout=60s");
    let pods = kubectl.output("get pods -l app=web --no-headers");
    assert_eq!(
        pods.lines().filter(|line| line.contains("1/1") && line.contains("Running")).count(),
        3,
        "{pods}"
    );
    let nodes = kubectl.output("get nodes");
    assert_eq!(nodes.lines().filter(|line| line.contains(" Ready ")).count(), 2, "{nodes}");
    let message = kubectl.output("describe deployment web");
    for expected in [
        "3 desired | 3 updated | 3 total | 3 available | 0 unavailable",
        "NewReplicaSetAvailable",
        "ScalingReplicaSet",
    ] {
        assert!(message.contains(expected), "no {expected:?} in {message}");
    }
    let pod = pods.split_whitespace().next().unwrap();
    let message = kubectl.output(&format!("describe pod {pod}"));
    for expected in
        ["Successfully assigned default/web-", "Started container web", "ContainersReady             True "]
    {
        assert!(message.contains(expected), "no {expected:?} in {message}");
    }
    let message = kubectl.output("describe node east-1");
    assert!(message.contains("Non-terminated Pods:") && message.contains("100m (1%)"), "{message}");
    let message = kubectl.output("describe service web");
    assert!(message.contains("Endpoints:") && message.contains(":80"), "{message}");

    let lines = kubectl.output(&format!("logs {pod}"));
    assert!(lines.ends_with("ready\n"), "{lines}");
    assert_eq!(kubectl.output("logs job/once --tail=1"), "done\n");
    let (succeeded, message) = kubectl.run(&["logs", "job/once", "--previous"]);
    assert!(!succeeded && message.contains("previous terminated container \"main\" in pod"), "{message}");

    // Drains one node while the other is cordoned, and uncordons that afterwards: all pods move to it.
    kubectl.output("cordon east-1");
    kubectl.output("drain east-2 --ignore-daemonsets --delete-emptydir-data --force --timeout=60s");
    kubectl.output("uncordon east-1");
    kubectl.output("rollout status deployment/web --timeout=60s");
    let nodes_of_pods = kubectl.output("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}");
    assert_eq!(nodes_of_pods, "east-1 east-1 east-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn commands_run_in_containers() {
    let (kubectl, _running) = start(Options::new("east")).await;
    run_commands(&kubectl);
}

/// `kubectl attach` over SPDY was once rejected with "Upgrade request required".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn an_attached_client_sees_the_output_of_a_container() {
    let (mut kubectl, _running) = start(Options::new("east")).await;
    kubectl.output("run box --image=busybox");
    kubectl.output("wait --for=condition=ready pod/box --timeout=60s");
    for websockets in ["true", "false"] {
        kubectl.set_env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        for line in ["attach box", "attach -i box"] {
            let mut child = kubectl
                .command(&line.split(' ').collect::<Vec<_>>())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let first_line = tokio::task::spawn_blocking(move || lines.next().map(Result::unwrap));
            // kubectl does not report when it is attached. So the container is made ready again, which writes a log
            // line, until the line is seen.
            for _ in 0..60 {
                for fail in ["standin.holon.dev/fail=NotReady", "standin.holon.dev/fail-"] {
                    kubectl.output(&format!("annotate --overwrite pod box {fail}"));
                    let ready = if fail.ends_with('-') { "true" } else { "false" };
                    let wait = format!("wait --for=jsonpath={{.status.containerStatuses[0].ready}}={ready}");
                    kubectl.output(&format!("{wait} pod/box --timeout=60s"));
                }
                if first_line.is_finished() {
                    break;
                }
            }
            assert!(
                first_line.is_finished(),
                "kubectl {line} with WebSocket {websockets} has printed nothing"
            );
            let first_line = first_line.await.unwrap();
            assert!(first_line.is_some_and(|line| line.contains("ready")), "{line}, WebSocket {websockets}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    // The attach session ends with a status when the pod is deleted.
    let mut child = kubectl.command(&["attach", "box"]).stdout(Stdio::null()).spawn().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(child.try_wait().unwrap().is_none());
    kubectl.output("delete pod box --now --timeout=60s");
    let exited = tokio::task::spawn_blocking(move || child.wait().unwrap());
    assert!(tokio::time::timeout(Duration::from_secs(20), exited).await.unwrap().unwrap().success());
}

/// Clients with kubectl before 1.31, or Go programs with the SPDY executor of client-go, got "Upgrade request required"
/// for every exec: stand-ins supported WebSocket only, while every Kubernetes supports both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn commands_run_in_containers_over_spdy() {
    let (mut kubectl, _running) = start(Options::new("east")).await;
    kubectl.set_env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
    run_commands(&kubectl);
    // More than one frame, both ways; and a copy, which is an archive.
    let large = "0123456789abcdef\n".repeat(20_000);
    assert_eq!(kubectl.output_of(&["exec", "-i", "box", "--", "cat"], &large), large);
    kubectl.output(&format!("cp {} box:/tmp/large", kubectl.file("large", &large)));
    let back = kubectl.file("back", "");
    kubectl.output(&format!("cp box:/tmp/large {back}"));
    assert_eq!(std::fs::read_to_string(back).unwrap(), large);
}

fn run_commands(kubectl: &Kubectl) {
    kubectl.output("run box --image=busybox --env=COLOUR=blue");
    kubectl.output("wait --for=condition=ready pod/box --timeout=60s");
    assert_eq!(kubectl.output("exec box -- echo hello there"), "hello there\n");
    assert_eq!(kubectl.output("exec box -- hostname"), "box\n");
    assert!(kubectl.output("exec box -- env").contains("COLOUR=blue\n"));
    let (succeeded, message) = kubectl.run(&["exec", "box", "--", "false"]);
    assert!(!succeeded && message.contains("command terminated with exit code 1"), "{message}");
    let (succeeded, message) = kubectl.run(&["exec", "box", "-c", "other", "--", "true"]);
    assert!(!succeeded && message.contains("container other is not valid for pod box"), "{message}");
    let output = kubectl.output_of(&["exec", "-i", "box", "--", "cat"], "as it came\n");
    assert_eq!(output, "as it came\n");
}
