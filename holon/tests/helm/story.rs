//! Install, upgrade, rollback and uninstall, and what Helm reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::Kubectl;
use testkit::process::run;

use crate::common::repository;

/// Helm with the kubeconfig of one logical cluster, or of a real Kubernetes.
pub(crate) struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// The value of the option --server-side: `true` or `false`.
    server_side: &'static str,
}

impl Helm {
    pub(crate) fn new(program: &Path, kubeconfig: &Path, server_side: &'static str) -> Helm {
        Helm { program: program.to_owned(), kubeconfig: kubeconfig.to_owned(), server_side }
    }

    fn namespace(&self) -> String {
        format!("helm-{}", self.server_side)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(&self.program);
        // All files of Helm are kept beside the kubeconfig.
        let home = self.kubeconfig.with_extension("helm");
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, &home);
        }
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.namespace()]);
        run(command.args(arguments).stdin(Stdio::null()))
    }
}

/// Runs Helm and expects success and this output.
fn expect_output(helm: &Helm, k: &Kubectl, arguments: &[&str], expected: &str) -> String {
    let (succeeded, output) = helm.run(arguments);
    k.check(succeeded && output.contains(expected), &[&["(helm)"], arguments].concat(), expected, &output);
    output
}

pub(crate) fn run_story(helm: &Helm, k: &Kubectl) {
    let namespace = helm.namespace();
    let n = format!("--namespace={namespace}");
    let chart = repository().join("test/charts/shop");
    let chart = chart.to_str().unwrap();
    installed(helm, k, &n, chart);
    upgraded(helm, k, &n, chart);
    rolled_back(helm, k, &n);
    uninstalled(helm, k, &n);
}

fn installed(helm: &Helm, k: &Kubectl, n: &str, chart: &str) {
    let server_side = format!("--server-side={}", helm.server_side);
    let install = ["install", "shop", chart, "--create-namespace", &server_side, "--timeout=60s"];
    // The custom kind is in the chart, and a dry run does not install it. So the first dry run omits its object.
    expect_output(helm, k, &["install", "shop", chart, "--dry-run=client"], "STATUS: pending-install");
    expect_output(helm, k, &install, "STATUS: deployed");
    expect_output(helm, k, &["list"], "shop-1.0.0");
    expect_output(helm, k, &["status", "shop"], "REVISION: 1");
    expect_output(helm, k, &["get", "manifest", "shop"], "kind: Shop");
    k.field(&["cm", "shop", n], "{.data.colour} {.data.revision}", "red 1");
    k.field(&["deploy", "shop", n], "{.spec.replicas} {.metadata.generation}", "2 1");
    k.field(&["deploy", "shop", n], "{.metadata.labels.app\\.kubernetes\\.io/managed-by}", "Helm");
    k.field(&["shops", "shop", n], "{.spec.shelves[*].size}", "3");
    // The objects of a hook stay or are deleted according to its policy.
    k.field(&["cm", "shop-before", n], "{.data.revision}", "1");
    k.fails(&["get", "secret", "shop-after", n], "not found");
    let (_, managers) =
        k.run(&["get", "deploy", "shop", n, "-o", "jsonpath={.metadata.managedFields[*].operation}"]);
    let expected = if helm.server_side == "true" { "Apply" } else { "Update" };
    k.check(managers == expected, &["managers"], expected, &managers);
    let (succeeded, output) = helm.run(&install);
    k.check(
        !succeeded && output.contains("cannot reuse a name"),
        &["(helm) install again"],
        "cannot reuse",
        &output,
    );
}

fn upgraded(helm: &Helm, k: &Kubectl, n: &str, chart: &str) {
    let server_side = format!("--server-side={}", helm.server_side);
    let values = ["--set=extra=true,replicas=3,image=shop:2", &server_side, "--timeout=60s"];
    let upgrade = [&["upgrade", "shop", chart], &values[..]].concat();
    let dry = [&upgrade[..], &["--dry-run=server"]].concat();
    expect_output(helm, k, &dry, "STATUS: pending-upgrade");
    k.field(&["deploy", "shop", n], "{.spec.replicas}", "2");
    // A label that another client set must survive an upgrade.
    k.says(&["label", "deploy", "shop", n, "kept=yes"], "labeled");
    expect_output(helm, k, &upgrade, "REVISION: 2");
    k.field(&["deploy", "shop", n], "{.spec.replicas} {.metadata.labels.kept}", "3 yes");
    k.field(&["deploy", "shop", n], "{.spec.template.spec.containers[*].image}", "shop:2");
    // A patch from the client identifies ports by number alone, so two ports with one number become one.
    let ports = if helm.server_side == "true" { "http dns dns-tcp" } else { "http dns" };
    k.field(&["svc", "shop", n], "{.spec.ports[*].name}", ports);
    k.field(&["shops", "shop", n], "{.spec.shelves[*].size}", "3 1");
    k.says(&["get", "cm", "shop-extra", n], "shop-extra");
    k.field(&["cm", "shop-before", n], "{.data.revision}", "2");
    expect_output(helm, k, &["history", "shop"], "superseded");
    expect_output(helm, k, &["get", "values", "shop"], "extra: true");
    // A repeated upgrade changes only Helm's record of the revision.
    let (_, before) = k.run(&["get", "deploy", "shop", n, "-o", "jsonpath={.metadata.resourceVersion}"]);
    expect_output(helm, k, &upgrade, "REVISION: 3");
    let (_, after) = k.run(&["get", "deploy", "shop", n, "-o", "jsonpath={.metadata.resourceVersion}"]);
    k.check(before == after, &["upgrade again"], &before, &after);
}

fn rolled_back(helm: &Helm, k: &Kubectl, n: &str) {
    let server_side = format!("--server-side={}", helm.server_side);
    let back = ["rollback", "shop", "1", &server_side, "--timeout=60s"];
    expect_output(helm, k, &back, "Rollback was a success");
    k.field(&["deploy", "shop", n], "{.spec.replicas} {.metadata.labels.kept}", "2 yes");
    k.field(&["svc", "shop", n], "{.spec.ports[*].name}", "http");
    k.field(&["shops", "shop", n], "{.spec.shelves[*].name}", "top");
    k.fails(&["get", "cm", "shop-extra", n], "not found");
    expect_output(helm, k, &["history", "shop"], "Rollback to 1");
}

fn uninstalled(helm: &Helm, k: &Kubectl, n: &str) {
    expect_output(helm, k, &["uninstall", "shop", "--timeout=60s"], "release \"shop\" uninstalled");
    for kind in ["deploy", "svc", "shops"] {
        k.fails(&["get", kind, "shop", n], "not found");
    }
    k.says(&["get", "cm", "shop-farewell", n], "shop-farewell");
    let left = expect_output(helm, k, &["list"], "NAME");
    k.check(!left.contains("shop-1.0.0"), &["(helm) list"], "nothing", &left);
    // Custom kinds stay after an uninstall.
    k.says(&["get", "crd", "shops.charts.example.com"], "shops");
}
