//! The few commands of simulated containers: enough to see that `exec` reaches them.

use bytes::Bytes;
use serde_json::Value;

use super::files::FileSystem;
use crate::objects::fields::{list, name, namespace, text};

/// The output of a command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Output {
    pub(super) stdout: Bytes,
    pub(super) stderr: String,
    pub(super) exit: u8,
}

impl Output {
    fn with_stdout(stdout: impl Into<Bytes>) -> Output {
        Output { stdout: stdout.into(), ..Output::default() }
    }

    fn failed(exit: u8, stderr: String) -> Output {
        Output { stderr, exit, ..Output::default() }
    }
}

/// The environment in which a command runs.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    pub(super) host: String,
    variables: Vec<(String, String)>,
    file_system: FileSystem,
}

/// The limit of `seq`: some seven megabytes of output.
const NUMBERS_MAX: u32 = 1_000_000;
/// The exit code of a shell for an unknown command.
const NOT_FOUND: u8 = 127;

impl Environment {
    pub(super) fn new(pod: &Value, container: &str, file_system: FileSystem) -> Environment {
        let host = match text(pod, "/spec/hostname") {
            "" => name(pod),
            host => host,
        };
        let mut variables: Vec<(String, String)> =
            [("HOSTNAME", host), ("HOME", "/"), ("PATH", "/usr/bin:/bin"), ("POD_NAMESPACE", namespace(pod))]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        let containers = list(pod, "/spec/containers").iter().filter(|spec| text(spec, "/name") == container);
        for variable in containers.flat_map(|container| list(container, "/env")) {
            variables.push((text(variable, "/name").to_owned(), text(variable, "/value").to_owned()));
        }
        Environment { host: host.to_owned(), variables, file_system }
    }

