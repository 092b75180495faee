//! Authorization, through the API: users with tokens, certificates and kubeconfigs of their own.

mod accounts;
mod audit;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod escalation;
mod impersonation;
mod isolation;
mod like_kubernetes;
mod people;
mod quotas;
mod reach;
mod regressions;
mod requests;
mod revocation;
mod several;

use serde_json::{Value, json};
use testkit::{Answer, Client, Server};

use common::HOLON;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A server with some users in its token file.
struct TestServer {
    server: Server,
    admin: Client,
}

impl TestServer {
    fn start() -> TestServer {
        TestServer::start_with(&[])
    }

    /// The same with additional options of the server.
    fn start_with(options: &[&str]) -> TestServer {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens.csv");
        let users = ["ann", "bob", "eve", "lead", "viewer"].map(|name| format!("token-of-{name},{name},1\n"));
        std::fs::write(&file, users.concat()).unwrap();
        let options = [&["--token-auth-file", file.to_str().unwrap()], options].concat();
        let server = Server::start_in(HOLON, dir, &options);
        TestServer { admin: Client::admin(&server), server }
    }

    /// Returns the client of a user with a token.
    fn user(&self, name: &str) -> Client {
        Client::anonymous(&self.server).with(&format!("Authorization: Bearer token-of-{name}"))
    }

    /// Creates a cluster role in a logical cluster.
    fn create_role(&self, cluster: &str, name: &str, rules: Value) {
        let body = json!({ "metadata": { "name": name }, "rules": rules });
        self.admin.create(&format!("{cluster}/apis/{GROUP}/v1/clusterroles"), &body);
    }
}

/// Expects this status code and message.
#[track_caller]
fn check_status(answer: &Answer, code: u16, message: &str) {
    assert_eq!((answer.code, answer.json()["message"].as_str().unwrap_or_default()), (code, message));
    assert_eq!(answer.header("Content-Type"), "application/json");
}
