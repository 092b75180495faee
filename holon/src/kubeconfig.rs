//! Writing kubeconfigs of logical clusters.

use api::cluster::Path;
use apiserver::http::pki::{Authority, Identity};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The user and groups of an administrator.
pub(crate) const ADMIN: (&str, &[&str]) = ("holon-admin", &["system:masters"]);

/// Returns a kubeconfig with a context for each logical cluster; the first is the current one.
pub(crate) fn write(
    server: &str,
    authority: &Authority,
    (name, user): (&str, &Identity),
    paths: &[Path],
) -> String {
    // Names may have characters that mean something in YAML. JSON is YAML.
    let name = serde_json::Value::from(name).to_string();
    let encoded = |text: &str| STANDARD.encode(text);
    // A path that is named twice gets one context.
    let mut distinct: Vec<&Path> = Vec::new();
    paths.iter().for_each(|path| {
        if !distinct.contains(&path) {
            distinct.push(path)
        }
    });
    let paths = distinct;
    let mut out = String::from("apiVersion: v1\nkind: Config\n");
    out += &format!("current-context: {}\n", paths.first().map_or("", |path| path.as_str()));
    out += "clusters:\n";
    for path in &paths {
        let ca = encoded(authority.certificate());
        out += &format!(
            "- name: {path}\n  cluster:\n    server: {server}/clusters/{path}\n    certificate-authority-data: {ca}\n"
        );
    }
    out += "contexts:\n";
    for path in &paths {
        out += &format!("- name: {path}\n  context:\n    cluster: {path}\n    user: {name}\n");
    }
    let (certificate, key) = (encoded(&user.certificate), encoded(&user.key));
    out + &format!(
        "users:\n- name: {name}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
    )
}
