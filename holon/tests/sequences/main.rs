//! Several clients change one object in every possible way, on Holon and on a real kube-apiserver: after each step both
//! must give the same response, including managed fields.
//!
//! The steps are generated from tables ([`kinds`]) and a seed ([`make`]), so a failed sequence can be repeated and
//! shortened by hand:
//!
//! ```text
//! HOLON_SEED=17 HOLON_STEPS=0,2,5 cargo test -p holon --test sequences -- --ignored
//! ```
//!
//! Where Holon differs on purpose, `test/sequences/exceptions.txt` gives the reason. Two real servers are compared as well: if
//! their responses differed, the masks would be incomplete, and the differences found with them meaningless.

#[path = "../common/mod.rs"]
mod common;
#[path = "../comparison/mod.rs"]
mod comparison;

mod kinds;
mod make;
mod random;

use std::time::Duration;

use common::repository;
use comparison::exceptions::Exceptions;
use comparison::{ComparedServers, RequestStep};
use kinds::KindTable;
use testkit::peers::Request;

/// The number of sequences over all kinds: 40 of each.
const SEQUENCES: u64 = 320;
/// Enough to see every kind of change to each kind of object.
const SEQUENCES_ALIKE: u64 = 48;

#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn sequences_of_changes_have_the_responses_of_a_kube_apiserver() {
    let servers = ComparedServers::start();
    let mut exceptions = Exceptions::read(&repository().join("test/sequences/exceptions.txt"));
    let differences = differences(servers, SEQUENCES, &mut exceptions);
    assert!(differences.is_empty(), "{} sequences differ:\n\n{}", differences.len(), differences.join("\n"));
    let unused = exceptions.unused();
    assert!(
        numbers_from_env::<u64>("HOLON_SEED").is_some() || unused.is_empty(),
        "exceptions that explain no difference:\n{}",
        unused.join("\n")
    );
}

#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn two_kube_apiservers_respond_alike() {
    let servers = ComparedServers::start_alike();
    let differences = differences(servers, SEQUENCES_ALIKE, &mut Exceptions::none());
    assert!(differences.is_empty(), "{} sequences differ:\n\n{}", differences.len(), differences.join("\n"));
}

/// Returns the sequences whose responses differed, each up to the step that did.
fn differences(mut servers: ComparedServers, sequences: u64, exceptions: &mut Exceptions) -> Vec<String> {
    let kinds = kinds::read(&repository().join("test/sequences"));
    servers.start_story("sequences");
    for kind in &kinds {
        define(&servers, kind);
    }
    let seeds: Vec<u64> = numbers_from_env("HOLON_SEED").unwrap_or_else(|| (0..sequences).collect());
    let (mut differences, mut compared) = (Vec::new(), 0);
    for seed in &seeds {
        let kind = &kinds[usize::try_from(*seed).expect("a small number") % kinds.len()];
        let mut steps = make::sequence(kind, *seed);
        if let Some(selected) = numbers_from_env::<usize>("HOLON_STEPS") {
            let all = std::mem::take(&mut steps).into_iter().enumerate();
            steps = all.filter(|(number, _)| selected.contains(number)).map(|(_, step)| step).collect();
        }
        for (number, step) in steps.iter().enumerate() {
            compared += 1;
            let mut found = servers.compare(step);
            found.retain(|difference| !exceptions.explain(&kind.name, &step.summary, difference));
            if !found.is_empty() {
                differences.push(report(kind, *seed, &steps[..=number], &found));
                break;
            }
        }
    }
    println!("{} sequences, {compared} steps, {} differ", seeds.len(), differences.len());
    differences
}

/// Parses comma-separated numbers from an environment variable.
fn numbers_from_env<T: std::str::FromStr>(variable: &str) -> Option<Vec<T>> {
    let text = std::env::var(variable).ok()?;
    text.split(',').map(|number| number.trim().parse().ok()).collect()
}

/// Creates the definition of a custom kind on both servers.
fn define(servers: &ComparedServers, kind: &KindTable) {
    let Some(definition) = &kind.definition else { return };
    let body = definition.to_string();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for made in servers.both(&Request::json("POST", path, body.as_bytes())) {
        assert_eq!(made.code, 201, "{}", made.text());
    }
    let collection = kind.at.replace("{ns}", "default");
    // A kind is served some seconds after its definition was created, also on a machine that compiles.
    for _ in 0..300 {
        if servers.both(&Request::get(&collection)).iter().all(|answer| answer.code == 200) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{} is not served", kind.name);
}

fn report(kind: &KindTable, seed: u64, steps: &[RequestStep], differences: &[String]) -> String {
    /// How many differences of a body are reported.
    const REPORTED_MAX: usize = 8;
    let summaries: Vec<_> =
        steps.iter().enumerate().map(|(number, step)| format!("  {number} {}", step.summary)).collect();
    let reported: Vec<_> =
        differences.iter().take(REPORTED_MAX).map(|line| format!("      {line}")).collect();
    format!("{} HOLON_SEED={seed}\n{}\n{}", kind.name, summaries.join("\n"), reported.join("\n"))
}
