//! Generates the steps of a sequence: several clients change one object in every possible way.
//!
//! The same seed generates the same steps. This module knows no kinds: their tables describe the objects.

use serde_json::{Map, Value, json};

use crate::beside::Step;
use crate::beside::step::{JSON, media_type};
use crate::kinds::{Kind, Part};
use crate::random::Random;

/// The field managers of applies.
const APPLIERS: [&str; 4] = ["ada", "bob", "kubectl", "controller"];
/// The field managers of other changes that name one.
const MANAGERS: [&str; 4] = ["ada", "bob", "kubectl-client-side-apply", "controller"];
/// The user agents of changes without a field manager; its first word becomes the name of the manager.
const AGENTS: [&str; 4] =
    ["curl/8.1.2", "kubectl/v1.37.2 (linux/amd64) kubernetes/abc", "ada", "Mozilla/5.0 (X11)"];

/// How often each kind of step is chosen, in percent.
const WAYS: [(Way, usize); 9] = [
    (Way::Apply, 36),
    (Way::Update, 11),
    (Way::Merge, 11),
    (Way::Json, 9),
    (Way::Strategic, 10),
    (Way::Status, 11),
    (Way::Scale, 6),
    (Way::Forget, 5),
    (Way::Look, 1),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Create,
    Apply,
    Update,
    Merge,
    Json,
    Strategic,
    Status,
    Scale,
    /// Clears the managed fields.
    Forget,
    Look,
}

pub(crate) fn sequence(kind: &Kind, seed: u64) -> Vec<Step> {
    let mut maker = Maker { kind, name: format!("o-{seed}"), random: Random::seeded(seed), begun: false };
    let first = if maker.random.percent(50) { Way::Create } else { Way::Apply };
    let length = 3 + maker.random.below(5);
    let mut steps = vec![maker.step(first)];
    maker.begun = true;
    for _ in 0..length {
        let way = maker.way();
        steps.push(maker.step(way));
    }
    steps
}

struct Maker<'k> {
    kind: &'k Kind,
    name: String,
    random: Random,
    /// Whether the first step, which creates the object, was generated.
    begun: bool,
}

/// A request without its options.
struct Change {
    method: &'static str,
    /// `apply`, `merge`, `json` or `strategic`.
    patch: &'static str,
    subresource: &'static str,
    body: Value,
}

impl Change {
    fn patch(patch: &'static str, body: Value) -> Change {
        Change { method: "PATCH", patch, subresource: "", body }
    }
}

