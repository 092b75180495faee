//! A real kube-apiserver behind `kubectl proxy`, which speaks plain HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const CLUSTER: &str = "upstream";

pub(crate) struct Server {
    home: tempfile::TempDir,
    proxy: Child,
    address: String,
}

impl Server {
    /// None where the peers are missing, unless they are required.
    pub(crate) fn start() -> Option<Server> {
        let bin = bin_dir();
        if !["kube-apiserver", "kubectl", "etcd"].iter().all(|name| bin.join(name).exists()) {
            let told = "comparing with a kube-apiserver needs the peers; run hack/peers";
            assert!(std::env::var_os("HOLON_REQUIRE_PEERS").is_none(), "{told}");
            // Past the harness, which hides what a passing test prints.
            let _ = std::io::stderr().write_all(format!("SKIPPED: {told}\n").as_bytes());
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        run(cluster(home.path()).args(["up", CLUSTER, "--nodes", "1"]));
        let kubeconfig = home.path().join(CLUSTER).join("kubeconfig");
        let mut proxy = Command::new(bin.join("kubectl"))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["proxy", "--port=0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Some(Server { home, proxy, address })
    }

    /// The answer to a GET as JSON; panics on anything but 200.
    pub(crate) fn get(&self, path: &str, accept: &str) -> Value {
        let (status, body) = self.ask(path, accept);
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    pub(crate) fn ask(&self, path: &str, accept: &str) -> (u16, Vec<u8>) {
        self.send("GET", path, accept, "")
    }

    pub(crate) fn send(&self, method: &str, path: &str, accept: &str, body: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // HTTP/1.0: the answer ends where the connection does, and never comes in chunks.
        let head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}");
        let about = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
        write!(stream, "{head}\r\n{about}\r\n\r\n{body}").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), answer.split_off(end + 4))
    }

    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) {
        let mut child = Command::new(bin_dir().join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.home.path().join(CLUSTER).join("kubeconfig"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "kubectl {arguments:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
        let _ = cluster(self.home.path()).args(["down", CLUSTER]).stdout(Stdio::null()).status();
    }
}

fn cluster(home: &Path) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/cluster"));
    command.env("HOLON_CLUSTERS", home);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Where `hack/peers` puts programs.
fn bin_dir() -> PathBuf {
    let hack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/peers");
    let output = Command::new(hack).arg("--bin").output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}
