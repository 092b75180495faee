//! What a controller wants done, as data. Deciding and doing are apart, so that a decision is a value a test can look at.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::object::{name, namespace, same, uid};

/// One thing to do. Whatever was seen too long ago is refused by the server, and decided again.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Write {
    Create {
        kind: Kind,
        object: Value,
        /// Told once it is made; `{}` stands for its name.
        announced: Option<Event>,
    },
    /// The object as it should be, with the version that was seen.
    Update {
        kind: Kind,
        object: Value,
    },
    Status {
        kind: Kind,
        object: Value,
    },
    Delete {
        kind: Kind,
        namespace: String,
        name: String,
        uid: String,
        grace_s: Option<u64>,
    },
    /// Puts a pod on a node.
    Bind {
        namespace: String,
        name: String,
        uid: String,
        node: String,
    },
    Event(Event),
    /// A line a container wrote.
    Log {
        pod: String,
        container: String,
        restarts: i64,
        line: String,
    },
}

/// Something people are told about an object.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    /// The object it is about.
    pub(crate) about: Value,
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Who tells it.
    pub(crate) source: &'static str,
    /// Which part of the object.
    pub(crate) field: String,
    /// On which node.
    pub(crate) host: String,
}

impl Event {
    pub(crate) fn new(kind: Kind, about: &Value, reason: &'static str, message: impl Into<String>) -> Event {
        // What an Event is about is said in a few fields.
        let about = serde_json::json!({ "metadata": {
            "name": name(about), "namespace": namespace(about), "uid": uid(about),
            "resourceVersion": about["metadata"]["resourceVersion"],
        } });
        Event {
            kind,
            about,
            is_warning: false,
            reason,
            message: message.into(),
            source: kind.row().writer,
            field: String::new(),
            host: String::new(),
        }
    }

    pub(crate) fn warning(mut self) -> Event {
        self.is_warning = true;
        self
    }

    pub(crate) fn from(mut self, source: &'static str) -> Event {
        self.source = source;
        self
    }
}

/// What is to be done now, and when to look again if nothing happens.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    pub(crate) due: Option<Timestamp>,
}

impl Plan {
    /// Asks to be looked at no later than this.
    pub(crate) fn wake(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(crate) fn create(&mut self, kind: Kind, object: Value, announced: Event) {
        self.writes.push(Write::Create { kind, object, announced: Some(announced) });
    }

    pub(crate) fn create_silently(&mut self, kind: Kind, object: Value) {
        self.writes.push(Write::Create { kind, object, announced: None });
    }

    /// Writes the object if it differs from what is there.
    pub(crate) fn update(&mut self, kind: Kind, old: &Value, new: Value) {
        if !same(old, &new) {
            self.writes.push(Write::Update { kind, object: new });
        }
    }

    /// Writes a status if it says something else.
    pub(crate) fn status(&mut self, kind: Kind, old: &Value, status: Value) {
        if !same(&old["status"], &status) {
            let mut object = old.clone();
            object["status"] = status;
            self.writes.push(Write::Status { kind, object });
        }
    }

    pub(crate) fn delete(&mut self, kind: Kind, object: &Value) {
        self.remove(kind, object, None);
    }

    /// Deletes with a period of grace of its own.
    pub(crate) fn remove(&mut self, kind: Kind, object: &Value, grace_s: Option<u64>) {
        self.writes.push(Write::Delete {
            kind,
            namespace: namespace(object).to_owned(),
            name: name(object).to_owned(),
            uid: uid(object).to_owned(),
            grace_s,
        });
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.writes.push(Write::Event(event));
    }
}

#[cfg(test)]
impl Plan {
    /// A word for each write but those that only tell something, for tables.
    pub(crate) fn summary(&self) -> Vec<String> {
        let one = |write: &Write| match write {
            Write::Create { kind, object, .. } => {
                let generated = object["metadata"]["generateName"].as_str().map(|name| format!("{name}*"));
                let name = object["metadata"]["name"].as_str().map(str::to_owned).or(generated);
                Some(format!("create {} {}", kind.row().kind, name.unwrap_or_default()))
            }
            Write::Update { kind, object } => Some(format!("update {} {}", kind.row().kind, name(object))),
            Write::Status { kind, object } => Some(format!("status {} {}", kind.row().kind, name(object))),
            Write::Delete { kind, name, .. } => Some(format!("delete {} {name}", kind.row().kind)),
            Write::Bind { name, node, .. } => Some(format!("bind {name} {node}")),
            Write::Event(_) | Write::Log { .. } => None,
        };
        self.writes.iter().filter_map(one).collect()
    }

    /// The status written for an object.
    pub(crate) fn status_of(&self, wanted: &str) -> Option<&Value> {
        self.writes.iter().find_map(|write| match write {
            Write::Status { object, .. } if name(object) == wanted => Some(&object["status"]),
            _ => None,
        })
    }

    /// The object written under a name.
    pub(crate) fn updated(&self, wanted: &str) -> Option<&Value> {
        self.writes.iter().find_map(|write| match write {
            Write::Update { object, .. } if name(object) == wanted => Some(object),
            _ => None,
        })
    }
}
