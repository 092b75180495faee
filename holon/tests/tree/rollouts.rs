//! Rollouts with real kubectls, which read revisions from ReplicaSets, and the templates to roll back to.

use testkit::Kubectl;

use super::*;

const DEPLOYMENT: &str = "deployment/web";

/// One, two and five targets: the status of one target is passed on, those of several are aggregated.
const ONE: &[&str] = &["east"];
const TWO: &[&str] = &["east", "west"];
const FIVE: &[&str] = &["east", "north", "south", "up", "west"];

/// A kubectl of a user, in the namespace `shop`.
struct Shop<'a> {
    team: &'a Team,
    k: Kubectl,
    replicas: u64,
}

impl Shop<'_> {
    #[track_caller]
    fn run_ok(&self, arguments: &[&str]) -> String {
        let (succeeded, output) = self.run(arguments);
        assert!(succeeded, "kubectl {arguments:?} printed {output}");
        output
    }

    /// Expects failure and this output.
    #[track_caller]
    fn fails(&self, arguments: &[&str], expected: &str) {
        let (succeeded, output) = self.run(arguments);
        assert!(!succeeded && output.contains(expected), "kubectl {arguments:?} printed {output}");
    }

    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut all = vec!["-n", "shop"];
        all.extend_from_slice(arguments);
        self.k.run(&all)
    }

    /// Checks that when kubectl reports a finished rollout, it is finished on all clusters at that moment.
    fn until_rolled_out(&self, image: &str) {
        self.run_ok(&["rollout", "status", DEPLOYMENT, "--timeout=90s"]);
        let mut running = 0;
        for cluster in self.team.standins.keys() {
            let pods = self.team.read_downstream(cluster, "/api/v1/pods?labelSelector=app%3Dweb");
            let pods = pods["items"].as_array().cloned().unwrap_or_default();
            let is_new = |pod: &&Value| text(pod, "/spec/containers/0/image") == image;
            running += pods.iter().filter(is_new).filter(|pod| is_running(pod)).count() as u64;
        }
        assert_eq!(running, self.replicas, "kubectl reported that {image} is rolled out");
        self.run_ok(&["wait", "--for=condition=Available", DEPLOYMENT, "--timeout=90s"]);
        self.team.until_ready("web", self.replicas);
        let (all, table) = (self.replicas, self.run_ok(&["get", DEPLOYMENT]));
        assert!(table.contains(&format!(" {all}/{all} ")), "{table}");
    }

    fn revisions(&self) -> Vec<u32> {
        let output = self.run_ok(&["rollout", "history", DEPLOYMENT]);
        let number = |line: &str| line.split_whitespace().next()?.parse::<u32>().ok();
        output.lines().filter_map(number).collect()
    }

    fn image(&self) -> String {
        self.run_ok(&["get", DEPLOYMENT, "-o", "jsonpath={..image}"])
    }
}

#[track_caller]
fn check_rollouts(program: &str, clusters: &[&str]) {
    let program = testkit::peers::program(program);
    let team = Team::on(clusters, "*");
    let k = Kubectl::new(&team.server, &program, "root:team-a");
    let shop = Shop { team: &team, k, replicas: 2 * clusters.len() as u64 };
    team.create(&format!("{APPS}/deployments"), deployment("web", shop.replicas));
    shop.until_rolled_out("app:1");
    check_rollbacks(&shop);
    check_reads(&shop, clusters);
    check_stuck_rollout(&shop);
    shop.k.fails(&["-n", "shop", "label", "pods", "--all", "x=y"], "change the Deployment web it belongs to");
    shop.k.fails(&["label", "node", "east", "x=y"], "kubectl edit physicalcluster east");
    shop.k.finish();
}

/// Rolls out, back, and to a revision.
fn check_rollbacks(shop: &Shop) {
    until("the history has one revision", || shop.revisions() == [1]);
    shop.run_ok(&["annotate", DEPLOYMENT, "kubernetes.io/change-cause=first"]);
    until("the history has the change cause", || {
        shop.run_ok(&["rollout", "history", DEPLOYMENT]).contains("first")
    });

    shop.run_ok(&["set", "image", DEPLOYMENT, "main=app:2"]);
    shop.until_rolled_out("app:2");
    until("the history has two revisions", || shop.revisions() == [1, 2]);
    assert!(shop.run_ok(&["rollout", "history", DEPLOYMENT, "--revision=1"]).contains("app:1"));

    shop.run_ok(&["rollout", "undo", DEPLOYMENT]);
    shop.until_rolled_out("app:1");
    until("the first template is the newest revision", || shop.revisions() == [2, 3]);
    assert_eq!(shop.image(), "app:1");

    shop.run_ok(&["rollout", "restart", DEPLOYMENT]);
    shop.until_rolled_out("app:1");
    until("a restart adds a revision", || shop.revisions() == [2, 3, 4]);
    shop.run_ok(&["rollout", "undo", DEPLOYMENT, "--to-revision=2"]);
    shop.until_rolled_out("app:2");
    assert_eq!(shop.image(), "app:2");
}

