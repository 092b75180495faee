//! kubectl with a stand-in: rollouts, rollbacks, describe, logs and deletions work as with any cluster.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use standin::{Delays, Options, Standin};

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

/// kubectl with a stand-in and its kubeconfig.
struct Desk {
    kubectl: PathBuf,
    dir: tempfile::TempDir,
    _standin: Standin,
    /// The environment variables of kubectl.
    environment: Vec<(&'static str, &'static str)>,
}

impl Desk {
    async fn open(options: Options) -> Desk {
        let kubectl = testkit::peers::program("kubectl");
        let standin = Standin::start(options).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kubeconfig"), standin.kubeconfig().unwrap()).unwrap();
        std::fs::write(dir.path().join("manifest.yaml"), MANIFEST).unwrap();
        Desk { kubectl, dir, _standin: standin, environment: Vec::new() }
    }

    fn path(&self, file: &str) -> String {
        Path::join(self.dir.path(), file).display().to_string()
    }

    /// Returns the output of kubectl, which must succeed.
    async fn run(&self, line: &str) -> String {
        let (ok, message) = self.try_run(line).await;
        assert!(ok, "kubectl {line}: {message}");
        message
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.path("kubeconfig")).args(line.split(' '));
        // In a home directory of its own, because kubectl caches discovery there.
        command.env("HOME", self.dir.path()).envs(self.environment.iter().copied());
        command
    }

    /// Returns the output of kubectl with this input.
    async fn feed(&self, line: &str, input: &str) -> String {
        let (mut command, input) = (self.command(line), input.to_owned());
        let fed = move || {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            child.wait_with_output().unwrap().stdout
        };
        String::from_utf8(tokio::task::spawn_blocking(fed).await.unwrap()).unwrap()
    }

    async fn try_run(&self, line: &str) -> (bool, String) {
        let mut command = self.command(line);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let message =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), message.concat())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn rollouts_are_waited_for_and_undone() {
    let delays = Delays { ready: Duration::from_millis(50), ..Delays::NONE };
    let desk = Desk::open(Options { delays, ..Options::new("east") }).await;
    desk.run(&format!("apply -f {}", desk.path("manifest.yaml"))).await;
    let message = desk.run("rollout status deployment/web --timeout=60s").await;
    assert!(message.contains("deployment \"web\" successfully rolled out"), "{message}");
    for set in ["statefulset/db", "daemonset/agent"] {
        desk.run(&format!("rollout status {set} --timeout=60s")).await;
    }
    desk.run("wait --for=condition=complete job/once --timeout=60s").await;
    desk.run("wait --for=condition=available deployment/web --timeout=60s").await;
    desk.run("wait --for=condition=ready pod -l app=web --timeout=60s").await;

    desk.run("set image deployment/web web=nginx:2").await;
    desk.run("rollout status deployment/web --timeout=60s").await;
    let history = desk.run("rollout history deployment/web").await;
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    desk.run("rollout undo deployment/web").await;
    desk.run("rollout status deployment/web --timeout=60s").await;
    let image = desk.run("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}").await;
    assert_eq!(image, "nginx:1");

    desk.run("set image statefulset/db db=pg:2").await;
    desk.run("rollout status statefulset/db --timeout=60s").await;
    desk.run("rollout undo statefulset/db").await;
    desk.run("rollout status statefulset/db --timeout=60s").await;
    let image = desk.run("get pod db-0 -o jsonpath={.spec.containers[0].image}").await;
    assert_eq!(image, "pg");
    desk.run("rollout restart daemonset/agent").await;
    desk.run("rollout status daemonset/agent --timeout=60s").await;

    desk.run("scale deployment/web --replicas=5").await;
    desk.run("rollout status deployment/web --timeout=60s").await;
    desk.run("delete deployment/web --cascade=foreground --timeout=60s").await;
    assert_eq!(desk.run("get pods,replicasets -l app=web -o name").await, "");
    desk.run("create namespace shop").await;
    desk.run("-n shop create deployment tea --image=tea --replicas=2").await;
    desk.run("-n shop rollout status deployment/tea --timeout=60s").await;
    desk.run("delete namespace shop --timeout=60s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn kubectl_works_as_with_any_cluster() {
    let desk = Desk::open(Options::new("east")).await;
    desk.run(&format!("apply -f {}", desk.path("manifest.yaml"))).await;
    desk.run("rollout status deployment/web --timeout=60s").await;
    desk.run("wait --for=condition=complete job/once --timeout=60s").await;
    let pods = desk.run("get pods -l app=web --no-headers").await;
    assert_eq!(
        pods.lines().filter(|line| line.contains("1/1") && line.contains("Running")).count(),
        3,
        "{pods}"
    );
    let nodes = desk.run("get nodes").await;
    assert_eq!(nodes.lines().filter(|line| line.contains(" Ready ")).count(), 2, "{nodes}");
    let message = desk.run("describe deployment web").await;
    for part in [
        "3 desired | 3 updated | 3 total | 3 available | 0 unavailable",
        "NewReplicaSetAvailable",
        "ScalingReplicaSet",
    ] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
    let pod = pods.split_whitespace().next().unwrap();
    let message = desk.run(&format!("describe pod {pod}")).await;
    for part in
        ["Successfully assigned default/web-", "Started container web", "ContainersReady             True "]
    {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
    let message = desk.run("describe node east-1").await;
    assert!(message.contains("Non-terminated Pods:") && message.contains("100m (1%)"), "{message}");
    let message = desk.run("describe service web").await;
    assert!(message.contains("Endpoints:") && message.contains(":80"), "{message}");

    let lines = desk.run(&format!("logs {pod}")).await;
    assert!(lines.ends_with("ready\n"), "{lines}");
    assert_eq!(desk.run("logs job/once --tail=1").await, "done\n");
    let (found, message) = desk.try_run("logs job/once --previous").await;
    assert!(!found && message.contains("previous terminated container \"main\" in pod"), "{message}");

    // Drains one node while the other is cordoned, and uncordons that afterwards: all pods move to it.
    desk.run("cordon east-1").await;
    desk.run("drain east-2 --ignore-daemonsets --delete-emptydir-data --force --timeout=60s").await;
    desk.run("uncordon east-1").await;
    desk.run("rollout status deployment/web --timeout=60s").await;
    let places = desk.run("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}").await;
    assert_eq!(places, "east-1 east-1 east-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn commands_run_in_containers() {
    let desk = Desk::open(Options::new("east")).await;
    run_commands(&desk).await;
}

/// `kubectl attach` over SPDY was once rejected with "Upgrade request required".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn an_attached_client_sees_the_output_of_a_container() {
    let mut desk = Desk::open(Options::new("east")).await;
    desk.run("run box --image=busybox").await;
    desk.run("wait --for=condition=ready pod/box --timeout=60s").await;
    for websockets in ["true", "false"] {
        desk.environment = vec![("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)];
        for line in ["attach box", "attach -i box"] {
            let mut child = desk.command(line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let seen = tokio::task::spawn_blocking(move || lines.next().map(Result::unwrap));
            // kubectl does not report when it is attached. So the container is made ready again, which writes a log
            // line, until the line is seen.
            for _ in 0..60 {
                for fail in ["standin.holon.dev/fail=NotReady", "standin.holon.dev/fail-"] {
                    desk.run(&format!("annotate --overwrite pod box {fail}")).await;
                    let ready = if fail.ends_with('-') { "true" } else { "false" };
                    let wait = format!("wait --for=jsonpath={{.status.containerStatuses[0].ready}}={ready}");
                    desk.run(&format!("{wait} pod/box --timeout=60s")).await;
                }
                if seen.is_finished() {
                    break;
                }
            }
            assert!(seen.is_finished(), "kubectl {line} with WebSocket {websockets} has seen nothing");
            let seen = seen.await.unwrap();
            assert!(seen.is_some_and(|line| line.contains("ready")), "{line}, WebSocket {websockets}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    // The attach session ends with a status when the pod is deleted.
    let mut child = desk.command("attach box").stdout(Stdio::null()).spawn().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(child.try_wait().unwrap().is_none());
    desk.run("delete pod box --now --timeout=60s").await;
    let left = tokio::task::spawn_blocking(move || child.wait().unwrap());
    assert!(tokio::time::timeout(Duration::from_secs(20), left).await.unwrap().unwrap().success());
}

/// Clients with kubectl before 1.31, or Go programs with the SPDY executor of client-go, got "Upgrade request required"
/// for every exec: stand-ins supported WebSocket only, while every Kubernetes supports both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn commands_run_in_containers_over_spdy() {
    let mut desk = Desk::open(Options::new("east")).await;
    desk.environment = vec![("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")];
    run_commands(&desk).await;
    // More than one frame, both ways; and a copy, which is an archive.
    let much = "0123456789abcdef\n".repeat(20_000);
    assert_eq!(desk.feed("exec -i box -- cat", &much).await, much);
    std::fs::write(desk.path("much"), &much).unwrap();
    desk.run(&format!("cp {} box:/tmp/much", desk.path("much"))).await;
    desk.run(&format!("cp box:/tmp/much {}", desk.path("back"))).await;
    assert_eq!(std::fs::read_to_string(desk.path("back")).unwrap(), much);
}

async fn run_commands(desk: &Desk) {
    desk.run("run box --image=busybox --env=COLOUR=blue").await;
    desk.run("wait --for=condition=ready pod/box --timeout=60s").await;
    assert_eq!(desk.run("exec box -- echo hello there").await, "hello there\n");
    assert_eq!(desk.run("exec box -- hostname").await, "box\n");
    assert!(desk.run("exec box -- env").await.contains("COLOUR=blue\n"));
    let (worked, message) = desk.try_run("exec box -- false").await;
    assert!(!worked && message.contains("command terminated with exit code 1"), "{message}");
    let (worked, message) = desk.try_run("exec box -c other -- true").await;
    assert!(!worked && message.contains("container other is not valid for pod box"), "{message}");
    let given = desk.feed("exec -i box -- cat", "as it came\n").await;
    assert_eq!(given, "as it came\n");
}
