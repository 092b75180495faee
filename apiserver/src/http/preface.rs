//! The first bytes of a connection.
//!
//! A client that finishes the handshake but sends nothing costs as much as one that sends requests. So the first bytes
//! are read here with a time limit. They distinguish HTTP/2 from HTTP/1 and are then replayed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The first bytes of HTTP/2. No method of HTTP/1 has this name.
const PREFACE: &[u8] = b"PRI ";

/// A stream whose first bytes are already read.
#[derive(Debug)]
pub(super) struct PrefacedStream<S> {
    first: Bytes,
    stream: S,
}

impl<S: AsyncRead + Unpin> PrefacedStream<S> {
    /// Waits for the first bytes. None if the client closes the connection first.
    pub(super) async fn of(mut stream: S, within: Duration) -> io::Result<Option<PrefacedStream<S>>> {
        let mut first = BytesMut::with_capacity(1024);
        let begins = async {
            while first.len() < PREFACE.len() && stream.read_buf(&mut first).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        tokio::time::timeout(within, begins)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no request within the limit"))??;
        Ok((!first.is_empty()).then(|| PrefacedStream { first: first.freeze(), stream }))
    }

    pub(super) fn is_http2(&self) -> bool {
        self.first.starts_with(PREFACE)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, out);
        }
        let length = self.first.len().min(out.remaining());
        out.put_slice(&self.first[..length]);
        self.first.advance(length);
        if self.first.is_empty() {
            // Frees the buffer.
            self.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefacedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn begun(sent: &[u8]) -> io::Result<Option<PrefacedStream<tokio::io::DuplexStream>>> {
        let (mut client, server) = tokio::io::duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut client, sent).await.unwrap();
        let begun = PrefacedStream::of(server, Duration::from_secs(10)).await;
        drop(client);
        begun
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_bytes_select_the_protocol_and_are_not_lost() {
        for (sent, is_http2) in
            [("GET / HTTP/1.1\r\n", false), ("PRI * HTTP/2.0\r\n", true), ("PATCH", false)]
        {
            let mut stream = begun(sent.as_bytes()).await.unwrap().unwrap();
            assert_eq!(stream.is_http2(), is_http2, "{sent}");
            let mut read = String::new();
            stream.read_to_string(&mut read).await.unwrap();
            assert_eq!(read, sent);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_or_stalled_connection_times_out() {
        for sent in [&b""[..], b"P", b"PR"] {
            assert_eq!(begun(sent).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        let (client, server) = tokio::io::duplex(64);
        drop(client);
        assert!(PrefacedStream::of(server, Duration::from_secs(10)).await.unwrap().is_none());
    }
}
