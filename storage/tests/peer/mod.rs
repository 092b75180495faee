//! Real etcd members for tests, and a proxy to spoil the way to them.
//!
//! The programs come from `hack/peers`. Where they are missing a test says so and passes, unless
//! `HOLON_REQUIRE_PEERS=1`, which is what continuous integration sets.

/// Leaves the test if the program is not installed.
macro_rules! need {
    ($program:expr) => {
        match $crate::peer::find($program) {
            Some(path) => path,
            None => return,
        }
    };
}

mod proxy;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

pub(crate) use proxy::Proxy;

/// Generous: the machine may be building something else meanwhile.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let peers = std::env::var_os("HOLON_PEERS").map(PathBuf::from);
    let peers = peers.or_else(|| Some(cache()?.join("holon/peers")))?;
    let path = peers.join("bin").join(program);
    if path.exists() {
        return Some(path);
    }
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(
        std::env::var_os("HOLON_REQUIRE_PEERS").is_none_or(|required| required != "1"),
        "{test} needs the peer {program}; run hack/peers"
    );
    // Past the harness, which hides what a passing test prints.
    let told = format!("SKIPPED: {test} needs the peer {program}; run hack/peers\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes());
    None
}

/// An etcd of one or more members, gone when dropped.
pub(crate) struct Etcd {
    program: PathBuf,
    flags: Vec<String>,
    scheme: &'static str,
    members: Vec<Member>,
}

struct Member {
    client: u16,
    peer: u16,
    data: TempDir,
    process: Option<Child>,
}

impl Etcd {
    pub(crate) async fn start(program: PathBuf, members: usize) -> Self {
        Self::start_with(program, members, "http", &[]).await
    }

    /// With more flags, and perhaps `https` for clients.
    pub(crate) async fn start_with(
        program: PathBuf,
        members: usize,
        scheme: &'static str,
        flags: &[&str],
    ) -> Self {
        // Another program may take a port between our asking and etcd's binding; then all is begun anew.
        for attempt in 1.. {
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let members = (0..members).map(|_| Member::new()).collect();
            let mut etcd = Etcd { program: program.clone(), flags, scheme, members };
            (0..etcd.members.len()).for_each(|index| etcd.spawn(index));
            if etcd.ready().await {
                return etcd;
            }
            assert!(attempt < 3, "etcd does not start; see its messages above");
        }
        unreachable!("the loop returns or panics")
    }

    pub(crate) fn endpoint(&self, index: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.members[index].client)
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|index| self.endpoint(index)).collect()
    }

    pub(crate) fn port(&self, index: usize) -> u16 {
        self.members[index].client
    }

    /// As `kill -9` does: no goodbye.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts a killed member on the data it had.
    pub(crate) fn revive(&mut self, index: usize) {
        self.spawn(index);
    }

    /// Which member leads.
    pub(crate) async fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            for index in 0..self.members.len() {
                let asked = async {
                    let status = self.client(index).await?.status().await?;
                    let header = status.header().map_or(0, etcd_client::ResponseHeader::member_id);
                    Ok::<_, etcd_client::Error>(status.leader() == header && header != 0)
                };
                if let Ok(Ok(true)) = tokio::time::timeout(Duration::from_secs(1), asked).await {
                    return index;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("no member leads");
    }

    /// A plain client of one member.
    pub(crate) async fn client(&self, index: usize) -> Result<etcd_client::Client, etcd_client::Error> {
        let options = etcd_client::ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(1))
            .with_timeout(Duration::from_secs(5));
        etcd_client::Client::connect([self.endpoint(index)], Some(options)).await
    }

    /// One number the first member counts, by how its line begins.
    pub(crate) async fn metric(&self, line: &str) -> f64 {
        let mut stream =
            TcpStream::connect(("127.0.0.1", self.members[0].client)).await.expect("etcd listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("etcd reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("etcd answers");
        // etcd leaves out what it has not counted yet.
        let Some(found) = text.lines().find(|found| found.starts_with(line)) else { return 0.0 };
        found.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
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
            // Debian's refuses to run elsewhere unless told to.
            command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        }
        let process = command
            .args(["--name", &format!("m{index}"), "--log-level", "error"])
            .arg("--data-dir")
            .arg(member.data.path())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(",")])
            // Elections within a second, so that tests need not wait long for them.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .spawn()
            .expect("etcd is executable");
        member.process = Some(process);
    }

    /// Whether every member accepts connections soon.
    async fn ready(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        for member in &mut self.members {
            loop {
                let exited =
                    member.process.as_mut().is_some_and(|process| !matches!(process.try_wait(), Ok(None)));
                if exited || Instant::now() > deadline {
                    return false;
                }
                // etcd opens its client port once it has a leader.
                if TcpStream::connect(("127.0.0.1", member.client)).await.is_ok() {
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        true
    }
}

impl Member {
    fn new() -> Self {
        let data = tempfile::Builder::new().prefix("holon-etcd-").tempdir().expect("a temporary directory");
        Member { client: free_port(), peer: free_port(), data, process: None }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound port").port()
}
