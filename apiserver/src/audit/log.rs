//! The audit log file: a queue, a thread that writes, and rotated files.
//!
//! ```text
//!   request ─► line ─► queue (bounded) ─► thread ─► audit.log ─► audit.log.1 ─► … ─► audit.log.10 ─► deleted
//! ```
//!
//! Requests do not wait for the disk. If the disk cannot keep up, lines are lost, and the next line that is written
//! contains their number. Lines about unauthenticated clients are limited to a few a second: otherwise any client could
//! fill the disk, or push out the lines about others.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::Value;

/// Maximum size of the queue.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// The part of it that lines about unauthenticated clients may use.
const ANONYMOUS_BYTES_MAX: usize = WAITING_BYTES_MAX / 4;
/// The burst and rate of lines about unauthenticated clients. At half a kilobyte each that is half a gigabyte a day,
/// half of what is kept.
const ANONYMOUS_BURST: f64 = 100.0;
const ANONYMOUS_PER_SECOND: f64 = 10.0;
/// A larger file is rotated. All files together have about a gigabyte.
const FILE_BYTES_MAX: u64 = 100 << 20;
const FILES_MAX: usize = 10;

#[derive(Debug)]
pub(super) struct Log {
    /// None while the log is being dropped.
    lines: Option<Sender<String>>,
    waiting: Arc<AtomicUsize>,
    lost: AtomicU64,
    anonymous: Mutex<Allowance>,
    writer: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens a file for appending. A new file is readable only by its owner.
    pub(super) fn open(path: &Path) -> io::Result<Log> {
        Log::rotating(path, FILE_BYTES_MAX)
    }

    fn rotating(path: &Path, bytes_max: u64) -> io::Result<Log> {
        let mut file = Rotating { file: opened(path)?, path: path.to_owned(), bytes_max, written: 0 };
        let (sender, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let writer = std::thread::Builder::new().name("audit".to_owned());
        let counted = waiting.clone();
        let writer = writer.spawn(move || write(&mut file, &receiver, &counted))?;
        let mut log = Log::over(sender, waiting);
        log.writer = Some(writer);
        Ok(log)
    }

    fn over(lines: Sender<String>, waiting: Arc<AtomicUsize>) -> Log {
        let anonymous = Mutex::new(Allowance { tokens: ANONYMOUS_BURST, at: Instant::now() });
        Log { lines: Some(lines), waiting, lost: AtomicU64::new(0), anonymous, writer: None }
    }

    pub(super) fn send(&self, mut line: Value, is_anonymous: bool) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line["lost"] = lost.into();
        }
        if !self.pushed(format!("{line}\n"), is_anonymous) {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    /// Adds a line to the queue. Returns false if it has no room.
    fn pushed(&self, line: String, is_anonymous: bool) -> bool {
        let max = if is_anonymous { ANONYMOUS_BYTES_MAX } else { WAITING_BYTES_MAX };
        let is_too_often =
            || !self.anonymous.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        if self.waiting.load(Ordering::Relaxed) + line.len() > max || is_anonymous && is_too_often() {
            return false;
        }
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        self.lines.as_ref().is_some_and(|lines| lines.send(line).is_ok())
    }
}

impl Drop for Log {
    /// Writes all queued lines.
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// A token bucket: a burst, then a rate.
#[derive(Debug)]
struct Allowance {
    tokens: f64,
    at: Instant,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * ANONYMOUS_PER_SECOND).min(ANONYMOUS_BURST);
        self.at = now;
        let has = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(has));
        has
    }
}

/// Writes lines until the last sender is dropped.
fn write(file: &mut Rotating, lines: &Receiver<String>, waiting: &AtomicUsize) {
    while let Ok(first) = lines.recv() {
        // All queued lines are written together.
        let mut together = std::iter::once(first).chain(lines.try_iter());
        let written = together.try_for_each(|line| {
            waiting.fetch_sub(line.len(), Ordering::Relaxed);
            file.put(&line)
        });
        if let Err(error) = written.and_then(|()| file.finish()) {
            tracing::error!(%error, "cannot write the audit log");
        }
    }
}

struct Rotating {
    file: BufWriter<File>,
    path: PathBuf,
    bytes_max: u64,
    /// Bytes written since the length of the file was last read.
    written: u64,
}

impl Rotating {
    fn put(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())?;
        self.written += line.len() as u64;
        // Another process may have truncated the file or appended to it.
        if self.written >= self.bytes_max / 16 {
            self.file.flush()?;
            self.written = 0;
            if self.file.get_ref().metadata()?.len() >= self.bytes_max {
                self.put_aside()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Rotates the files: `log` becomes `log.1`, `log.1` becomes `log.2`, and the last one is deleted.
    fn put_aside(&mut self) -> io::Result<()> {
        let aside = |number: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..FILES_MAX).rev() {
            match std::fs::rename(aside(number), aside(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, aside(1))?;
        self.file = opened(&self.path)?;
        Ok(())
    }
}

fn opened(path: &Path) -> io::Result<BufWriter<File>> {
    let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    Ok(BufWriter::new(file))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_dropped_and_counted() {
        let (sender, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(WAITING_BYTES_MAX));
        let log = Log::over(sender, waiting.clone());
        log.send(json!({}), false);
        log.send(json!({}), false);
        waiting.store(0, Ordering::Relaxed);
        log.send(json!({}), false);
        assert_eq!(receiver.recv().unwrap(), "{\"lost\":2}\n");
    }

    /// Without the limit any client could fill the disk, with a line of any length for each request.
    #[test]
    fn anonymous_clients_get_few_lines_and_others_are_not_limited() {
        let (sender, receiver) = channel();
        let log = Log::over(sender, Arc::default());
        for _ in 0..10_000 {
            log.send(json!({}), true);
        }
        let written = receiver.try_iter().count();
        assert!((100..200).contains(&written), "{written}");
        log.send(json!({}), false);
        assert!(receiver.recv().unwrap().starts_with("{\"lost\":9"));
        log.waiting.store(ANONYMOUS_BYTES_MAX, Ordering::Relaxed);
        log.anonymous.lock().unwrap().at -= Duration::from_secs(60);
        log.send(json!({}), true);
        log.send(json!({}), false);
        assert_eq!(receiver.recv().unwrap(), "{\"lost\":1}\n");
    }

    #[test]
    fn a_large_file_is_rotated_and_the_oldest_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let log = Log::rotating(&file, 1000).unwrap();
        let line = "x".repeat(88);
        for number in 0..400 {
            log.send(json!({ line.as_str(): number }), false);
        }
        drop(log);
        let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap()).collect();
        names.sort_by_key(|file| file.file_name());
        assert_eq!(names.len(), 1 + FILES_MAX, "{names:?}");
        assert!(names.iter().all(|file| file.metadata().unwrap().len() < 1200));
        let newest = std::fs::read_to_string(dir.path().join("log.1")).unwrap();
        let oldest = std::fs::read_to_string(dir.path().join("log.10")).unwrap();
        let first = |text: &str| serde_json::from_str::<Value>(text.lines().next().unwrap()).unwrap();
        assert!(first(&newest)[&line].as_u64() > first(&oldest)[&line].as_u64());
    }
}
