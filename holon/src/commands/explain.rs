//! `holon explain deploy/web -n shop`: where something runs and why, and why not elsewhere.
//!
//! It reads the record with the user's own kubeconfig, so whoever may see an object's Distribution may ask.

use anyhow::{Context, Result, bail};
use api::fleet::{Distribution, Source};
use api::names::{GROUP, VERSION};
use clap::Args;
use controller::kind::Kind;
use controller::remote::{CallError, Place, Remote};
use kube::config::KubeConfigOptions;
use splitter::explain::{sentence, table};

#[derive(Args)]
pub(crate) struct Explain {
    /// What to explain: KIND/NAME, or KIND NAME as in kubectl
    #[arg(value_name = "KIND/NAME")]
    object: String,
    #[arg(hide = true)]
    name: Option<String>,
    /// Its namespace; by default that of the context
    #[arg(short, long)]
    namespace: Option<String>,
    /// The context of the kubeconfig; by default the present one. The kubeconfig is found as kubectl finds it
    #[arg(long)]
    context: Option<String>,
}

/// As kubectl calls them for short.
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
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        runtime.block_on(self.answer())
    }

    async fn answer(self) -> Result<()> {
        let (kind, name) = self.asked()?;
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = kube::Config::from_kubeconfig(&options).await.context("reading the kubeconfig")?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let remote = Remote::new(kube::Client::try_from(config).context("using the kubeconfig")?);
        let records = records(&remote, &namespace).await?;
        let found = records.iter().find(|record| is_meant(record, &kind, &name));
        match found {
            Some(record) => print!("{}", told(record, &namespace)),
            None => bail!("{}", unknown(&remote, &kind, &name, &namespace, &records).await),
        }
        Ok(())
    }

    fn asked(&self) -> Result<(String, String)> {
        let (kind, name) = match (&self.name, self.object.split_once('/')) {
            (Some(name), None) => (self.object.as_str(), name.as_str()),
            (None, Some((kind, name))) if !kind.is_empty() && !name.is_empty() => (kind, name),
            _ => bail!("say which: holon explain KIND/NAME, such as deployment/web"),
        };
        Ok((singular(kind), name.to_owned()))
    }
}

/// `deploy`, `deployments`, `Deployment`, `deployments.apps`: all the same.
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

fn is_meant(record: &Distribution, kind: &str, name: &str) -> bool {
    singular(&record.spec.object.kind) == kind && record.spec.object.name == name
}

async fn records(remote: &Remote, namespace: &str) -> Result<Vec<Distribution>> {
    let row = Distribution::RESOURCE;
    let kind = Kind::new(GROUP, VERSION, row.plural, row.kind, row.namespaced);
    let listed = match remote.read(&kind.path(namespace)).await {
        Err(error @ CallError::Refused { code: 404, .. }) => {
            return Err(error).context("this is no logical cluster of Holon");
        }
        other => other.with_context(|| format!("reading what was decided in namespace {namespace}"))?,
    };
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().map(|item| serde_json::from_value(item).context("reading a Distribution")).collect()
}

/// Why there is nothing to tell.
async fn unknown(
    remote: &Remote,
    kind: &str,
    name: &str,
    namespace: &str,
    records: &[Distribution],
) -> String {
    let decided: Vec<String> = records
        .iter()
        .map(|record| format!("{}/{}", record.spec.object.kind.to_lowercase(), record.spec.object.name))
        .collect();
    let goes_along = ["configmap", "secret", "serviceaccount", "persistentvolumeclaim", "service", "ingress"];
    if goes_along.contains(&kind) {
        let namespaces = Kind::new("", "v1", "namespaces", "Namespace", false);
        let found = remote.get(Place::new(&namespaces, "", namespace)).await.ok().flatten();
        let runs = found.and_then(|found| {
            found["metadata"]["annotations"][api::names::TARGETS].as_str().map(str::to_owned)
        });
        let runs = runs.unwrap_or_else(|| "nowhere yet".to_owned());
        return format!(
            "nothing is decided about a {kind}: it goes wherever something is that needs it. Namespace {namespace} is placed on: {runs}"
        );
    }
    match decided.is_empty() {
        true => format!(
            "nothing in namespace {namespace} was decided about: either it is another one (-n), or no physical cluster can be seen from this logical cluster (`holon join NAME` in it or above it)"
        ),
        false => format!(
            "nothing was decided about {kind}/{name} in namespace {namespace}; there is: {}",
            decided.join(", ")
        ),
    }
}

/// All of it, for people.
fn told(record: &Distribution, namespace: &str) -> String {
    let of = &record.spec.object;
    let by = match record.spec.chosen_by.source {
        Source::Default => "nobody said where, so it is where there is the most room".to_owned(),
        Source::Annotation => format!("by the annotation holon.dev/placement={}", record.spec.chosen_by.name),
        Source::Placement => format!("by the Placement {}", record.spec.chosen_by.name),
        Source::Dependency => format!("because {} needs it", record.spec.chosen_by.name),
    };
    let runs = sentence(&record.spec.targets);
    let mut text = format!("{} {namespace}/{} is placed on {runs}: {by}\n", of.kind, of.name);
    let nothing = api::fleet::DistributionStatus::default();
    let status = record.status.as_ref().unwrap_or(&nothing);
    for said in &status.conditions {
        let is_said = said.r#type == "Placed" && said.reason == "Placed";
        if !is_said && !said.message.is_empty() {
            text.push_str(&format!("  {} ({}): {}\n", said.r#type, said.reason, said.message));
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
    fn kinds_are_called_as_in_kubectl() {
        let check = |said: &str, meant: &str| assert_eq!(singular(said), meant, "{said}");
        check("deploy", "deployment");
        check("Deployments.apps", "deployment");
        check("ingresses", "ingress");
        check("ingress", "ingress");
        check("networkpolicies", "networkpolicy");
        check("Widget", "widget");
        check("svc", "service");
    }
}
