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
pub(crate) struct KubectlRoute {
    pub(crate) kubectl: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) cache: PathBuf,
    /// Environment variables that choose the protocol of kubectl, if not the default.
    pub(crate) protocol_env: Vec<(&'static str, &'static str)>,
}

/// Makes kubectl use SPDY instead of WebSocket.
pub(crate) const SPDY: [(&str, &str); 2] =
    [("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")];

impl KubectlRoute {
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // A command that hangs fails after this timeout.
        let mut command = Command::new("timeout");
        command.arg("30").arg(&self.kubectl).arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["-n", "shop", "--cache-dir"]).arg(&self.cache).args(arguments);
        command.envs(self.protocol_env.iter().copied()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String) {
        run(&mut self.command(arguments))
    }

    /// Types into a shell on a terminal. Returns everything that was printed until the end of input was typed: whether
    /// the end itself is printed is a race between the shell and its terminal.
    pub(crate) fn type_in_shell(&self, arguments: &[&str], input: &str) -> String {
        let (mut screen, terminal) = terminal();
        let mut command = self.command(arguments);
        command.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap()).stderr(terminal);
        let mut child = command.spawn().unwrap();
        // Closes our copy of the terminal, so that reading from it ends with the child.
        drop(command);
        let mut screen_text = Vec::new();
        // Like a user, waits for the prompt before each line.
        for line in input.split_inclusive('\n') {
            until_prompt(&mut screen, &mut screen_text);
            screen.write_all(line.as_bytes()).unwrap();
        }
        // kubectl ends only if its output is read. Once no process has the terminal open, reading fails, which is the
        // end here.
        while screen.read(&mut [0; 256]).is_ok_and(|read| read > 0) {}
        let ended = child.wait().unwrap();
        format!("{}\nended with {:?}", String::from_utf8_lossy(&screen_text), ended.code())
    }

    /// Returns what a forwarded port of a pod sends back.
    pub(crate) fn port_forward(&self, pod: &str, port: u16, sent: &str) -> String {
        let mut command = self.command(&["port-forward", pod, &format!(":{port}"), "--address=127.0.0.1"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().expect("kubectl prints where it listens").unwrap();
        let local: u16 = line
            .split([':', ' '])
            .find_map(|word| word.parse().ok())
            .unwrap_or_else(|| panic!("kubectl printed {line:?}"));
        // Several streams at once on one connection, which must not mix.
        let mut streams: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(("127.0.0.1", local)).unwrap()).collect();
        let mut received = String::new();
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let text = sent.replace('#', &number.to_string());
            stream.write_all(text.as_bytes()).unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            received += &line;
        }
        end(child);
        received
    }

    /// Follows a log up to a line that `trigger` causes.
    pub(crate) fn follow_log(&self, pod: &str, last: &str, trigger: impl FnOnce()) -> Vec<String> {
        let mut child = self.command(&["logs", "-f", pod]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines_seen = vec![lines.next().expect("the log has a line").unwrap()];
        trigger();
        while !lines_seen.last().unwrap().contains(last) {
            lines_seen
                .push(lines.next().unwrap_or_else(|| panic!("the log ended after {lines_seen:?}")).unwrap());
        }
        end(child);
        lines_seen
    }

    /// Attaches to a container and returns its first line with this word. kubectl does not report when it is attached,
    /// so `trigger` is called until a line arrives.
    pub(crate) fn attach(&self, pod: &str, word: &str, trigger: impl Fn()) -> String {
        let mut child = self.command(&["attach", pod]).stdout(Stdio::piped()).spawn().unwrap();
        let (lines, started) = (lines_of(&mut child), Instant::now());
        let line = loop {
            trigger();
            match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) if line.contains(word) => break line,
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    assert!(started.elapsed() < PATIENCE, "no line with {word} was printed");
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => panic!("kubectl ended before it printed {word}"),
            }
        };
        end(child);
        line
    }
}

/// Reads the lines of a command in a thread.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    receiver
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
fn until_prompt(screen: &mut impl Read, screen_text: &mut Vec<u8>) {
    let (started, before) = (Instant::now(), screen_text.len());
    let mut byte = [0];
    // An earlier prompt does not count.
    while screen_text.len() == before || !(screen_text.ends_with(b"# ") || screen_text.ends_with(b"$ ")) {
        assert!(started.elapsed() < PATIENCE, "no prompt: {}", String::from_utf8_lossy(screen_text));
        let read = screen.read(&mut byte).unwrap_or(0);
        assert_eq!(read, 1, "kubectl ended: {}", String::from_utf8_lossy(screen_text));
        screen_text.push(byte[0]);
    }
}

/// Checks that commands print the same both ways.
pub(crate) fn compare(through: &KubectlRoute, direct: &KubectlRoute, commands: &[&[&str]]) {
    for arguments in commands {
        let expected = direct.run(arguments);
        assert_eq!(through.run(arguments), expected, "kubectl {arguments:?}, {:?}", through.protocol_env);
    }
}

/// Checks that files are copied out of a container with the same content both ways. The messages of `tar` are not
/// compared: whether kubectl shows them varies.
pub(crate) fn compare_copies(through: &KubectlRoute, direct: &KubectlRoute, from: &str, into: &Path) {
    let copied = [through, direct].map(|route| {
        let target = into.join(format!("copy-{}", rand::random::<u32>()));
        let (worked, output) = route.run(&["cp", from, target.to_str().unwrap()]);
        assert!(worked, "{output}");
        std::fs::read(&target).unwrap()
    });
    assert!(copied[0] == copied[1] && !copied[0].is_empty());
}
