//! Writers that create, change and delete at random, and continue when the server is unreachable.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::task::JoinSet;

use crate::objects::{ObjectKind, request, version};
use crate::{CONFIG_MAPS, OTHERS};

/// Requests in flight at once.
const TOGETHER: usize = 16;

#[derive(Clone)]
pub(crate) struct Writers {
    client: Client,
    seed: u64,
    /// The number of acknowledged writes.
    done: Arc<AtomicUsize>,
    /// The acknowledged versions of created or changed ConfigMaps.
    versions: Arc<Mutex<BTreeSet<u64>>>,
}

impl Writers {
    pub(crate) fn new(client: Client) -> Writers {
        // The choice of objects differs from run to run; no assertion depends on it.
        let seed = rand::random();
        println!("writers begin with the seed {seed}");
        Writers { client, seed, done: Arc::default(), versions: Arc::default() }
    }

    pub(crate) fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn versions(&self) -> BTreeSet<u64> {
        self.versions.lock().unwrap().clone()
    }

    /// Creates all objects.
    pub(crate) async fn create_all(&self) {
        let named = |kind: ObjectKind, count: usize| (0..count).map(move |number| (kind, number));
        let all: Vec<_> = ObjectKind::ALL.into_iter().flat_map(|kind| named(kind, count(kind))).collect();
        let mut tasks = JoinSet::new();
        for chunk in all.chunks(all.len().div_ceil(TOGETHER)) {
            let (writers, chunk) = (self.clone(), chunk.to_vec());
            tasks.spawn(async move {
                for (kind, number) in chunk {
                    let created = writers.create(kind, number, "first").await;
                    created.unwrap_or_else(|error| panic!("creating {kind:?} {number}: {error:#}"));
                }
            });
        }
        tasks.join_all().await;
    }

    /// Writes until so many more writes were acknowledged.
    pub(crate) async fn write(&self, more: usize) {
        let until = self.done() + more;
        let mut tasks = JoinSet::new();
        for writer in 0..TOGETHER {
            let (writers, mut random) =
                (self.clone(), StdRng::seed_from_u64(self.seed + (until + writer) as u64));
            tasks.spawn(async move {
                while writers.done() < until {
                    writers.write_one(&mut random).await;
                }
            });
        }
        tasks.join_all().await;
    }

    async fn write_one(&self, random: &mut StdRng) {
        let kind = [ObjectKind::ConfigMap, ObjectKind::ConfigMap, ObjectKind::Secret, ObjectKind::Pod]
            [random.random_range(0..4)];
        // A few more names than objects, so that some writes create.
        let number = random.random_range(0..count(kind) + count(kind) / 20);
        let value = format!("v{}", random.random::<u32>());
        let path = format!("{}/{}", kind.path(), name(number));
        let written = match random.random_range(0..10) {
            0..6 => request(&self.client, "PATCH", &path, Some(&kind.with(&value))).await.map(|created| {
                self.acknowledged(kind, version(&created));
            }),
            6..8 => self.create(kind, number, &value).await,
            _ => request(&self.client, "DELETE", &path, None).await.map(|_| ()),
        };
        match written {
            Ok(()) => drop(self.done.fetch_add(1, Ordering::Relaxed)),
            // The object exists already, or does not exist: this counts as done.
            Err(error) if error.downcast_ref().is_some_and(is_answer) => {}
            // The server is unreachable. Whether the write happened is unknown.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }

    async fn create(&self, kind: ObjectKind, number: usize, value: &str) -> anyhow::Result<()> {
        let mut object = kind.with(value);
        object["metadata"] = json!({ "name": name(number) });
        let created = request(&self.client, "POST", &kind.path(), Some(&object)).await?;
        self.acknowledged(kind, version(&created));
        Ok(())
    }

    fn acknowledged(&self, kind: ObjectKind, version: Option<u64>) {
        if kind == ObjectKind::ConfigMap {
            self.versions.lock().unwrap().extend(version);
        }
    }
}

fn is_answer(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(_))
}

fn count(kind: ObjectKind) -> usize {
    if kind == ObjectKind::ConfigMap { CONFIG_MAPS } else { OTHERS }
}

fn name(number: usize) -> String {
    format!("m-{number:05}")
}
