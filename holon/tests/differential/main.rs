//! Sends the same requests to Holon and to a real kube-apiserver: the responses must agree.
//!
//! Requests are data: the corpus of valid manifests (`test/corpus`), and tables of unusual ones (`test/requests/*.txt`,
//! in a small language that [`requests`] parses). Status codes, warnings and bodies are compared. Where Holon differs
//! on purpose, `test/requests/exceptions.txt` says why; an unused exception fails the test like a difference does.

#[path = "../beside/mod.rs"]
mod beside;
#[path = "../common/mod.rs"]
mod common;

mod requests;

use beside::exceptions::Exceptions;
use beside::{Sides, Step};
use common::repository;

#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn holon_answers_as_a_kube_apiserver_does() {
    let mut sides = Sides::start();
    let directory = repository().join("test/requests");
    let mut exceptions = Exceptions::read(&directory.join("exceptions.txt"));
    let (mut compared, mut equal, mut unexplained) = (0, 0, Vec::new());
    let mut stories = requests::tables(&directory);
    stories.extend(requests::corpus(&repository().join("test/corpus")));
    for story in stories {
        sides.enter(&story.name);
        for step in &story.steps {
            compared += 1;
            let mut differences = sides.compare(step);
            equal += usize::from(differences.is_empty());
            differences.retain(|difference| !exceptions.explain(&story.name, &step.told, difference));
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
    let idle = exceptions.idle();
    assert!(compared >= 400, "only {compared} requests");
    assert!(unexplained.is_empty(), "{} unexplained:\n{}", unexplained.len(), unexplained.join("\n"));
    assert!(idle.is_empty(), "exceptions nobody needs any more:\n{}", idle.join("\n"));
}

fn report(story: &str, step: &Step, differences: &[String]) -> String {
    /// How many differences of a body are shown.
    const SHOWN: usize = 6;
    let shown: Vec<_> = differences.iter().take(SHOWN).map(|line| format!("    {line}")).collect();
    let told: String = step.told.chars().take(300).collect();
    format!("{story}: {told}\n{}", shown.join("\n"))
}
