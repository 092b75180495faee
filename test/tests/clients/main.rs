//! Informers of real clients, through restarts, kills and compactions of a server.
//!
//! ```text
//!   10,000 ConfigMaps, Secrets, Pods ◄── writers that never stop
//!        │ kube-rs (a list, a streaming list), client-go (both ways), Python
//!        ▼
//!   kill -9, SIGTERM, kill -9 ─► equal to a fresh list, without another list
//!   some suspended, history compacted meanwhile ─► resumed, one more list, equal to a fresh list
//! ```
//!
//! JVM clients have a short test of their own ([`jvm`]).
//!
//! The fresh list is read over plain HTTP. The test asserts nothing about time; a client that does not catch up fails
//! with the objects that it lacks.

mod jvm;
mod objects;
mod program;
mod reflector_client;
mod writers;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use objects::{InformerState, NAMESPACE, ObjectKind};
use program::ClientProgram;
use reflector_client::ReflectorClient;
use serde_json::{Value, json};
use testkit::{End, Server};
use writers::Writers;

/// The number of ConfigMaps; of the other kinds there are fewer.
const CONFIG_MAPS: usize = 10_000;
const OTHERS: usize = 500;
/// Writes around each fault of the server: enough for some to be in flight at any moment of it.
const WRITES: usize = 1_500;
const RESTARTS: [End; 3] = [End::Killed, End::Terminated, End::Killed];
/// How long a client may take to catch up.
const PATIENCE: Duration = Duration::from_secs(300);

/// The state and the counters that a client reports.
#[derive(Clone, PartialEq, Eq, Debug)]
struct InformerReport {
    state: InformerState,
    /// How often an object was observed in an older version than before.
    back: u64,
    /// How often a whole kind was listed; the maximum over the kinds.
    lists: u64,
    /// Other counters, for people.
    counters: String,
}

/// An informer, in this process or in another program.
struct Informer {
    name: &'static str,
    kinds: &'static [ObjectKind],
    /// How many additional lists each cut connection may cause. client-go lists when the next request fails with an
    /// error it does not recognize; the others resume their watches.
    lists_per_cut: u64,
    runtime: InformerRuntime,
}

enum InformerRuntime {
    InProcess(ReflectorClient),
    Subprocess(ClientProgram),
}

impl Informer {
    fn report(&mut self) -> Result<InformerReport> {
        match &mut self.runtime {
            InformerRuntime::InProcess(reflector_client) => Ok(reflector_client.report()),
            InformerRuntime::Subprocess(program) => program.report().with_context(|| self.name.to_owned()),
        }
    }

    fn sleep(&self) -> Result<()> {
        match &self.runtime {
            InformerRuntime::InProcess(reflector_client) => reflector_client.sleep(),
            InformerRuntime::Subprocess(program) => program.sleep()?,
        }
        Ok(())
    }

    fn wake(&self) -> Result<()> {
        match &self.runtime {
            InformerRuntime::InProcess(reflector_client) => reflector_client.wake(),
            InformerRuntime::Subprocess(program) => program.wake()?,
        }
        Ok(())
    }

