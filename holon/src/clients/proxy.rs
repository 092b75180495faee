//! The choice of the proxy on the way to a server.
//!
//! A proxy in a kubeconfig is for the server of that kubeconfig. `HTTPS_PROXY` is for every server except those in
//! `NO_PROXY`, as for other clients of Kubernetes. kube compares `NO_PROXY` with the proxy instead of the server, so
//! this module decides.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

/// The proxy settings of the environment.
#[derive(Default)]
pub(super) struct ProxyEnvironment {
    proxy: String,
    no_proxy: String,
}

impl ProxyEnvironment {
    pub(super) fn read() -> ProxyEnvironment {
        let first = |names: [&str; 2]| {
            let mut values = names.into_iter().filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        ProxyEnvironment {
            proxy: first(["HTTPS_PROXY", "https_proxy"]),
            no_proxy: first(["NO_PROXY", "no_proxy"]),
        }
    }

    /// Returns the proxy on the way to a server, if there is one.
    pub(super) fn proxy_for(&self, configured: Option<String>, server: &Uri) -> Result<Option<Uri>> {
        match configured.filter(|configured| !configured.is_empty()) {
            Some(configured) => parse(&configured).map(Some),
            None if self.proxy.is_empty() || self.bypasses(server) => Ok(None),
            None => parse(&self.proxy).map(Some),
        }
    }

    fn bypasses(&self, server: &Uri) -> bool {
        let all = self.no_proxy.split(',').any(|name| name.trim() == "*");
        // Any URL works here: the matcher only decides whether a proxy is used.
        let others = Matcher::builder().all("http://proxy").no(self.no_proxy.as_str()).build();
        all || others.intercept(server).is_none()
    }
}

/// Returns the proxy that a kubeconfig names for its current server.
pub(super) fn kubeconfig_proxy(kubeconfig: &Kubeconfig) -> Option<String> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == *current)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?;
    cluster.cluster.as_ref()?.proxy_url.clone()
}

/// Parses a proxy URL; `proxy:3128` means `http://proxy:3128`.
fn parse(url: &str) -> Result<Uri> {
    let url_with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    url_with_scheme.parse().context("the URL of the proxy is not valid")
}

/// Returns the credentials for a proxy, from its URL.
pub(super) fn authorization(proxy: &Uri) -> Option<HeaderValue> {
    let (user, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    // Decoded like a form, except that `+` stands for itself.
    let user = format!("u={}", user.replace('+', "%2B"));
    let (_, user) = form_urlencoded::parse(user.as_bytes()).next()?;
    let mut header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(&*user))).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(proxy: &str, no_proxy: &str, named: &str, server: &'static str, expected: &str) {
        let environment = ProxyEnvironment { proxy: proxy.to_owned(), no_proxy: no_proxy.to_owned() };
        let found = environment.proxy_for(Some(named.to_owned()), &Uri::from_static(server)).unwrap();
        assert_eq!(found.map(|uri| uri.to_string()).unwrap_or_default(), expected);
    }

    #[test]
    fn the_proxy_depends_on_the_kubeconfig_and_the_environment() {
        check("", "", "", "https://east:6443", "");
        check("http://out:3128", "", "", "https://east:6443", "http://out:3128/");
        check("out:3128", "", "", "https://east:6443", "http://out:3128/");
        check("http://out:3128", "west,.east", "", "https://api.east:6443", "");
        check("http://out:3128", "10.0.0.0/8", "", "https://10.1.2.3:6443", "");
        check("http://out:3128", "*", "", "https://10.1.2.3:6443", "");
        // NO_PROXY applies to the server, not to the proxy.
        check("http://10.9.9.9:3128", "10.0.0.0/8", "", "https://east", "http://10.9.9.9:3128/");
        // The proxy of a kubeconfig is for its server.
        check("http://out:3128", "east", "http://in:8080", "https://east", "http://in:8080/");
    }

    #[test]
    fn the_credentials_in_the_url_are_sent_to_the_proxy() {
        let header = |uri| authorization(&Uri::from_static(uri));
        assert_eq!(header("http://out:3128"), None);
        let expected = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode("ann:a@b+c"))).unwrap();
        assert_eq!(header("http://ann:a%40b+c@out:3128"), Some(expected));
    }
}
