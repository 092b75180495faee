//! A request as the mutations change it, and its form in a file.
//!
//! ```text
//!   POST /api/v1/namespaces/default/configmaps?dryRun=All
//!   content-type: application/json
//!
//!   {"metadata":{"name":"a"}}
//! ```

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path as on the wire, still percent-encoded.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str, kind: &str, body: impl Into<Vec<u8>>) -> Request {
        let headers = vec![("content-type".to_owned(), kind.as_bytes().to_vec())];
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers,
            body: body.into(),
        }
    }

    fn parse(bytes: &[u8]) -> Result<Request> {
        let split = bytes
            .windows(2)
            .position(|pair| pair == b"\n\n")
            .context("the head must end with an empty line")?;
        let head = str::from_utf8(&bytes[..split])?;
        let mut lines = head.lines();
        let (method, target) = lines
            .next()
            .and_then(|line| line.split_once(' '))
            .context("the first line must be a method and a path")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let headers = lines.filter_map(|line| line.split_once(": "));
        Ok(Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(owned).collect(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).collect(),
            body: bytes[split + 2..].to_vec(),
        })
    }

    pub(crate) fn serialized(&self) -> Vec<u8> {
        let mut out = format!("{} {}\n", self.method, self.target()).into_bytes();
        for (name, value) in &self.headers {
            out.extend([name.as_bytes(), b": ", value, b"\n"].concat());
        }
        out.push(b'\n');
        out.extend(&self.body);
        out
    }

    fn target(&self) -> String {
        let pairs: Vec<_> = self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        match pairs.is_empty() {
            true => self.path.clone(),
            false => format!("{}?{}", self.path, pairs.join("&")),
        }
    }

    pub(crate) fn set_header(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.headers.retain(|(found, _)| found != name);
        self.headers.push((name.to_owned(), value.into()));
    }

    /// Returns the request for the server. `None` if it is not valid HTTP, which hyper would reject before it reaches
    /// the server.
    pub(crate) fn http(&self) -> Option<http::Request<Full<Bytes>>> {
        let mut builder = http::Request::builder().method(self.method.as_bytes()).uri(self.target());
        for (name, value) in &self.headers {
            builder = builder.header(name.as_bytes(), value.as_slice());
        }
        builder.body(Full::new(Bytes::from(self.body.clone()))).ok()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let serialized = self.serialized();
        let prefix = &serialized[..serialized.len().min(4096)];
        write!(f, "{}", prefix.escape_ascii().to_string().replace("\\n", "\n"))?;
        if prefix.len() < serialized.len() {
            write!(f, "… ({} bytes)", serialized.len())?;
        }
        Ok(())
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Reads all requests of the corpus with the names of their files, in the order of the names.
pub(crate) fn read_all(dir: &Path) -> Result<Vec<(String, Request)>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    let read = paths.iter().map(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let request = Request::parse(&std::fs::read(path)?).with_context(|| name.clone())?;
        Ok((name, request))
    });
    read.collect()
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// Returns requests with bodies just beyond a limit, and the expected status code.
pub(crate) fn at_the_limits() -> Vec<(&'static str, Request, u16)> {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    // A deep tree in a field that allows anything, and one in an unknown field.
    let anything =
        format!(r#"{{"metadata":{{"name":"a","managedFields":[{{"fieldsV1":{{"x":{deep}}}}}]}}}}"#);
    let unknown = format!(r#"{{"metadata":{{"name":"a"}},"x":{deep}}}"#);
    // Each line refers ten times to the one before it: a kilobyte that expands to gigabytes.
    let laughs = (1..30).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
        let before = vec![format!("*a{}", level - 1); 10].join(",");
        format!("{text}a{level}: &a{level} [{before}]\n")
    });
    let post = |kind: &str, body: String| Request::new("POST", MAPS, kind, body);
    let patch = |kind: &str, body: String| Request::new("PATCH", &format!("{MAPS}/kept"), kind, body);
    let large = "x".repeat(3 << 20);
    vec![
        ("a large body", post(JSON, format!(r#"{{"data":{{"x":"{large}"}}}}"#)), 413),
        ("a large body that is not JSON", post(JSON, format!("{large}x")), 413),
        ("a large patch", patch("application/merge-patch+json", format!(r#"{{"x":"{large}"}}"#)), 413),
        ("a large deletion", Request::new("DELETE", &format!("{MAPS}/kept"), JSON, format!("{large}x")), 413),
        ("a deep body", post(JSON, deep), 400),
        ("a deep field", post(JSON, anything.clone()), 400),
        // The parser skips the unknown field without recursion, and drops it.
        ("a deep unknown field", post(JSON, unknown.clone()), 400),
        ("a deep field in YAML", post(YAML, anything.clone()), 400),
        ("a deep unknown field in YAML", post(YAML, unknown.clone()), 400),
        ("a deep patch", patch("application/merge-patch+json", anything.clone()), 400),
        ("a deep strategic patch", patch("application/strategic-merge-patch+json", anything), 400),
        ("a deep patch of an unknown field", patch("application/merge-patch+json", unknown), 400),
        ("a deep list of operations", patch("application/json-patch+json", "[".repeat(10_000)), 400),
        ("a billion laughs", post(YAML, laughs), 400),
        ("a million opening brackets", post(JSON, "[".repeat(1_000_000)), 400),
        ("a million opening braces in YAML", post(YAML, "{a: ".repeat(250_000)), 400),
        ("a million dashes in YAML", post(YAML, "- ".repeat(500_000)), 400),
    ]
}
