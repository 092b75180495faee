//! A kube-apiserver to ask, started by `hack/cluster` and reached through `kubectl proxy`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const PEERS: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"];

/// Taken down when dropped.
pub(crate) struct Cluster {
    state: tempfile::TempDir,
    proxy: Option<Child>,
    address: String,
}

/// What the server answered.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Cluster {
    /// None, with a word about it, where the programs are not installed.
    pub(crate) fn start(apiserver_flags: &[&str]) -> Option<Cluster> {
        let missing: Vec<_> = PEERS.into_iter().filter(|name| !bin_dir().join(name).exists()).collect();
        if !missing.is_empty() {
            let told = format!("comparing with a real server needs {}; run hack/peers", missing.join(", "));
            assert!(std::env::var_os("HOLON_REQUIRE_PEERS").is_none(), "{told}");
            // Past the harness, which hides what a passing test prints.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {told}");
            return None;
        }
        let state = tempfile::tempdir().expect("a directory for the cluster");
        let mut cluster = Cluster { state, proxy: None, address: String::new() };
        let flags: Vec<_> = apiserver_flags.iter().map(|flag| format!("--apiserver-flag={flag}")).collect();
        let up = cluster.hack("up", &flags);
        let said = format!("{}{}", String::from_utf8_lossy(&up.stdout), String::from_utf8_lossy(&up.stderr));
        assert!(up.status.success(), "{said}");
        cluster.start_proxy();
        Some(cluster)
    }

    fn hack(&self, verb: &str, flags: &[String]) -> Output {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").join("hack/cluster");
        let mut command = Command::new(script);
        command
            .args([verb, "openapi"])
            .args(flags)
            .env("HOLON_CLUSTERS", self.state.path())
            .output()
            .expect("hack/cluster runs")
    }

    fn start_proxy(&mut self) {
        let mut proxy = Command::new(bin_dir().join("kubectl"))
            .args(["proxy", "--port=0"])
            .env("KUBECONFIG", self.state.path().join("openapi/kubeconfig"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let mut line = String::new();
        let stdout = proxy.stdout.take().expect("a pipe");
        self.proxy = Some(proxy);
        BufReader::new(stdout).read_line(&mut line).expect("kubectl says where it listens");
        self.address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "application/json", "")
    }

    /// HTTP/1.0, so that the answer ends where the connection does.
    pub(crate) fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("the proxy listens");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("the proxy reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the proxy answers");
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code");
        let warnings = head.lines().filter_map(|line| line.strip_prefix("Warning: 299 - "));
        let warnings =
            warnings.map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())).collect();
        Answer { code, body: serde_json::from_str(body).unwrap_or(Value::Null), warnings }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut proxy) = self.proxy.take() {
            let _ = proxy.kill();
            let _ = proxy.wait();
        }
        self.hack("down", &[]);
    }
}

/// Where `hack/peers` puts programs.
fn bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("HOLON_PEERS") {
        return PathBuf::from(dir).join("bin");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    cache.unwrap_or_else(home).join("holon/peers/bin")
}