impl Maker<'_> {
    fn way(&mut self) -> Way {
        let mut at = self.random.below(WAYS.iter().map(|(_, share)| share).sum());
        for (way, share) in WAYS {
            match at.checked_sub(share) {
                Some(rest) => at = rest,
                // If a kind has no such subresource, applies instead.
                None if way == Way::Status && self.kind.status.is_empty() => return Way::Apply,
                None if way == Way::Scale && !self.kind.scale => return Way::Apply,
                None => return way,
            }
        }
        unreachable!("the shares add up")
    }

    fn step(&mut self, way: Way) -> Step {
        let change = match way {
            Way::Create => Change { method: "POST", patch: "", subresource: "", body: self.whole() },
            Way::Apply => Change::patch("apply", self.configuration()),
            Way::Update => Change { method: "PUT", patch: "", subresource: "", body: self.replacement() },
            Way::Merge => Change::patch("merge", self.changes()),
            Way::Json => Change::patch("json", self.operations()),
            Way::Strategic => Change::patch("strategic", self.directives()),
            Way::Status => self.status(),
            Way::Scale => self.scale(),
            Way::Forget => self.forget(),
            Way::Look => Change { method: "GET", patch: "", subresource: "", body: Value::Null },
        };
        self.sent(change)
    }

    fn sent(&mut self, change: Change) -> Step {
        let Change { method, patch, subresource, body } = change;
        let mut options = Vec::new();
        let mut user_agent = String::new();
        match patch {
            "apply" if self.random.percent(97) => {
                options.push(format!("fieldManager={}", self.random.one(&APPLIERS)));
            }
            "apply" => {}
            _ if self.random.percent(40) => {
                options.push(format!("fieldManager={}", self.random.one(&MANAGERS)));
            }
            _ => user_agent = (*self.random.one(&AGENTS)).to_owned(),
        }
        if self.random.percent(if patch == "apply" { 35 } else { 2 }) {
            options.push("force=true".to_owned());
        }
        if self.random.percent(10) && self.begun {
            options.push("dryRun=All".to_owned());
        }
        let name = if method == "POST" { String::new() } else { format!("/{}{subresource}", self.name) };
        let path = format!("{}{name}?{}", self.kind.at, options.join("&"));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let verb = if patch.is_empty() { method.to_owned() } else { format!("{method}:{patch}") };
        let agent = if user_agent.is_empty() { String::new() } else { format!(" as {user_agent}") };
        Step {
            told: format!("{verb} {path} {body}{agent}"),
            method: method.to_owned(),
            path,
            content_type: media_type(patch).to_owned(),
            accept: JSON.to_owned(),
            user_agent,
            body: body.into_bytes(),
            until: None,
        }
    }

    // --- Bodies ---

    /// Returns a complete object.
    fn whole(&mut self) -> Value {
        let mut object = self.kind.base.clone();
        put(&mut object, "/metadata/name", self.name.clone().into());
        self.add_parts(&mut object, 30);
        object
    }

    /// Returns the configuration of an applier: the fields it manages, which usually suffice to create the object.
    fn configuration(&mut self) -> Value {
        let complete = self.random.percent(85) || !self.begun;
        let mut object = if complete { self.kind.base.clone() } else { self.named() };
        put(&mut object, "/metadata/name", self.name.clone().into());
        self.add_parts(&mut object, 25);
        match self.random.below(30) {
            0 => put(&mut object, "/metadata/resourceVersion", "{rv}".into()),
            1 => put(&mut object, "/metadata/resourceVersion", "1".into()),
            2 => put(&mut object, "/metadata/managedFields", json!([{}])),
            _ => {}
        }
        object
    }

    fn replacement(&mut self) -> Value {
        let mut object = self.whole();
        if self.random.percent(30) {
            put(&mut object, "/metadata/resourceVersion", "{rv}".into());
        }
        object
    }

    /// Returns an object with nothing but its type and its name.
    fn named(&self) -> Value {
        let said = |field: &str| self.kind.base[field].clone();
        json!({"apiVersion": said("apiVersion"), "kind": said("kind"), "metadata": {"name": self.name}})
    }

    fn add_parts(&mut self, object: &mut Value, chance: usize) {
        for Part { pointer, values } in &self.kind.parts {
            if self.random.percent(chance) {
                put(object, pointer, self.random.one(values).clone());
            }
        }
    }

    /// Returns a merge patch of one or two fields.
    fn changes(&mut self) -> Value {
        let mut patch = json!({});
        for _ in 0..=self.random.below(2) {
            let Part { pointer, values } = self.random.one(&self.kind.parts);
            let value = if self.random.percent(35) { Value::Null } else { self.random.one(values).clone() };
            put(&mut patch, pointer, value);
        }
        patch
    }

    fn directives(&mut self) -> Value {
        match self.kind.strategic.is_empty() || self.random.percent(40) {
            true => self.changes(),
            false => self.random.one(&self.kind.strategic).clone(),
        }
    }

    /// Returns a JSON patch of one or two fields.
    fn operations(&mut self) -> Value {
        let mut steps = Vec::new();
        for _ in 0..=self.random.below(2) {
            let Part { pointer, values } = self.random.one(&self.kind.parts);
            let value = self.random.one(values).clone();
            steps.push(match self.random.below(10) {
                0 => json!({"op": "test", "path": pointer, "value": value}),
                1 => json!({"op": "replace", "path": pointer, "value": value}),
                2..5 => json!({"op": "remove", "path": pointer}),
                _ => json!({"op": "add", "path": pointer, "value": value}),
            });
        }
        steps.into()
    }

    fn status(&mut self) -> Change {
        let way = self.random.below(10);
        let mut body = match way {
            0..5 => self.named(),
            5..8 => json!({}),
            _ => self.whole(),
        };
        for Part { pointer, values } in &self.kind.status {
            if self.random.percent(60) {
                put(&mut body, pointer, self.random.one(values).clone());
            }
        }
        // Writes to the status subresource must ignore other fields.
        if self.random.percent(20) {
            self.add_parts(&mut body, 10);
        }
        let (method, patch) = match way {
            0..5 => ("PATCH", "apply"),
            5..7 => ("PATCH", "merge"),
            7 => ("PATCH", "strategic"),
            _ => ("PUT", ""),
        };
        Change { method, patch, subresource: "/status", body }
    }

    fn scale(&mut self) -> Change {
        let replicas = 1 + self.random.below(4);
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": self.name, "namespace": "{ns}"}, "spec": {"replicas": replicas}});
        let change = json!({"spec": {"replicas": replicas}});
        let (method, patch, body) = match self.random.below(3) {
            0 => ("PATCH", "merge", change),
            1 => ("PUT", "", scale),
            _ => ("PATCH", "apply", scale),
        };
        Change { method, patch, subresource: "/scale", body }
    }

    fn forget(&mut self) -> Change {
        match self.random.below(4) {
            0 => Change::patch("merge", json!({"metadata": {"managedFields": []}})),
            1 => Change::patch("merge", json!({"metadata": {"managedFields": [{}]}})),
            2 => Change::patch(
                "json",
                json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]),
            ),
            _ => {
                let mut body = self.whole();
                put(&mut body, "/metadata/managedFields", json!([{}]));
                Change { method: "PUT", patch: "", subresource: "", body }
            }
        }
    }
}

/// Sets the value at a pointer, and creates the objects on the way.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for token in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[token.replace("~1", "/")];
    }
    *at = value;
}
