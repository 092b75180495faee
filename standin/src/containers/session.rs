//! A session with a container: what the client types, and what comes of it.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::shell::Scene;
use super::socket::{Channel, Said, Socket};
use super::streams::{Streams, Wanted};

/// What a client wants to run, and how.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) command: Vec<String>,
    pub(super) stdin: bool,
    pub(super) tty: bool,
    pub(super) scene: Scene,
}

/// What carries a session: messages over WebSocket, or streams over SPDY.
pub(super) enum Carrier<S> {
    WebSocket(Socket<S>),
    Spdy(Streams<S>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Carrier<S> {
    pub(super) fn websocket(stream: S) -> Carrier<S> {
        Carrier::WebSocket(Socket::new(stream))
    }

    pub(super) async fn spdy(stream: S, wanted: Wanted) -> io::Result<Carrier<S>> {
        Ok(Carrier::Spdy(Streams::open(stream, wanted).await?))
    }

    /// What the client says next; none once it has left.
    async fn next(&mut self) -> io::Result<Option<Said>> {
        match self {
            Carrier::WebSocket(socket) => socket.next().await,
            Carrier::Spdy(streams) => streams.next().await,
        }
    }

    async fn send(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<()> {
        match self {
            Carrier::WebSocket(socket) => socket.send(channel, bytes).await,
            Carrier::Spdy(streams) => streams.send(channel, bytes).await,
        }
    }

    async fn close(self) -> io::Result<()> {
        match self {
            Carrier::WebSocket(socket) => socket.close().await,
            Carrier::Spdy(streams) => streams.close().await,
        }
    }
}

/// What is sent at a time, as a kubelet does.
const PIECE_BYTES: usize = 32 << 10;
/// What a command is given at most: as much as containers here can keep.
const STDIN_BYTES_MAX: usize = 64 << 20;

/// What a shell shows when it waits for a line.
const PROMPT: &str = "$ ";

impl Session {
    /// Runs to its end, or until the client has left.
    pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(self, carrier: Carrier<S>) -> io::Result<()> {
        let mut socket = carrier;
        let is_shell = matches!(self.command.as_slice(), [shell] if shell.ends_with("sh"));
        let exit = match (self.stdin, self.tty) {
            (true, true) if is_shell => self.converse(&mut socket).await?,
            (true, _) if self.command == ["cat"] => echo(&mut socket).await?,
            (stdin, _) => {
                let given = if stdin { collect(&mut socket).await? } else { Vec::new() };
                self.once(&given, &mut socket).await?
            }
        };
        socket.send(Channel::End, end(exit).to_string().as_bytes()).await?;
        socket.close().await
    }

    /// One command. A terminal has one stream and ends lines in its own way.
    async fn once(
        &self,
        stdin: &[u8],
        socket: &mut Carrier<impl AsyncRead + AsyncWrite + Unpin>,
    ) -> io::Result<u8> {
        let output = self.scene.run(&self.command, stdin);
        let stderr = if self.tty { Channel::Stdout } else { Channel::Stderr };
        for (channel, bytes) in [(Channel::Stdout, &*output.stdout), (stderr, output.stderr.as_bytes())] {
            for piece in bytes.chunks(PIECE_BYTES) {
                match self.tty {
                    true => socket.send(channel, &on_terminal(piece)).await?,
                    false => socket.send(channel, piece).await?,
                }
            }
        }
        Ok(output.exit)
    }

    /// A shell on a terminal: shows what is typed, runs each line, and ends with `exit`.
    async fn converse(&self, socket: &mut Carrier<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<u8> {
        let (mut line, mut exit) = (String::new(), 0);
        socket.send(Channel::Stdout, PROMPT.as_bytes()).await?;
        while let Some(Said::Stdin(typed)) = socket.next().await? {
            for byte in typed {
                match byte {
                    b'\r' | b'\n' => {
                        socket.send(Channel::Stdout, b"\r\n").await?;
                        let words = self.scene.words(&std::mem::take(&mut line));
                        let leaves = words.first().is_some_and(|word| word == "exit");
                        // Without a code it is the last command's.
                        if words.len() != 1 || !leaves {
                            let one = Session { command: words, ..self.clone() };
                            exit = one.once(b"", socket).await?;
                        }
                        if leaves {
                            return Ok(exit);
                        }
                        socket.send(Channel::Stdout, PROMPT.as_bytes()).await?;
                    }
                    // Control-D on an empty line.
                    4 if line.is_empty() => return Ok(exit),
                    8 | 127 => {
                        if line.pop().is_some() {
                            socket.send(Channel::Stdout, b"\x08 \x08").await?;
                        }
                    }
                    byte => {
                        line.push(char::from(byte));
                        socket.send(Channel::Stdout, &[byte]).await?;
                    }
                }
            }
        }
        Ok(exit)
    }
}

/// Gives back what comes, as it comes.
async fn echo(socket: &mut Carrier<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<u8> {
    while let Some(Said::Stdin(bytes)) = socket.next().await? {
        socket.send(Channel::Stdout, &bytes).await?;
    }
    Ok(0)
}

/// All that comes, until the client says that nothing more does.
async fn collect(socket: &mut Carrier<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(Said::Stdin(bytes)) = socket.next().await? {
        all.extend_from_slice(&bytes);
        if all.len() > STDIN_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too much on stdin"));
        }
    }
    Ok(all)
}

/// As a terminal shows lines.
pub(super) fn on_terminal(bytes: &[u8]) -> Vec<u8> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .flat_map(|line| match line {
            [line @ .., b'\n'] => [line, b"\r\n"].concat(),
            line => line.to_vec(),
        })
        .collect()
}

/// How a command ended, as a Status.
pub(super) fn end(exit: u8) -> Value {
    match exit {
        0 => json!({ "metadata": {}, "status": "Success" }),
        exit => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {exit}"),
            "details": { "causes": [{ "reason": "ExitCode", "message": exit.to_string() }] },
        }),
    }
}
