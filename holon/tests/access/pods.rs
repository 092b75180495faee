//! An operator, as kubebuilder generates them, applied to a logical cluster: its pods run on a physical cluster and
//! manage the logical cluster, with the rights of their roles and no others.

use std::path::Path;

use serde_json::{Value, json};
use testkit::Client;
use testkit::objects::deployment;
use testkit::process::with_own_mounts;
use testkit::until;

use crate::common::fleet::TestFleet;
use crate::decoded;

const ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/operators";
const SECRET: &str = "holon-api-access-manager";

/// Applies the manifests of `make deploy` of an operator.
pub(crate) fn apply(fleet: &TestFleet, cluster: &str) {
    let create = |path: &str, object: Value| fleet.admin.create(&format!("{cluster}{path}"), &object);
    create("/api/v1/namespaces", json!({ "metadata": { "name": "operators" } }));
    create("/api/v1/namespaces/operators/serviceaccounts", json!({ "metadata": { "name": "manager" } }));
    let role = json!({
        "metadata": { "name": "manager" },
        "rules": [
            { "apiGroups": [""], "resources": ["configmaps", "events"], "verbs": ["*"] },
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"] },
        ],
    });
    create(&format!("{RBAC}/roles"), role);
    let binding = json!({
        "metadata": { "name": "manager" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "manager" },
        "subjects": [{ "kind": "ServiceAccount", "name": "manager", "namespace": "operators" }],
    });
    create(&format!("{RBAC}/rolebindings"), binding);
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": 8081 }, "periodSeconds": 10 });
    let pod = json!({
        "serviceAccountName": "manager",
        "securityContext": { "runAsNonRoot": true },
        "terminationGracePeriodSeconds": 10,
        "containers": [{
            "name": "manager", "image": "controller:latest", "command": ["/manager"],
            "args": ["--leader-elect", "--health-probe-bind-address=:8081"],
            "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
        }],
    });
    create("/apis/apps/v1/namespaces/operators/deployments", deployment("manager", 1, pod));
}

/// The environment of a process in the pod.
pub(crate) struct PodEnvironment {
    host: String,
    port: String,
    token: String,
    authority: String,
    namespace: String,
    secret: Value,
}

impl PodEnvironment {
    /// Builds the environment as a kubelet would, only from the objects on the physical cluster.
    pub(crate) fn of(fleet: &TestFleet, cluster: &str) -> Option<PodEnvironment> {
        let pods = fleet.read_downstream(cluster, "/api/v1/pods?labelSelector=app%3Dmanager");
        let pod = pods["items"].as_array()?.first()?.clone();
        let container = &pod["spec"]["containers"][0];
        let variable = |name: &str| {
            let found = container["env"].as_array()?.iter().find(|variable| variable["name"] == name)?;
            found["value"].as_str().map(str::to_owned)
        };
        let mounts = container["volumeMounts"].as_array()?;
        let mount = mounts.iter().find(|mount| mount["mountPath"] == ACCOUNT_DIR)?;
        let volumes = pod["spec"]["volumes"].as_array()?;
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"])?;
        let name = volume["secret"]["secretName"].as_str()?;
        let namespace = pod["metadata"]["namespace"].as_str()?;
        let secret =
            fleet.read_downstream(cluster, &format!("/api/v1/namespaces/{namespace}/secrets/{name}"));
        secret.get("data")?;
        Some(PodEnvironment {
            host: variable("KUBERNETES_SERVICE_HOST")?,
            port: variable("KUBERNETES_SERVICE_PORT")?,
            token: decoded(&secret["data"]["token"]),
            authority: decoded(&secret["data"]["ca.crt"]),
            namespace: decoded(&secret["data"]["namespace"]),
            secret,
        })
    }

    pub(crate) fn client(&self) -> Client {
        let address = format!("{}:{}", self.host, self.port);
        Client::trusting(&address, &self.authority).with(&format!("Authorization: Bearer {}", self.token))
    }
}

