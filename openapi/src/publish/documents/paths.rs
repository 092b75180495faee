//! The paths of resources and their operations, independent of the OpenAPI version.

use serde_json::{Map, Value, json};

use super::parameters::{self, Parameter};
use super::{META, PREFIX};
use crate::catalog::resource_info::{ResourceInfo, Subresource, Verb};
use crate::schema::Origin;
use crate::schema::builtin;

pub(super) const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A path of a document.
pub(super) struct DocumentPath {
    pub(super) path: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) operations: Vec<DocumentOperation>,
}

/// An operation of a path.
pub(super) struct DocumentOperation {
    pub(super) method: &'static str,
    /// `x-kubernetes-action`; none for operations that are not about objects.
    pub(super) action: Option<&'static str>,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) description: String,
    pub(super) parameters: &'static [Parameter],
    pub(super) body: OperationBody,
    pub(super) produces: Vec<&'static str>,
    /// The responses: status codes and types.
    pub(super) answers: Vec<(&'static str, BodyType)>,
    /// Group, version and kind of the objects.
    pub(super) kind: Option<[String; 3]>,
}

pub(super) enum OperationBody {
    None,
    /// A required body of this type.
    Object(BodyType),
    /// An optional body.
    DeleteOptions,
    Patch(Vec<&'static str>),
}

/// The type of a body or a response.
#[derive(Clone)]
pub(super) enum BodyType {
    Named(String),
    Text,
}

impl BodyType {
    pub(super) fn meta(name: &str) -> BodyType {
        BodyType::Named(format!("{META}.{name}"))
    }

