//! Sends the same requests to Holon and to a real kube-apiserver: the responses must agree.
//!
//! Requests are data: the corpus of valid manifests (`test/corpus`), and tables of unusual ones (`test/requests/*.txt`,
//! in a small language that [`requests`] parses). Status codes, warnings and bodies are compared. Where Holon differs
//! on purpose, `test/requests/exceptions.txt` gives the reason; an unused exception fails the test like a difference does.

#[path = "../common/mod.rs"]
mod common;
#[path = "../comparison/mod.rs"]
mod comparison;

mod requests;

use common::repository;
use comparison::exceptions::Exceptions;
use comparison::{ComparedServers, RequestStep};

#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn holon_responds_like_a_kube_apiserver() {
    let mut servers = ComparedServers::start();
    let directory = repository().join("test/requests");
    let mut exceptions = Exceptions::read(&directory.join("exceptions.txt"));
    let (mut compared, mut equal, mut unexplained) = (0, 0, Vec::new());
    let mut stories = requests::tables(&directory);
    stories.extend(requests::corpus(&repository().join("test/corpus")));
    for story in stories {
        servers.start_story(&story.name);
        for step in &story.steps {
            compared += 1;
            let mut differences = servers.compare(step);
            equal += usize::from(differences.is_empty());
            differences.retain(|difference| !exceptions.explain(&story.name, &step.summary, difference));
            if !differences.is_empty() {
                unexplained.push(report(&story.name, step, &differences));
            }
        }
    }
    println!(
        "{compared} compared, {equal} equal, {} explained by {} exceptions, {} unexplained",
        compared - equal - unexplained.len(),
        exceptions.len(),
        unexplained.len()
    );
    let unused = exceptions.unused();
    assert!(compared >= 400, "only {compared} requests");
    assert!(unexplained.is_empty(), "{} unexplained:\n{}", unexplained.len(), unexplained.join("\n"));
    assert!(unused.is_empty(), "exceptions that explain no difference:\n{}", unused.join("\n"));
}

fn report(story: &str, step: &RequestStep, differences: &[String]) -> String {
    /// How many differences of a body are reported.
    const REPORTED_MAX: usize = 6;
    let reported: Vec<_> = differences.iter().take(REPORTED_MAX).map(|line| format!("    {line}")).collect();
    let summary: String = step.summary.chars().take(300).collect();
    format!("{story}: {summary}\n{}", reported.join("\n"))
}
