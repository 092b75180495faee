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
    fn says(&self, arguments: &[&str]) -> String {
        let (worked, said) = self.run(arguments);
        assert!(worked, "kubectl {arguments:?} said {said}");
        said
    }

    /// Expects failure and this output.
    #[track_caller]
    fn fails(&self, arguments: &[&str], expected: &str) {
        let (worked, said) = self.run(arguments);
        assert!(!worked && said.contains(expected), "kubectl {arguments:?} said {said}");
    }

    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut all = vec!["-n", "shop"];
        all.extend_from_slice(arguments);
        self.k.run(&all)
    }

    /// Checks that when kubectl reports a finished rollout, it is finished on all clusters at that moment.
    fn settled(&self, image: &str) {
        self.says(&["rollout", "status", DEPLOYMENT, "--timeout=90s"]);
        let mut running = 0;
        for cluster in self.team.standins.keys() {
            let pods = self.team.read_downstream(cluster, "/api/v1/pods?labelSelector=app%3Dweb");
            let pods = pods["items"].as_array().cloned().unwrap_or_default();
            let is_new = |pod: &&Value| text(pod, "/spec/containers/0/image") == image;
            running += pods.iter().filter(is_new).filter(|pod| is_running(pod)).count() as u64;
        }
        assert_eq!(running, self.replicas, "kubectl says that {image} is rolled out");
        self.says(&["wait", "--for=condition=Available", DEPLOYMENT, "--timeout=90s"]);
        self.team.until_ready("web", self.replicas);
        let (all, shown) = (self.replicas, self.says(&["get", DEPLOYMENT]));
        assert!(shown.contains(&format!(" {all}/{all} ")), "{shown}");
    }

    fn revisions(&self) -> Vec<u32> {
        let said = self.says(&["rollout", "history", DEPLOYMENT]);
        let number = |line: &str| line.split_whitespace().next()?.parse::<u32>().ok();
        said.lines().filter_map(number).collect()
    }

    fn image(&self) -> String {
        self.says(&["get", DEPLOYMENT, "-o", "jsonpath={..image}"])
    }
}

#[track_caller]
fn told_with(program: &str, clusters: &[&str]) {
    let program = testkit::peers::program(program);
    let team = Team::on(clusters, "*");
    let k = Kubectl::new(&team.server, &program, "root:team-a");
    let shop = Shop { team: &team, k, replicas: 2 * clusters.len() as u64 };
    team.create(&format!("{APPS}/deployments"), deployment("web", shop.replicas));
    shop.settled("app:1");
    rolled(&shop);
    looked_at(&shop, clusters);
    stuck(&shop);
    shop.k.fails(&["-n", "shop", "label", "pods", "--all", "x=y"], "change the Deployment web it belongs to");
    shop.k.fails(&["label", "node", "east", "x=y"], "kubectl edit physicalcluster east");
    shop.k.finish();
}

/// Rolls out, back, and to a revision.
fn rolled(shop: &Shop) {
    until("there is one revision", || shop.revisions() == [1]);
    shop.says(&["annotate", DEPLOYMENT, "kubernetes.io/change-cause=first"]);
    until("the reason is told", || shop.says(&["rollout", "history", DEPLOYMENT]).contains("first"));

    shop.says(&["set", "image", DEPLOYMENT, "main=app:2"]);
    shop.settled("app:2");
    until("there are two", || shop.revisions() == [1, 2]);
    assert!(shop.says(&["rollout", "history", DEPLOYMENT, "--revision=1"]).contains("app:1"));

    shop.says(&["rollout", "undo", DEPLOYMENT]);
    shop.settled("app:1");
    until("the first is the newest", || shop.revisions() == [2, 3]);
    assert_eq!(shop.image(), "app:1");

    shop.says(&["rollout", "restart", DEPLOYMENT]);
    shop.settled("app:1");
    until("a restart is one more", || shop.revisions() == [2, 3, 4]);
    shop.says(&["rollout", "undo", DEPLOYMENT, "--to-revision=2"]);
    shop.settled("app:2");
    assert_eq!(shop.image(), "app:2");
}