    pub(super) fn json(&self, prefix: &str) -> Value {
        match self {
            BodyType::Named(name) => json!({ "$ref": format!("{prefix}{name}") }),
            BodyType::Text => json!({ "type": "string" }),
        }
    }
}

/// Returns the paths of one group and version.
pub(super) fn of_version(rows: &[&ResourceInfo], group: &str, version: &str) -> Vec<DocumentPath> {
    let mut paths = vec![discovery(group, version)];
    for resource in rows {
        PathBuilder::new(resource).add_to(&mut paths);
    }
    paths
}

/// Returns the path of the discovery document of a group and version.
fn discovery(group: &str, version: &str) -> DocumentPath {
    let operation = DocumentOperation {
        method: "get",
        action: None,
        id: format!("get{}APIResources", camel(group, version)),
        tag: tag(group, version),
        description: "get available resources".to_owned(),
        parameters: &[],
        body: OperationBody::None,
        produces: produces(Origin::BuiltIn),
        answers: vec![("200", BodyType::meta("APIResourceList"))],
        kind: None,
    };
    DocumentPath {
        path: format!("/{}/", super::path(group, version)),
        parameters: Vec::new(),
        operations: vec![operation],
    }
}

/// Builds the paths of one resource.
struct PathBuilder<'a> {
    resource: &'a ResourceInfo,
    root: String,
    object: BodyType,
    list: BodyType,
}

impl<'a> PathBuilder<'a> {
    fn new(resource: &'a ResourceInfo) -> PathBuilder<'a> {
        let list = match resource.type_name.strip_suffix(&*resource.kind) {
            Some(package) => format!("{package}{}", resource.list_kind),
            None => format!("{}List", resource.type_name),
        };
        PathBuilder {
            resource,
            root: format!("/{}", super::path(&resource.group, &resource.version)),
            object: BodyType::Named(resource.type_name.to_string()),
            list: BodyType::Named(list),
        }
    }

    fn add_to(&self, paths: &mut Vec<DocumentPath>) {
        let resource = self.resource;
        let (base, scope) = match resource.namespaced {
            true => (
                format!("{}/namespaces/{{namespace}}/{}", self.root, resource.plural),
                vec![parameters::NAMESPACE],
            ),
            false => (format!("{}/{}", self.root, resource.plural), Vec::new()),
        };
        let mut add = |path: String, more: &[Parameter], operations: Vec<DocumentOperation>| {
            let mut parameters = [more, &*scope].concat();
            // Streams of bytes cannot be indented.
            if operations.iter().any(|operation| operation.action != Some("connect")) {
                parameters.push(parameters::PRETTY);
            }
            if !operations.is_empty() {
                paths.push(DocumentPath { path, parameters, operations });
            }
        };
        let verbs = |verbs: &[Verb]| {
            verbs.iter().filter(|verb| resource.allows(**verb)).map(|verb| self.verb(*verb)).collect()
        };
        add(base.clone(), &[], verbs(&[Verb::List, Verb::Create, Verb::DeleteCollection]));
        let one = format!("{base}/{{name}}");
        add(one.clone(), &[parameters::NAME], verbs(&[Verb::Get, Verb::Update, Verb::Delete, Verb::Patch]));
        for subresource in &resource.subresources {
            let path = format!("{one}/{}", subresource.name);
            add(path.clone(), &[parameters::NAME], self.subresource(subresource, ""));
            if &*subresource.name == "proxy" {
                let rest = [parameters::NAME, parameters::REST];
                add(format!("{path}/{{path}}"), &rest, self.subresource(subresource, "WithPath"));
            }
        }
        if resource.namespaced && resource.allows(Verb::List) {
            let mut list = self.verb(Verb::List);
            list.id = format!("list{}{}ForAllNamespaces", self.camel(), resource.kind);
            let path = format!("{}/{}", self.root, resource.plural);
            paths.push(DocumentPath { path, parameters: vec![parameters::PRETTY], operations: vec![list] });
        }
    }

    fn verb(&self, verb: Verb) -> DocumentOperation {
        let kind = &self.resource.kind;
        let object = |codes: &[&'static str]| codes.iter().map(|code| (*code, self.object.clone())).collect();
        let status =
            |codes: &[&'static str]| codes.iter().map(|code| (*code, BodyType::meta("Status"))).collect();
        let gvk = [self.resource.group.to_string(), self.resource.version.to_string(), kind.to_string()];
        let mut operation = self.operation(verb, "", gvk);
        (operation.description, operation.answers) = match verb {
            Verb::List | Verb::Watch => {
                operation.produces = listings(self.resource.origin);
                let or_watch = if self.resource.allows(Verb::Watch) { " or watch" } else { "" };
                (format!("list{or_watch} objects of kind {kind}"), vec![("200", self.list.clone())])
            }
            Verb::Create => (format!("create a {kind}"), object(&["200", "201", "202"])),
            Verb::DeleteCollection => {
                operation.id = format!("delete{}Collection{}{kind}", self.camel(), self.scope());
                (format!("delete collection of {kind}"), status(&["200"]))
            }
            Verb::Get => (format!("read the specified {kind}"), object(&["200"])),
            Verb::Update => (format!("replace the specified {kind}"), object(&["200", "201"])),
            Verb::Delete if self.resource.delete_answers_object => {
                (format!("delete a {kind}"), object(&["200", "202"]))
            }
            Verb::Delete => (format!("delete a {kind}"), status(&["200", "202"])),
            Verb::Patch => (format!("partially update the specified {kind}"), object(&["200", "201"])),
        };
        operation
    }

    fn subresource(&self, subresource: &Subresource, suffix: &str) -> Vec<DocumentOperation> {
        let (group, version) = subresource
            .foreign
            .clone()
            .unwrap_or((self.resource.group.clone(), self.resource.version.clone()));
        let kind = [group.to_string(), version.to_string(), subresource.kind.to_string()];
        let type_name = match subresource.kind == self.resource.kind && subresource.foreign.is_none() {
            true => Some(&*self.resource.type_name),
            false => builtin::type_name(&group, &version, &subresource.kind),
        };
        let name = capitalised(&subresource.name);
        let mut operations = Vec::new();
        for verb in &subresource.verbs {
            let mut operation = self.operation(*verb, &name, kind.clone());
            match type_name.filter(|_| parameters::connect(&subresource.name).is_empty()) {
                Some(type_name) => {
                    let codes: &[&str] = match verb {
                        Verb::Create => &["200", "201", "202"],
                        Verb::Get => &["200"],
                        _ => &["200", "201"],
                    };
                    operation.answers =
                        codes.iter().map(|code| (*code, BodyType::Named(type_name.to_owned()))).collect();
                    if let OperationBody::Object(body) = &mut operation.body {
                        *body = BodyType::Named(type_name.to_owned());
                    }
                }
                None => self.converse(&mut operation, subresource, suffix),
            }
            operation.description =
                format!("{} {} of the specified {}", operation.method, subresource.name, self.resource.kind);
            operations.push(operation);
        }
        operations
    }

    /// Changes an operation to that of a subresource that is a stream of bytes.
    fn converse(&self, operation: &mut DocumentOperation, subresource: &Subresource, suffix: &str) {
        let name = capitalised(&subresource.name);
        operation.parameters = parameters::connect(&subresource.name);
        operation.body = OperationBody::None;
        operation.answers = vec![("200", BodyType::Text)];
        // Like in Kubernetes, a log is not a connect operation.
        if subresource.kind != self.resource.kind {
            operation.action = Some("connect");
            operation.produces = vec!["*/*"];
            let method = capitalised(operation.method);
            operation.id = format!(
                "connect{}{method}{}{}{name}{suffix}",
                self.camel(),
                self.scope(),
                self.resource.kind
            );
        } else {
            operation.produces.insert(0, "text/plain");
        }
    }

    /// Returns the operation of a verb, with everything that does not depend on the path.
    fn operation(&self, verb: Verb, subresource: &str, kind: [String; 3]) -> DocumentOperation {
        use parameters::{DELETE, DELETE_COLLECTION, LIST, PATCH, WRITE};
        let origin = self.resource.origin;
        let (method, action, word, parameters, body): (_, _, _, &'static [Parameter], _) = match verb {
            Verb::Get => ("get", "get", "read", &[], OperationBody::None),
            Verb::List | Verb::Watch => ("get", "list", "list", LIST, OperationBody::None),
            Verb::Create => ("post", "post", "create", WRITE, OperationBody::Object(self.object.clone())),
            Verb::Update => ("put", "put", "replace", WRITE, OperationBody::Object(self.object.clone())),
            Verb::Patch => ("patch", "patch", "patch", PATCH, OperationBody::Patch(patches(origin))),
            Verb::Delete => ("delete", "delete", "delete", DELETE, OperationBody::DeleteOptions),
            Verb::DeleteCollection => {
                ("delete", "deletecollection", "delete", DELETE_COLLECTION, OperationBody::DeleteOptions)
            }
        };
        DocumentOperation {
            method,
            action: Some(action),
            id: format!("{word}{}{}{}{subresource}", self.camel(), self.scope(), self.resource.kind),
            tag: tag(&self.resource.group, &self.resource.version),
            description: String::new(),
            parameters,
            body,
            produces: produces(origin),
            answers: Vec::new(),
            kind: Some(kind),
        }
    }

    fn camel(&self) -> String {
        camel(&self.resource.group, &self.resource.version)
    }

    fn scope(&self) -> &'static str {
        if self.resource.namespaced { "Namespaced" } else { "" }
    }
}

fn produces(origin: Origin) -> Vec<&'static str> {
    match origin {
        Origin::BuiltIn => vec!["application/json", PROTOBUF, "application/yaml"],
        Origin::Custom => vec!["application/json", "application/yaml"],
    }
}

fn listings(origin: Origin) -> Vec<&'static str> {
    let mut types = produces(origin);
    types.push("application/json;stream=watch");
    if origin == Origin::BuiltIn {
        types.push("application/vnd.kubernetes.protobuf;stream=watch");
    }
    types
}

fn patches(origin: Origin) -> Vec<&'static str> {
    let has_merge_keys = origin == Origin::BuiltIn;
    PATCHES.into_iter().filter(|patch| has_merge_keys || !patch.contains("strategic")).collect()
}