    /// Waits until it has what a fresh list has. There must be no writes meanwhile.
    async fn catches_up(&mut self, fresh: &InformerState) -> Result<InformerReport> {
        let expected = fresh.iter().filter(|((kind, _), _)| self.kinds.contains(kind));
        let expected: InformerState = expected.map(|(key, value)| (key.clone(), value.clone())).collect();
        let since = Instant::now();
        loop {
            let report = self.report()?;
            let Some(difference) = objects::difference(&report.state, &expected) else {
                println!(
                    "{}: {} objects, {} lists, {}",
                    self.name,
                    expected.len(),
                    report.lists,
                    report.counters
                );
                ensure!(
                    report.back == 0,
                    "{} observed {} objects in an older version than before",
                    self.name,
                    report.back
                );
                return Ok(report);
            };
            if since.elapsed() > PATIENCE {
                bail!("{} differs from a fresh list: {difference}; {}", self.name, report.counters);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs client-go and python-kubernetes"]
async fn informers_lose_nothing_over_restarts_and_a_compaction() -> Result<()> {
    let mut server = scenarios::holon::start(&[])?;
    let kubeconfig = logical_cluster(&server).await?;
    let client = connect(&kubeconfig).await?;
    let writers = Writers::new(client.clone());
    writers.create_all().await;
    let mut informers = informers(&client, &kubeconfig)?;
    let fresh = objects::list(&client, &ObjectKind::ALL).await?;
    for informer in &mut informers {
        informer.catches_up(&fresh).await?;
    }

    for end in RESTARTS {
        write_while(&writers, async || {
            server.restart_in_place(end, &[]);
            Ok(())
        })
        .await?;
    }
    let fresh = objects::list(&client, &ObjectKind::ALL).await?;
    for informer in &mut informers {
        let report = informer.catches_up(&fresh).await?;
        // Three restarts, and no informer had to list again.
        let most = 1 + informer.lists_per_cut * RESTARTS.len() as u64;
        ensure!(report.lists <= most, "{} listed {} times over the restarts", informer.name, report.lists);
        if let InformerRuntime::InProcess(reflector_client) = &informer.runtime {
            let missed = reflector_client.missed(&writers.versions());
            ensure!(missed.is_empty(), "{} did not observe {missed:?}", informer.name);
        }
    }

    sleep_through_a_compaction(&mut server, &client, &writers, &informers).await?;
    let fresh = objects::list(&client, &ObjectKind::ALL).await?;
    for informer in &mut informers {
        let report = informer.catches_up(&fresh).await?;
        // One more list is necessary after the compaction; and there were two more restarts.
        let most = 2 + informer.lists_per_cut * (RESTARTS.len() as u64 + 2);
        ensure!((2..=most).contains(&report.lists), "{} listed {} times", informer.name, report.lists);
    }
    Ok(())
}

fn informers(client: &kube::Client, kubeconfig: &str) -> Result<Vec<Informer>> {
    let in_process = |name, config| {
        let reflector_client = ReflectorClient::start(client.clone(), config);
        Informer {
            name,
            kinds: &[ObjectKind::ConfigMap],
            lists_per_cut: 0,
            runtime: InformerRuntime::InProcess(reflector_client),
        }
    };
    let client_go = |name, streaming| -> Result<Informer> {
        let variables = [("KUBE_FEATURE_WatchListClient", streaming)];
        let program = ClientProgram::start("client-go", &["informers", kubeconfig, NAMESPACE], &variables)?;
        Ok(Informer {
            name,
            kinds: &ObjectKind::ALL,
            lists_per_cut: 1,
            runtime: InformerRuntime::Subprocess(program),
        })
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/informer.py");
    let python = ClientProgram::start("python-kubernetes", &[script, kubeconfig, NAMESPACE], &[])?;
    Ok(vec![
        in_process("kube-rs, listing", watcher::Config::default()),
        in_process("kube-rs, streaming", watcher::Config::default().streaming_lists()),
        client_go("client-go, listing", "false")?,
        client_go("client-go, streaming", "true")?,
        Informer {
            name: "Python",
            kinds: &[ObjectKind::ConfigMap],
            lists_per_cut: 0,
            runtime: InformerRuntime::Subprocess(python),
        },
    ])
}

/// Runs `fault` in the middle of the writes.
async fn write_while(writers: &Writers, mut fault: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    writers.write(WRITES / 3).await;
    let writing = tokio::spawn({
        let writers = writers.clone();
        async move { writers.write(WRITES * 2 / 3).await }
    });
    let from = writers.done();
    while writers.done() < from + WRITES / 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fault().await?;
    writing.await?;
    Ok(())
}

/// Suspends clients while the server writes, restarts and compacts the events that they have not seen.
async fn sleep_through_a_compaction(
    server: &mut Server,
    client: &kube::Client,
    writers: &Writers,
    informers: &[Informer],
) -> Result<()> {
    informers.iter().try_for_each(Informer::sleep)?;
    writers.write(WRITES).await;
    // The restart cuts their connections, so that they can receive nothing newer than this version. Then it is
    // compacted.
    server.restart_in_place(End::Killed, &["--history-seconds", "1"]);
    let listed =
        objects::request(client, "GET", &format!("{}?limit=1", ObjectKind::ConfigMap.path()), None).await?;
    let newest = objects::version(&listed).context("the list has no version")?;
    let since = Instant::now();
    while !is_compacted(client, newest).await? {
        ensure!(since.elapsed() < PATIENCE, "version {newest} is not compacted");
        // Only a version with a later one is compacted.
        writers.write(1).await;
    }
    server.restart_in_place(End::Terminated, &[]);
    informers.iter().try_for_each(Informer::wake)?;
    writers.write(WRITES).await;
    Ok(())
}

/// Returns whether a watch can no longer begin at a version. The error is in the stream, where clients look for it.
async fn is_compacted(client: &kube::Client, version: u64) -> Result<bool> {
    let path = format!("{}?watch=1&timeoutSeconds=1&resourceVersion={version}", ObjectKind::ConfigMap.path());
    let output = client.request_text(http::Request::get(&path).body(Vec::new())?).await?;
    let events = output.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let Some(error) = events.iter().find(|event| event["type"] == "ERROR") else { return Ok(false) };
    let code_and_reason = (&error["object"]["code"], &error["object"]["reason"]);
    ensure!(code_and_reason == (&json!(410), &json!("Expired")), "the watch failed with {error}");
    Ok(true)
}

/// Runs leader election and the life of a Deployment with the typed clients of a Go operator.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs client-go"]
async fn typed_go_clients_speak_protobuf() -> Result<()> {
    let server = scenarios::holon::start(&[])?;
    let kubeconfig = logical_cluster(&server).await?;
    let output = program::run("client-go", &["typed", &kubeconfig, NAMESPACE])?;
    let find = |name: &str| {
        output.iter().find_map(|line| line.get(name)).with_context(|| format!("{name}: {output:?}"))
    };
    find("lease")?;
    find("deployment")?;
    let traffic = &find("summary")?["traffic"];
    println!("client-go sent and received {traffic}");
    let sent = traffic["sent"]["application/vnd.kubernetes.protobuf"].as_u64().unwrap_or_default();
    ensure!(sent > 5, "client-go writes protobuf by default: {traffic}");
    Ok(())
}

/// Creates a logical cluster and returns the path of its kubeconfig.
async fn logical_cluster(server: &Server) -> Result<String> {
    let root = server.kubeconfig_file("root");
    let root = connect(root.to_str().context("the path is not UTF-8")?).await?;
    let cluster = json!({ "metadata": { "name": "clients" } });
    objects::request(&root, "POST", "/apis/holon.dev/v1alpha1/logicalclusters", Some(&cluster)).await?;
    let kubeconfig = server.kubeconfig_file("root:clients");
    Ok(kubeconfig.to_str().context("the path is not UTF-8")?.to_owned())
}

async fn connect(kubeconfig: &str) -> Result<kube::Client> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
