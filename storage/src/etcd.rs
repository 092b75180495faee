//! Several equal servers on one etcd.
