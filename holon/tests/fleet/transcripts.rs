//! Compares the output of kubectl through the mailbox and directly on the physical cluster. Both must be the same.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use testkit::process::run;

/// How long a wait may take. Everything answers within moments; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// One of the two ways to reach the pods.
pub(crate) struct Way {
    pub(crate) kubectl: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) cache: PathBuf,
    /// Environment variables that choose the protocol of kubectl, if not the default.
    pub(crate) speaks: Vec<(&'static str, &'static str)>,
}

/// Makes kubectl use SPDY instead of WebSocket.
pub(crate) const SPDY: [(&str, &str); 2] =
    [("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")];

impl Way {
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // A command that hangs fails after this timeout.
        let mut command = Command::new("timeout");
        command.arg("30").arg(&self.kubectl).arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["-n", "shop", "--cache-dir"]).arg(&self.cache).args(arguments);
        command.envs(self.speaks.iter().copied()).stdin(Stdio::null());
        command
    }

    pub(crate) fn says(&self, arguments: &[&str]) -> (bool, String) {
        run(&mut self.command(arguments))
    }

    /// Types into a shell on a terminal. Returns everything that was shown until the end of input was typed: whether
    /// the end itself is shown is a race between the shell and its terminal.
    pub(crate) fn types(&self, arguments: &[&str], typed: &str) -> String {
        let (mut screen, terminal) = terminal();
        let mut command = self.command(arguments);
        command.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap()).stderr(terminal);
        let mut child = command.spawn().unwrap();
        // Closes our copy of the terminal, so that reading from it ends with the child.
        drop(command);
        let mut shown = Vec::new();
        // Like a user, waits for the prompt before each line.
        for line in typed.split_inclusive('\n') {
            until_prompt(&mut screen, &mut shown);
            screen.write_all(line.as_bytes()).unwrap();
        }
        // kubectl ends only if its output is read. Once no process has the terminal open, reading fails, which is the
        // end here.
        while screen.read(&mut [0; 256]).is_ok_and(|read| read > 0) {}
        let ended = child.wait().unwrap();
        format!("{}\nended with {:?}", String::from_utf8_lossy(&shown), ended.code())
    }

    /// Returns what a forwarded port of a pod sends back.
    pub(crate) fn forwards(&self, pod: &str, port: u16, sent: &str) -> String {
        let mut command = self.command(&["port-forward", pod, &format!(":{port}"), "--address=127.0.0.1"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().expect("it says where it listens").unwrap();
        let local: u16 = line
            .split([':', ' '])
            .find_map(|word| word.parse().ok())
            .unwrap_or_else(|| panic!("kubectl said {line:?}"));
        // Several streams at once on one connection, which must not mix.
        let mut streams: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(("127.0.0.1", local)).unwrap()).collect();
        let mut got = String::new();
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let text = sent.replace('#', &number.to_string());
            stream.write_all(text.as_bytes()).unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            got += &line;
        }
        end(child);
        got
    }

    /// Follows a log up to a line that `come` causes.
    pub(crate) fn follows(&self, pod: &str, last: &str, come: impl FnOnce()) -> Vec<String> {
        let mut child = self.command(&["logs", "-f", pod]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = vec![lines.next().expect("there is a line already").unwrap()];
        come();
        while !seen.last().unwrap().contains(last) {
            seen.push(lines.next().unwrap_or_else(|| panic!("it ended after {seen:?}")).unwrap());
        }
        end(child);
        seen
    }

    /// Attaches to a container and returns its first line with this word. kubectl does not report when it is attached,
    /// so `come` is called until a line arrives.
    pub(crate) fn attaches(&self, pod: &str, word: &str, come: impl Fn()) -> String {
        let mut child = self.command(&["attach", pod]).stdout(Stdio::piped()).spawn().unwrap();
        let (lines, begun) = (lines_of(&mut child), Instant::now());
        let line = loop {
            come();
            match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) if line.contains(word) => break line,
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    assert!(begun.elapsed() < PATIENCE, "{word} is never seen");
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => panic!("it ended before {word} was seen"),
            }
        };
        end(child);
        line
    }
}

/// Reads the lines of a command in a thread.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| said.send(line)));
    heard
}

/// Sends SIGTERM to a command; `timeout` passes it on.
fn end(mut child: Child) {
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    let _ = child.wait();
}

/// Opens a pseudoterminal: the side of the user and the side of the command. It is no controlling terminal, so
/// processes in the background, where `timeout` runs its child, are not stopped for using it.
fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let screen = openpt(flags).expect("this machine has terminals");
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let terminal = ioctl_tiocgptpeer(&screen, flags).unwrap();
    (File::from(screen), File::from(terminal))
}

/// Reads until a shell shows its prompt.
fn until_prompt(screen: &mut impl Read, shown: &mut Vec<u8>) {
    let (begun, before) = (Instant::now(), shown.len());
    let mut byte = [0];
    // An earlier prompt does not count.
    while shown.len() == before || !(shown.ends_with(b"# ") || shown.ends_with(b"$ ")) {
        assert!(begun.elapsed() < PATIENCE, "no prompt: {}", String::from_utf8_lossy(shown));
        let read = screen.read(&mut byte).unwrap_or(0);
        assert_eq!(read, 1, "it ended: {}", String::from_utf8_lossy(shown));
        shown.push(byte[0]);
    }
}

/// Checks that commands print the same both ways.
pub(crate) fn compare(through: &Way, direct: &Way, commands: &[&[&str]]) {
    for arguments in commands {
        let expected = direct.says(arguments);
        assert_eq!(through.says(arguments), expected, "kubectl {arguments:?}, {:?}", through.speaks);
    }
}

/// Checks that files are copied out of a container with the same content both ways. The messages of `tar` are not
/// compared: whether kubectl shows them varies.
pub(crate) fn compare_copies(through: &Way, direct: &Way, from: &str, into: &Path) {
    let copied = [through, direct].map(|way| {
        let target = into.join(format!("copy-{}", rand::random::<u32>()));
        let (worked, said) = way.says(&["cp", from, target.to_str().unwrap()]);
        assert!(worked, "{said}");
        std::fs::read(&target).unwrap()
    });
    assert!(copied[0] == copied[1] && !copied[0].is_empty());
}
