//! Kubernetes objects in protobuf: requests of real clients, the published test data of Kubernetes, responses of a real
//! kube-apiserver, and malformed input.

mod captured;
mod fixtures;
mod hostile;
mod real;
