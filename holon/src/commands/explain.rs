//! `holon explain deploy/web -n shop`: prints where a workload runs, why, and why not elsewhere.
//!
//! It reads the Distribution with the user's kubeconfig, so it needs no rights but to read that.

use anyhow::{Context, Result, bail};
use api::fleet::{Distribution, Source};
use api::names::{GROUP, VERSION};
use clap::Args;
use controller::kind::ResourceKind;
use controller::remote::{CallError, ObjectPath, Remote};
use kube::config::KubeConfigOptions;
use splitter::placement::explain::{sentence, table};

#[derive(Args)]
pub(crate) struct Explain {
    /// The object: KIND/NAME, or KIND NAME as in kubectl
    #[arg(value_name = "KIND/NAME")]
    object: String,
    #[arg(hide = true)]
    name: Option<String>,
    /// Its namespace [default: that of the context]
    #[arg(short, long)]
    namespace: Option<String>,
    /// The context of the kubeconfig [default: the current one]. The kubeconfig is found as by kubectl
    #[arg(long)]
    context: Option<String>,
}

/// The short names of kubectl.
const SHORT: &[(&str, &str)] = &[
    ("deploy", "deployment"),
    ("sts", "statefulset"),
    ("ds", "daemonset"),
    ("rs", "replicaset"),
    ("rc", "replicationcontroller"),
    ("cj", "cronjob"),
    ("po", "pod"),
    ("cm", "configmap"),
    ("svc", "service"),
    ("sa", "serviceaccount"),
    ("pvc", "persistentvolumeclaim"),
    ("ing", "ingress"),
    ("hpa", "horizontalpodautoscaler"),
    ("pdb", "poddisruptionbudget"),
    ("netpol", "networkpolicy"),
];

impl Explain {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(self.print_explanation())
    }

    async fn print_explanation(self) -> Result<()> {
        let (kind, name) = self.parse_object()?;
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = kube::Config::from_kubeconfig(&options).await.context("cannot read the kubeconfig")?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let remote = Remote::new(kube::Client::try_from(config).context("using the kubeconfig")?);
        let records = records(&remote, &namespace).await?;
        let record = records.iter().find(|record| matches_object(record, &kind, &name));
        match record {
            Some(record) => print!("{}", explanation(record, &namespace)),
            None => bail!("{}", not_placed(&remote, &kind, &name, &namespace, &records).await),
        }
        Ok(())
    }

    fn parse_object(&self) -> Result<(String, String)> {
        let (kind, name) = match (&self.name, self.object.split_once('/')) {
            (Some(name), None) => (self.object.as_str(), name.as_str()),
            (None, Some((kind, name))) if !kind.is_empty() && !name.is_empty() => (kind, name),
            _ => bail!("name an object: holon explain KIND/NAME, for example deployment/web"),
        };
        Ok((singular(kind), name.to_owned()))
    }
}

/// Returns the singular of a kind: `deploy`, `deployments`, `Deployment` and `deployments.apps` are all the same.
fn singular(kind: &str) -> String {
    let kind = kind.split('.').next().unwrap_or(kind).to_lowercase();
    let long = SHORT.iter().find(|(short, _)| *short == kind).map(|(_, long)| (*long).to_owned());
    let long = long.unwrap_or(kind);
    match long.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None if long.ends_with("sses") => long[..long.len() - 2].to_owned(),
        None if long.ends_with("ss") => long,
        None => long.strip_suffix('s').unwrap_or(&long).to_owned(),
    }
}

fn matches_object(record: &Distribution, kind: &str, name: &str) -> bool {
    singular(&record.spec.object.kind) == kind && record.spec.object.name == name
}

async fn records(remote: &Remote, namespace: &str) -> Result<Vec<Distribution>> {
    let resource = Distribution::RESOURCE;
    let kind = ResourceKind::new(GROUP, VERSION, resource.plural, resource.kind, resource.namespaced);
    let listed = match remote.read(&kind.path(namespace)).await {
        Err(error @ CallError::Refused { code: 404, .. }) => {
            return Err(error).context("this server is not a logical cluster of Holon");
        }
        other => other.with_context(|| format!("cannot read the Distributions of namespace {namespace}"))?,
    };
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().map(|item| serde_json::from_value(item).context("cannot read a Distribution")).collect()
}

