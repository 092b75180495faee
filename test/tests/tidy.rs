//! Checks the structure of the workspace: which crate may depend on which, which folders may import each other, where
//! versions are named, what may spawn tasks, and that every source file is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The allowed dependencies between our crates (docs/architecture.md). All others are forbidden.
const ARROWS: &[(&str, &[&str])] = &[
    ("testkit", &[]),
    ("api", &[]),
    ("storage", &["testkit"]),
    ("expression", &["api"]),
    ("openapi", &["api", "expression", "testkit"]),
    ("controller", &["api"]),
    ("apiserver", &["api", "storage", "expression", "openapi", "controller", "testkit"]),
    ("splitter", &["api", "expression", "controller"]),
    ("tunnel", &["api"]),
    ("syncer", &["api", "controller", "tunnel"]),
    ("standin", &["api", "storage", "expression", "openapi", "controller", "apiserver", "testkit"]),
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
            "testkit",
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
            "testkit",
        ],
    ),
];

/// Crates that build and test in seconds, because they do not depend on the heavy crates.
const PURE: &[&str] = &["api", "expression", "openapi", "storage"];
const HEAVY: &[&str] = &["kube", "kube-client", "tonic", "etcd-client", "hyper"];

/// The only module that spawns tasks.
const SPAWNER: &str = "controller/src/tasks";
/// Tests may spawn: their tasks end with them. The conformance suite for stores is test code too.
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
    assert_eq!(
        names,
        allowed.keys().copied().collect(),
        "ARROWS does not list exactly the crates of the workspace"
    );
    let mut violations = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let dependency_name = dependency["name"].as_str().unwrap();
            // A crate may depend on itself in tests, to enable a feature.
            let is_ours = names.contains(dependency_name) && dependency_name != name;
            if is_ours && !allowed[name].contains(&dependency_name) {
                violations.push(format!("{name} -> {dependency_name}"));
            }
            let in_tests = dependency["kind"] == "dev" || name == "scenarios";
            if dependency_name == "testkit" && !in_tests {
                violations.push(format!("{name} -> {dependency_name} outside its tests"));
            }
        }
    }
    assert!(violations.is_empty(), "dependencies that the design does not allow: {violations:?}");
}

#[test]
fn pure_crates_do_not_depend_on_heavy_ones() {
    for name in PURE {
        let tree = cargo(&["tree", "--offline", "-p", name, "-e", "normal,build,dev", "--prefix", "none"]);
        let used: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        let heavy: Vec<_> = HEAVY.iter().filter(|heavy| used.contains(**heavy)).collect();
        assert!(heavy.is_empty(), "{name} depends on {heavy:?}");
    }
}

/// Two versions of one dependency in the workspace would have incompatible types.
#[test]
fn only_the_workspace_names_versions() {
    let mut violations = Vec::new();
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
                violations.push(format!("{}:{}: {line}", manifest.display(), number + 1));
            }
        }
    }
    assert!(
        violations.is_empty(),
        "put the version into [workspace.dependencies]:\n{}",
        violations.join("\n")
    );
}

