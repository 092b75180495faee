//! The request line, parsed: enough to authorize, time and count a request.

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use hyper::upgrade::OnUpgrade;
use openapi::catalog::resource_info::Verb;

use crate::request::path;
use crate::request::path::{Cluster, PathError, Target};
use crate::request::query::Query;

/// The logical clusters that a request reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    One,
    /// All logical clusters. Only lists and watches can have this reach.
    Every,
}

#[derive(Clone, Debug)]
pub(crate) struct RequestInfo {
    pub(crate) method: Method,
    /// As sent, without the query.
    pub(crate) path: String,
    pub(crate) address: Result<(Cluster, Target), PathError>,
    pub(crate) query: Query,
    /// The connection, if the client asks to upgrade it.
    pub(crate) upgrade: Option<OnUpgrade>,
}

impl RequestInfo {
    pub(crate) fn of(head: &Parts) -> RequestInfo {
        RequestInfo {
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            address: path::parse(head.uri.path()),
            query: Query::parse(head.uri.query()),
            upgrade: head.extensions.get().cloned(),
        }
    }

    pub(crate) fn target(&self) -> Option<&Target> {
        self.address.as_ref().ok().map(|(_, target)| target)
    }

    /// Returns the path without `/clusters/<name>`.
    pub(crate) fn path_inside(&self) -> String {
        match &self.address {
            Ok((Cluster::Bare, _)) | Err(_) => self.path.clone(),
            // `/clusters/<name>/<the rest>`
            Ok(_) => format!("/{}", self.path.splitn(4, '/').nth(3).unwrap_or_default()),
        }
    }

    /// Returns the resource of the request, if the path names one.
    pub(crate) fn resource(&self) -> Option<&path::Resource> {
        match self.target() {
            Some(Target::Resource(resource)) => Some(resource),
            _ => None,
        }
    }

    /// Returns the verb of the method on the resource, whether the resource supports it or not.
    pub(crate) fn verb(&self) -> Option<Verb> {
        verb(&self.method, self.resource()?, self.query.flag("watch"))
    }

    /// Returns the connection if the client asks for WebSocket on it.
    pub(crate) fn websocket(&self, headers: &HeaderMap) -> Option<OnUpgrade> {
        let is_upgrade = self.method == Method::GET && is_websocket_upgrade(headers);
        self.upgrade.clone().filter(|_| is_upgrade)
    }

    /// Reports whether the request is a watch, whose response has no end.
    pub(crate) fn is_watch(&self) -> bool {
        self.verb() == Some(Verb::Watch)
    }
}

/// Returns the verb of a method on an object, a subresource or a collection.
pub(crate) fn verb(method: &Method, resource: &path::Resource, watch: bool) -> Option<Verb> {
    let verb = match (method, resource.name.is_some()) {
        (&Method::GET | &Method::HEAD, true) => Verb::Get,
        (&Method::GET | &Method::HEAD, false) if watch => Verb::Watch,
        (&Method::GET | &Method::HEAD, false) => Verb::List,
        (&Method::POST, false) => Verb::Create,
        (&Method::POST, true) if resource.subresource.is_some() => Verb::Create,
        (&Method::PUT, true) => Verb::Update,
        (&Method::PATCH, true) => Verb::Patch,
        (&Method::DELETE, true) => Verb::Delete,
        (&Method::DELETE, false) => Verb::DeleteCollection,
        _ => return None,
    };
    Some(verb)
}

/// Reports whether a client asks for WebSocket.
pub(crate) fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let is_upgrade = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("upgrade"))
    };
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && headers.get_all(CONNECTION).iter().any(is_upgrade)
}

#[cfg(test)]
impl RequestInfo {
    /// Parses the first line of a request: `GET /api/v1/pods?watch=1`.
    pub(crate) fn line(text: &str) -> RequestInfo {
        let (method, uri) = text.split_once(' ').unwrap();
        let (head, ()) = http::Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
        RequestInfo::of(&head)
    }
}
