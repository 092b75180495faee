//! Plain HTTP access to an API server: `kubectl proxy` does TLS and authentication.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::Process;

/// A running `kubectl proxy`. Killed when dropped.
#[derive(Debug)]
pub struct Proxy {
    _process: Process,
    address: String,
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub accept: &'a str,
    pub content_type: &'a str,
    /// If empty, `kubectl proxy` sends its own.
    pub user_agent: &'a str,
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns a GET of JSON.
    pub fn get(path: &'a str) -> Request<'a> {
        Request::json("GET", path, b"")
    }

    /// Returns a request with a JSON body that accepts JSON.
    pub fn json(method: &'a str, path: &'a str, body: &'a [u8]) -> Request<'a> {
        let json = "application/json";
        Request { method, path, accept: json, content_type: json, user_agent: "", body }
    }
}

/// The response.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub code: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the value of the first header of this name, which must be in lower case.
    pub fn header<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.headers(name).next()
    }

    /// Returns the texts of the server's warnings.
    pub fn warnings(&self) -> Vec<String> {
        let texts = self.headers("warning").filter_map(|value| value.strip_prefix("299 - "));
        texts.map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())).collect()
    }

    /// Returns the body as JSON, or null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.filter_map(move |(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    }
}

impl Proxy {
    /// Starts a proxy to the server of a kubeconfig, as its user.
    pub fn start(kubectl: &Path, kubeconfig: &Path) -> Proxy {
        let mut command = Command::new(kubectl);
        // The proxy rejects some paths by default; with these flags only the server does.
        let options = ["proxy", "--port=0", "--reject-paths=^$", "--append-server-path"];
        command.arg("--kubeconfig").arg(kubeconfig).args(options).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("kubectl prints its address");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Proxy { _process: process, address }
    }

    /// Sends one request and reads the whole response, so a watch needs a `timeoutSeconds`.
    pub fn send(&self, request: Request<'_>) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("the proxy listens");
        let Request { method, path, accept, content_type, user_agent, body } = request;
        let mut head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
        for (name, value) in [("Accept", accept), ("Content-Type", content_type), ("User-Agent", user_agent)]
        {
            if !value.is_empty() {
                head += &format!("{name}: {value}\r\n");
            }
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        // A server that rejects a body before it has read it may close the connection while we still write.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut response = Vec::new();
        // HTTP/1.0 has no chunks: the response ends with the connection.
        let _ = stream.read_to_end(&mut response);
        let end = response.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{method} {path}: {:?}", String::from_utf8_lossy(&response)));
        let head = String::from_utf8_lossy(&response[..end]).into_owned();
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code");
        Answer { code, head, body: response.split_off(end + 4) }
    }
}
