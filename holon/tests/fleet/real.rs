//! The same with a real kube-apiserver downstream and kwok instead of kubelets: the server side of the protocols is not
//! our own code.

use std::fs::OpenOptions;
use std::io::Write;

use testkit::peers::Cluster;
use testkit::until;
use testkit::{Client, Process, Server};

use crate::common::HOLON;
use crate::transcripts::{KubectlRoute, SPDY, compare, compare_copies};
use crate::{MAILBOX, PODS, app, print_ticket, syncer_command};

/// A server, and a real cluster that is registered as `east`.
struct RealFleet {
    server: Server,
    admin: Client,
    cluster: Cluster,
    syncer: Option<Process>,
}

impl RealFleet {
    #[track_caller]
    fn start() -> RealFleet {
        let cluster = Cluster::start_with_kubelet();
        let server = Server::start(HOLON);
        let admin = Client::admin(&server);
        std::fs::copy(cluster.kubeconfig(), server.file("east.kubeconfig")).unwrap();
        std::fs::write(server.file("mailbox.kubeconfig"), server.kubeconfig("root")).unwrap();
        RealFleet { server, admin, cluster, syncer: None }
    }

    /// Creates an app and returns the name of a pod of it that can be reached.
    fn reachable_pod(&self) -> String {
        until("the mailbox exists", || self.admin.get(&format!("{MAILBOX}/api/v1/namespaces")).code == 200);
        for (path, object) in app() {
            self.admin.create(&format!("{MAILBOX}{path}"), &object);
        }
        let mut found = String::new();
        until("a pod can be reached", || {
            let pods = self.admin.get(&format!("{MAILBOX}{PODS}")).json();
            let Some(pod) = pods["items"][0]["metadata"]["name"].as_str() else { return false };
            found = pod.to_owned();
            self.admin.get(&format!("{MAILBOX}{PODS}/{pod}/log")).code == 200
        });
        found
    }

    fn routes(&self, protocol_env: &[(&'static str, &'static str)]) -> [KubectlRoute; 2] {
        let mailbox = self.server.file("mailbox.kubeconfig");
        std::fs::write(&mailbox, self.server.kubeconfig("root:mailbox-east")).unwrap();
        [mailbox, self.server.file("east.kubeconfig")].map(|kubeconfig| KubectlRoute {
            kubectl: testkit::peers::program("kubectl"),
            kubeconfig,
            cache: self.server.file("cache"),
            protocol_env: protocol_env.to_vec(),
        })
    }

    /// Writes a line to the log of all pods.
    fn write(&self, line: &str) {
        let mut log = OpenOptions::new().append(true).open(self.cluster.log()).unwrap();
        writeln!(log, "2026-01-02T00:00:00Z stdout F {line}").unwrap();
    }

    fn transcripts(&self) {
        let pod = self.reachable_pod();
        let path = self.cluster.log();
        let from = format!("{pod}:{}", path.display());
        for protocol_env in [&[][..], &SPDY] {
            let [through, direct] = self.routes(protocol_env);
            let commands = [
                &["logs", &pod][..],
                &["logs", &pod, "--tail=1", "--timestamps"],
                &["logs", &pod, "-c", "missing"],
                &["exec", &pod, "--", "echo", "hello"],
                &["exec", &pod, "--", "sh", "-c", "echo out; echo err >&2"],
                &["exec", &pod, "--", "sh", "-c", "exit 3"],
                &["exec", &pod, "--", "seq", "200000"],
                &["exec", "missing", "--", "echo"],
            ];
            compare(&through, &direct, &commands);
            // kubectl chooses the pod by age, and the creation time of a projected pod differs from the real one's.
            let of_any = [&through, &direct].map(|route| {
                let (worked, output) = route.run(&["logs", "deployment/web", "--tail=1"]);
                assert!(worked, "{output}");
                output.split_once("using pod/web-").map(|(before, _)| before.to_owned())
            });
            assert!(of_any[0].is_some() && of_any[0] == of_any[1], "{of_any:?}");
            let typed = |route: &KubectlRoute| {
                route.type_in_shell(&["exec", "-it", &pod, "--", "sh"], "echo $((6 * 7))\nexit\n")
            };
            let (screen, expected) = (typed(&through), typed(&direct));
            assert_eq!(screen, expected);
            assert!(screen.contains("42"), "{screen}");
            let forwarded = [&through, &direct].map(|route| route.port_forward(&pod, 8080, "ping #\n"));
            assert_eq!(forwarded[0], forwarded[1]);
            assert_eq!(forwarded[0].lines().count(), 3, "{forwarded:?}");
            let followed = [through.follow_log(&pod, "late", || self.write("late")), {
                self.write("once more");
                direct.follow_log(&pod, "once more", || {})
            }];
            assert!(followed[1].starts_with(&followed[0]), "{followed:?}");
            let attached = [&through, &direct]
                .map(|route| route.attach(&pod, "attached", || self.write("a client attached")));
            assert_eq!(attached[0], attached[1]);
            compare_copies(&through, &direct, &from, &self.server.file(""));
            // No copy into a container: this kubelet does not pass the end of stdin to a command.
        }
        self.check_debug(&pod);
    }

    /// Checks that an ephemeral container added in the mailbox is in the real pod, and is projected.
    fn check_debug(&self, pod: &str) {
        let [through, direct] = self.routes(&[]);
        let (worked, output) =
            through.run(&["debug", pod, "--image=busybox", "--container=look", "--", "sleep", "1"]);
        assert!(worked, "{output}");
        let names = ["get", "pod", pod, "-o", "jsonpath={.spec.ephemeralContainers[*].name}"];
        for route in [direct, through] {
            until("the ephemeral container is in the pod", || route.run(&names) == (true, "look".to_owned()));
        }
    }
}

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn kubectl_prints_the_same_through_a_mailbox_of_a_real_cluster() {
    let real = RealFleet::start();
    let file = real.server.file("east.kubeconfig");
    let (worked, output) = real.server.run(&["join", "east", "--kubeconfig", file.to_str().unwrap()]);
    assert!(worked, "{output}");
    real.transcripts();
}

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn kubectl_prints_the_same_through_a_tunnel_from_a_real_cluster() {
    let mut real = RealFleet::start();
    print_ticket(&real.server);
    real.syncer = Some(Process::spawn(&mut syncer_command(&real.server, "state")));
    real.transcripts();
}
