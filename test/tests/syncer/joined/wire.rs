//! A TCP relay to a server that can go dead: open connections stay open and carry nothing more, as when a firewall has
//! forgotten them. New connections work.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) struct Wire {
    pub(crate) port: u16,
    deaths: watch::Sender<u64>,
    _carrying: JoinSet<()>,
}

impl Wire {
    pub(crate) async fn to(server: SocketAddr) -> Result<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, deaths) = (listener.local_addr()?.port(), watch::Sender::new(0));
        let mut carrying = JoinSet::new();
        carrying.spawn(carry(listener, server, deaths.clone()));
        Ok(Wire { port, deaths, _carrying: carrying })
    }

    pub(crate) fn die(&self) {
        self.deaths.send_modify(|deaths| *deaths += 1);
    }
}

async fn carry(listener: TcpListener, server: SocketAddr, deaths: watch::Sender<u64>) {
    let mut open = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let mut death = deaths.subscribe();
        open.spawn(async move {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                // The connection is kept open and never read again.
                _ = death.changed() => std::future::pending().await,
            }
        });
    }
}
