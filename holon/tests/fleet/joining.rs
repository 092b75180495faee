//! Joining a physical cluster that never answers, and removing one that will never answer again.

use std::net::TcpListener;
use std::process::Command;

use serde_json::json;
use testkit::until;

use crate::EastFleet;
use crate::common::HOLON;
use crate::common::fleet::PHYSICAL_CLUSTERS;

const RECORD: &str = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/deployment-web";

/// Runs a command that fails after so many seconds: the tested commands once never ended.
fn holon_within(fleet: &EastFleet, seconds: &str, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new("timeout");
    command.arg(seconds).arg(HOLON).args(arguments);
    let output = command.arg("--data-dir").arg(fleet.server.file("")).output().unwrap();
    let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.success(), out, error)
}

/// An administrator joined a physical cluster at an address that a firewall drops. The command printed nothing for a
/// minute, then failed, and left behind an object that had to be found and deleted by hand.
#[test]
fn joining_a_silent_address_fails_and_leaves_nothing_behind() {
    let fleet = EastFleet::not_joined();
    // This listener accepts connections and never sends anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = fleet.server.file("dead.kubeconfig");
    let addresses = [silent.local_addr().unwrap().to_string(), "127.0.0.1:1".to_owned()];
    for address in addresses {
        let text = fleet.east().kubeconfig().unwrap();
        std::fs::write(&file, text.replace(&fleet.east().address().to_string(), &address)).unwrap();
        let join = ["join", "dead", "--timeout", "7", "--kubeconfig", file.to_str().unwrap()];
        let (worked, out, error) = holon_within(&fleet, "50", &join);
        assert!(!worked && out.is_empty(), "{out}{error}");
        for text in [
            "waiting up to 7s",
            "dead (",
            "has not answered within 7s",
            "The PhysicalCluster was deleted",
            "--keep",
        ] {
            assert!(error.contains(text), "{text:?} is not in {error}");
        }
        assert_eq!(fleet.admin.get(&format!("{PHYSICAL_CLUSTERS}/dead")).code, 404);
        let secret = "/api/v1/namespaces/kube-system/secrets/physical-cluster-dead";
        until("its Secret is deleted", || fleet.admin.get(secret).code == 404);

        let join_and_keep = [&join[..], &["--keep"]].concat();
        let (worked, _, error) = holon_within(&fleet, "50", &join_and_keep);
        assert!(!worked && error.contains("the server keeps trying"), "{error}");
        // Such a cluster was Ready as soon as its syncer ran, and the splitter placed workloads on it.
        let status = fleet.admin.get(&format!("{PHYSICAL_CLUSTERS}/dead")).json()["status"].clone();
        let ready = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|condition| condition["type"] == "Ready")
            .unwrap();
        assert_ne!(ready["status"], "True", "{status}");
        assert_eq!(fleet.admin.get(&format!("{PHYSICAL_CLUSTERS}/dead")).code, 200);
        // The object existed before this command, so the command must not delete it.
        let (worked, _, error) = holon_within(&fleet, "50", &join);
        assert!(!worked && error.contains("The PhysicalCluster stays"), "{error}");
        assert_eq!(fleet.admin.get(&format!("{PHYSICAL_CLUSTERS}/dead")).code, 200);
        let (worked, _, error) = holon_within(&fleet, "50", &["leave", "dead", "--forget"]);
        assert!(worked, "{error}");
    }
}

/// A physical cluster was destroyed with workloads on it. `holon leave --forget` waited until the workloads were moved,
/// which never happened, because there was no other cluster: the finalizer of the splitter stayed, and so did the
/// object.
#[test]
fn a_cluster_with_work_on_it_can_be_forgotten() {
    let mut fleet = EastFleet::joined();
    let (worked, output) = fleet.server.run(&["lc", "create", "team-a"]);
    assert!(worked, "{output}");
    let team = "/clusters/root:team-a";
    for (path, mut object) in crate::app() {
        object["metadata"]["labels"] = json!({});
        let created = fleet.admin.ask("POST", &format!("{team}{path}"), &object);
        assert_eq!(created.code, 201, "{}", created.body);
    }
    let admin = fleet.admin.clone();
    let web = || admin.get(&format!("{team}{}", crate::WEB)).json();
    until("the Deployment is ready", || web()["status"]["readyReplicas"] == 3);
    let finalizers =
        || fleet.admin.get(&format!("{PHYSICAL_CLUSTERS}/east")).json()["metadata"]["finalizers"].clone();
    until("the finalizer of the splitter is set", || finalizers().to_string().contains("splitter"));
    fleet.kill_cluster("east");
    // First without --forget, which waits for the workloads to be moved. Then the administrator decides otherwise.
    let (worked, out, _) = holon_within(&fleet, "5", &["leave", "east"]);
    assert!(!worked && out.contains("moved to other targets first"), "{out}");
    let (worked, out, error) = holon_within(&fleet, "50", &["leave", "east", "--forget"]);
    assert!(worked && out.contains("east has left"), "{out}{error}");
    assert_eq!(fleet.admin.get(&format!("{PHYSICAL_CLUSTERS}/east")).code, 404);
    // The object still exists and runs nowhere. Its record once kept the forgotten cluster, and its status three ready
    // replicas there.
    assert_eq!(web()["spec"]["replicas"], 3);
    let record = || fleet.admin.get(&format!("{team}{RECORD}")).json();
    until("the record names no cluster", || record()["spec"]["targets"].as_array().is_none_or(Vec::is_empty));
    until("no replica is ready", || web()["status"]["readyReplicas"].as_u64().unwrap_or_default() == 0);
}
