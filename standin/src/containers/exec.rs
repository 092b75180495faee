//! A session of `kubectl exec`: runs a command, or a shell on a terminal.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::shell::Environment;
use super::spdy_session::{RequestedStreams, SpdySession};
use super::websocket::{Channel, ClientMessage, WebSocket};

/// The command to run, and its options.
#[derive(Clone, Debug)]
pub(super) struct ExecSession {
    pub(super) command: Vec<String>,
    pub(super) stdin: bool,
    pub(super) tty: bool,
    pub(super) environment: Environment,
}

/// The transport of a session: messages over WebSocket, or streams over SPDY.
pub(super) enum Transport<S> {
    WebSocket(WebSocket<S>),
    Spdy(SpdySession<S>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    pub(super) async fn websocket(stream: S) -> Transport<S> {
        Transport::WebSocket(WebSocket::new(stream).await)
    }

    pub(super) async fn spdy(stream: S, requested: RequestedStreams) -> io::Result<Transport<S>> {
        Ok(Transport::Spdy(SpdySession::open(stream, requested).await?))
    }

    /// Returns the next message, or `None` after the client has disconnected. Cancel-safe.
    pub(super) async fn next(&mut self) -> io::Result<Option<ClientMessage>> {
        match self {
            Transport::WebSocket(transport) => transport.next().await,
            Transport::Spdy(streams) => streams.next().await,
        }
    }

    pub(super) async fn send(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::WebSocket(transport) => transport.send(channel, bytes).await,
            Transport::Spdy(streams) => streams.send(channel, bytes).await,
        }
    }

    pub(super) async fn close(self) -> io::Result<()> {
        match self {
            Transport::WebSocket(transport) => transport.close().await,
            Transport::Spdy(streams) => streams.close().await,
        }
    }
}

/// How many bytes are sent at a time, as by a kubelet.
const CHUNK_BYTES: usize = 32 << 10;
/// The most that a command reads from stdin: the limit for the files of all containers.
const STDIN_BYTES_MAX: usize = 64 << 20;

const PROMPT: &str = "$ ";

impl ExecSession {
    /// Runs until the command ends or the client disconnects.
    pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        mut transport: Transport<S>,
    ) -> io::Result<()> {
        let is_shell = matches!(self.command.as_slice(), [shell] if shell.ends_with("sh"));
        let exit = match (self.stdin, self.tty) {
            (true, true) if is_shell => self.run_shell(&mut transport).await?,
            (true, _) if self.command == ["cat"] => echo(&mut transport).await?,
            (stdin, _) => {
                let input = if stdin { read_stdin(&mut transport).await? } else { Vec::new() };
                self.run_command(&input, &mut transport).await?
            }
        };
        transport.send(Channel::Status, exit_status(exit).to_string().as_bytes()).await?;
        transport.close().await
    }

    /// Runs one command. A terminal merges stderr into stdout and ends lines with CR LF.
    async fn run_command(
        &self,
        stdin: &[u8],
        transport: &mut Transport<impl AsyncRead + AsyncWrite + Unpin>,
    ) -> io::Result<u8> {
        let output = self.environment.run(&self.command, stdin);
        let stderr = if self.tty { Channel::Stdout } else { Channel::Stderr };
        for (channel, bytes) in [(Channel::Stdout, &*output.stdout), (stderr, output.stderr.as_bytes())] {
            for chunk in bytes.chunks(CHUNK_BYTES) {
                match self.tty {
                    true => transport.send(channel, &with_terminal_line_ends(chunk)).await?,
                    false => transport.send(channel, chunk).await?,
                }
            }
        }
        Ok(output.exit)
    }

    /// Runs a shell on a terminal: echoes input, runs each line, and ends with `exit`.
    async fn run_shell(
        &self,
        transport: &mut Transport<impl AsyncRead + AsyncWrite + Unpin>,
    ) -> io::Result<u8> {
        let (mut line, mut exit) = (String::new(), 0);
        transport.send(Channel::Stdout, PROMPT.as_bytes()).await?;
        while let Some(ClientMessage::Stdin(typed)) = transport.next().await? {
            for byte in typed {
                match byte {
                    b'\r' | b'\n' => {
                        transport.send(Channel::Stdout, b"\r\n").await?;
                        let words = self.environment.words(&std::mem::take(&mut line));
                        let is_exit = words.first().is_some_and(|word| word == "exit");
                        // `exit` without a code keeps the code of the last command.
                        if words.len() != 1 || !is_exit {
                            let session = ExecSession { command: words, ..self.clone() };
                            exit = session.run_command(b"", transport).await?;
                        }
                        if is_exit {
                            return Ok(exit);
                        }
                        transport.send(Channel::Stdout, PROMPT.as_bytes()).await?;
                    }
                    // Control-D on an empty line.
                    4 if line.is_empty() => return Ok(exit),
                    8 | 127 => {
                        if line.pop().is_some() {
                            transport.send(Channel::Stdout, b"\x08 \x08").await?;
                        }
                    }
                    byte => {
                        line.push(char::from(byte));
                        transport.send(Channel::Stdout, &[byte]).await?;
                    }
                }
            }
        }
        Ok(exit)
    }
}

/// Sends stdin back as it arrives.
async fn echo(transport: &mut Transport<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<u8> {
    while let Some(ClientMessage::Stdin(bytes)) = transport.next().await? {
        transport.send(Channel::Stdout, &bytes).await?;
    }
    Ok(0)
}

/// Reads stdin until the client closes it.
async fn read_stdin(transport: &mut Transport<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(ClientMessage::Stdin(bytes)) = transport.next().await? {
        all.extend_from_slice(&bytes);
        if all.len() > STDIN_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "stdin is too long"));
        }
    }
    Ok(all)
}

/// Converts line ends to those of a terminal.
pub(super) fn with_terminal_line_ends(bytes: &[u8]) -> Vec<u8> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .flat_map(|line| match line {
            [line @ .., b'\n'] => [line, b"\r\n"].concat(),
            line => line.to_vec(),
        })
        .collect()
}

/// Returns the exit code of a command as a Status.
pub(super) fn exit_status(exit: u8) -> Value {
    match exit {
        0 => json!({ "metadata": {}, "status": "Success" }),
        exit => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {exit}"),
            "details": { "causes": [{ "reason": "ExitCode", "message": exit.to_string() }] },
        }),
    }
}
