//! Real etcd members.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::free_port;
use crate::process::Process;

/// Generous: the machine may be building something else meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd of one or more members. Killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    flags: Vec<String>,
    scheme: &'static str,
    members: Vec<EtcdMember>,
}

#[derive(Debug)]
struct EtcdMember {
    client: u16,
    peer: u16,
    /// Before the directory: fields are dropped in this order.
    process: Option<Process>,
    data: TempDir,
}

impl Etcd {
    pub fn start(program: PathBuf, members: usize) -> Etcd {
        Etcd::start_with(program, members, "http", &[], &std::env::temp_dir())
    }

    /// Starts etcd with additional flags and with its data below the caller's directory; `scheme` may be `https` for
    /// clients.
    pub fn start_with(
        program: PathBuf,
        members: usize,
        scheme: &'static str,
        flags: &[&str],
        data_parent: &Path,
    ) -> Etcd {
        // Another program may take a port between our choice and etcd's bind. Then start over.
        for attempt in 1.. {
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let members = (0..members).map(|_| EtcdMember::new(data_parent)).collect();
            let mut etcd = Etcd { program: program.clone(), flags, scheme, members };
            (0..etcd.members.len()).for_each(|index| etcd.spawn(index));
            if etcd.ready() {
                return etcd;
            }
            assert!(attempt < 3, "etcd does not start; see its messages above");
        }
        unreachable!("the loop returns or panics")
    }

    pub fn endpoint(&self, index: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.members[index].client)
    }

    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|index| self.endpoint(index)).collect()
    }

    pub fn port(&self, index: usize) -> u16 {
        self.members[index].client
    }

    /// Kills a member without a shutdown, as `kill -9` does.
    pub fn kill(&mut self, index: usize) {
        self.members[index].process = None;
    }

    /// Starts a killed member with its old data.
    pub fn revive(&mut self, index: usize) {
        self.spawn(index);
    }

    fn spawn(&mut self, index: usize) {
        let peers: Vec<_> = (0..self.members.len())
            .map(|index| format!("m{index}=http://127.0.0.1:{}", self.members[index].peer))
            .collect();
        let client = self.endpoint(index);
        let member = &mut self.members[index];
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let mut command = Command::new(&self.program);
        if cfg!(not(target_arch = "x86_64")) {
            // Debian's build refuses to run on other architectures without this variable.
            command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        }
        command
            .args(["--name", &format!("m{index}"), "--log-level", "error"])
            .arg("--data-dir")
            .arg(member.data.path())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(",")])
            // Elections within a second, so that tests need not wait long for them.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.flags)
            .stdin(Stdio::null());
        member.process = Some(Process::spawn(&mut command));
    }

    /// Waits and returns whether every member accepts connections.
    fn ready(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        for member in &mut self.members {
            loop {
                let exited =
                    member.process.as_mut().is_some_and(|process| !matches!(process.try_wait(), Ok(None)));
                if exited || Instant::now() > deadline {
                    return false;
                }
                // etcd opens its client port once it has a leader.
                if TcpStream::connect(("127.0.0.1", member.client)).is_ok() {
                    break;
                }
                sleep(Duration::from_millis(20));
            }
        }
        true
    }
}

impl EtcdMember {
    fn new(data_parent: &Path) -> Self {
        let data = tempfile::Builder::new().prefix("holon-etcd-").tempdir_in(data_parent);
        let data = data.expect("a temporary directory");
        EtcdMember { client: free_port(), peer: free_port(), data, process: None }
    }
}
