//! The program under test: built, started, killed, started again.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// How a server is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Killed without warning, as when the machine goes down.
    Killed,
    /// Terminated, as an administrator stops it.
    Terminated,
}

/// A server in a directory of its own, on one port for its whole life. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    dir: TempDir,
    child: Child,
    /// `127.0.0.1:…`
    pub address: String,
}

impl Server {
    /// Starts a server and returns once it reports that it is ready.
    pub fn start(options: &[&str]) -> Result<Server> {
        Server::start_program(program()?, options)
    }

    /// The same with a binary that is already built.
    pub fn start_program(program: PathBuf, options: &[&str]) -> Result<Server> {
        let dir = tempfile::tempdir()?;
        let (child, address) = spawn(&program, dir.path(), "127.0.0.1:0", options)?;
        Ok(Server { program, dir, child, address })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the server and starts it again, on the same data and the same port.
    pub fn restart(&mut self, end: End, options: &[&str]) -> Result<()> {
        self.end(end)?;
        (self.child, _) = spawn(&self.program, self.dir.path(), &self.address, options)?;
        Ok(())
    }

    /// Ends the server, calls `then` while it is stopped, and starts it again.
    pub fn stopped(&mut self, end: End, then: impl FnOnce(&Server) -> Result<()>) -> Result<()> {
        self.end(end)?;
        then(self)?;
        (self.child, _) = spawn(&self.program, self.dir.path(), &self.address, &[])?;
        Ok(())
    }

    fn end(&mut self, end: End) -> Result<()> {
        match end {
            End::Killed => self.child.kill()?,
            End::Terminated => signal("TERM", self.child.id())?,
        }
        self.child.wait()?;
        Ok(())
    }

    /// Returns a command of the program for this server's data directory, not yet run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--data-dir").arg(self.dir.path());
        command
    }

    /// Returns a command of the program that does not use this server's data.
    pub fn other(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        command
    }

    /// Returns the path of a file in the server's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a kubeconfig for a logical cluster and returns its path.
    pub fn kubeconfig(&self, cluster: &str) -> Result<PathBuf> {
        let output = self.command(&["kubeconfig", cluster]).output()?;
        if !output.status.success() {
            bail!("holon kubeconfig {cluster}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let file = self.dir.path().join(format!("{}.kubeconfig", cluster.replace(':', "-")));
        std::fs::write(&file, output.stdout)?;
        Ok(file)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &Path, dir: &Path, listen: &str, options: &[&str]) -> Result<(Child, String)> {
    let mut child = Command::new(program)
        .args(["start", "--listen", listen, "--data-dir"])
        .arg(dir)
        .args(options)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let mut said = String::new();
    // The pipe stays open in `child`. The server writes one line to it.
    BufReader::new(child.stdout.as_mut().context("its stdout is a pipe")?).read_line(&mut said)?;
    let address = said.split([' ', ',']).find_map(|word| word.strip_prefix("https://"));
    let address = address.with_context(|| format!("the server said {said:?}"))?.to_owned();
    Ok((child, address))
}

/// Sends a signal to a process we started.
pub fn signal(name: &str, pid: u32) -> Result<()> {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status()?;
    if !sent.success() {
        bail!("kill -{name} {pid} failed");
    }
    Ok(())
}

/// Returns the path of the binary, which it builds if that is out of date.
///
/// Cargo tells a test the paths of the programs of its own package only. So this function asks cargo to build a test of
/// the binary's package, which builds the binary exactly as `cargo test --workspace` does: after that command nothing
/// is left to build.
pub fn program() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let profile = test.ancestors().nth(2).context("tests are in target/<profile>/deps")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--quiet", "--workspace", "--no-run", "--test", "front_door", "--target-dir"]);
    cargo.arg(profile.parent().context("profiles are in the target directory")?);
    cargo.args(profile.ends_with("release").then_some("--release"));
    // Build scripts would see these variables of this test's package as a change, and cargo would rebuild everything.
    let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(told)) {
        cargo.env_remove(name);
    }
    let built = cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).output()?;
    if !built.status.success() {
        bail!("cargo cannot build holon: {}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(profile.join("holon"))
}
