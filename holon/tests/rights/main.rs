//! Authorization, through the API: users with tokens, certificates and kubeconfigs of their own.

mod accounts;
mod audit;
#[path = "../common/bind.rs"]
mod bind;
#[path = "../common/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod escalation;
mod impersonation;
mod isolation;
mod like_kubernetes;
mod mistakes;
mod people;
mod quotas;
mod reach;
mod requests;
mod revocation;
mod several;

use client::{Answer, Client};
use common::Server;
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A server with some users in its token file.
struct World {
    server: Server,
    admin: Client,
}

impl World {
    fn new() -> World {
        World::with(&[])
    }

    /// The same with additional options of the server.
    fn with(options: &[&str]) -> World {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens.csv");
        let people =
            ["ann", "bob", "eve", "lead", "viewer"].map(|name| format!("token-of-{name},{name},1\n"));
        std::fs::write(&file, people.concat()).unwrap();
        let server =
            Server::start_in(dir, &[&["--token-auth-file", file.to_str().unwrap()], options].concat());
        let admin = Client::new(&server, true);
        World { server, admin }
    }

    /// Returns the client of a user with a token.
    fn user(&self, name: &str) -> Client {
        Client::new(&self.server, false).with(&format!("Authorization: Bearer token-of-{name}"))
    }

    /// Creates a logical cluster in the root and returns its path.
    fn cluster(&self, name: &str) -> String {
        self.inner("", name);
        format!("/clusters/root:{name}")
    }

    fn inner(&self, above: &str, name: &str) {
        let path = format!("{above}/apis/holon.dev/v1alpha1/logicalclusters");
        let made = self.admin.ask("POST", &path, &json!({ "metadata": { "name": name } }));
        assert_eq!(made.code, 201, "{}", made.body);
    }

    /// Creates a cluster role in a logical cluster.
    fn role(&self, cluster: &str, name: &str, rules: Value) {
        let body = json!({ "metadata": { "name": name }, "rules": rules });
        let made = self.admin.ask("POST", &format!("{cluster}/apis/{GROUP}/v1/clusterroles"), &body);
        assert_eq!(made.code, 201, "{}", made.body);
    }
}

/// Expects this status code and message.
#[track_caller]
fn told(answer: &Answer, code: u16, message: &str) {
    assert_eq!((answer.code, answer.json()["message"].as_str().unwrap_or_default()), (code, message));
    assert_eq!(answer.header("Content-Type"), "application/json");
}
