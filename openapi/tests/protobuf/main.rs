//! Kubernetes objects in protobuf: what clients really send, what Kubernetes publishes for others to check
//! themselves against, what a real kube-apiserver answers, and what nobody should send.

mod captured;
mod fixtures;
mod hostile;
mod peers;

/// Says that a test is skipped and why, past the harness, which hides what a passing test prints. Where peers
/// are required it fails instead.
fn skip(test: &str, needs: &str) {
    let told = format!("{test} needs {needs}; run hack/peers");
    assert!(std::env::var_os("HOLON_REQUIRE_PEERS").is_none(), "{told}");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("SKIPPED: {told}\n").as_bytes());
}
