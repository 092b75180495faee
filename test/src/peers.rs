//! Programs of others that tests and benchmarks run beside ours. `hack/peers` installs them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Where `hack/peers` puts programs.
pub fn bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("HOLON_PEERS") {
        return PathBuf::from(dir).join("bin");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    cache.unwrap_or_else(home).join("holon/peers/bin")
}

/// The program `name`, or what to do to get it.
pub fn find(name: &str) -> Result<PathBuf> {
    let path = bin_dir().join(name);
    if !path.exists() {
        bail!("the peer {name} is not installed; run hack/peers {name}");
    }
    Ok(path)
}

/// Whether these programs are there. If not, says that `test` is skipped, or fails where peers are required.
pub fn present(test: &str, names: &[&str]) -> bool {
    let missing: Vec<_> = names.iter().filter(|name| find(name).is_err()).copied().collect();
    if missing.is_empty() {
        return true;
    }
    let told = format!("{test} needs the peers {}; run hack/peers", missing.join(", "));
    assert!(std::env::var_os("HOLON_REQUIRE_PEERS").is_none(), "{told}");
    // Past the harness, which hides what a passing test prints.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("SKIPPED: {told}\n").as_bytes());
    false
}

/// A loopback port nobody uses at the moment.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A single etcd member, killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    child: Child,
    pub endpoint: String,
}

impl Etcd {
    /// Starts a member with its data in `dir`, as durable as etcd is by default.
    pub async fn start(dir: &Path) -> Result<Etcd> {
        let program = find("etcd")?;
        let (client, peer) = (free_port()?, free_port()?);
        let (endpoint, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let child = Command::new(program)
            .args(["--name", "m1", "--log-level", "error", "--data-dir"])
            .arg(dir)
            .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("m1={peer}")])
            .args(["--quota-backend-bytes", "8589934592"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting etcd")?;
        let etcd = Etcd { child, endpoint };
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(20) {
            if let Ok(mut client) = etcd_client::Client::connect([&etcd.endpoint], None).await
                && client.get("ready", None).await.is_ok()
            {
                return Ok(etcd);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("etcd did not become ready within 20 s")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