#[test]
fn tasks_are_spawned_only_in_the_supervised_group() {
    // Concatenated, so that this file does not match itself.
    let forbidden =
        [["tokio::", "spawn("].concat(), ["task::", "spawn("].concat(), ["task::", "spawn_local("].concat()];
    let mut violations = Vec::new();
    for path in sources(&root()) {
        let path_in_root = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if path_in_root.starts_with(SPAWNER) || TESTS.iter().any(|tests| path_in_root.contains(tests)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if forbidden.iter().any(|call| code.contains(call)) {
                violations.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(violations.is_empty(), "spawn in a group of {SPAWNER} instead:\n{}", violations.join("\n"));
}

/// A JoinSet is a group of tasks without names: a task that ends unexpectedly goes unnoticed unless its owner checks.
#[test]
fn join_sets_are_only_in_the_supervised_groups() {
    let forbidden_type = ["Join", "Set"].concat();
    let is_outside = |path: &PathBuf| {
        let path_in_root = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        !path_in_root.starts_with(SPAWNER) && !TESTS.iter().any(|tests| path_in_root.contains(tests))
    };
    let has_one = |path: &PathBuf| code(&std::fs::read_to_string(path).unwrap()).contains(&forbidden_type);
    let found: Vec<_> = sources(&root()).into_iter().filter(is_outside).filter(has_one).collect();
    assert!(
        found.is_empty(),
        "use KeyedTasks or StreamTasks of {SPAWNER} instead of a {forbidden_type}: {found:#?}"
    );
}

/// Returns the code of a file without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// All crates: the folders of each import each other in one direction only.
const ACYCLIC: &[&str] = &[
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
    "testkit",
    "scenarios",
];

/// The folders that each folder imports. A folder is a top-level module of a crate, with its children.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn folders_of_a_crate_import_each_other_in_one_direction() {
    let mut cycles = Vec::new();
    for name in ACYCLIC {
        let folder = root().join(if *name == "scenarios" { "test" } else { name }).join("src");
        cycles.extend(cycle(&imports(&folder)).map(|cycle| format!("{name}: {}", cycle.join(" -> "))));
    }
    assert!(cycles.is_empty(), "folders import each other in a cycle:\n{}", cycles.join("\n"));
}

#[test]
fn a_cycle_between_folders_is_found_and_printed() {
    let imports = |edges: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in edges {
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        imports
    };
    assert_eq!(cycle(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = cycle(&imports(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])).unwrap();
    assert_eq!(found, ["b", "c", "d", "b"]);
    let modules = ["a", "b", "c"].map(str::to_owned).into();
    let text =
        "use crate::a::X;\nuse crate::{\n    b::{Y, c},\n    Z,\n};\nfn f() { crate::c::g() } // crate::d";
    assert_eq!(imported(&code(text), &modules), ["a", "b", "c"].map(str::to_owned).into());
}

/// Returns the imports between the folders below `src`.
fn imports(src: &Path) -> Imports {
    let folder_of = |path: &Path| {
        let first = path.strip_prefix(src).unwrap().components().next().unwrap();
        first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let files = sources(src);
    let modules: BTreeSet<String> = files.iter().map(|path| folder_of(path)).collect();
    let mut imports = Imports::new();
    for path in files {
        // The root of a crate declares the folders and may use all of them.
        let folder = folder_of(&path);
        // Tests in a file of their own may use everything, like tests at the end of a file.
        let is_tests = path.file_name().is_some_and(|name| name == "tests.rs");
        if !is_tests && !matches!(folder.as_str(), "lib" | "main" | "bin") {
            let text = code(&std::fs::read_to_string(&path).unwrap());
            let others = imported(&text, &modules).into_iter().filter(|other| *other != folder);
            imports.entry(folder.clone()).or_default().extend(others);
        }
    }
    imports
}

/// Returns the modules that a text names: `crate::a::…`, `crate::{a, b::…}`.
fn imported(text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let first_word = |path: &str| -> String {
        path.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    };
    let paths = text.match_indices("crate::").flat_map(|(start, crate_root)| {
        let rest = &text[start + crate_root.len()..];
        rest.strip_prefix('{').map_or_else(
            || vec![first_word(rest)],
            |group| group_members(group).into_iter().map(first_word).collect(),
        )
    });
    paths.filter(|path| modules.contains(path)).collect()
}

/// Returns the members of `a, b::{c, d}}…`, up to the brace that closes the group.
fn group_members(group: &str) -> Vec<&str> {
    let (mut members, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                members.push(&group[start..at]);
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    members
}

/// Returns a cycle, with its first folder at both ends.
fn cycle(imports: &Imports) -> Option<Vec<String>> {
    fn visit(
        folder: &str,
        imports: &Imports,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|visited| visited == folder) {
            return Some(path[start..].iter().cloned().chain([folder.to_owned()]).collect());
        }
        if !done.insert(folder.to_owned()) {
            return None;
        }
        path.push(folder.to_owned());
        let found =
            imports.get(folder).into_iter().flatten().find_map(|next| visit(next, imports, path, done));
        path.pop();
        found
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|folder| visit(folder, imports, &mut Vec::new(), &mut done))
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
    let children_folder = match is_root || path.file_name().is_some_and(|name| name == "mod.rs") {
        true => folder.to_owned(),
        false => folder.join(path.file_stem().unwrap()),
    };
    let mut explicit_path = None;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let line = line.trim();
        if let Some(relative) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            explicit_path = folder.join(relative).canonicalize().ok();
        }
        let declaration = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
        if let Some((visibility, name)) = declaration
            && (visibility.is_empty() || visibility.starts_with("pub"))
        {
            if let Some(relative) = explicit_path.take() {
                reach(&relative, false, reached);
            }
            reach(&children_folder.join(format!("{name}.rs")), false, reached);
            reach(&children_folder.join(name).join("mod.rs"), false, reached);
        }
    }
}

/// Returns every Rust file in a folder and its subfolders, except cargo's output.
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
    for phase in ["HOLON_PEERS=/nonexistent cargo test --workspace 2>&1", "cargo test --workspace --tests "] {
        assert!(ci.contains(phase), "CI runs the README's command without peers, then the ignored tests");
    }
}

/// CI runs every ignored test in its second phase, with the programs that the reason names.
#[test]
fn an_ignored_test_names_its_requirements() {
    let mut unnamed = Vec::new();
    for package in packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
        for path in sources(&folder) {
            let text = std::fs::read_to_string(&path).unwrap();
            let ignored = text.lines().map(str::trim).filter(|line| line.starts_with("#[ignore"));
            let invalid = ignored.filter(|line| !line.starts_with("#[ignore = \"needs "));
            unnamed.extend(invalid.map(|line| format!("{}: {line}", path.display())));
        }
    }
    assert!(unnamed.is_empty(), "an ignored test must name the missing program as its reason: {unnamed:#?}");
}