/// Checks that kubectl shows the pods of all clusters as those of one cluster.
fn check_reads(shop: &Shop, clusters: &[&str]) {
    let (team, all) = (shop.team, shop.replicas);
    let wide = shop.run_ok(&["get", "pods", "-o", "wide"]);
    assert!(clusters.iter().all(|cluster| wide.contains(&format!(" {cluster} "))), "{wide}");
    let described = shop.run_ok(&["describe", DEPLOYMENT]);
    assert!(
        described.contains("NewReplicaSet:")
            && described.contains(&format!("({all}/{all} replicas created)")),
        "{described}"
    );
    let node = shop.run_ok(&["describe", "node", "east"]);
    assert!(node.contains("Non-terminated Pods:          (2 in total)"), "{node}");
    // Logs and exec reach the pod on its physical cluster.
    let pod = text(&team.pods("web")[0], "/metadata/name").to_owned();
    assert!(shop.run_ok(&["describe", "pod", &pod]).contains("Started container main"));
    assert!(!shop.run_ok(&["logs", &pod]).is_empty(), "the log of {pod} is empty");
    assert!(!shop.run_ok(&["logs", DEPLOYMENT]).is_empty(), "the log of the Deployment is empty");
    let real = text(&team.pods("web")[0], "/metadata/annotations/holon.dev~1downstream-name").to_owned();
    let host = shop.run_ok(&["exec", &pod, "--", "hostname"]);
    assert_eq!(real.split_once('/').map(|(_, name)| name), Some(host.trim()));
    let hosts: Vec<String> = (team.pods("web").iter())
        .map(|pod| text(pod, "/metadata/annotations/holon.dev~1downstream-name").to_owned())
        .collect();
    let host = shop.run_ok(&["exec", DEPLOYMENT, "--", "hostname"]);
    assert!(hosts.iter().any(|real| real.ends_with(&format!("/{}", host.trim()))), "{host} of {hosts:?}");
    let own = json!({ "metadata": { "name": "own" }, "spec": template("own")["spec"] });
    team.create(&format!("{SHOP}/pods"), own);
    shop.run_ok(&["wait", "--for=condition=Ready", "pod/own", "--timeout=90s"]);
    assert_eq!(shop.run_ok(&["exec", "own", "--", "hostname"]).trim(), "own");
    assert!(!shop.run_ok(&["logs", "own"]).is_empty(), "the log is empty");
    until("the usage of both pods is printed", || {
        let usage = shop.run_ok(&["top", "pods", "--containers"]);
        usage.contains(&pod) && usage.contains("own ")
    });
    let nodes = shop.run_ok(&["top", "nodes"]);
    assert!(clusters.iter().all(|cluster| nodes.contains(cluster)) && nodes.contains('%'), "{nodes}");

    shop.run_ok(&["delete", "pod", &pod, "--timeout=60s"]);
    team.until_ready("web", all);
}

/// A rollout that cannot finish must never be reported as finished.
fn check_stuck_rollout(shop: &Shop) {
    let fails = |image: &str| {
        json!({ "spec": { "progressDeadlineSeconds": 2, "template": {
            "metadata": { "annotations": { "standin.holon.dev/fail": "NotReady" } },
            "spec": { "containers": [{ "name": "main", "image": image }] },
        } } })
    };
    let mut never = deployment("never", shop.replicas);
    never["spec"]["progressDeadlineSeconds"] = 600.into();
    never["spec"]["template"]["metadata"]["annotations"]["standin.holon.dev/fail"] = "NotReady".into();
    shop.team.create(&format!("{APPS}/deployments"), never);
    shop.fails(&["wait", "--for=condition=Available", "deployment/never", "--timeout=3s"], "timed out");
    shop.fails(&["rollout", "status", "deployment/never", "--timeout=3s"], "timed out");
    shop.run_ok(&["delete", "deployment", "never"]);

    // A stuck update: the old pods keep running, and the exceeded deadline is reported.
    shop.run_ok(&["patch", DEPLOYMENT, "--type=merge", "-p", &fails("app:bad").to_string()]);
    shop.fails(&["rollout", "status", DEPLOYMENT, "--timeout=60s"], "exceeded its progress deadline");
    shop.run_ok(&["wait", "--for=condition=Available", DEPLOYMENT, "--timeout=60s"]);
    shop.run_ok(&["rollout", "undo", DEPLOYMENT]);
    // The rollback creates as many updated pods as before, so the Deployment controller keeps reporting the exceeded
    // deadline until one of them is ready.
    shop.run_ok(&["wait", "--for=condition=Progressing", DEPLOYMENT, "--timeout=90s"]);
    shop.until_rolled_out("app:2");
}

#[test]
#[ignore = "needs kubectl"]
fn rollouts_on_one_target() {
    check_rollouts("kubectl", ONE);
}

#[test]
#[ignore = "needs kubectl"]
fn rollouts_over_two_targets() {
    check_rollouts("kubectl", TWO);
}

#[test]
#[ignore = "needs kubectl"]
fn rollouts_over_five_targets() {
    check_rollouts("kubectl", FIVE);
}

#[test]
#[ignore = "needs kubectl-1.32"]
fn rollouts_with_an_older_kubectl() {
    check_rollouts("kubectl-1.32", TWO);
}
