//! A store that an older version wrote, with running workloads, is opened by this one.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use serde_json::Value;
use testkit::wait::PATIENCE;

use crate::common::repository;
use crate::dev::Dev;

/// Pods contain the address of their server. No other program listens on this one.
const ADDRESS: &str = "127.83.71.1:6443";
const FIXTURES: &str = "holon/tests/fixtures/upgrade";
/// The kinds in the list of the fixture.
const KINDS: &str = "deploy,sts,ds,job,cronjob,pod,rs,svc,cm,secret,sa,pvc,ing,hpa,pdb,ns";
/// How long the server has to leave everything as it is.
const OBSERVED: Duration = Duration::from_secs(10);

/// The objects on a physical cluster, as lines of the list.
fn downstream(dev: &Dev, kubectl: &Path, cluster: &str) -> BTreeSet<String> {
    let get = format!(
        "kubectl --context root -n kube-system get secret physical-cluster-{cluster} -o jsonpath='{{.data.kubeconfig}}'"
    );
    let kubeconfig = dev.dir().join(format!("{cluster}.kubeconfig"));
    std::fs::write(&kubeconfig, testkit::client::from_base64(&dev.run_line(kubectl, &get))).unwrap();
    let list = dev
        .run_line(kubectl, &format!("kubectl --kubeconfig {} get {KINDS} -A -o json", kubeconfig.display()));
    let list: Value = serde_json::from_str(&list).unwrap();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let line = |object: &Value| {
        let field = |name: &str| text(&object["metadata"][name]);
        let [namespace, name, uid, generation] = ["namespace", "name", "uid", "generation"].map(field);
        format!("{cluster} {} {namespace} {name} {uid} {generation}", text(&object["kind"]))
    };
    list["items"].as_array().unwrap().iter().map(line).collect()
}

/// The plainer names of annotations would have frozen every placed workload of an existing store: the splitter and the
/// syncers would have taken all objects for changed, or for those of others.
#[test]
#[ignore = "needs kubectl"]
fn the_workloads_of_an_older_version_run_on_unchanged() {
    let kubectl = testkit::peers::program("kubectl");
    let fixtures = repository().join(FIXTURES);
    let dir = tempfile::tempdir().unwrap();
    let store = std::fs::File::open(fixtures.join("store.tar.gz")).unwrap();
    tar::Archive::new(GzDecoder::new(store)).unpack(dir.path()).unwrap();
    let expected = std::fs::read_to_string(fixtures.join("downstream.txt")).unwrap();
    let expected: BTreeSet<String> = expected.lines().map(str::to_owned).collect();
    assert!(expected.len() > 50, "the list has {} objects", expected.len());

    let dev = Dev::start(dir.path(), &["--keep", "--listen", ADDRESS]);
    assert_eq!(dev.address(), ADDRESS, "pods contain the address");
    let unchanged = || {
        let present: BTreeSet<String> =
            ["east", "west"].into_iter().flat_map(|cluster| downstream(&dev, &kubectl, cluster)).collect();
        let missing: Vec<&String> = expected.difference(&present).collect();
        assert!(missing.is_empty(), "deleted, renamed or changed: {missing:#?}\nof {present:#?}");
    };
    let started = Instant::now();
    while started.elapsed() < OBSERVED {
        unchanged();
        std::thread::sleep(Duration::from_secs(1));
    }

    // Nothing is frozen either: a change arrives on both clusters, and its status comes back.
    dev.run_line(&kubectl, "kubectl -n shop scale deployment/web --replicas 6");
    let seconds = PATIENCE.as_secs();
    dev.run_line(&kubectl, &format!("kubectl -n shop rollout status deployment/web --timeout {seconds}s"));
    let pods = dev.run_line(&kubectl, "kubectl -n shop get pods -l app=web -o wide");
    for cluster in ["east", "west"] {
        assert_eq!(pods.lines().filter(|line| line.contains(cluster)).count(), 3, "{pods}");
    }
    dev.run_line(&kubectl, "kubectl delete namespace data --wait=false");
    let started = Instant::now();
    while downstream(&dev, &kubectl, "east").iter().any(|line| line.contains(" data-")) {
        assert!(started.elapsed() < PATIENCE, "the deleted namespace is still on the physical cluster");
        std::thread::sleep(Duration::from_millis(500));
    }
    dev.stop();
}
