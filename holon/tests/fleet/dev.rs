//! `holon dev`, as a newcomer types it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_first_command_has_two_clusters_says_what_to_type_and_leaves_nothing_behind() {
    let mut dev = Command::new(env!("CARGO_BIN_EXE_holon"))
        .args(["dev", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    for line in lines.by_ref() {
        said.push(line);
        if said.last().is_some_and(|line| line.contains("Ctrl-C ends it")) {
            break;
        }
    }
    let text = said.join("\n");
    let kubeconfig =
        said.iter().find_map(|line| line.trim().strip_prefix("export KUBECONFIG=")).expect(&text);
    let dir = Path::new(kubeconfig).parent().unwrap();
    let contexts = std::fs::read_to_string(kubeconfig).unwrap();
    for name in ["east", "west"] {
        assert!(contexts.contains(&format!("root:mailbox-{name}")), "{contexts}");
    }
    // What it tells to apply is there.
    let example = said.iter().find_map(|line| line.split("apply -f ").nth(1)).expect(&text);
    assert!(crate::common::repository().join(example).exists(), "{example}");
    let listed = Command::new(env!("CARGO_BIN_EXE_holon"))
        .args(["lc", "list", "--data-dir"])
        .arg(dir)
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("root:mailbox-east") && listed.contains("root:mailbox-west"), "{listed}");

    let told = Command::new("kill").args(["-INT", &dev.id().to_string()]).status().unwrap();
    assert!(told.success());
    // What it says on its way out is read, or it could not say it.
    lines.for_each(drop);
    assert!(dev.wait().unwrap().success());
    assert!(!dir.exists(), "{} is left behind", dir.display());
}
