//! A session of `kubectl attach`: prints the log lines of a container as they are written, and ignores stdin.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::exec::{Transport, exit_status, with_terminal_line_ends};
use super::logs::Logs;
use super::websocket::Channel;

pub(super) struct AttachSession {
    pub(super) logs: Arc<Logs>,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) tty: bool,
}

impl AttachSession {
    /// Prints new lines until the client disconnects or the pod is deleted.
    pub(super) async fn run(
        self,
        mut transport: Transport<impl AsyncRead + AsyncWrite + Unpin>,
    ) -> io::Result<()> {
        let mut updates = self.logs.subscribe();
        let (_, mut seen) = self.logs.read(&self.pod, &self.container, 0);
        while self.logs.contains_pod(&self.pod) {
            tokio::select! {
                message = transport.next() => if message?.is_none() { return Ok(()) },
                changed = updates.changed() => if changed.is_err() { return Ok(()) },
            }
            for line in self.new_lines(&mut seen) {
                transport.send(Channel::Stdout, &line).await?;
            }
        }
        transport.send(Channel::Status, exit_status(0).to_string().as_bytes()).await?;
        transport.close().await
    }

    /// Returns the lines since `seen`, with the line ends of the client's terminal.
    fn new_lines(&self, seen: &mut usize) -> Vec<Vec<u8>> {
        let (lines, now) = self.logs.read(&self.pod, &self.container, *seen);
        *seen = now;
        let bytes = |line: String| match self.tty {
            true => with_terminal_line_ends(line.as_bytes()),
            false => line.into_bytes(),
        };
        lines.into_iter().map(|(_, line)| bytes(format!("{line}\n"))).collect()
    }
}
