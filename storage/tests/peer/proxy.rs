//! A TCP proxy that injects faults.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Both,
    /// Requests arrive; responses are lost.
    OnlyUp,
    Neither,
}

#[derive(Clone, Copy, Debug)]
struct Behaviour {
    flow: Flow,
    delay: Duration,
    /// Connections that were opened under an earlier number are closed.
    generation: u64,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    behaviour: watch::Sender<Behaviour>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let now = Behaviour { flow: Flow::Both, delay: Duration::ZERO, generation: 0 };
        let (behaviour, rules) = watch::channel(now);
        let accepting = tokio::spawn(accept(listener, server, rules));
        Proxy { address, behaviour, accepting }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes every connection; new ones work.
    pub(crate) fn cut(&self) {
        self.behaviour.send_modify(|now| now.generation += 1);
    }

    /// Loses responses from now on, while requests still arrive.
    pub(crate) fn swallow_answers(&self) {
        self.behaviour.send_modify(|now| now.flow = Flow::OnlyUp);
    }

    /// Passes nothing in either direction, and closes nothing.
    pub(crate) fn black_hole(&self) {
        self.behaviour.send_modify(|now| now.flow = Flow::Neither);
    }

    /// Delays everything.
    pub(crate) fn delay(&self, delay: Duration) {
        self.behaviour.send_modify(|now| now.delay = delay);
    }

    /// Removes all faults. Connections that have lost data are closed.
    pub(crate) fn heal(&self) {
        self.behaviour.send_modify(|now| {
            now.generation += u64::from(now.flow != Flow::Both);
            (now.flow, now.delay) = (Flow::Both, Duration::ZERO);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: u16, rules: watch::Receiver<Behaviour>) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::spawn(carry(from_client, to_server, true, rules.clone()));
        tokio::spawn(carry(from_server, to_client, false, rules.clone()));
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    up: bool,
    mut rules: watch::Receiver<Behaviour>,
) {
    let generation = rules.borrow().generation;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            over = rules.wait_for(|now| now.generation != generation) => { drop(over); return }
        };
        if read == 0 {
            return;
        }
        let passable = |now: &Behaviour| now.flow != Flow::Neither || now.generation != generation;
        let Ok(now) = rules.wait_for(passable).await.map(|now| *now) else { return };
        if now.generation != generation {
            return;
        }
        sleep(now.delay).await;
        if (up || now.flow == Flow::Both) && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