#[test]
fn an_operator_manages_the_logical_cluster_it_was_applied_to() {
    let fleet = TestFleet::start(&["east"]);
    let (team, other_team) = (
        fleet.admin.create_logical_cluster("root:team-a"),
        fleet.admin.create_logical_cluster("root:team-b"),
    );
    apply(&fleet, &team);
    until("the environment of its pod is complete", || PodEnvironment::of(&fleet, "east").is_some());
    let inside = PodEnvironment::of(&fleet, "east").unwrap();
    assert_eq!(inside.namespace, "operators");

    let client = inside.client();
    let maps = "/api/v1/namespaces/operators/configmaps";
    let created = client.ask("POST", maps, &json!({ "metadata": { "name": "made-by-it" } }));
    assert_eq!(created.code, 201, "{}", created.body);
    // The object is created in the logical cluster, where its users look, and nowhere else.
    assert_eq!(fleet.admin.get(&format!("{team}{maps}/made-by-it")).code, 200);
    assert_eq!(fleet.admin.get(&format!("{other_team}{maps}/made-by-it")).code, 404);
    let lease = json!({ "metadata": { "name": "lock" }, "spec": { "holderIdentity": "me" } });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/operators/leases";
    assert_eq!(client.ask("POST", leases, &lease).code, 201);
    // It may do nothing beyond its role; and other logical clusters look as if they did not exist.
    for refused in
        ["/api/v1/namespaces/operators/secrets", "/api/v1/namespaces/default/configmaps", "/api/v1/nodes"]
    {
        assert_eq!(client.get(refused).code, 403, "{refused}");
    }
    for unknown in ["/clusters/root", &*other_team, "/clusters/root:mailbox-east"] {
        assert_eq!(client.get(&format!("{unknown}{maps}")).code, 404, "{unknown}");
    }
    // The roles of the logical cluster count: a binding deleted there takes effect at once.
    let path = format!("{team}{RBAC}/rolebindings/manager");
    assert_eq!(fleet.admin.ask("DELETE", &path, &Value::Null).code, 200);
    assert_eq!(client.get(maps).code, 403);
}

#[test]
fn a_token_is_renewed_before_it_expires_and_deleted_with_the_last_pod() {
    let fleet = TestFleet::start(&["east"]);
    let team = fleet.admin.create_logical_cluster("root:team-a");
    apply(&fleet, &team);
    until("the environment of its pod is complete", || PodEnvironment::of(&fleet, "east").is_some());
    let first = PodEnvironment::of(&fleet, "east").unwrap();
    let namespace = first.secret["metadata"]["namespace"].as_str().unwrap().to_owned();
    let in_mailbox = format!("/clusters/root:mailbox-east/api/v1/namespaces/{namespace}/secrets/{SECRET}");
    // Instead of waiting, the test sets the renewal time to the past.
    let due = json!({ "metadata": { "annotations": { "holon.dev/renew-after": "2020-01-01T00:00:00Z" } } });
    assert_eq!(fleet.admin.ask("PATCH", &in_mailbox, &due).code, 200);
    let renewed = || PodEnvironment::of(&fleet, "east").filter(|inside| inside.token != first.token);
    until("its pod has another token", || renewed().is_some());
    let maps = "/api/v1/namespaces/operators/configmaps";
    assert_eq!(renewed().unwrap().client().get(maps).code, 200);
    let second = renewed().unwrap();
    // A deleted token Secret is created again.
    let uid = fleet.admin.get(&in_mailbox).json()["metadata"]["uid"].clone();
    assert_eq!(fleet.admin.ask("DELETE", &in_mailbox, &Value::Null).code, 200);
    until("the token Secret is created again", || {
        let now = fleet.admin.get(&in_mailbox);
        now.code == 200 && now.json()["metadata"]["uid"] != uid
    });

    // An account that was created again is another account: tokens of the first are invalid, so a new one is made.
    let accounts = format!("{team}/api/v1/namespaces/operators/serviceaccounts");
    assert_eq!(fleet.admin.ask("DELETE", &format!("{accounts}/manager"), &Value::Null).code, 200);
    fleet.admin.create(&accounts, &json!({ "metadata": { "name": "manager" } }));
    let works = || {
        let now = PodEnvironment::of(&fleet, "east").filter(|inside| inside.token != second.token);
        now.is_some_and(|inside| inside.client().get(maps).code == 200)
    };
    until("the new account's token works", works);

    let path = format!("{team}/apis/apps/v1/namespaces/operators/deployments/manager");
    assert_eq!(fleet.admin.ask("DELETE", &path, &Value::Null).code, 200);
    until("the token Secret is deleted with the last pod", || fleet.admin.get(&in_mailbox).code == 404);
    until("no token Secret is left downstream", || fleet.placed("east", "/api/v1/secrets").is_empty());
}

