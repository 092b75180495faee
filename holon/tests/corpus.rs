//! Typical manifests (`test/corpus`), through a real kubectl: applied, diffed, exported, applied again both as written
//! and as exported, and deleted. A second apply must not change anything.
//!
//! The same runs against a real kube-apiserver, which shows that the manifests and the expectations are valid.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use testkit::peers::Cluster;
use testkit::{Kubectl, Server};

use common::{HOLON, repository};

/// How many manifests run at a time. kubectl and the server share the cores; more would only wait.
const CONCURRENCY: usize = 4;

/// Admission plug-ins that change or reject objects, and whose controllers do not run here.
const PLUG_INS_OFF: &str = "--disable-admission-plugins=ServiceAccount,ResourceQuota,LimitRanger,Priority,\
DefaultTolerationSeconds,DefaultStorageClass,DefaultIngressClass,StorageObjectInUseProtection,\
RuntimeClass,TaintNodesByCondition,PodTopologyLabels";

#[test]
#[ignore = "needs kubectl"]
fn every_manifest_is_applied_exported_and_deleted() {
    let program = testkit::peers::program("kubectl");
    let server = Server::start(HOLON);
    let kubeconfig = server.file("corpus.kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("root")).unwrap();
    run_all(&program, &kubeconfig);
}

#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn every_manifest_is_applied_exported_and_deleted_on_a_real_server() {
    let cluster = Cluster::start_bare(&[PLUG_INS_OFF]);
    run_all(&testkit::peers::program("kubectl"), &cluster.kubeconfig());
}

/// Runs all manifests, several at once, each in a namespace of its own.
fn run_all(program: &Path, kubeconfig: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let manifests = manifests();
    assert!(manifests.len() >= 100, "{} manifests", manifests.len());
    let configured = configured();
    let failures = Mutex::new(Vec::new());
    let waiting = Mutex::new(manifests.iter());
    thread::scope(|scope| {
        for _ in 0..CONCURRENCY {
            scope.spawn(|| {
                let next = || waiting.lock().unwrap().next();
                while let Some(manifest) = next() {
                    let run = ManifestRun::new(program, kubeconfig, scratch.path(), manifest);
                    if let Err(error) = run.run_steps(&configured) {
                        failures.lock().unwrap().push(format!("{}: {error}", run.name));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    println!("{} manifests, {} passed", manifests.len(), manifests.len() - failures.len());
    assert!(failures.is_empty(), "{} failed:\n\n{}", failures.len(), failures.join("\n"));
}

fn manifests() -> Vec<PathBuf> {
    let files = std::fs::read_dir(repository().join("test/corpus")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut found: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    found.sort();
    found
}

/// Returns `manifest object` of the objects for which kubectl reports `configured` although nothing changes: the stored
/// form differs from the written form inside a field that kubectl sends as a whole.
fn configured() -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("test/corpus/configured.txt")).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// The steps of one manifest on a server.
struct ManifestRun<'a> {
    name: String,
    manifest: &'a str,
    kubectl: Kubectl,
}

impl<'a> ManifestRun<'a> {
    fn new(program: &Path, kubeconfig: &Path, scratch: &Path, manifest: &'a Path) -> ManifestRun<'a> {
        let name = manifest.file_stem().unwrap().to_str().unwrap().to_owned();
        let own_kubeconfig = scratch.join(&name);
        std::fs::copy(kubeconfig, &own_kubeconfig).unwrap();
        let kubectl = Kubectl::with_kubeconfig(program, own_kubeconfig, scratch.join("cache"));
        ManifestRun { name, manifest: manifest.to_str().unwrap(), kubectl }
    }

    fn run_steps(&self, configured: &[String]) -> Result<(), String> {
        let namespace = format!("of-{}", self.name);
        self.run(&["create", "namespace", &namespace])?;
        // Sets a default namespace: unlike with --namespace, a manifest may name another one.
        self.run(&["config", "set-context", "--current", "--namespace", &namespace])?;

        for line in self.run(&["apply", "-f", self.manifest])? {
            self.expect(line.ends_with(" created"), &line)?;
        }
        let differences = self.run(&["diff", "-f", self.manifest])?;
        self.expect(differences.is_empty(), &differences.join("\n"))?;
        let exported = self.apply_again(configured)?;
        let file = self.kubectl.file("exported.yaml", &exported);
        self.run(&["apply", "-f", &file])?;

        // The deletion of a namespace and of what it holds takes time; on a bare server it never completes.
        self.run(&["delete", "-f", self.manifest, "--wait=false", "--ignore-not-found"])?;
        let left = self.run(&["get", "-f", self.manifest, "--ignore-not-found", "-o", "name"])?;
        let left: Vec<_> = left.into_iter().filter(|line| !line.starts_with("namespace/")).collect();
        self.expect(left.is_empty(), &format!("left behind: {left:?}"))
    }

    /// Checks that another apply changes nothing. Returns the current objects.
    fn apply_again(&self, configured: &[String]) -> Result<String, String> {
        let mut before = self.get()?;
        // The server itself may write a status in between; then retry.
        for _ in 0..5 {
            for line in self.run(&["apply", "-f", self.manifest])? {
                let (object, outcome) = line.rsplit_once(' ').unwrap_or((&line, ""));
                let listed = configured.contains(&format!("{} {object}", self.name));
                self.expect(outcome == if listed { "configured" } else { "unchanged" }, &line)?;
            }
            let after = self.get()?;
            if after == before {
                return Ok(after);
            }
            before = after;
        }
        Err("the objects change with every apply".to_owned())
    }

    fn get(&self) -> Result<String, String> {
        Ok(self.run(&["get", "-f", self.manifest, "-o", "yaml"])?.join("\n"))
    }

    /// Returns the output without warnings, or an error if the command failed.
    fn run(&self, arguments: &[&str]) -> Result<Vec<String>, String> {
        let (succeeded, output) = self.kubectl.run(arguments);
        self.expect(succeeded, &format!("kubectl {}: {output}", arguments.join(" ")))?;
        Ok(output.lines().filter(|line| !line.starts_with("Warning: ")).map(str::to_owned).collect())
    }

    fn expect(&self, is_right: bool, message: &str) -> Result<(), String> {
        if is_right { Ok(()) } else { Err(message.to_owned()) }
    }
}
