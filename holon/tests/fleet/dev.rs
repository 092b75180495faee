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
pub(crate) struct Dev {
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    output: Vec<String>,
    kubeconfig: PathBuf,
}

impl Dev {
    /// Starts it in a directory. Returns once it has printed the suggested commands.
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Dev {
        let mut command = Command::new(HOLON);
        command.arg("dev").args(arguments).current_dir(dir).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut output = Vec::new();
        for line in lines.by_ref().map_while(Result::ok) {
            output.push(line);
            if output.last().is_some_and(|line| line.contains("Ctrl-C stops the server")) {
                break;
            }
        }
        let kubeconfig = output.iter().find_map(|line| line.trim().strip_prefix("export KUBECONFIG="));
        let kubeconfig = kubeconfig.unwrap_or_else(|| panic!("the output is {output:?}")).into();
        Dev { process, lines, output, kubeconfig }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.kubeconfig.parent().unwrap()
    }

    /// Returns the address from its output.
    pub(crate) fn address(&self) -> String {
        let serves = self.output.iter().find_map(|line| line.strip_prefix("Holon serves https://"));
        let address = serves.and_then(|rest| rest.split(' ').next());
        address.unwrap_or_else(|| panic!("the output is {:?}", self.output)).to_owned()
    }

    /// Sends Ctrl-C and checks that it exits successfully.
    pub(crate) fn stop(mut self) {
        let signalled = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status().unwrap();
        assert!(signalled.success());
        // Reads the rest of the output, because a full or closed pipe would fail its last writes.
        self.lines.by_ref().for_each(drop);
        assert!(self.process.wait().unwrap().success());
    }

