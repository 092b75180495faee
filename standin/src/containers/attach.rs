//! Somebody looks at what a container writes, as it writes it. Nothing here reads what they type.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};

use super::session::{end, on_terminal};
use super::socket::{Channel, Socket};
use super::streams::Streams;
use crate::logs::Logs;

pub(super) struct Attached {
    pub(super) logs: Arc<Logs>,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) tty: bool,
}

impl Attached {
    /// Shows what comes from now on, until the client has left or the pod is gone.
    pub(super) async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let (mut reading, mut writing) = Socket::new(stream).split();
        let (heard, mut pings) = mpsc::channel(1);
        let mut left = std::pin::pin!(async move {
            // Whoever writes answers them: one frame is written at a time.
            while let Ok(Some(ping)) = reading.ping().await {
                if heard.send(ping).await.is_err() {
                    return;
                }
            }
        });
        let (mut news, mut seen) = self.begin();
        while self.logs.knows(&self.pod) {
            tokio::select! {
                () = &mut left => return Ok(()),
                Some(ping) = pings.recv() => writing.pong(&ping).await?,
                changed = news.changed() => if changed.is_err() { return Ok(()) },
            }
            for line in self.lines(&mut seen) {
                writing.send(Channel::Stdout, &line).await?;
            }
        }
        writing.send(Channel::End, end(0).to_string().as_bytes()).await?;
        writing.close().await
    }

    /// The same over SPDY.
    pub(super) async fn run_spdy<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        streams: Streams<S>,
    ) -> io::Result<()> {
        let mut streams = streams;
        let (mut news, mut seen) = self.begin();
        while self.logs.knows(&self.pod) {
            tokio::select! {
                said = streams.next() => if said?.is_none() { return Ok(()) },
                changed = news.changed() => if changed.is_err() { return Ok(()) },
            }
            for line in self.lines(&mut seen) {
                streams.send(Channel::Stdout, &line).await?;
            }
        }
        streams.send(Channel::End, end(0).to_string().as_bytes()).await?;
        streams.close().await
    }

    /// What tells of new lines, and how many there are already.
    fn begin(&self) -> (watch::Receiver<u64>, usize) {
        let news = self.logs.follow();
        let (_, seen) = self.logs.read(&self.pod, &self.container, 0);
        (news, seen)
    }

    /// The lines since then, as the client's end shows them.
    fn lines(&self, seen: &mut usize) -> Vec<Vec<u8>> {
        let (lines, now) = self.logs.read(&self.pod, &self.container, *seen);
        *seen = now;
        let shown = |line: String| if self.tty { on_terminal(line.as_bytes()) } else { line.into_bytes() };
        lines.into_iter().map(|(_, line)| shown(format!("{line}\n"))).collect()
    }
}
