//! Real kubectls, the newest and the oldest we promise.

#[path = "../common/mod.rs"]
mod common;
mod first_day;

#[test]
fn a_first_day_with_the_newest_kubectl() {
    first_day::told_with("kubectl");
}

#[test]
fn a_first_day_with_an_older_kubectl() {
    first_day::told_with("kubectl-1.32");
}
