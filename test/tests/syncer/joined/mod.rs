//! A Holon server in a process of its own, and a physical cluster that is joined to it.
//!
//! ```text
//!   holon start                     push: the server dials            a stand-in │
//!     root:mailbox-east   ◄──────── pull: `holon syncer` dials ────►  a real Kubernetes │
//!                                                                     a logical cluster of another Holon
//! ```
//!
//! The test reads the mailbox and the physical cluster as their administrator. The syncer has an account of its own
//! downstream, so that its requests can be told from those of the test.

mod account;
mod physical;
mod proxy;
mod relay;
mod tls_terminator;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::remote::Remote;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use testkit::Server;
use testkit::objects::condition;
use tokio::process::{Child, Command};

pub(crate) use self::account::{Rights, grant, rule};
pub(crate) use self::physical::{Address, Physical};
pub(crate) use self::proxy::Proxy;
pub(crate) use self::relay::TcpRelay;
pub(crate) use self::tls_terminator::{Authority, TlsTerminator};
use crate::setup::TestClient;

/// How the syncer connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SyncMode {
    /// The server connects to the physical cluster.
    Push,
    /// A syncer beside the physical cluster connects to the server.
    Pull,
}

/// Environment variables and their values.
pub(crate) type Environment = Vec<(&'static str, String)>;

pub(crate) struct JoinedCluster {
    pub(crate) mailbox: TestClient,
    pub(crate) downstream: TestClient,
    pub(crate) physical: Physical,
    /// The address at which the syncer reaches it.
    pub(crate) address: Address,
    pub(crate) holon: Server,
    /// The process of the pull syncer. It is killed when dropped.
    pull_syncer: Option<Child>,
    /// The environment of the pull syncer.
    environment: Environment,
    mode: SyncMode,
}

impl JoinedCluster {
    pub(crate) async fn new(physical: Physical, mode: SyncMode) -> Result<JoinedCluster> {
        JoinedCluster::with_rights(physical, mode, &Rights::everything()).await
    }

    /// The same with these rights of the syncer downstream.
    pub(crate) async fn with_rights(
        physical: Physical,
        mode: SyncMode,
        rights: &Rights,
    ) -> Result<JoinedCluster> {
        let address = physical.address().await?;
        JoinedCluster::start(address, physical, mode, rights, Environment::new()).await
    }

    /// The same with a relay between the syncer and the physical cluster.
    pub(crate) async fn behind_relay(
        relay: &TcpRelay,
        physical: Physical,
        mode: SyncMode,
    ) -> Result<JoinedCluster> {
        let mut address = physical.address().await?;
        address.server = format!("https://127.0.0.1:{}", relay.port);
        JoinedCluster::start(address, physical, mode, &Rights::everything(), Environment::new()).await
    }

    /// The same with a pull syncer that has these environment variables.
    pub(crate) async fn with_environment(
        environment: Environment,
        address: Address,
        physical: Physical,
    ) -> Result<JoinedCluster> {
        JoinedCluster::start(address, physical, SyncMode::Pull, &Rights::everything(), environment).await
    }

    /// The same with a kubeconfig that names a proxy.
    pub(crate) async fn behind_proxy(
        proxy: &Proxy,
        physical: Physical,
        mode: SyncMode,
    ) -> Result<JoinedCluster> {
        let mut address = physical.address().await?;
        address.proxy = Some(proxy.url("127.0.0.1"));
        JoinedCluster::start(address, physical, mode, &Rights::everything(), Environment::new()).await
    }

    /// The same with a relay between the pull syncer and the server.
    pub(crate) async fn with_relay_to_server(physical: Physical) -> Result<(JoinedCluster, TcpRelay)> {
        let mut joined = JoinedCluster::new(physical, SyncMode::Pull).await?;
        let relay = TcpRelay::to(joined.holon.address().parse()?).await?;
        // Another ticket with that address, and a syncer without the state of the first.
        joined.stop_pull_syncer().await?;
        joined.join_with_pull(&["--server", &format!("https://127.0.0.1:{}", relay.port)]).await?;
        Ok((joined, relay))
    }

    /// The same with a TLS terminator between the pull syncer and the server.
    pub(crate) async fn with_tls_terminator(
        authority: &Authority,
        physical: Physical,
    ) -> Result<(JoinedCluster, TlsTerminator)> {
        let mut joined = JoinedCluster::new(physical, SyncMode::Pull).await?;
        let kubeconfig = serde_json::to_value(Kubeconfig::read_from(joined.holon.kubeconfig_file("root"))?)?;
        let theirs = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"].as_str();
        let theirs = STANDARD.decode(theirs.context("the kubeconfig has no certificate authority")?)?;
        let tls_terminator =
            TlsTerminator::of(joined.holon.address().parse()?, &String::from_utf8(theirs)?, authority)
                .await?;
        joined.stop_pull_syncer().await?;
        let (server, file) = (format!("https://127.0.0.1:{}", tls_terminator.port), authority.file());
        let file = file.to_str().context("the path is not UTF-8")?;
        joined.join_with_pull(&["--server", &server, "--certificate-authority", file]).await?;
        Ok((joined, tls_terminator))
    }

    async fn start(
        address: Address,
        physical: Physical,
        mode: SyncMode,
        rights: &Rights,
        environment: Environment,
    ) -> Result<JoinedCluster> {
        let holon = scenarios::holon::start(&[])?;
        let downstream = physical.client().await?;
        grant(&downstream, "holon", rights).await?;
        let mut joined = JoinedCluster {
            mailbox: downstream.clone(),
            downstream,
            physical,
            address,
            holon,
            pull_syncer: None,
            environment,
            mode,
        };
        joined.create_account().await?;
        match mode {
            SyncMode::Push => joined.join_with_push().await?,
            SyncMode::Pull => joined.join_with_pull(&[]).await?,
        }
        joined.connect_to_mailbox().await?;
        Ok(joined)
    }

    /// Creates the account of the syncer again, and updates the Secret.
    pub(crate) async fn renew(&self) -> Result<()> {
        self.create_account().await?;
        self.join_with_push().await
    }

    async fn create_account(&self) -> Result<()> {
        let kubeconfig = account::create(&self.downstream, &self.address).await?;
        Ok(std::fs::write(self.holon.file("downstream.kubeconfig"), kubeconfig.to_string())?)
    }

    /// Creates the client of the mailbox, again after the server has moved to another port.
    pub(crate) async fn connect_to_mailbox(&mut self) -> Result<()> {
        self.mailbox =
            TestClient(Remote::new(kube_client(&self.holon.kubeconfig_file("root:mailbox-east")).await?));
        Ok(())
    }

    /// Joins the physical cluster with push.
    async fn join_with_push(&self) -> Result<()> {
        let file = self.holon.file("downstream.kubeconfig");
        let file = file.to_str().context("the path is not UTF-8")?;
        run_command(Command::from(self.holon.command(&["join", "east", "--kubeconfig", file])))
            .await
            .map(drop)
    }

    /// Joins the physical cluster with pull: extracts the ticket from the printed manifest.
    async fn join_with_pull(&mut self, options: &[&str]) -> Result<()> {
        let mut command = Command::from(self.holon.command(&["join", "east", "--print"]));
        command.args(options);
        let printed = run_command(command).await?;
        let ticket = printed.split("---\n").find_map(|text| {
            let object: Value = serde_json::from_str(text.trim()).ok()?;
            object["stringData"]["ticket"].as_str().map(str::to_owned)
        });
        std::fs::write(self.holon.file("ticket"), ticket.context("no ticket was printed")?)?;
        self.start_pull_syncer()
    }

    /// Starts the pull syncer in place of the previous one.
    pub(crate) fn start_pull_syncer(&mut self) -> Result<()> {
        let mut command = Command::from(self.holon.other(&["syncer"]));
        for (option, file) in
            [("--ticket", "ticket"), ("--state-dir", "state"), ("--kubeconfig", "downstream.kubeconfig")]
        {
            command.arg(option).arg(self.holon.file(file));
        }
        command.envs(self.environment.iter().cloned());
        self.pull_syncer = Some(command.kill_on_drop(true).stdout(Stdio::null()).spawn()?);
        Ok(())
    }

    /// Ends the pull syncer and deletes its state, if it has any.
    async fn stop_pull_syncer(&mut self) -> Result<()> {
        if let Some(mut pull_syncer) = self.pull_syncer.take() {
            pull_syncer.kill().await?;
        }
        match std::fs::remove_dir_all(self.holon.file("state")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns the process that has the connections to the physical cluster.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self.mode {
            SyncMode::Push => Some(self.holon.pid()),
            SyncMode::Pull => self.pull_syncer.as_ref()?.id(),
        }
    }

    /// Returns the PhysicalCluster in the mailbox, which has the syncer's report.
    pub(crate) async fn report(&self) -> Result<Value> {
        let path = "/apis/holon.dev/v1alpha1/physicalclusters/east";
        Ok(self.mailbox.get(path).await?.unwrap_or_default())
    }

    /// Returns the condition of this type in the report.
    pub(crate) async fn condition(&self, name: &str) -> Result<Value> {
        Ok(condition(&self.report().await?, name))
    }
}

impl std::fmt::Display for JoinedCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {:?}", self.physical.name(), self.mode)
    }
}

/// Returns a client of the cluster of a kubeconfig.
pub(crate) async fn kube_client(kubeconfig: &std::path::Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Runs a command, which must succeed, and returns its output.
pub(crate) async fn run_command(mut command: Command) -> Result<String> {
    let output = command.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