/// Returns why the object has no Distribution.
async fn not_placed(
    remote: &Remote,
    kind: &str,
    name: &str,
    namespace: &str,
    records: &[Distribution],
) -> String {
    let placed: Vec<String> = records
        .iter()
        .map(|record| format!("{}/{}", record.spec.object.kind.to_lowercase(), record.spec.object.name))
        .collect();
    let dependent_kinds = [
        "configmap",
        "secret",
        "serviceaccount",
        "persistentvolumeclaim",
        "service",
        "ingress",
        "networkpolicy",
        "poddisruptionbudget",
        "horizontalpodautoscaler",
    ];
    if dependent_kinds.contains(&kind) {
        let namespaces = ResourceKind::new("", "v1", "namespaces", "Namespace", false);
        let namespace_object = remote.get(ObjectPath::new(&namespaces, "", namespace)).await.ok().flatten();
        let targets = namespace_object.and_then(|namespace_object| {
            namespace_object["metadata"]["annotations"][api::names::TARGETS].as_str().map(str::to_owned)
        });
        let targets = targets.unwrap_or_else(|| "none yet".to_owned());
        return format!(
            "a {kind} is not placed on its own; it is placed where the workloads that use it run. \
             Workloads of namespace {namespace} run on: {targets}"
        );
    }
    match placed.is_empty() {
        true => format!(
            "namespace {namespace} has no placed workloads. Check the name and the namespace (-n). If no physical cluster is joined to this logical cluster or a parent: holon join NAME --kubeconfig FILE"
        ),
        false => {
            format!("{kind}/{name} is not placed in namespace {namespace}; placed are: {}", placed.join(", "))
        }
    }
}

/// Returns the explanation of a Distribution.
fn explanation(record: &Distribution, namespace: &str) -> String {
    let object = &record.spec.object;
    let chosen_by = match record.spec.chosen_by.source {
        Source::Default => "by default, on the physical cluster with the most free capacity".to_owned(),
        Source::Annotation => format!("by the annotation holon.dev/placement={}", record.spec.chosen_by.name),
        Source::Placement => format!("by the Placement {}", record.spec.chosen_by.name),
        Source::Dependency => format!("because {} needs it", record.spec.chosen_by.name),
    };
    let targets = sentence(&record.spec.targets);
    let mut text = match record.spec.targets.is_empty() {
        true => {
            format!(
                "{} {namespace}/{} is not placed. Its targets are chosen {chosen_by}\n",
                object.kind, object.name
            )
        }
        false => format!("{} {namespace}/{} runs on {targets}: {chosen_by}\n", object.kind, object.name),
    };
    let default_status = api::fleet::DistributionStatus::default();
    let status = record.status.as_ref().unwrap_or(&default_status);
    for condition in &status.conditions {
        let is_placed = condition.r#type == "Placed" && condition.reason == "Placed";
        if !is_placed && !condition.message.is_empty() {
            text.push_str(&format!("  {} ({}): {}\n", condition.r#type, condition.reason, condition.message));
        }
    }
    for target in &status.targets {
        let message = if target.message.is_empty() { String::new() } else { format!(", {}", target.message) };
        text.push_str(&format!("  {}: {:?}{message}\n", target.cluster, target.health));
    }
    text.push('\n');
    text.push_str(&table(&status.verdicts));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_in_kubectl() {
        let check = |name: &str, expected: &str| assert_eq!(singular(name), expected, "{name}");
        check("deploy", "deployment");
        check("Deployments.apps", "deployment");
        check("ingresses", "ingress");
        check("ingress", "ingress");
        check("networkpolicies", "networkpolicy");
        check("Widget", "widget");
        check("svc", "service");
    }
}
