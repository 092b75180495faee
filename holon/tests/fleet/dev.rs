//! `holon dev`, as a new user runs it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::Process;
use testkit::wait::PATIENCE;

use crate::common::{HOLON, repository};

/// A running `holon dev` and its output. Killed when dropped.
struct Dev {
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    said: Vec<String>,
    kubeconfig: PathBuf,
}

impl Dev {
    /// Starts it in a directory. Returns once it has printed the suggested commands.
    fn start(dir: &Path, arguments: &[&str]) -> Dev {
        let mut command = Command::new(HOLON);
        command.arg("dev").args(arguments).current_dir(dir).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        for line in lines.by_ref().map_while(Result::ok) {
            said.push(line);
            if said.last().is_some_and(|line| line.contains("Ctrl-C stops the server")) {
                break;
            }
        }
        let kubeconfig = said.iter().find_map(|line| line.trim().strip_prefix("export KUBECONFIG="));
        let kubeconfig = kubeconfig.unwrap_or_else(|| panic!("it said {said:?}")).into();
        Dev { process, lines, said, kubeconfig }
    }

    fn dir(&self) -> &Path {
        self.kubeconfig.parent().unwrap()
    }

    /// Returns the address from its output.
    fn address(&self) -> String {
        let serves = self.said.iter().find_map(|line| line.strip_prefix("Holon serves https://"));
        let address = serves.and_then(|rest| rest.split(' ').next());
        address.unwrap_or_else(|| panic!("it said {:?}", self.said)).to_owned()
    }

    /// Sends Ctrl-C and checks that it exits successfully.
    fn stop(mut self) {
        let told = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status().unwrap();
        assert!(told.success());
        // Reads the rest of the output, because a full or closed pipe would fail its last writes.
        self.lines.by_ref().for_each(drop);
        assert!(self.process.wait().unwrap().success());
    }

    /// Runs a command line as it is printed, in the root of the repository.
    fn types(&self, kubectl: &Path, command: &str) -> String {
        let programs = [kubectl, Path::new(HOLON)];
        let [first, second] = programs.map(|program| program.parent().unwrap().display().to_string());
        let path = format!("{first}:{second}:{}", std::env::var("PATH").unwrap_or_default());
        let done = Command::new("sh")
            .args(["-c", command])
            .current_dir(repository())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", &path)
            .output()
            .unwrap();
        let [out, err] = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(done.status.success(), "{command}: {out}{err}");
        out
    }

