//! Random changes, cuts, kills and restarts: at the end the cluster matches the last change.

use std::time::Duration;

use serde_json::{Value, json};
use standin::{Clock, Delays, Link, Options, ResponseFault};

use crate::common::{APPS, BATCH, CORE, TestCluster, deployment, is_true, job, template};

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // Xorshift: any generator works if it is reproducible.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[tokio::test]
async fn the_cluster_converges_to_the_last_change() {
    let clock = Clock::held();
    let second = Duration::from_secs(1);
    let delays = Delays { schedule: second, start: second, ready: second, run: second, stop: second };
    let mut cluster =
        TestCluster::with(Options { clock: clock.clone(), delays, ..Options::new("east") }).await;
    let path = format!("{APPS}/deployments/web");
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 3, json!({}))).await;
    cluster
        .create(&format!("{BATCH}/jobs"), job("once", json!({"completions": 6, "parallelism": 2}), json!({})))
        .await;
    let mut random = Random(0x5eed);
    let mut image = String::from("nginx:1");
    for round in 0..60 {
        match random.below(7) {
            0 => drop(cluster.merge(&path, json!({"spec": {"replicas": random.below(6)}})).await),
            1 => {
                image = format!("nginx:{}", random.below(4));
                cluster.merge(&path, json!({"spec": {"template": template("web", &image, json!({}))}})).await;
            }
            2 => {
                let pods = cluster.names(&format!("{CORE}/pods")).await;
                if let Some(pod) = pods.get(random.below(8) as usize) {
                    let _ = cluster.request("DELETE", &format!("{CORE}/pods/{pod}"), Value::Null).await;
                }
            }
            3 => {
                cluster.standin.kill().await;
                cluster.standin.restart().await.unwrap();
            }
            4 => {
                cluster.standin.faults().set_link(Link::Cut);
                assert!(cluster.request("GET", &path, Value::Null).await.is_err());
                cluster.standin.faults().clear();
            }
            5 => {
                cluster.standin.faults().inject(ResponseFault::LostResponse, 50);
                let _ = cluster
                    .request("PATCH", &path, json!({"metadata": {"labels": {"round": round.to_string()}}}))
                    .await;
                cluster.standin.faults().clear();
            }
            _ => {}
        }
        clock.advance(Duration::from_secs(random.below(4)));
        tokio::task::yield_now().await;
    }
    cluster.merge(&path, json!({"spec": {"replicas": 4}})).await;
    // Time advances while the test waits.
    let waiting = async {
        let is_converged = |web: &Value| {
            let all = ["replicas", "updatedReplicas", "availableReplicas"];
            all.iter().all(|field| web["status"][field] == 4)
                && web["status"]["observedGeneration"] == web["metadata"]["generation"]
        };
        cluster.until(&path, is_converged).await;
        cluster.until(&format!("{BATCH}/jobs/once"), |once| is_true(once, "Complete")).await
    };
    let passing = async {
        loop {
            clock.advance(second);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let once = tokio::select! {
        once = waiting => once,
        () = passing => unreachable!("the clock advances until the test ends"),
    };
    assert_eq!(once["status"]["succeeded"], 6, "{once}");
    let pods = cluster.get(&format!("{CORE}/pods?labelSelector=app=web")).await;
    let images =
        pods["items"].as_array().unwrap().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let images: Vec<&Value> = images.map(|pod| &pod["spec"]["containers"][0]["image"]).collect();
    assert_eq!(images, vec![&json!(image); 4]);
}
