//! Counts of clients' requests by verb and resource. Tests use them, for example to check that nothing was deleted.

use std::collections::BTreeMap;
use std::sync::Mutex;

use apiserver::request::path;
use apiserver::request::path::Target;
use http::Method;

/// Requests by verb and resource: `("delete", "deployments.apps")`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestCounts(pub BTreeMap<(String, String), u64>);

/// Verbs that change something.
const WRITES: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

impl RequestCounts {
    /// Returns the number of requests with one of these verbs.
    pub fn of(&self, verbs: &[&str]) -> u64 {
        self.0.iter().filter(|((verb, _), _)| verbs.contains(&verb.as_str())).map(|(_, count)| count).sum()
    }

    pub fn deletes(&self) -> u64 {
        self.of(&["delete", "deletecollection"])
    }

    pub fn writes(&self) -> u64 {
        self.of(WRITES)
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the requests since `before`.
    pub fn since(&self, before: &RequestCounts) -> RequestCounts {
        let newer = |(key, count): (&(String, String), &u64)| {
            let more = count - before.0.get(key).copied().unwrap_or_default();
            (more > 0).then(|| (key.clone(), more))
        };
        RequestCounts(self.0.iter().filter_map(newer).collect())
    }
}

#[derive(Debug, Default)]
pub(crate) struct RequestCounter(Mutex<RequestCounts>);

impl RequestCounter {
    pub(crate) fn add(&self, method: &Method, path: &str, query: &str) {
        let key = verb_and_resource(method, path, query);
        *self.0.lock().expect("no holder of this lock panics").0.entry(key).or_default() += 1;
    }

    pub(crate) fn read(&self) -> RequestCounts {
        self.0.lock().expect("no holder of this lock panics").clone()
    }
}

/// Returns the verb and the resource of a request. A request for no resource is counted by its method.
fn verb_and_resource(method: &Method, path: &str, query: &str) -> (String, String) {
    let Ok((_, Target::Resource(resource))) = path::parse(path) else {
        return (method.as_str().to_lowercase(), String::new());
    };
    let watches = query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"));
    let verb = match (method.as_str(), resource.name.is_some()) {
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) if watches => "watch",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "other",
    };
    (verb.to_owned(), resource.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let counter = RequestCounter::default();
        let send = |line: &str| {
            let (method, rest) = line.split_once(' ').unwrap();
            let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
            counter.add(&method.parse().unwrap(), path, query);
        };
        send("GET /api/v1/pods?watch=true");
        send("GET /api/v1/namespaces/a/pods");
        let before = counter.read();
        send("DELETE /apis/apps/v1/namespaces/a/deployments/web");
        send("PATCH /apis/apps/v1/namespaces/a/deployments/web/status?fieldManager=x");
        let new = counter.read().since(&before);
        assert_eq!((new.total(), new.writes(), new.deletes()), (2, 2, 1));
        assert_eq!(new.0[&("patch".to_owned(), "deployments.apps/status".to_owned())], 1);
    }
}
