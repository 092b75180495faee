//! TLS, client certificates, users.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Permission, PermissionType, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use storage::etcd::{ConnectError, Etcd, Options, Tls, User};
use storage::{CommitError, Expect, Key, Range, Store};
use tempfile::TempDir;

use crate::peer::{Etcd as Peer, Proxy};
use crate::{connect, create, describe, next_events, options, text_of, update, value};

/// A certificate authority, a member's certificate and a client's.
struct Certificates {
    folder: TempDir,
    ca: String,
    client: (String, String),
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let sign = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = CertificateParams::new(names).unwrap();
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
        };
        let folder = tempfile::tempdir().unwrap();
        // The name is not the host of the endpoint, so the client must be configured to expect it.
        let (certificate, key) = sign(&["etcd.example"]);
        let token = KeyPair::generate().unwrap();
        for (name, text) in [
            ("ca.pem", ca.pem()),
            ("member.pem", certificate),
            ("member.key", key),
            ("token.pub", token.public_key_pem()),
            ("token.key", token.serialize_pem()),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Certificates { folder, ca: ca.pem(), client: sign(&["holon"]) }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn tls(&self) -> Tls {
        let (certificate, key) = &self.client;
        Tls {
            ca: self.ca.clone().into(),
            identity: Some((certificate.clone().into(), key.clone().into())),
            server_name: Some("etcd.example".into()),
        }
    }

    /// Returns etcd's own client, to set up users.
    async fn administrator(&self, endpoint: &str, user: Option<(&str, &str)>) -> Client {
        let tls = TlsOptions::new()
            .ca_certificate(etcd_client::Certificate::from_pem(&self.ca))
            .identity(etcd_client::Identity::from_pem(&self.client.0, &self.client.1))
            .domain_name("etcd.example");
        let mut options = ConnectOptions::new().with_tls(tls);
        if let Some((name, password)) = user {
            options = options.with_user(name, password);
        }
        Client::connect([endpoint], Some(options)).await.unwrap()
    }
}

async fn refused(options: Options) -> String {
    let impatient = storage::etcd::Timeouts { overall: Duration::from_secs(1), ..options.timeouts };
    let error = Etcd::connect(Options { timeouts: impatient, ..options }).await.unwrap_err();
    let ConnectError::Unavailable { reason } = error else { panic!("{error}") };
    reason
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_store_behind_tls_and_a_password_is_reached_with_both_and_not_without() {
    let certificates = Certificates::new();
    let (ca, certificate) = (certificates.path("ca.pem"), certificates.path("member.pem"));
    let key = certificates.path("member.key");
    let mut flags = vec!["--client-cert-auth", "--trusted-ca-file", &ca, "--cert-file", &certificate];
    // Tokens last a second, so that the client must renew them during the test. They are signed (JWT), because such
    // tokens also become invalid with every change of a role.
    let (public, private) = (certificates.path("token.pub"), certificates.path("token.key"));
    let token = format!("jwt,pub-key={public},priv-key={private},sign-method=ES256,ttl=1s");
    flags.extend(["--key-file", &key, "--auth-token", &token]);
    let etcd = Peer::start_with("etcd", 1, "https", &flags).await;
    let endpoint = etcd.endpoint(0);
    set_up_users(&mut certificates.administrator(&endpoint, None).await).await;

    let user = |password: &str| Some(User { name: "holon".into(), password: password.into() });
    let trusted =
        || Options { tls: Some(certificates.tls()), user: user("right"), ..options(etcd.endpoints()) };
    let without_certificate = Tls { identity: None, ..certificates.tls() };
    refused(Options { tls: Some(without_certificate), ..trusted() }).await;
    let misled = Tls { server_name: None, ..certificates.tls() };
    refused(Options { tls: Some(misled), ..trusted() }).await;
    let reason = refused(Options { user: user("wrong"), ..trusted() }).await;
    assert!(reason.contains("authentication failed"), "{reason}");
    let reason = refused(Options { prefix: "/forbidden".into(), ..trusted() }).await;
    assert!(reason.contains("permission denied"), "{reason}");

    let proxy = Proxy::start(etcd.port(0)).await;
    let proxied = Options { endpoints: vec![format!("https://{}", proxy.address)], ..trusted() };
    let (server, other) = (connect(proxied).await, connect(trusted()).await);
    let first = create(&server, "a", "1").await;
    let mut watch = server.watch(Range::all(), first.revision).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // The token has expired, and no client reads or writes on this server: its watch alone must notice.
    proxy.cut();
    let second = update(&other, &first, "2").await;
    assert_eq!(describe(&next_events(&mut watch, 1).await), ["a: 1 -> 2"]);
    assert_eq!(text_of(&server, "a").await.as_deref(), Some("2"));
    server.compact(second.revision).await.unwrap();

    // A role without the right to write makes the store read-only, and reads continue.
    let mut root = certificates.administrator(&endpoint, Some(("root", "root"))).await;
    root.role_grant_permission("holon", under_prefix(PermissionType::Read)).await.unwrap();
    let error = server.commit(Key::from("b"), Expect::Absent, value("1")).await.unwrap_err();
    assert!(matches!(&error, CommitError::ReadOnly { reason } if reason.contains("permission")), "{error}");
    assert_eq!(text_of(&server, "a").await.as_deref(), Some("2"));
}

fn under_prefix(kind: PermissionType) -> Permission {
    Permission::new(kind, "/holon/").with_range_end("/holon0")
}

async fn set_up_users(client: &mut Client) {
    client.user_add("root", "root", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("holon", "right", None).await.unwrap();
    client.role_add("holon").await.unwrap();
    client.role_grant_permission("holon", under_prefix(PermissionType::Readwrite)).await.unwrap();
    client.user_grant_role("holon", "holon").await.unwrap();
    client.auth_enable().await.unwrap();
}
