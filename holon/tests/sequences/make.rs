//! Generates the steps of a sequence: several clients change one object in every possible way.
//!
//! The same seed generates the same steps. This module knows no kinds: their tables describe the objects.

use serde_json::{Map, Value, json};

use crate::comparison::RequestStep;
use crate::comparison::request_step::{JSON, media_type};
use crate::kinds::{FieldValues, KindTable};
use crate::random::Random;

/// The field managers of applies.
const APPLIERS: [&str; 4] = ["ada", "bob", "kubectl", "controller"];
/// The field managers of other changes that name one.
const MANAGERS: [&str; 4] = ["ada", "bob", "kubectl-client-side-apply", "controller"];
/// The user agents of changes without a field manager; its first word becomes the name of the manager.
const AGENTS: [&str; 4] =
    ["curl/8.1.2", "kubectl/v1.37.2 (linux/amd64) kubernetes/abc", "ada", "Mozilla/5.0 (X11)"];

/// How often each kind of step is chosen, in percent.
const STEP_WEIGHTS: [(StepKind, usize); 9] = [
    (StepKind::Apply, 36),
    (StepKind::Update, 11),
    (StepKind::Merge, 11),
    (StepKind::Json, 9),
    (StepKind::Strategic, 10),
    (StepKind::Status, 11),
    (StepKind::Scale, 6),
    (StepKind::ClearManagers, 5),
    (StepKind::Read, 1),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum StepKind {
    Create,
    Apply,
    Update,
    Merge,
    Json,
    Strategic,
    Status,
    Scale,
    /// Clears the managed fields.
    ClearManagers,
    Read,
}

pub(crate) fn sequence(kind: &KindTable, seed: u64) -> Vec<RequestStep> {
    let mut generator = SequenceGenerator {
        kind,
        name: format!("o-{seed}"),
        random: Random::seeded(seed),
        is_created: false,
    };
    let first = if generator.random.percent(50) { StepKind::Create } else { StepKind::Apply };
    let length = 3 + generator.random.below(5);
    let mut steps = vec![generator.step(first)];
    generator.is_created = true;
    for _ in 0..length {
        let step_kind = generator.step_kind();
        steps.push(generator.step(step_kind));
    }
    steps
}

struct SequenceGenerator<'k> {
    kind: &'k KindTable,
    name: String,
    random: Random,
    /// Whether the first step, which creates the object, was generated.
    is_created: bool,
}

/// A request without its options.
struct PlannedRequest {
    method: &'static str,
    /// `apply`, `merge`, `json` or `strategic`.
    patch: &'static str,
    subresource: &'static str,
    body: Value,
}

impl PlannedRequest {
    fn patch(patch: &'static str, body: Value) -> PlannedRequest {
        PlannedRequest { method: "PATCH", patch, subresource: "", body }
    }
}

