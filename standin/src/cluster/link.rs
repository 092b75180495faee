//! The network between clients and the server: a TCP relay that can be cut or go silent.
//!
//! ```text
//!   client ─► port that stays the same ─► relay ─► the server's own port
//! ```
//!
//! A partition is simulated below TLS, because only there a connection can stay open without any traffic, as it does
//! when a cable is pulled.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use controller::tasks::{Stop, StreamTasks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::faults::Link;

/// Bytes copied at a time in each direction.
const BUFFER_BYTES: usize = 8 << 10;
/// Between attempts to bind the port again.
const RETRY: Duration = Duration::from_millis(20);

/// Relays between `listener` and `server` until the group stops.
pub(crate) async fn relay(
    listener: TcpListener,
    server: SocketAddr,
    link: watch::Receiver<Link>,
    mut stop: Stop,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tokio::select! {
        failed = relay_connections(listener, address, server, link) => failed,
        () = stop.requested() => Ok(()),
    }
}

async fn relay_connections(
    listener: TcpListener,
    address: SocketAddr,
    server: SocketAddr,
    mut link: watch::Receiver<Link>,
) -> io::Result<()> {
    let mut listener = Some(listener);
    loop {
        let connections = accept(listener.take(), address, server, &mut link).await?;
        // A cut closes the listener and all connections at once.
        drop(connections);
        let _ = link.wait_for(|link| *link != Link::Cut).await;
    }
}

/// Accepts until the link is cut, and returns the tasks of the open connections.
async fn accept(
    listener: Option<TcpListener>,
    address: SocketAddr,
    server: SocketAddr,
    link: &mut watch::Receiver<Link>,
) -> io::Result<StreamTasks> {
    let listener = match listener {
        Some(listener) => listener,
        None => bind(address).await,
    };
    let connections = StreamTasks::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _) = accepted?;
                let link = link.clone();
                connections.spawn(async move {
                    if let Err(error) = connect(client, server, link).await {
                        tracing::debug!(%error, "a relayed connection failed");
                    }
                });
            }
            () = wait_for_cut(link) => return Ok(connections),
        }
    }
}

async fn wait_for_cut(link: &mut watch::Receiver<Link>) {
    let _ = link.wait_for(|link| *link == Link::Cut).await;
}

/// Binds a port that this process has just released.
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
    tokio::try_join!(copy(client_in, server_out, link.clone()), copy(server_in, client_out, link),)?;
    Ok(())
}

/// Copies bytes in one direction while the link is up.
async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut link: watch::Receiver<Link>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        let _ = link.wait_for(|link| *link == Link::Up).await;
        match read {
            0 => return to.shutdown().await,
            read => to.write_all(&buffer[..read]).await?,
        }
    }
}
