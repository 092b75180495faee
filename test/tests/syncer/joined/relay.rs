//! A TCP relay to a server that can go dead: open connections stay open and carry nothing more, as when a firewall has
//! forgotten them. New connections work.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) struct TcpRelay {
    pub(crate) port: u16,
    outages: watch::Sender<u64>,
    _forwarding: JoinSet<()>,
}

impl TcpRelay {
    pub(crate) async fn to(server: SocketAddr) -> Result<TcpRelay> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, outages) = (listener.local_addr()?.port(), watch::Sender::new(0));
        let mut forwarding = JoinSet::new();
        forwarding.spawn(forward(listener, server, outages.clone()));
        Ok(TcpRelay { port, outages, _forwarding: forwarding })
    }

    pub(crate) fn go_dead(&self) {
        self.outages.send_modify(|outages| *outages += 1);
    }
}

async fn forward(listener: TcpListener, server: SocketAddr, outages: watch::Sender<u64>) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let mut outage = outages.subscribe();
        connections.spawn(async move {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                // The connection is kept open and never read again.
                _ = outage.changed() => std::future::pending().await,
            }
        });
    }
}
