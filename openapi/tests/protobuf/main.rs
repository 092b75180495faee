//! Kubernetes objects in protobuf: what clients really send, what Kubernetes publishes for others to check
//! themselves against, what a real kube-apiserver answers, and what nobody should send.

mod captured;
mod fixtures;
mod hostile;
mod real;
