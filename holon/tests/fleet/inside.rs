//! A syncer as the manifest runs it: in a Pod, with only the files that are mounted there.

use std::path::Path;

use serde_json::json;
use testkit::Process;
use testkit::client::from_base64;
use testkit::process::with_own_mounts;
use testkit::until;

use crate::common::HOLON;
use crate::{EastFleet, mount, objects, print_manifest};

/// The directory of the service account in every Pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The collections of the objects in the manifest, in the order in which they are printed.
const COLLECTIONS: [&str; 5] = [
    "/api/v1/namespaces",
    "/api/v1/namespaces/holon-syncer/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/api/v1/namespaces/holon-syncer/secrets",
    "/apis/apps/v1/namespaces/holon-syncer/deployments",
];

#[test]
#[ignore = "needs unshare"]
fn a_syncer_in_a_pod_needs_nothing_beyond_its_manifest() {
    let mut fleet = EastFleet::not_joined();
    let objects = objects(&print_manifest(&fleet.server, &[]));
    for (collection, object) in COLLECTIONS.iter().zip(&objects) {
        assert!(fleet.send_downstream("east", "POST", collection, object).is_some(), "{object:#}");
    }
    mount(&fleet.server, &objects);
    let files = fleet.server.file("account");
    std::fs::create_dir(&files).unwrap();
    let token_request = json!({ "spec": { "expirationSeconds": 3600 } });
    let path = format!("{}/holon-syncer/token", COLLECTIONS[1]);
    let response = fleet.send_downstream("east", "POST", &path, &token_request).expect("a token");
    let put = |name: &str, text: &str| std::fs::write(files.join(name), text).unwrap();
    put("token", response["status"]["token"].as_str().unwrap());
    put("ca.crt", &authority(&fleet.east().kubeconfig().unwrap()));
    put("namespace", "holon-syncer");

    let container = &objects[4]["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let address = fleet.east().address();
    let mut pod = with_own_mounts(&format!(
        "mount -t tmpfs none \"$(readlink -f /var/run)\"; mount -t tmpfs none /var/lib; \
         mkdir -p {ACCOUNT} /var/run/holon /var/lib/holon; cp \"$FILES\"/* {ACCOUNT}; cp \"$TICKET\" \"$KEY\" /var/run/holon; \
         exec \"$@\""
    ));
    pod.args(["pod", HOLON]).args(arguments);
    pod.env("FILES", Path::new(&files))
        .env("TICKET", fleet.server.file("ticket"))
        .env("KEY", fleet.server.file("state-key"))
        .env("KUBERNETES_SERVICE_HOST", address.ip().to_string())
        .env("KUBERNETES_SERVICE_PORT", address.port().to_string())
        .env_remove("KUBECONFIG");
    fleet.syncer = Some(Process::spawn(&mut pod));
    until("east is ready", || fleet.ready_condition("east")["status"] == "True");
    fleet.put_app();
    until("three pods are projected", || fleet.pods().len() == 3);
    let credential = format!("{}/holon-syncer-credential", COLLECTIONS[3]);
    until("the credential is stored in its Secret", || fleet.get_downstream("east", &credential).is_some());
}

/// Returns the certificate authority in a kubeconfig, as PEM.
fn authority(kubeconfig: &str) -> String {
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
    String::from_utf8(from_base64(line.unwrap())).unwrap()
}