    /// Runs a command with this stdin.
    pub(super) fn run(&self, command: &[String], stdin: &[u8]) -> Output {
        let print = |text: String| Output::with_stdout(text);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] | ["true"] => Output::default(),
            ["false"] => Output { exit: 1, ..Output::default() },
            ["echo", "-n", words @ ..] => print(words.join(" ")),
            ["echo", words @ ..] => print(words.join(" ") + "\n"),
            ["hostname"] | ["cat", "/etc/hostname"] => print(format!("{}\n", self.host)),
            ["env"] | ["printenv"] => {
                print(self.variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect())
            }
            ["seq", last] => {
                let last = last.parse().unwrap_or(0).min(NUMBERS_MAX);
                print((1..=last).map(|number| format!("{number}\n")).collect())
            }
            ["pwd"] => print("/\n".to_owned()),
            ["whoami"] => print("root\n".to_owned()),
            ["cat"] => Output::with_stdout(stdin.to_vec()),
            ["cat", file, ..] => match self.file_system.read(file) {
                Some(bytes) => Output::with_stdout(bytes),
                None => Output::failed(1, format!("cat: {file}: No such file or directory\n")),
            },
            ["ls"] => print(lines(&self.file_system.names("/"))),
            ["ls", path, ..] if self.file_system.is_directory(path) => {
                print(lines(&self.file_system.names(path)))
            }
            ["ls", path, ..] if self.file_system.read(path).is_some() => print(format!("{path}\n")),
            ["ls", path, ..] => Output::failed(2, format!("ls: {path}: No such file or directory\n")),
            ["test", "-d", path] => {
                Output { exit: u8::from(!self.file_system.is_directory(path)), ..Output::default() }
            }
            ["tar", arguments @ ..] => self.tar(arguments, stdin),
            ["exit"] => Output::default(),
            ["exit", code] => Output { exit: code.parse().unwrap_or(2), ..Output::default() },
            ["sh" | "bash" | "/bin/sh" | "/bin/bash", "-c", script, ..] => self.script(script, stdin),
            ["sh" | "bash" | "/bin/sh" | "/bin/bash", ..] => {
                self.script(&String::from_utf8_lossy(stdin), b"")
            }
            [unknown, ..] => Output::failed(NOT_FOUND, format!("sh: {unknown}: not found\n")),
        }
    }

    /// Supports the commands that `kubectl cp` runs: `tar cf - PATH…`, `tar -xmf - -C DIRECTORY`.
    fn tar(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        let mut words = arguments.iter().filter(|word| !word.starts_with("--"));
        let mode = words.next().map_or("", |word| word.trim_start_matches('-'));
        let (mut directory, mut paths) = ("/", Vec::new());
        while let Some(word) = words.next() {
            match *word {
                "-" => {}
                "-C" => directory = words.next().copied().unwrap_or("/"),
                path => paths.push(path),
            }
        }
        let failed = |error: String| Output::failed(2, format!("tar: {error}\n"));
        if mode.contains('x') {
            return self.file_system.unpack(stdin, directory).map_or_else(failed, |()| Output::default());
        }
        if !mode.contains('c') {
            return failed("You must specify one of the '-Acdtrux' options".to_owned());
        }
        match self.file_system.pack(&paths) {
            Ok(archive) => {
                let is_absolute = paths.iter().any(|path| path.starts_with('/'));
                let stderr = if is_absolute { "tar: Removing leading `/' from member names\n" } else { "" };
                Output { stderr: stderr.to_owned(), ..Output::with_stdout(archive) }
            }
            Err(error) => failed(error),
        }
    }

    /// Runs commands in sequence. After `&&` a command runs only if the previous one succeeded; after `exit` none runs.
    fn script(&self, script: &str, stdin: &[u8]) -> Output {
        let (mut total, mut stdout) = (Output::default(), Vec::new());
        for line in script.split(['\n', ';']) {
            for command in line.split("&&") {
                let words = self.words(command);
                if words.is_empty() {
                    continue;
                }
                let output = self.run(&words, stdin);
                stdout.extend_from_slice(&output.stdout);
                total.stderr += &output.stderr;
                total.exit = output.exit;
                if words[0] == "exit" {
                    return Output { stdout: stdout.into(), ..total };
                }
                if output.exit != 0 {
                    break;
                }
            }
        }
        Output { stdout: stdout.into(), ..total }
    }

    /// Splits a command into words, with quotes and `$VARIABLE`s.
    pub(super) fn words(&self, command: &str) -> Vec<String> {
        let (mut words, mut word, mut quote, mut has_word) = (Vec::new(), String::new(), None, false);
        let mut letters = command.chars().peekable();
        while let Some(letter) = letters.next() {
            match (letter, quote) {
                ('\'' | '"', None) => (quote, has_word) = (Some(letter), true),
                (_, Some(open)) if letter == open => quote = None,
                ('$', None | Some('"')) => {
                    let mut name = String::new();
                    while let Some(next) =
                        letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_')
                    {
                        name.push(next);
                    }
                    let value = self.variables.iter().find(|(variable, _)| *variable == name);
                    word += value.map_or("", |(_, value)| value);
                    has_word = true;
                }
                (letter, None) if letter.is_whitespace() => {
                    if has_word {
                        words.push(std::mem::take(&mut word));
                    }
                    has_word = false;
                }
                (letter, _) => {
                    word.push(letter);
                    has_word = true;
                }
            }
        }
        if has_word {
            words.push(word);
        }
        words
    }
}

fn lines(names: &[String]) -> String {
    names.iter().map(|name| format!("{name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_scripts_and_quotes() {
        let pod = json!({
            "metadata": { "name": "web-1", "namespace": "shop" },
            "spec": { "containers": [{ "name": "main", "env": [{ "name": "COLOUR", "value": "blue" }] }] },
        });
        let environment = Environment::new(&pod, "main", FileSystem::default());
        let check = |command: &[&str], stdin: &str, stdout: &str, stderr: &str, exit: u8| {
            let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            let expected = Output { stdout: stdout.to_owned().into(), stderr: stderr.to_owned(), exit };
            assert_eq!(environment.run(&words, stdin.as_bytes()), expected, "{command:?}");
        };
        check(&["echo", "a", "b"], "", "a b\n", "", 0);
        check(&["hostname"], "", "web-1\n", "", 0);
        check(&["cat"], "as it came", "as it came", "", 0);
        check(&["sh", "-c", "echo \"it is $COLOUR\"; echo '$COLOUR'"], "", "it is blue\n$COLOUR\n", "", 0);
        check(&["sh", "-c", "echo a && false && echo b; exit 3; echo c"], "", "a\n", "", 3);
        check(&["sh"], "pwd\nwhoami\n", "/\nroot\n", "", 0);
        check(&["cat", "/none"], "", "", "cat: /none: No such file or directory\n", 1);
        check(&["test", "-d", "/tmp"], "", "", "", 0);
        check(
            &["tar", "cf", "-", "/none"],
            "",
            "",
            "tar: /none: Cannot stat: No such file or directory\n",
            2,
        );
        check(&["vi"], "", "", "sh: vi: not found\n", 127);
    }
}