/// Checks that kubectl shows the pods of all clusters as those of one cluster.
fn looked_at(shop: &Shop, clusters: &[&str]) {
    let (team, all) = (shop.team, shop.replicas);
    let wide = shop.says(&["get", "pods", "-o", "wide"]);
    assert!(clusters.iter().all(|cluster| wide.contains(&format!(" {cluster} "))), "{wide}");
    let described = shop.says(&["describe", DEPLOYMENT]);
    assert!(
        described.contains("NewReplicaSet:")
            && described.contains(&format!("({all}/{all} replicas created)")),
        "{described}"
    );
    let node = shop.says(&["describe", "node", "east"]);
    assert!(node.contains("Non-terminated Pods:          (2 in total)"), "{node}");
    // Logs and exec reach the pod on its physical cluster.
    let pod = text(&team.pods("web")[0], "/metadata/name").to_owned();
    assert!(shop.says(&["describe", "pod", &pod]).contains("Started container main"));
    assert!(!shop.says(&["logs", &pod]).is_empty(), "{pod} has nothing to say");
    assert!(!shop.says(&["logs", DEPLOYMENT]).is_empty(), "none of them has anything to say");
    let real = text(&team.pods("web")[0], "/metadata/annotations/holon.dev~1downstream-name").to_owned();
    let host = shop.says(&["exec", &pod, "--", "hostname"]);
    assert_eq!(real.split_once('/').map(|(_, name)| name), Some(host.trim()));
    let hosts: Vec<String> = (team.pods("web").iter())
        .map(|pod| text(pod, "/metadata/annotations/holon.dev~1downstream-name").to_owned())
        .collect();
    let host = shop.says(&["exec", DEPLOYMENT, "--", "hostname"]);
    assert!(hosts.iter().any(|real| real.ends_with(&format!("/{}", host.trim()))), "{host} of {hosts:?}");
    let own = json!({ "metadata": { "name": "own" }, "spec": template("own")["spec"] });
    team.create(&format!("{SHOP}/pods"), own);
    shop.says(&["wait", "--for=condition=Ready", "pod/own", "--timeout=90s"]);
    assert_eq!(shop.says(&["exec", "own", "--", "hostname"]).trim(), "own");
    assert!(!shop.says(&["logs", "own"]).is_empty(), "it has nothing to say");
    until("use is told", || {
        let told = shop.says(&["top", "pods", "--containers"]);
        told.contains(&pod) && told.contains("own ")
    });
    let nodes = shop.says(&["top", "nodes"]);
    assert!(clusters.iter().all(|cluster| nodes.contains(cluster)) && nodes.contains('%'), "{nodes}");

    shop.says(&["delete", "pod", &pod, "--timeout=60s"]);
    team.until_ready("web", all);
}

/// A rollout that cannot finish must never be reported as finished.
fn stuck(shop: &Shop) {
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
    shop.says(&["delete", "deployment", "never"]);

    // A stuck update: the old pods keep running, and the exceeded deadline is reported.
    shop.says(&["patch", DEPLOYMENT, "--type=merge", "-p", &fails("app:bad").to_string()]);
    shop.fails(&["rollout", "status", DEPLOYMENT, "--timeout=60s"], "exceeded its progress deadline");
    shop.says(&["wait", "--for=condition=Available", DEPLOYMENT, "--timeout=60s"]);
    shop.says(&["rollout", "undo", DEPLOYMENT]);
    // The rollback creates as many updated pods as before, so the Deployment controller keeps reporting the exceeded
    // deadline until one of them is ready.
    shop.says(&["wait", "--for=condition=Progressing", DEPLOYMENT, "--timeout=90s"]);
    shop.settled("app:2");
}

#[test]
#[ignore = "needs kubectl"]
fn rollouts_on_one_target() {
    told_with("kubectl", ONE);
}

#[test]
#[ignore = "needs kubectl"]
fn rollouts_over_two_targets() {
    told_with("kubectl", TWO);
}

#[test]
#[ignore = "needs kubectl"]
fn rollouts_over_five_targets() {
    told_with("kubectl", FIVE);
}

#[test]
#[ignore = "needs kubectl-1.32"]
fn rollouts_with_an_older_kubectl() {
    told_with("kubectl-1.32", TWO);
}
