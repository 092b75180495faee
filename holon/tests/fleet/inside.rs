//! A syncer as the manifest runs it: in a Pod, with only the files that are mounted there.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::{World, mount, objects, print_manifest};

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

/// Returns a command in a mount namespace of its own, because the paths in a Pod are fixed.
fn alone(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-ec", script]);
    command
}

#[test]
#[ignore = "needs unshare"]
fn a_syncer_in_a_pod_needs_nothing_beyond_its_manifest() {
    let tried = alone("mount -t tmpfs none /run").output().expect("unshare is installed");
    let said = String::from_utf8_lossy(&tried.stderr);
    assert!(tried.status.success(), "unshare cannot mount here; be root or allow user namespaces: {said}");
    let mut world = World::new();
    let objects = objects(&print_manifest(&world.server, &[]));
    for (collection, object) in COLLECTIONS.iter().zip(&objects) {
        assert!(world.below("POST", collection, object).is_some(), "{object:#}");
    }
    mount(&world.server, &objects);
    let files = world.server.file("account");
    std::fs::create_dir(&files).unwrap();
    let wanted = json!({ "spec": { "expirationSeconds": 3600 } });
    let path = format!("{}/holon-syncer/token", COLLECTIONS[1]);
    let made = world.below("POST", &path, &wanted).expect("a token");
    let put = |name: &str, text: &str| std::fs::write(files.join(name), text).unwrap();
    put("token", made["status"]["token"].as_str().unwrap());
    put("ca.crt", &authority(&world.east.kubeconfig().unwrap()));
    put("namespace", "holon-syncer");

    let container = &objects[4]["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let address = world.east.address();
    let mut pod = alone(&format!(
        "mount -t tmpfs none \"$(readlink -f /var/run)\"; mount -t tmpfs none /var/lib; \
         mkdir -p {ACCOUNT} /var/run/holon /var/lib/holon; cp \"$FILES\"/* {ACCOUNT}; cp \"$TICKET\" \"$KEY\" /var/run/holon; \
         exec \"$@\""
    ));
    pod.args(["pod", env!("CARGO_BIN_EXE_holon")]).args(arguments);
    pod.env("FILES", Path::new(&files))
        .env("TICKET", world.server.file("ticket"))
        .env("KEY", world.server.file("state-key"))
        .env("KUBERNETES_SERVICE_HOST", address.ip().to_string())
        .env("KUBERNETES_SERVICE_PORT", address.port().to_string())
        .env_remove("KUBECONFIG");
    world.syncer = Some(pod.spawn().unwrap());
    world.until("it is there", || world.ready()["status"] == "True");
    world.put_app();
    world.until("three pods are shown", || world.pods().len() == 3);
    let credential = format!("{}/holon-syncer-credential", COLLECTIONS[3]);
    world.until("it is kept how it is known", || world.below("GET", &credential, &Value::Null).is_some());
}

/// Returns the certificate authority in a kubeconfig, as PEM.
fn authority(kubeconfig: &str) -> String {
    use base64::Engine;
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
    let bytes = base64::engine::general_purpose::STANDARD.decode(line.unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}