    /// Waits until the four pods of the shop are ready, on exactly these clusters.
    #[track_caller]
    fn until_on(&self, kubectl: &Path, clusters: &[&str]) {
        let (begun, expected): (_, BTreeSet<&str>) = (Instant::now(), clusters.iter().copied().collect());
        loop {
            let shown = self.types(kubectl, "kubectl -n shop get pods -o wide");
            if ready_on(&shown) == Some(expected.clone()) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "not on {clusters:?} within {PATIENCE:?}:\n{shown}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Returns the clusters of the pods in a table. `None` unless there are four pods, all ready.
fn ready_on(table: &str) -> Option<BTreeSet<&str>> {
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    let is_ready = |row: &Vec<&str>| row.get(1) == Some(&"1/1") && row.get(2) == Some(&"Running");
    let on = |row: &Vec<&'_ str>| ["east", "west"].into_iter().find(|cluster| row.contains(cluster));
    let all_ready = rows.len() == 4 && rows.iter().all(is_ready);
    all_ready.then(|| rows.iter().filter_map(on).collect())
}

#[test]
fn holon_dev_runs_two_clusters_prints_commands_and_cleans_up() {
    let nowhere = tempfile::tempdir().unwrap();
    let dev = Dev::start(nowhere.path(), &["--listen", "127.0.0.1:0"]);
    let contexts = std::fs::read_to_string(&dev.kubeconfig).unwrap();
    for name in ["east", "west"] {
        assert!(contexts.contains(&format!("root:mailbox-{name}")), "{contexts}");
    }
    // The example that it suggests exists.
    let text = dev.said.join("\n");
    let example = dev.said.iter().find_map(|line| line.split("apply -f ").nth(1)).expect(&text);
    let example = example.split_whitespace().next().expect(&text);
    assert!(repository().join(example).exists(), "{example}");
    check_and_stop(dev, nowhere.path());
}

#[test]
#[ignore = "needs kubectl"]
fn the_commands_that_it_says_work_as_they_are() {
    let kubectl = testkit::peers::program("kubectl");
    let nowhere = tempfile::tempdir().unwrap();
    let dev = Dev::start(nowhere.path(), &["--listen", "127.0.0.1:0"]);
    type_all(&dev, &kubectl);
    check_and_stop(dev, nowhere.path());
}

/// Checks that it has its two mailboxes, stops it, and checks that it leaves nothing behind.
fn check_and_stop(dev: Dev, nowhere: &Path) {
    let listed = Command::new(HOLON).args(["lc", "list", "--data-dir"]).arg(dev.dir()).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("root:mailbox-east") && listed.contains("root:mailbox-west"), "{listed}");
    let dir = dev.dir().to_owned();
    dev.stop();
    assert!(!dir.exists(), "{} is left behind", dir.display());
    assert_eq!(std::fs::read_dir(nowhere).unwrap().count(), 0, "it left something where it was typed");
}

/// Runs the commands that it prints, unchanged, and checks their effects.
fn type_all(dev: &Dev, kubectl: &Path) {
    let commands: Vec<&str> = dev
        .said
        .iter()
        .map(|line| line.trim())
        .filter(|line| line.starts_with("kubectl ") || line.starts_with("holon "))
        .collect();
    let mut steps = 0;
    let mut is_placed = false;
    for command in commands {
        let out = dev.types(kubectl, command);
        assert!(!out.trim().is_empty(), "{command} says nothing");
        let expected: &[&str] = match command {
            command if command.contains("placement='*'") => &["east", "west"],
            command if command.contains("placement=west") => &["west"],
            // Without a placement all pods are on one cluster; the rollout has finished before, so one read suffices.
            command if command.contains("get pods") && !is_placed => {
                assert_eq!(ready_on(&out).map(|on| on.len()), Some(1), "{out}");
                steps += 1;
                continue;
            }
            _ => continue,
        };
        dev.until_on(kubectl, expected);
        is_placed = true;
        steps += 1;
    }
    assert_eq!(steps, 3, "it tells to look, to spread and to move: {:?}", dev.said);
}

/// The stand-ins lost their data while the server kept its own. So they were other clusters under known names, to which
/// syncers write nothing, and a kept directory could be used only once.
#[test]
#[ignore = "needs kubectl"]
fn holon_dev_with_keep_continues_with_its_data() {
    let kubectl = testkit::peers::program("kubectl");
    let here = tempfile::tempdir().unwrap();
    let uids = |dev: &Dev| {
        let command = "kubectl -n shop get pods -o jsonpath='{.items[*].metadata.uid}'";
        let said = dev.types(&kubectl, command);
        said.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let dev = Dev::start(here.path(), &["--keep", "--listen", "127.0.0.1:0"]);
    dev.types(&kubectl, "kubectl apply -f docs/examples/shop.yaml");
    dev.types(&kubectl, "kubectl annotate ns shop holon.dev/placement='*'");
    dev.until_on(&kubectl, &["east", "west"]);
    let (before, address) = (uids(&dev), dev.address());
    assert_eq!(dev.dir(), here.path().join(".holon-dev"));
    dev.stop();

    let dev = Dev::start(here.path(), &["--keep", "--listen", &address]);
    dev.until_on(&kubectl, &["east", "west"]);
    // Pods know the address of their server. If another process had taken the port, the pods would be replaced.
    if dev.address() == address {
        assert_eq!(uids(&dev), before, "they are the same");
    }
    // Placement continues to work.
    dev.types(&kubectl, "kubectl annotate ns shop holon.dev/placement=west --overwrite");
    dev.until_on(&kubectl, &["west"]);
    dev.stop();
}

#[test]
fn a_port_that_is_taken_is_named_and_another_is_used() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let here = tempfile::tempdir().unwrap();
    let dev = Dev::start(here.path(), &["--listen", &address]);
    assert!(
        dev.said[0].starts_with(&format!("cannot listen on {address} ("))
            && dev.said[0].ends_with("using another port"),
        "{:?}",
        dev.said
    );
    let other = dev.address();
    assert!(other.starts_with("127.0.0.1:") && other != address, "{:?}", dev.said);
    let contexts = std::fs::read_to_string(&dev.kubeconfig).unwrap();
    assert!(contexts.contains(&format!("https://{other}")), "{contexts}");
    dev.stop();
}
