//! The plan of a reconcile: its writes as data, which tests can compare, and when to reconcile again.

use jiff::Timestamp;
use serde_json::Value;

use crate::objects::fields::{is_equivalent, name, namespace, uid};
use crate::objects::kind::ObjectKind;

/// One write. The server rejects it with a conflict if the object has changed since it was read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Write {
    Create {
        kind: ObjectKind,
        object: Value,
        /// Recorded once the object is created; `{}` stands for its name.
        event: Option<Event>,
    },
    /// The desired object, with the resource version that was read.
    Update {
        kind: ObjectKind,
        object: Value,
    },
    Status {
        kind: ObjectKind,
        object: Value,
    },
    Delete {
        kind: ObjectKind,
        namespace: String,
        name: String,
        uid: String,
        grace_s: Option<u64>,
    },
    Bind {
        namespace: String,
        name: String,
        uid: String,
        node: String,
    },
    Event(Event),
    /// A log line of a container.
    Log {
        pod: String,
        container: String,
        restarts: i64,
        line: String,
    },
}

/// An Event about an object.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Event {
    pub(crate) kind: ObjectKind,
    /// The metadata of the object.
    pub(crate) regarding: Value,
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The component that reports it.
    pub(crate) source: &'static str,
    /// The part of the object, or empty.
    pub(crate) field_path: String,
    /// The node of the component, or empty.
    pub(crate) host: String,
}

impl Event {
    pub(crate) fn new(
        kind: ObjectKind,
        object: &Value,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Event {
        let regarding = serde_json::json!({ "metadata": {
            "name": name(object), "namespace": namespace(object), "uid": uid(object),
            "resourceVersion": object["metadata"]["resourceVersion"],
        } });
        Event {
            kind,
            regarding,
            is_warning: false,
            reason,
            message: message.into(),
            source: kind.info().event_source,
            field_path: String::new(),
            host: String::new(),
        }
    }

    pub(crate) fn warning(mut self) -> Event {
        self.is_warning = true;
        self
    }

    pub(crate) fn reported_by(mut self, source: &'static str) -> Event {
        self.source = source;
        self
    }
}

/// The writes of a reconcile, and when to reconcile again if nothing changes before.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    pub(crate) due: Option<Timestamp>,
}

impl Plan {
    /// Reconciles again at this time at the latest.
    pub(crate) fn requeue_at(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(crate) fn create(&mut self, kind: ObjectKind, object: Value, event: Event) {
        self.writes.push(Write::Create { kind, object, event: Some(event) });
    }

    pub(crate) fn create_without_event(&mut self, kind: ObjectKind, object: Value) {
        self.writes.push(Write::Create { kind, object, event: None });
    }

    /// Updates an object if `new` differs from `old`.
    pub(crate) fn update(&mut self, kind: ObjectKind, old: &Value, new: Value) {
        if !is_equivalent(old, &new) {
            self.writes.push(Write::Update { kind, object: new });
        }
    }

    /// Writes a status if it differs from the old one.
    pub(crate) fn status(&mut self, kind: ObjectKind, old: &Value, status: Value) {
        if !is_equivalent(&old["status"], &status) {
            let mut object = old.clone();
            object["status"] = status;
            self.writes.push(Write::Status { kind, object });
        }
    }

    pub(crate) fn delete(&mut self, kind: ObjectKind, object: &Value) {
        self.delete_with_grace(kind, object, None);
    }

    /// Deletes with this grace period instead of the object's own.
    pub(crate) fn delete_with_grace(&mut self, kind: ObjectKind, object: &Value, grace_s: Option<u64>) {
        self.writes.push(Write::Delete {
            kind,
            namespace: namespace(object).to_owned(),
            name: name(object).to_owned(),
            uid: uid(object).to_owned(),
            grace_s,
        });
    }

    pub(crate) fn record(&mut self, event: Event) {
        self.writes.push(Write::Event(event));
    }
}

#[cfg(test)]
impl Plan {
    /// Returns one line per write, except for Events and logs.
    pub(crate) fn summary(&self) -> Vec<String> {
        let one = |write: &Write| match write {
            Write::Create { kind, object, .. } => {
                let generated = object["metadata"]["generateName"].as_str().map(|name| format!("{name}*"));
                let name = object["metadata"]["name"].as_str().map(str::to_owned).or(generated);
                Some(format!("create {} {}", kind.info().kind, name.unwrap_or_default()))
            }
            Write::Update { kind, object } => Some(format!("update {} {}", kind.info().kind, name(object))),
            Write::Status { kind, object } => Some(format!("status {} {}", kind.info().kind, name(object))),
            Write::Delete { kind, name, .. } => Some(format!("delete {} {name}", kind.info().kind)),
            Write::Bind { name, node, .. } => Some(format!("bind {name} {node}")),
            Write::Event(_) | Write::Log { .. } => None,
        };
        self.writes.iter().filter_map(one).collect()
    }

    /// Returns the planned status of an object.
    pub(crate) fn status_of(&self, expected_name: &str) -> Option<&Value> {
        self.writes.iter().find_map(|write| match write {
            Write::Status { object, .. } if name(object) == expected_name => Some(&object["status"]),
            _ => None,
        })
    }

    /// Returns the planned update of an object.
    pub(crate) fn updated(&self, expected_name: &str) -> Option<&Value> {
        self.writes.iter().find_map(|write| match write {
            Write::Update { object, .. } if name(object) == expected_name => Some(object),
            _ => None,
        })
    }
}
