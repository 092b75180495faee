//! A session with a container: what the client types, and what comes of it.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::shell::Scene;
use super::socket::{Channel, Said, Socket};

/// What a client wants to run, and how.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) command: Vec<String>,
    pub(super) stdin: bool,
    pub(super) tty: bool,
    pub(super) scene: Scene,
}

/// What a shell shows when it waits for a line.
const PROMPT: &str = "$ ";

impl Session {
    /// Runs to its end, or until the client has left.
    pub(super) async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut socket = Socket::new(stream);
        let is_shell = matches!(self.command.as_slice(), [shell] if shell.ends_with("sh"));
        let exit = match (self.stdin, self.tty) {
            (true, true) if is_shell => self.converse(&mut socket).await?,
            (true, _) if self.command == ["cat"] => echo(&mut socket).await?,
            (stdin, _) => {
                let given = if stdin { collect(&mut socket).await? } else { String::new() };
                self.once(&given, &mut socket).await?
            }
        };
        socket.send(Channel::End, end(exit).to_string().as_bytes()).await?;
        socket.close().await
    }

    /// One command. A terminal has one stream and ends lines in its own way.
    async fn once(
        &self,
        stdin: &str,
        socket: &mut Socket<impl AsyncRead + AsyncWrite + Unpin>,
    ) -> io::Result<u8> {
        let output = self.scene.run(&self.command, stdin);
        let shown = |text: &str| if self.tty { text.replace('\n', "\r\n") } else { text.to_owned() };
        let stderr = if self.tty { Channel::Stdout } else { Channel::Stderr };
        for (channel, text) in [(Channel::Stdout, output.stdout), (stderr, output.stderr)] {
            if !text.is_empty() {
                socket.send(channel, shown(&text).as_bytes()).await?;
            }
        }
        Ok(output.exit)
    }

    /// A shell on a terminal: shows what is typed, runs each line, and ends with `exit`.
    async fn converse(&self, socket: &mut Socket<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<u8> {
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
                            exit = one.once("", socket).await?;
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
async fn echo(socket: &mut Socket<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<u8> {
    while let Some(Said::Stdin(bytes)) = socket.next().await? {
        socket.send(Channel::Stdout, &bytes).await?;
    }
    Ok(0)
}

async fn collect(socket: &mut Socket<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<String> {
    let mut all = String::new();
    while let Some(Said::Stdin(bytes)) = socket.next().await? {
        all += &String::from_utf8_lossy(&bytes);
    }
    Ok(all)
}

/// How a command ended, as a Status.
fn end(exit: u8) -> Value {
    match exit {
        0 => json!({ "metadata": {}, "status": "Success" }),
        exit => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {exit}"),
            "details": { "causes": [{ "reason": "ExitCode", "message": exit.to_string() }] },
        }),
    }
}
