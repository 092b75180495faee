use std::sync::{Arc, Mutex};

use super::*;
use crate::fake_server;

/// A server with one lease, and a switch that makes it unavailable.
#[derive(Clone, Default)]
struct LeaseServer(Arc<Mutex<(Option<Value>, u64, bool)>>);

impl LeaseServer {
    fn remote(&self) -> Remote {
        let server = self.clone();
        fake_server::remote(move |method, _, body| server.answer(method, body))
    }

    fn answer(&self, method: &str, body: &[u8]) -> (u16, String) {
        let mut state = self.0.lock().unwrap();
        if state.2 {
            return (503, String::new());
        }
        if method != "GET" {
            let mut lease: Value = serde_json::from_slice(body).unwrap();
            let before =
                state.0.as_ref().map_or(Value::Null, |lease| lease["metadata"]["resourceVersion"].clone());
            if lease["metadata"]["resourceVersion"] != before {
                return (409, String::new());
            }
            state.1 += 1;
            lease["metadata"]["resourceVersion"] = state.1.to_string().into();
            state.0 = Some(lease);
        }
        match &state.0 {
            Some(lease) => (200, lease.to_string()),
            None => (404, String::new()),
        }
    }

    fn cut(&self, cut: bool) {
        self.0.lock().unwrap().2 = cut;
    }

    fn lease(&self, holder: &str) -> Lease {
        Lease::new(self.remote(), "kube-system", "holon-syncer", holder)
    }
}

/// Observes the leases every second.
async fn live(leases: &[&Lease], seconds: u64) -> Vec<Vec<bool>> {
    let mut seen = Vec::new();
    let watching = async {
        for _ in 0..seconds {
            sleep(Duration::from_secs(1)).await;
            seen.push(leases.iter().map(|lease| lease.leads()).collect());
        }
    };
    let holding = futures::future::join_all(leases.iter().map(|lease| lease.hold(|_| ())));
    tokio::select! {
        () = watching => {}
        _ = holding => {}
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn one_process_leads_and_the_other_takes_over_when_it_stops_renewing() {
    let server = LeaseServer::default();
    let (first, second) = (server.lease("first"), server.lease("second"));
    assert!(live(&[&first], 5).await.iter().all(|led| led[0]));
    let both = live(&[&first, &second], 120).await;
    assert!(both.iter().all(|led| led == &[true, false]), "{both:?}");
    assert_eq!(second.other().as_deref(), Some("first"));
    // The first stops without a release. For a while no process leads; two never do.
    let after = live(&[&second], 60).await;
    let taken = after.iter().position(|led| led[0]).unwrap();
    assert!((20..=33).contains(&taken), "{taken}");
    assert!(!first.leads() && second.other().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_before_another_may_begin() {
    let server = LeaseServer::default();
    let first = server.lease("first");
    assert!(live(&[&first], 15).await.iter().all(|led| led[0]));
    server.cut(true);
    let led = live(&[&first], 40).await;
    let stopped = led.iter().position(|led| !led[0]).unwrap();
    assert!(stopped <= 20, "{stopped}");
    assert!(led[stopped..].iter().all(|led| !led[0]));
    server.cut(false);
    // The lease still belongs to it, because no other process acquired it.
    assert!(live(&[&first], 5).await.last().unwrap()[0]);
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_can_be_taken_at_once() {
    let server = LeaseServer::default();
    let (first, second) = (server.lease("first"), server.lease("second"));
    live(&[&first], 5).await;
    assert!(first.release().await.unwrap() && !first.leads());
    assert!(live(&[&second], 3).await[0][0]);
    let lease = server.0.lock().unwrap().0.clone().unwrap();
    assert_eq!(
        (&lease["spec"]["leaseTransitions"], &lease["spec"]["holderIdentity"]),
        (&json!(1), &json!("second"))
    );
    // A former holder cannot release the lease of another.
    assert!(!first.release().await.unwrap());
    assert!(live(&[&second], 2).await[1][0]);
}

/// The terms are safe only in relation to each other.
#[test]
fn a_new_holder_begins_after_the_last_calls_of_the_old_one_have_ended() {
    for terms in [Terms::STEADY, Terms::QUICK] {
        assert!(terms.writes + terms.patience < terms.expires, "{terms:?}");
        assert!(terms.renew + terms.patience < terms.writes, "{terms:?}");
        assert!(terms.expires.subsec_nanos() == 0, "it is written in seconds: {terms:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn on_quick_terms_a_killed_holder_is_replaced_within_ten_seconds() {
    let server = LeaseServer::default();
    let (first, second) = (server.lease("first").on(Terms::QUICK), server.lease("second").on(Terms::QUICK));
    assert!(live(&[&first], 5).await.iter().all(|led| led[0]));
    let both = live(&[&first, &second], 60).await;
    assert!(both.iter().all(|led| led == &[true, false]), "{both:?}");
    let after = live(&[&second], 20).await;
    let taken = after.iter().position(|led| led[0]).unwrap();
    assert!((4..=10).contains(&taken), "{taken}");
}

/// Regression: a holder that noticed the loss only at its next attempt kept writing until that attempt had failed.
#[tokio::test(start_paused = true)]
async fn a_lease_is_lost_in_time_when_the_server_does_not_answer() {
    let server = LeaseServer::default();
    let first = server.lease("first").on(Terms::QUICK);
    live(&[&first], 3).await;
    assert!(first.leads());
    let begun = Instant::now();
    first.lost().await;
    assert!(!first.leads() && begun.elapsed() <= Terms::QUICK.writes);
    // A lease that was never held is lost at once.
    server.lease("second").lost().await;
}
