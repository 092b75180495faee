//! The workspace keeps its shape: who may depend on whom, who names versions, who may spawn, and no file nobody compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// DESIGN: which crate may use which of ours. Whatever is not here is not allowed.
const ARROWS: &[(&str, &[&str])] = &[
    ("peers", &[]),
    ("api", &[]),
    ("storage", &["peers"]),
    ("expression", &["api"]),
    ("openapi", &["api", "expression", "peers"]),
    ("controller", &["api"]),
    ("apiserver", &["api", "storage", "expression", "openapi", "controller", "peers"]),
    ("splitter", &["api", "expression", "controller"]),
    ("tunnel", &["api"]),
    ("syncer", &["api", "controller", "tunnel"]),
    ("standin", &["api", "storage", "expression", "openapi", "controller", "apiserver", "peers"]),
    (
        "holon",
        &[
            "api",
            "storage",
            "expression",
            "openapi",
            "controller",
            "apiserver",
            "splitter",
            "tunnel",
            "syncer",
            "standin",
            "peers",
        ],
    ),
    (
        "scenarios",
        &[
            "api",
            "storage",
            "expression",
            "openapi",
            "controller",
            "apiserver",
            "splitter",
            "tunnel",
            "syncer",
            "standin",
            "holon",
            "peers",
        ],
    ),
];

/// Crates that build and test in seconds, because what takes minutes is not among their dependencies.
const PURE: &[&str] = &["api", "expression", "openapi", "storage"];
const HEAVY: &[&str] = &["kube", "kube-client", "tonic", "etcd-client", "hyper"];

/// The one place that starts tasks.
const SPAWNER: &str = "controller/src/tasks.rs";
/// Tests may spawn: a test that ends takes its tasks along. So may the suite other crates' tests are made of.
const TESTS: &[&str] = &["test/", "storage/src/conformance", "/tests/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn packages() -> Vec<Value> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn crates_depend_only_on_those_the_design_allows() {
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let packages = packages();
    let names: BTreeSet<_> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert_eq!(names, allowed.keys().copied().collect(), "the table above names every crate");
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            // A crate may name itself, to switch a feature on for its own tests.
            let ours = names.contains(on) && on != name;
            if ours && !allowed[name].contains(&on) {
                wrong.push(format!("{name} -> {on}"));
            }
            let in_tests = dependency["kind"] == "dev" || name == "scenarios";
            if on == "peers" && !in_tests {
                wrong.push(format!("{name} -> {on} outside its tests"));
            }
        }
    }
    assert!(wrong.is_empty(), "edges outside the design: {wrong:?}");
}

#[test]
fn pure_crates_do_without_the_heavy_ones() {
    for name in PURE {
        let tree = cargo(&["tree", "--offline", "-p", name, "-e", "normal,build,dev", "--prefix", "none"]);
        let used: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        let heavy: Vec<_> = HEAVY.iter().filter(|heavy| used.contains(**heavy)).collect();
        assert!(heavy.is_empty(), "{name} pulls in {heavy:?}");
    }
}

/// Two crates with two versions of one dependency would each bring their own types.
#[test]
fn only_the_workspace_names_versions() {
    let mut wrong = Vec::new();
    for package in packages() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap()).to_owned();
        let mut lists_dependencies = false;
        for (number, line) in std::fs::read_to_string(&manifest).unwrap().lines().enumerate() {
            if line.starts_with('[') {
                lists_dependencies = line.contains("dependencies");
                continue;
            }
            let is_entry = line.contains('=') && line.starts_with(|first: char| first.is_alphanumeric());
            let is_inherited = line.contains(".workspace = true") || line.contains("{ workspace = true");
            if lists_dependencies && is_entry && !is_inherited {
                wrong.push(format!("{}:{}: {line}", manifest.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "put the version into [workspace.dependencies]:\n{}", wrong.join("\n"));
}

#[test]
fn tasks_are_spawned_only_in_the_supervised_group() {
    // Put together here, so that this file does not find itself.
    let forbidden =
        [["tokio::", "spawn("].concat(), ["task::", "spawn("].concat(), ["task::", "spawn_local("].concat()];
    let mut loose = Vec::new();
    for path in sources(&root()) {
        let place = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if place == SPAWNER || TESTS.iter().any(|tests| place.contains(tests)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if forbidden.iter().any(|word| code.contains(word)) {
                loose.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(loose.is_empty(), "spawn in a group of {SPAWNER} instead:\n{}", loose.join("\n"));
}

#[test]
fn every_source_file_is_reached_by_a_module() {
    let mut unreached = Vec::new();
    for package in packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
        let mut reached = BTreeSet::new();
        for target in package["targets"].as_array().unwrap() {
            reach(Path::new(target["src_path"].as_str().unwrap()), true, &mut reached);
        }
        unreached.extend(sources(&folder).into_iter().filter(|path| !reached.contains(path)));
    }
    assert!(unreached.is_empty(), "files no module reaches: {unreached:#?}");
}

/// Follows `mod name;` from a file to the files it names.
fn reach(path: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) {
    if !path.exists() || !reached.insert(path.to_owned()) {
        return;
    }
    let folder = path.parent().unwrap();
    let beside = match is_root || path.file_name().is_some_and(|name| name == "mod.rs") {
        true => folder.to_owned(),
        false => folder.join(path.file_stem().unwrap()),
    };
    let mut elsewhere = None;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let line = line.trim();
        if let Some(place) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            elsewhere = folder.join(place).canonicalize().ok();
        }
        let declaration = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
        if let Some((visibility, name)) = declaration
            && (visibility.is_empty() || visibility.starts_with("pub"))
        {
            if let Some(place) = elsewhere.take() {
                reach(&place, false, reached);
            }
            reach(&beside.join(format!("{name}.rs")), false, reached);
            reach(&beside.join(name).join("mod.rs"), false, reached);
        }
    }
}

/// Every Rust file below a folder, except what cargo built.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let skipped = name == "target" || name.to_string_lossy().starts_with('.');
        if entry.file_type().unwrap().is_dir() && !skipped {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn the_readme_begins_with_the_two_commands() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let commands: Vec<_> = readme.lines().filter(|line| line.starts_with("cargo ")).collect();
    assert_eq!(commands[..2], ["cargo run --release -- dev", "cargo test --workspace"]);
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(
        ci.contains("HOLON_REQUIRE_PEERS=1 cargo test --workspace "),
        "CI runs the README's test command, with all peers"
    );
}