/// Returns `RbacAuthorizationV1` for `rbac.authorization.k8s.io` and `v1`.
fn camel(group: &str, version: &str) -> String {
    let group = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
    group.split(['.', '-']).map(capitalised).collect::<String>() + &capitalised(version)
}

/// Returns `rbacAuthorization_v1`.
fn tag(group: &str, version: &str) -> String {
    let mut camel = camel(group, "");
    if let Some(first) = camel.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    format!("{camel}_{version}")
}

fn capitalised(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    word
}

impl DocumentPath {
    /// Returns the path item for OpenAPI v3.
    pub(super) fn v3(self) -> (String, Value) {
        let mut item: Map<String, Value> =
            self.operations.iter().map(|operation| (operation.method.to_owned(), operation.v3())).collect();
        if !self.parameters.is_empty() {
            item.insert("parameters".into(), self.parameters.iter().map(Parameter::v3).collect());
        }
        (self.path, item.into())
    }
}

impl DocumentOperation {
    fn v3(&self) -> Value {
        let content = |media: &[&str], of: &BodyType| {
            media
                .iter()
                .map(|media| ((*media).to_owned(), json!({ "schema": of.json(PREFIX) })))
                .collect::<Value>()
        };
        let mut json = self.common();
        if !self.parameters.is_empty() {
            json["parameters"] = self.parameters.iter().map(Parameter::v3).collect();
        }
        match &self.body {
            OperationBody::None => {}
            OperationBody::Object(of) => {
                json["requestBody"] = json!({ "content": content(&["*/*"], of), "required": true })
            }
            OperationBody::DeleteOptions => {
                json["requestBody"] =
                    json!({ "content": content(&["*/*"], &BodyType::meta("DeleteOptions")) });
            }
            OperationBody::Patch(media) => {
                json["requestBody"] =
                    json!({ "content": content(media, &BodyType::meta("Patch")), "required": true });
            }
        }
        for (code, of) in &self.answers {
            json["responses"][*code] =
                json!({ "description": meaning(code), "content": content(&self.produces, of) });
        }
        json
    }

    /// Returns the part of an operation that is the same in both OpenAPI versions.
    pub(super) fn common(&self) -> Value {
        let mut json = json!({
            "tags": [self.tag],
            "description": self.description,
            "operationId": self.id,
            "responses": { "401": { "description": meaning("401") } },
        });
        if let Some(action) = self.action {
            json["x-kubernetes-action"] = action.into();
        }
        if let Some([group, version, kind]) = &self.kind {
            json["x-kubernetes-group-version-kind"] =
                json!({ "group": group, "version": version, "kind": kind });
        }
        json
    }
}

pub(super) fn meaning(code: &str) -> &'static str {
    match code {
        "200" => "OK",
        "201" => "Created",
        "202" => "Accepted",
        _ => "Unauthorized",
    }
}
