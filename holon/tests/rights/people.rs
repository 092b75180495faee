//! kubectl with kubeconfigs of several users: an administrator, a team lead, a viewer.

use std::process::Command;

use crate::TestServer;
use crate::common::HOLON;

use testkit::Kubectl;

/// Writes a kubeconfig for a user with `holon kubeconfig`.
fn kubectl(test: &TestServer, program: &std::path::Path, user: &str, groups: &[&str]) -> Kubectl {
    let mut command = Command::new(HOLON);
    command.args(["kubeconfig", "root:team", "--user", user]);
    for group in groups {
        command.args(["--group", group]);
    }
    let output = command.arg("--data-dir").arg(test.server.file("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains(&format!("user: \"{user}\"\n")) && !text.contains("admin"),
        "the kubeconfig names its user"
    );
    let file = test.server.file(&format!("{user}.kubeconfig"));
    std::fs::write(&file, output.stdout).unwrap();
    Kubectl::with_kubeconfig(program, file, test.server.file(&format!("{user}-cache")))
}

#[test]
#[ignore = "needs kubectl"]
fn an_administrator_a_lead_and_a_viewer_have_their_rights_in_kubectl() {
    let program = testkit::peers::program("kubectl");
    let test = TestServer::start();
    test.admin.create_logical_cluster("root:team");
    let admin = Kubectl::new(&test.server, &program, "root:team");
    let lead = kubectl(&test, &program, "lena", &["leads", "staff", "everybody"]);
    let viewer = kubectl(&test, &program, "vera", &["staff"]);
    let outsider = kubectl(&test, &program, "sam", &["leads-of-others"]);

    outsider.fails(&["get", "namespaces"], "the server could not find the requested resource");
    admin.says(
        &["create", "clusterrolebinding", "staff", "--clusterrole=holon:access", "--group=staff"],
        "created",
    );
    admin.says(&["create", "namespace", "shop"], "created");
    admin.says(
        &["create", "rolebinding", "leads", "-n", "shop", "--clusterrole=admin", "--group=leads"],
        "created",
    );

    lead.says(&["auth", "whoami"], "[leads staff everybody system:authenticated]");
    lead.says(&["create", "configmap", "a", "-n", "shop"], "configmap/a created");
    lead.fails(
        &["create", "configmap", "a", "-n", "default"],
        "User \"lena\" cannot create resource \"configmaps\"",
    );
    lead.fails(
        &["get", "namespaces"],
        "User \"lena\" cannot list resource \"namespaces\" in API group \"\" at the cluster scope",
    );
    viewer.fails(&["get", "configmaps", "-n", "shop"], "User \"vera\" cannot list resource \"configmaps\"");
    // A lead can grant rights that a lead has, and no others.
    lead.says(&["create", "rolebinding", "v", "-n", "shop", "--clusterrole=view", "--user=vera"], "created");
    lead.fails(
        &["create", "rolebinding", "w", "-n", "shop", "--clusterrole=cluster-admin", "--user=vera"],
        "is attempting to grant RBAC permissions not currently held",
    );
    viewer.says(&["get", "configmaps", "-n", "shop"], "kube-root-ca.crt");
    viewer.fails(&["get", "secrets", "-n", "shop"], "User \"vera\" cannot list resource \"secrets\"");
    viewer.fails(&["delete", "configmap", "a", "-n", "shop"], "configmaps \"a\" is forbidden");

    viewer.prints(&["auth", "can-i", "list", "pods", "-n", "shop"], "yes");
    viewer.fails(&["auth", "can-i", "create", "pods", "-n", "shop"], "no");
    viewer.fails(&["auth", "can-i", "list", "pods"], "no");
    viewer.says(&["auth", "can-i", "--list", "-n", "shop"], "configmaps");
    admin.prints(&["auth", "can-i", "list", "pods", "-n", "shop", "--as=vera"], "yes");
    admin.fails(
        &["get", "secrets", "-n", "shop", "--as=vera"],
        "User \"vera\" cannot list resource \"secrets\"",
    );
    lead.fails(
        &["get", "pods", "-n", "shop", "--as=vera"],
        "User \"lena\" cannot impersonate resource \"users\"",
    );
    let token = lead.run(&["create", "token", "default", "-n", "shop"]);
    assert!(token.0 && token.1.matches('.').count() == 2, "{}", token.1);

    let manifest = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: more\n  labels:\n    \
                    rbac.authorization.k8s.io/aggregate-to-view: \"true\"\nrules:\n- apiGroups: [\"\"]\n  \
                    resources: [podtemplates]\n  verbs: [get]\n";
    admin.with(&["auth", "reconcile"], manifest, "more reconciled");
    admin.with(&["auth", "reconcile"], manifest, "more reconciled");
    // A role with this label is aggregated into view, and into the roles that aggregate view.
    let is_aggregated = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        lead.run(&["auth", "can-i", "get", "podtemplates", "-n", "shop"]).0
    });
    admin.check(is_aggregated, &["auth", "can-i", "get", "podtemplates"], "yes", "no");
    for user_kubectl in [&admin, &lead, &viewer, &outsider] {
        user_kubectl.finish();
    }
}
