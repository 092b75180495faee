//! Somebody looks at what a container writes, as it writes it. Nothing here reads what they type.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::session::{end, on_terminal};
use super::socket::{Channel, Socket};
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
        let mut news = self.logs.follow();
        let (_, mut seen) = self.logs.read(&self.pod, &self.container, 0);
        while self.logs.knows(&self.pod) {
            tokio::select! {
                () = &mut left => return Ok(()),
                Some(ping) = pings.recv() => writing.pong(&ping).await?,
                changed = news.changed() => if changed.is_err() { return Ok(()) },
            }
            let (lines, now) = self.logs.read(&self.pod, &self.container, seen);
            seen = now;
            for (_, line) in lines {
                let line = format!("{line}\n");
                match self.tty {
                    true => writing.send(Channel::Stdout, &on_terminal(line.as_bytes())).await?,
                    false => writing.send(Channel::Stdout, line.as_bytes()).await?,
                }
            }
        }
        writing.send(Channel::End, end(0).to_string().as_bytes()).await?;
        writing.close().await
    }
}
