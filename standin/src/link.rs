//! The wire between clients and the server: a relay that can be cut or go silent.
//!
//! ```text
//!   client ─► port that stays the same ─► relay ─► the server's own port
//! ```
//!
//! A partition is a matter of bytes. Only below TLS can a connection stay open and say nothing, as a real one does when a
//! cable is pulled.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use controller::tasks::Stop;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::faults::Link;

/// Bytes carried at a time in each direction.
const PIECE_BYTES: usize = 8 << 10;
/// Between tries to have the port back.
const RETRY: Duration = Duration::from_millis(20);

/// Relays between `listener` and `server` until told to stop.
pub(crate) async fn relay(
    listener: TcpListener,
    server: SocketAddr,
    link: watch::Receiver<Link>,
    mut stop: Stop,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tokio::select! {
        failed = carry(listener, address, server, link) => failed,
        () = stop.requested() => Ok(()),
    }
}

async fn carry(
    listener: TcpListener,
    address: SocketAddr,
    server: SocketAddr,
    mut link: watch::Receiver<Link>,
) -> io::Result<()> {
    let mut listener = Some(listener);
    loop {
        let connections = accept(listener.take(), address, server, &mut link).await?;
        // Closing the door and hanging up at once is what a cut looks like from outside.
        drop(connections);
        let _ = link.wait_for(|link| *link != Link::Cut).await;
    }
}

/// Accepts until the link is cut, and returns the connections there are then.
async fn accept(
    listener: Option<TcpListener>,
    address: SocketAddr,
    server: SocketAddr,
    link: &mut watch::Receiver<Link>,
) -> io::Result<JoinSet<io::Result<()>>> {
    let listener = match listener {
        Some(listener) => listener,
        None => bind(address).await,
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _) = accepted?;
                connections.spawn(connect(client, server, link.clone()));
            }
            Some(_) = connections.join_next() => {}
            _ = cut(link) => return Ok(connections),
        }
    }
}

async fn cut(link: &mut watch::Receiver<Link>) {
    let _ = link.wait_for(|link| *link == Link::Cut).await;
}

/// Takes a port that was ours a moment ago.
pub(crate) async fn bind(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => tracing::debug!(%error, %address, "the port is not free yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn connect(client: TcpStream, server: SocketAddr, link: watch::Receiver<Link>) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    tokio::try_join!(pump(client_in, server_out, link.clone()), pump(server_in, client_out, link),)?;
    Ok(())
}

/// Carries bytes one way while the link is up.
async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut link: watch::Receiver<Link>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = from.read(&mut piece).await?;
        let _ = link.wait_for(|link| *link == Link::Up).await;
        match read {
            0 => return to.shutdown().await,
            read => to.write_all(&piece[..read]).await?,
        }
    }
}
