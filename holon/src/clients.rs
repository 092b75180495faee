//! Clients made from kubeconfigs.
//!
//! A kubeconfig in a Secret must be self-contained. One that names files, or programs to run, would make the server
//! read files or run programs that the author of the Secret chose, so it is refused; `holon join` inlines the files.

pub(crate) mod admin;
mod http;
mod pool;
mod proxy;

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Map, Value, json};

use self::http::ConnectionUse;

/// Fields of a kubeconfig that name a file, and the fields for its content.
const FILES: [(&str, &str); 4] = [
    ("certificate-authority", "certificate-authority-data"),
    ("client-certificate", "client-certificate-data"),
    ("client-key", "client-key-data"),
    ("tokenFile", "token"),
];
/// Fields that run a program.
const PROGRAMS: [&str; 2] = ["exec", "auth-provider"];

/// Returns a client from the kubeconfig in a Secret.
pub(crate) async fn client(kubeconfig: &str) -> Result<Client> {
    multiplexed(config(kubeconfig).await?)
}

/// Returns a client with few connections: one for calls, and one for every fifty watches.
pub(crate) fn multiplexed(config: Config) -> Result<Client> {
    http::client(&config, ConnectionUse::Shared)
}

/// Returns the client configuration of a kubeconfig in a Secret.
pub(crate) async fn config(kubeconfig: &str) -> Result<Config> {
    // The parser's error quotes the kubeconfig, which is secret.
    let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(|_| anyhow!("not a valid kubeconfig"))?;
    let tree = serde_json::to_value(&parsed).context("cannot parse the kubeconfig")?;
    for entry in clusters_and_users(&tree) {
        let not_allowed =
            FILES.iter().map(|(file, _)| *file).chain(PROGRAMS).find(|name| entry.contains_key(*name));
        if let Some(name) = not_allowed {
            bail!(
                "it has the field {name}, which is not allowed here; `holon join` writes a kubeconfig without it"
            );
        }
    }
    let config = config_from(parsed).await?;
    if config.cluster_url.scheme_str() != Some("https") {
        bail!("{} is not https", config.cluster_url);
    }
    Ok(config)
}

/// Returns the client configuration of any kubeconfig, including its proxy.
pub(crate) async fn config_from(kubeconfig: Kubeconfig) -> Result<Config> {
    let kubeconfig_proxy = proxy::kubeconfig_proxy(&kubeconfig);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = proxy::ProxyEnvironment::read().proxy_for(kubeconfig_proxy, &config.cluster_url)?;
    Ok(config)
}

/// Returns a client that sends each request once, and whose connections can be upgraded. It forwards requests of other
/// clients, which retry themselves: if it repeated a POST after a `503`, the physical cluster might receive it twice.
pub(crate) fn single_use(config: Config) -> Result<Client> {
    http::client(&config, ConnectionUse::Exclusive)
}

/// Returns the clusters and users of a kubeconfig.
fn clusters_and_users(kubeconfig: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let objects = |list: &str, entry: &'static str| {
        let items = kubeconfig[list].as_array().map_or(&[][..], Vec::as_slice);
        items.iter().filter_map(move |item| item[entry].as_object())
    };
    objects("clusters", "cluster").chain(objects("users", "user"))
}

/// Returns one context of a kubeconfig on disk, with all files inlined.
pub(crate) fn inline_kubeconfig(file: &Path, context: Option<&str>) -> Result<Value> {
    let read = || -> Result<Value> {
        let parsed = Kubeconfig::read_from(file)?;
        Ok(serde_json::to_value(&parsed)?)
    };
    let tree = read().with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
    let find = |list: &str, entry: &str, name: &str| -> Result<Value> {
        let items = tree[list].as_array().map_or(&[][..], Vec::as_slice);
        let found = items.iter().find(|item| item["name"] == name);
        found.map(|item| item[entry].clone()).with_context(|| {
            let names: Vec<&str> = items.iter().filter_map(|item| item["name"].as_str()).collect();
            format!("{} has no {entry} {name:?}, only {names:?}", file.display())
        })
    };
    let current = tree["current-context"].as_str().unwrap_or_default();
    let selected = find("contexts", "context", context.unwrap_or(current))?;
    let text = |field: &str| selected[field].as_str().unwrap_or_default().to_owned();
    let mut cluster = find("clusters", "cluster", &text("cluster"))?;
    let mut user = find("users", "user", &text("user"))?;
    inline(&mut cluster)?;
    inline(&mut user)?;
    let has_credential = ["client-certificate-data", "token"].iter().any(|field| !user[*field].is_null());
    if !has_credential {
        bail!(
            "{} has neither a client certificate nor a token, and credential plugins are not supported; \
             create a service account in the physical cluster and use its token",
            file.display()
        );
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "joined",
        "clusters": [{ "name": "joined", "cluster": cluster }],
        "users": [{ "name": "joined", "user": user }],
        "contexts": [{ "name": "joined", "context": { "cluster": "joined", "user": "joined" } }],
    }))
}

/// Replaces the names of files by their contents.
fn inline(entry: &mut Value) -> Result<()> {
    let Some(entry) = entry.as_object_mut() else { return Ok(()) };
    entry.retain(|_, value| !value.is_null());
    for (file, text) in FILES {
        let Some(path) = entry.remove(file) else { continue };
        let path = path.as_str().unwrap_or_default();
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {path}"))?;
        let value = match text {
            "token" => String::from_utf8_lossy(&bytes).trim().to_owned(),
            _ => STANDARD.encode(bytes),
        };
        entry.entry(text).or_insert(value.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &Value, user: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{ "name": "a", "cluster": cluster }], "users": [{ "name": "a", "user": user }],
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        })
    }

    #[test]
    fn files_of_a_kubeconfig_are_inlined() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca"), "authority").unwrap();
        std::fs::write(dir.path().join("token"), "secret\n").unwrap();
        let file = dir.path().join("kubeconfig");
        // File names are relative to the kubeconfig.
        let (cluster, user) = (
            json!({ "server": "https://east", "certificate-authority": "ca" }),
            json!({ "tokenFile": "token" }),
        );
        std::fs::write(&file, kubeconfig(&cluster, &user).to_string()).unwrap();
        let inlined = inline_kubeconfig(&file, None).unwrap();
        let cluster =
            json!({ "server": "https://east", "certificate-authority-data": STANDARD.encode("authority") });
        assert_eq!(inlined["clusters"][0]["cluster"], cluster);
        assert_eq!(inlined["users"][0]["user"], json!({ "token": "secret" }));
        let unknown = inline_kubeconfig(&file, Some("b")).unwrap_err().to_string();
        assert!(unknown.contains("has no context \"b\", only [\"a\"]"), "{unknown}");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_names_files_is_refused() {
        let cluster = json!({ "server": "https://east" });
        for user in [json!({ "tokenFile": "/etc/shadow" }), json!({ "client-key": "/etc/ssl/key" })] {
            let error = config(&kubeconfig(&cluster, &user).to_string()).await.err().unwrap().to_string();
            assert!(error.contains("is not allowed here"), "{error}");
        }
        let error = format!("{:?}", config("a-token").await.err().unwrap());
        assert!(error.contains("not a valid kubeconfig") && !error.contains("a-token"), "{error}");
        let plain = kubeconfig(&json!({ "server": "http://east" }), &json!({ "token": "a" }));
        assert!(config(&plain.to_string()).await.err().unwrap().to_string().contains("is not https"));
    }
}
