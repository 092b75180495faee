//! Tasks with names and a parent.
//!
//! A task that ends unnoticed is worse than a crash: the process looks healthy and does nothing. So every task of Holon
//! is spawned in a group, which is stopped and joined as a whole. As soon as one of its tasks ends without a stop
//! request, the group fails and ends the other tasks. Only this module spawns tasks.
//!
//! ```text
//!   let mut tasks = Tasks::new();
//!   let stop = tasks.stop();                  // completes when a task should stop
//!   tasks.spawn_beneath("feed", feed());      // the others depend on it: runs until all of them have ended
//!   tasks.spawn("server", serve(stop));       // runs until the stop request
//!   tasks.run_until(signal, grace).await?     // stops and joins; Err names the task that ended, and why
//! ```

mod dynamic;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

pub use dynamic::{KeyedTasks, StreamTasks};

/// The task that ended without a stop request, and how.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("task {name} ended without a stop request")]
    Ended { name: String },
    #[error("task {name} failed: {reason}")]
    Failed { name: String, reason: String },
    #[error("task {name} panicked: {reason}")]
    Panicked { name: String, reason: String },
    #[error("{} did not stop within {within:?}: {}", if names.len() == 1 { "a task" } else { "tasks" }, names.join(", "))]
    Stuck { names: Vec<String>, within: Duration },
}

/// A group of named tasks that end together. Dropping it aborts its tasks.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<Result<(), String>>,
    names: HashMap<Id, String>,
    /// Tasks that the others depend on.
    beneath: HashSet<Id>,
    stop: watch::Sender<bool>,
}

/// The stop request of a group. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Returns once the group is stopped or dropped.
    pub async fn requested(&mut self) {
        // An error means that the group was dropped, which stops its tasks too.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    pub fn new() -> Tasks {
        let (names, beneath) = (HashMap::new(), HashSet::new());
        Tasks { set: JoinSet::new(), names, beneath, stop: watch::Sender::new(false) }
    }

    pub fn stop(&self) -> Stop {
        Stop(self.stop.subscribe())
    }

    /// Starts a task that runs until the group stops. If it ends earlier, with or without an error, the group ends.
    pub fn spawn<E: fmt::Display>(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.start(name, task);
    }

    /// Starts a task that the others need until they have stopped, because their last writes go through it. It does not
    /// get a stop request, and is aborted when all others have ended.
    pub fn spawn_beneath<E: fmt::Display>(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let id = self.start(name, task);
        self.beneath.insert(id);
    }

    fn start<E: fmt::Display>(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Id {
        // Formatted here, where the task's own error type is still known.
        let task = async { task.await.map_err(|error| error.to_string()) };
        let id = self.set.spawn(task).id();
        self.names.insert(id, name.into());
        id
    }

    /// Runs until `shutdown` completes, then stops all tasks and waits for them, `grace` at most. Returns early, with
    /// the task's name, if a task ends by itself.
    pub async fn run_until(
        mut self,
        shutdown: impl Future<Output = ()>,
        grace: Duration,
    ) -> Result<(), TaskError> {
        let ended = {
            let mut shutdown = std::pin::pin!(shutdown);
            tokio::select! {
                () = &mut shutdown => None,
                Some(ended) = self.set.join_next_with_id() => Some(ended),
            }
        };
        if let Some(ended) = ended {
            return Err(self.describe(ended));
        }
        self.stop.send_replace(true);
        self.drain(grace).await
    }

    async fn drain(&mut self, grace: Duration) -> Result<(), TaskError> {
        let drained = tokio::time::timeout(grace, async {
            while self.set.len() > self.beneath.len() {
                let Some(ended) = self.set.join_next_with_id().await else { break };
                match ended {
                    Ok((id, Ok(()))) if !self.beneath.contains(&id) => drop(self.names.remove(&id)),
                    failed => return Err(self.describe(failed)),
                }
            }
            Ok(())
        });
        match drained.await {
            Ok(outcome) => outcome,
            Err(_) => {
                let stuck = self.names.iter().filter(|(id, _)| !self.beneath.contains(id));
                let mut names: Vec<String> = stuck.map(|(_, name)| name.clone()).collect();
                names.sort();
                Err(TaskError::Stuck { names, within: grace })
            }
        }
    }

    fn describe(&mut self, ended: Result<(Id, Result<(), String>), JoinError>) -> TaskError {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let name = self.names.remove(&id).unwrap_or_else(|| "unnamed".to_owned());
        match ended {
            Ok((_, Ok(()))) => TaskError::Ended { name },
            Ok((_, Err(reason))) => TaskError::Failed { name, reason },
            Err(error) => TaskError::Panicked { name, reason: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::future::{pending, ready};

    const GRACE: Duration = Duration::from_millis(50);

    async fn forever() -> Result<(), Infallible> {
        pending().await
    }

    #[tokio::test]
    async fn a_task_that_ends_by_itself_ends_the_group_and_is_named() {
        let check = async |task: std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send>>,
                           expected: &str| {
            let mut tasks = Tasks::new();
            tasks.spawn("steady", forever());
            tasks.spawn("feed", task);
            let message = tasks.run_until(pending(), GRACE).await.unwrap_err().to_string();
            assert!(message.contains("feed") && message.contains(expected), "{message}");
        };
        check(Box::pin(ready(Ok(()))), "without a stop request").await;
        check(Box::pin(ready(Err("no route".to_owned()))), "failed: no route").await;
        check(Box::pin(async { panic!("at the disco") }), "panicked").await;
    }

    #[tokio::test]
    async fn a_group_that_is_stopped_waits_for_its_tasks() {
        let mut tasks = Tasks::new();
        let mut stop = tasks.stop();
        let (done, finished) = tokio::sync::oneshot::channel();
        tasks.spawn("writer", async move {
            stop.requested().await;
            done.send("last words").map_err(|_| "the receiver is gone")
        });
        tasks.run_until(ready(()), Duration::from_secs(5)).await.unwrap();
        assert_eq!(finished.await, Ok("last words"));
    }

    /// Regression: a server stopped the feed of its store while other tasks still had to write their last state.
    #[tokio::test]
    async fn a_task_beneath_runs_until_the_others_have_ended() {
        let mut tasks = Tasks::new();
        let (mut stop, (requests_sender, mut requests)) =
            (tasks.stop(), tokio::sync::mpsc::channel::<tokio::sync::oneshot::Sender<()>>(1));
        tasks.spawn_beneath("store", async move {
            while let Some(answer) = requests.recv().await {
                let _ = answer.send(());
            }
            pending::<Result<(), Infallible>>().await
        });
        tasks.spawn("writer", async move {
            stop.requested().await;
            let (answer, answered) = tokio::sync::oneshot::channel();
            requests_sender.send(answer).await.map_err(|_| "the store has ended")?;
            answered.await.map_err(|_| "the store does not answer")
        });
        tasks.run_until(ready(()), Duration::from_secs(5)).await.unwrap();
        // A task beneath that ends by itself ends the group too.
        let mut tasks = Tasks::new();
        tasks.spawn_beneath("store", ready(Err::<(), _>("no route")));
        tasks.spawn("steady", forever());
        let message = tasks.run_until(pending(), GRACE).await.unwrap_err().to_string();
        assert!(message.contains("store") && message.contains("no route"), "{message}");
    }

    #[tokio::test]
    async fn a_task_that_does_not_stop_is_named() {
        let mut tasks = Tasks::new();
        tasks.spawn("deaf", forever());
        let message = tasks.run_until(ready(()), GRACE).await.unwrap_err().to_string();
        assert!(message.contains("deaf") && message.contains("50ms"), "{message}");
    }
}
