# The daily commands. `just` lists them; each is one line that also works without just.

_default:
    @just --list

# A logical cluster with two stand-in clusters; prints what to type next
dev:
    cargo run --release -- dev

# Every test; those that need real programs are reported as ignored
test:
    cargo test --workspace

# The tests that need real programs, which `just peers` installs
test-ignored:
    cargo test --workspace -- --ignored

# The tests of one file that contain a word: `just one spread moving`
one suite filter="":
    cargo test --workspace --test {{suite}} -- {{filter}}

# Unit tests only: seconds
unit:
    cargo test --workspace --lib

# Format and lint
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets -- -D warnings

# Real etcd, kubectl, Kubernetes, operators and clients, for the ignored tests
peers:
    hack/peers

# Everything that a commit must pass
ci:
    .ci/run

# The API server beside kube-apiserver, the store beside etcd
bench what="api":
    hack/bench {{what}}