impl SequenceGenerator<'_> {
    fn step_kind(&mut self) -> StepKind {
        let mut at = self.random.below(STEP_WEIGHTS.iter().map(|(_, share)| share).sum());
        for (step_kind, share) in STEP_WEIGHTS {
            match at.checked_sub(share) {
                Some(rest) => at = rest,
                // If a kind has no such subresource, applies instead.
                None if step_kind == StepKind::Status && self.kind.status.is_empty() => {
                    return StepKind::Apply;
                }
                None if step_kind == StepKind::Scale && !self.kind.scale => return StepKind::Apply,
                None => return step_kind,
            }
        }
        unreachable!("the shares add up")
    }

    fn step(&mut self, step_kind: StepKind) -> RequestStep {
        let change = match step_kind {
            StepKind::Create => {
                PlannedRequest { method: "POST", patch: "", subresource: "", body: self.complete_object() }
            }
            StepKind::Apply => PlannedRequest::patch("apply", self.configuration()),
            StepKind::Update => {
                PlannedRequest { method: "PUT", patch: "", subresource: "", body: self.replacement() }
            }
            StepKind::Merge => PlannedRequest::patch("merge", self.changes()),
            StepKind::Json => PlannedRequest::patch("json", self.operations()),
            StepKind::Strategic => PlannedRequest::patch("strategic", self.directives()),
            StepKind::Status => self.status(),
            StepKind::Scale => self.scale(),
            StepKind::ClearManagers => self.clear_managers(),
            StepKind::Read => PlannedRequest { method: "GET", patch: "", subresource: "", body: Value::Null },
        };
        self.with_options(change)
    }

    fn with_options(&mut self, change: PlannedRequest) -> RequestStep {
        let PlannedRequest { method, patch, subresource, body } = change;
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
        if self.random.percent(10) && self.is_created {
            options.push("dryRun=All".to_owned());
        }
        let name = if method == "POST" { String::new() } else { format!("/{}{subresource}", self.name) };
        let path = format!("{}{name}?{}", self.kind.at, options.join("&"));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let verb = if patch.is_empty() { method.to_owned() } else { format!("{method}:{patch}") };
        let agent = if user_agent.is_empty() { String::new() } else { format!(" as {user_agent}") };
        RequestStep {
            summary: format!("{verb} {path} {body}{agent}"),
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
    fn complete_object(&mut self) -> Value {
        let mut object = self.kind.base.clone();
        set_at(&mut object, "/metadata/name", self.name.clone().into());
        self.add_parts(&mut object, 30);
        object
    }

    /// Returns the configuration of an applier: the fields it manages, which usually suffice to create the object.
    fn configuration(&mut self) -> Value {
        let complete = self.random.percent(85) || !self.is_created;
        let mut object = if complete { self.kind.base.clone() } else { self.bare_object() };
        set_at(&mut object, "/metadata/name", self.name.clone().into());
        self.add_parts(&mut object, 25);
        match self.random.below(30) {
            0 => set_at(&mut object, "/metadata/resourceVersion", "{rv}".into()),
            1 => set_at(&mut object, "/metadata/resourceVersion", "1".into()),
            2 => set_at(&mut object, "/metadata/managedFields", json!([{}])),
            _ => {}
        }
        object
    }

    fn replacement(&mut self) -> Value {
        let mut object = self.complete_object();
        if self.random.percent(30) {
            set_at(&mut object, "/metadata/resourceVersion", "{rv}".into());
        }
        object
    }

    /// Returns an object with nothing but its type and its name.
    fn bare_object(&self) -> Value {
        let field_of_base = |field: &str| self.kind.base[field].clone();
        json!({"apiVersion": field_of_base("apiVersion"), "kind": field_of_base("kind"), "metadata": {"name": self.name}})
    }

    fn add_parts(&mut self, object: &mut Value, chance: usize) {
        for FieldValues { pointer, values } in &self.kind.parts {
            if self.random.percent(chance) {
                set_at(object, pointer, self.random.one(values).clone());
            }
        }
    }

    /// Returns a merge patch of one or two fields.
    fn changes(&mut self) -> Value {
        let mut patch = json!({});
        for _ in 0..=self.random.below(2) {
            let FieldValues { pointer, values } = self.random.one(&self.kind.parts);
            let value = if self.random.percent(35) { Value::Null } else { self.random.one(values).clone() };
            set_at(&mut patch, pointer, value);
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
            let FieldValues { pointer, values } = self.random.one(&self.kind.parts);
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

    fn status(&mut self) -> PlannedRequest {
        let step_kind = self.random.below(10);
        let mut body = match step_kind {
            0..5 => self.bare_object(),
            5..8 => json!({}),
            _ => self.complete_object(),
        };
        for FieldValues { pointer, values } in &self.kind.status {
            if self.random.percent(60) {
                set_at(&mut body, pointer, self.random.one(values).clone());
            }
        }
        // Writes to the status subresource must ignore other fields.
        if self.random.percent(20) {
            self.add_parts(&mut body, 10);
        }
        let (method, patch) = match step_kind {
            0..5 => ("PATCH", "apply"),
            5..7 => ("PATCH", "merge"),
            7 => ("PATCH", "strategic"),
            _ => ("PUT", ""),
        };
        PlannedRequest { method, patch, subresource: "/status", body }
    }

    fn scale(&mut self) -> PlannedRequest {
        let replicas = 1 + self.random.below(4);
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": self.name, "namespace": "{ns}"}, "spec": {"replicas": replicas}});
        let change = json!({"spec": {"replicas": replicas}});
        let (method, patch, body) = match self.random.below(3) {
            0 => ("PATCH", "merge", change),
            1 => ("PUT", "", scale),
            _ => ("PATCH", "apply", scale),
        };
        PlannedRequest { method, patch, subresource: "/scale", body }
    }

    fn clear_managers(&mut self) -> PlannedRequest {
        match self.random.below(4) {
            0 => PlannedRequest::patch("merge", json!({"metadata": {"managedFields": []}})),
            1 => PlannedRequest::patch("merge", json!({"metadata": {"managedFields": [{}]}})),
            2 => PlannedRequest::patch(
                "json",
                json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]),
            ),
            _ => {
                let mut body = self.complete_object();
                set_at(&mut body, "/metadata/managedFields", json!([{}]));
                PlannedRequest { method: "PUT", patch: "", subresource: "", body }
            }
        }
    }
}

/// Sets the value at a pointer, and creates the objects on the way.
fn set_at(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for token in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[token.replace("~1", "/")];
    }
    *at = value;
}