    /// Runs a command line as it is printed, in the root of the repository.
    pub(crate) fn run_line(&self, kubectl: &Path, command: &str) -> String {
        let programs = [kubectl, Path::new(HOLON)];
        let [first, second] = programs.map(|program| program.parent().unwrap().display().to_string());
        let path = format!("{first}:{second}:{}", std::env::var("PATH").unwrap_or_default());
        let result = Command::new("sh")
            .args(["-c", command])
            .current_dir(repository())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", &path)
            .output()
            .unwrap();
        let [stdout, err] =
            [result.stdout, result.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(result.status.success(), "{command}: {stdout}{err}");
        stdout
    }

    /// Waits until the four pods of the shop are ready, on exactly these clusters.
    #[track_caller]
    fn until_pods_on(&self, kubectl: &Path, clusters: &[&str]) {
        let (started, expected): (_, BTreeSet<&str>) = (Instant::now(), clusters.iter().copied().collect());
        loop {
            let table = self.run_line(kubectl, "kubectl -n shop get pods -o wide");
            if ready_on(&table) == Some(expected.clone()) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "not on {clusters:?} within {PATIENCE:?}:\n{table}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Returns the clusters of the pods in a table. `None` unless there are four pods, all ready.
fn ready_on(table: &str) -> Option<BTreeSet<&str>> {
    let pods: Vec<Vec<&str>> = table.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    let is_ready = |row: &Vec<&str>| row.get(1) == Some(&"1/1") && row.get(2) == Some(&"Running");
    let on = |row: &Vec<&'_ str>| ["east", "west"].into_iter().find(|cluster| row.contains(cluster));
    let all_ready = pods.len() == 4 && pods.iter().all(is_ready);
    all_ready.then(|| pods.iter().filter_map(on).collect())
}

#[test]
fn holon_dev_runs_two_clusters_prints_commands_and_cleans_up() {
    let working_dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(working_dir.path(), &["--listen", "127.0.0.1:0"]);
    let contexts = std::fs::read_to_string(&dev.kubeconfig).unwrap();
    for name in ["east", "west"] {
        assert!(contexts.contains(&format!("root:mailbox-{name}")), "{contexts}");
    }
    // The example that it suggests exists.
    let text = dev.output.join("\n");
    let example = dev.output.iter().find_map(|line| line.split("apply -f ").nth(1)).expect(&text);
    let example = example.split_whitespace().next().expect(&text);
    assert!(repository().join(example).exists(), "{example}");
    check_and_stop(dev, working_dir.path());
}

#[test]
#[ignore = "needs kubectl"]
fn the_printed_commands_work_unchanged() {
    let kubectl = testkit::peers::program("kubectl");
    let working_dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(working_dir.path(), &["--listen", "127.0.0.1:0"]);
    run_printed_commands(&dev, &kubectl);
    check_and_stop(dev, working_dir.path());
}

/// Checks that it has its two mailboxes, stops it, and checks that it leaves nothing behind.
fn check_and_stop(dev: Dev, working_dir: &Path) {
    let listed = Command::new(HOLON).args(["lc", "list", "--data-dir"]).arg(dev.dir()).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("root:mailbox-east") && listed.contains("root:mailbox-west"), "{listed}");
    let dir = dev.dir().to_owned();
    dev.stop();
    assert!(!dir.exists(), "{} is left behind", dir.display());
    assert_eq!(std::fs::read_dir(working_dir).unwrap().count(), 0, "files are left in the working directory");
}

/// Runs the commands that it prints, unchanged, and checks their effects.
fn run_printed_commands(dev: &Dev, kubectl: &Path) {
    let commands: Vec<&str> = dev
        .output
        .iter()
        .map(|line| line.trim())
        .filter(|line| line.starts_with("kubectl ") || line.starts_with("holon "))
        .collect();
    let mut steps = 0;
    let mut is_placed = false;
    for command in commands {
        let stdout = dev.run_line(kubectl, command);
        assert!(!stdout.trim().is_empty(), "{command} prints nothing");
        let expected: &[&str] = match command {
            command if command.contains("placement='*'") => &["east", "west"],
            command if command.contains("placement=west") => &["west"],
            // Without a placement all pods are on one cluster; the rollout has finished before, so one read suffices.
            command if command.contains("get pods") && !is_placed => {
                assert_eq!(ready_on(&stdout).map(|on| on.len()), Some(1), "{stdout}");
                steps += 1;
                continue;
            }
            _ => continue,
        };
        dev.until_pods_on(kubectl, expected);
        is_placed = true;
        steps += 1;
    }
    assert_eq!(
        steps, 3,
        "the printed commands read the pods and change the placement twice: {:?}",
        dev.output
    );
}

/// The stand-ins lost their data while the server kept its own. So they were other clusters under known names, to which
/// syncers write nothing, and a kept directory could be used only once.
#[test]
#[ignore = "needs kubectl"]
fn holon_dev_with_keep_continues_with_its_data() {
    let kubectl = testkit::peers::program("kubectl");
    let working_dir = tempfile::tempdir().unwrap();
    let uids = |dev: &Dev| {
        let command = "kubectl -n shop get pods -o jsonpath='{.items[*].metadata.uid}'";
        let output = dev.run_line(&kubectl, command);
        output.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let dev = Dev::start(working_dir.path(), &["--keep", "--listen", "127.0.0.1:0"]);
    dev.run_line(&kubectl, "kubectl apply -f docs/examples/shop.yaml");
    dev.run_line(&kubectl, "kubectl annotate ns shop holon.dev/placement='*'");
    dev.until_pods_on(&kubectl, &["east", "west"]);
    let (before, address) = (uids(&dev), dev.address());
    assert_eq!(dev.dir(), working_dir.path().join(".holon-dev"));
    dev.stop();

    let dev = Dev::start(working_dir.path(), &["--keep", "--listen", &address]);
    dev.until_pods_on(&kubectl, &["east", "west"]);
    // Pods know the address of their server. If another process had taken the port, the pods would be replaced.
    if dev.address() == address {
        assert_eq!(uids(&dev), before, "the pods were not replaced");
    }
    // Placement continues to work.
    dev.run_line(&kubectl, "kubectl annotate ns shop holon.dev/placement=west --overwrite");
    dev.until_pods_on(&kubectl, &["west"]);
    dev.stop();
}

#[test]
fn a_port_in_use_is_reported_and_another_is_chosen() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let working_dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(working_dir.path(), &["--listen", &address]);
    assert!(
        dev.output[0].starts_with(&format!("cannot listen on {address} ("))
            && dev.output[0].ends_with("using another port"),
        "{:?}",
        dev.output
    );
    let other = dev.address();
    assert!(other.starts_with("127.0.0.1:") && other != address, "{:?}", dev.output);
    let contexts = std::fs::read_to_string(&dev.kubeconfig).unwrap();
    assert!(contexts.contains(&format!("https://{other}")), "{contexts}");
    dev.stop();
}