/// Many clusters are hardened by accounts that mount no token unless a pod requests it.
#[test]
fn pods_without_an_automounted_token_get_none() {
    let fleet = TestFleet::start(&["east"]);
    let team = fleet.admin.create_logical_cluster("root:team-a");
    fleet.admin.create(&format!("{team}/api/v1/namespaces"), &json!({ "metadata": { "name": "quiet" } }));
    let accounts = format!("{team}/api/v1/namespaces/quiet/serviceaccounts");
    until("the default account exists", || fleet.admin.get(&format!("{accounts}/default")).code == 200);
    let no_automount = json!({ "automountServiceAccountToken": false });
    assert_eq!(fleet.admin.ask("PATCH", &format!("{accounts}/default"), &no_automount).code, 200);
    let containers = json!([{ "name": "web", "image": "nginx" }]);
    let deployments = format!("{team}/apis/apps/v1/namespaces/quiet/deployments");
    fleet.admin.create(&deployments, &deployment("web", 1, json!({ "containers": containers })));
    until("the Deployment is ready", || {
        fleet.admin.get(&format!("{deployments}/web")).json()["status"]["readyReplicas"] == 1
    });
    let placed = fleet.placed("east", "/apis/apps/v1/deployments");
    let pod = &placed[0]["spec"]["template"]["spec"];
    assert_eq!((&pod["automountServiceAccountToken"], &pod["volumes"]), (&json!(false), &Value::Null));
    assert!(fleet.placed("east", "/api/v1/secrets").is_empty());
    // A pod that requests a token gets one, whatever its account sets.
    let pod = json!({ "containers": containers, "automountServiceAccountToken": true });
    fleet.admin.create(&deployments, &deployment("api", 1, pod));
    until("the pod has a token Secret", || fleet.placed("east", "/api/v1/secrets").len() == 1);
}

#[test]
fn a_changed_automount_setting_of_an_account_changes_its_pods() {
    let fleet = TestFleet::start(&["east"]);
    let team = fleet.admin.create_logical_cluster("root:team-a");
    apply(&fleet, &team);
    until("the environment of its pod is complete", || PodEnvironment::of(&fleet, "east").is_some());
    let account = format!("{team}/api/v1/namespaces/operators/serviceaccounts/manager");
    let automount = |mounts: bool| json!({ "automountServiceAccountToken": mounts });
    assert_eq!(fleet.admin.ask("PATCH", &account, &automount(false)).code, 200);
    let volumes = || {
        let placed = fleet.placed("east", "/apis/apps/v1/deployments");
        placed[0]["spec"]["template"]["spec"]["volumes"].clone()
    };
    until("its pods mount no token", || volumes().is_null());
    until("no token Secret is placed", || fleet.placed("east", "/api/v1/secrets").is_empty());
    assert_eq!(fleet.admin.ask("PATCH", &account, &automount(true)).code, 200);
    until("the environment of its pod is complete again", || PodEnvironment::of(&fleet, "east").is_some());
}

/// A real program: client-go finds the files and the variables in their standard places, and elects a leader.
#[test]
#[ignore = "needs client-go and unshare"]
fn an_operator_in_go_elects_its_leader_in_its_logical_cluster() {
    let program = testkit::peers::program("client-go");
    let fleet = TestFleet::start(&["east"]);
    let team = fleet.admin.create_logical_cluster("root:team-a");
    apply(&fleet, &team);
    until("the environment of its pod is complete", || PodEnvironment::of(&fleet, "east").is_some());
    let inside = PodEnvironment::of(&fleet, "east").unwrap();
    let files = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(files.path().join(name), text).unwrap();
    put("token", &inside.token);
    put("ca.crt", &inside.authority);
    put("namespace", &inside.namespace);
    // Works also where /var/run is a symbolic link.
    let script = format!(
        "mount -t tmpfs none \"$(readlink -f /var/run)\"; mkdir -p {ACCOUNT_DIR}; cp \"$FILES\"/* {ACCOUNT_DIR}; exec \"$PROGRAM\" typed '' operators"
    );
    let output = with_own_mounts(&script)
        .env("FILES", Path::new(files.path()))
        .env("PROGRAM", &program)
        .env("KUBERNETES_SERVICE_HOST", &inside.host)
        .env("KUBERNETES_SERVICE_PORT", &inside.port)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap();
    let output_text =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    assert!(output_text.contains("\"renewals\":5"), "{output_text}");
    // Then it tries to create a Deployment, which its role does not allow: the roles of the logical cluster apply.
    assert!(
        output_text.contains(
            "User \"system:serviceaccount:operators:manager\" cannot create resource \"deployments\""
        ),
        "{output_text}"
    );
    let lease = fleet
        .admin
        .get(&format!("{team}/apis/coordination.k8s.io/v1/namespaces/operators/leases/the-one"))
        .json();
    assert_eq!(lease["spec"]["holderIdentity"], "", "the leader released the lease: {lease}");
}
