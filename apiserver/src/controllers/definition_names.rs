//! Accepts or refuses the names of custom resource definitions.
//!
//! In a group, each plural, singular and short name belongs to one resource, and each kind and list kind to one kind. A
//! definition gets the names that are free. It is served once it has all its names. If it later asks for a name that is
//! in use, it stays served under its accepted names. Reasons and messages are copied from Kubernetes.

use std::collections::BTreeSet;

use openapi::catalog::resource_info::ResourceInfo;
use serde_json::{Map, Value, json};

use crate::kinds;
use crate::kinds::ESTABLISHED;
use crate::objects::conditions;
use crate::objects::conditions::Condition;

/// The annotation with the approval of a kind in one of Kubernetes' own groups.
const APPROVED: &str = "api-approved.kubernetes.io";

pub(super) const ACCEPTED: &str = "NamesAccepted";

/// The names of one group that are in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    /// Returns the names of built-in kinds.
    pub(super) fn built_in(resources: &[std::sync::Arc<ResourceInfo>], group: &str) -> Taken {
        let mut taken = Taken::default();
        for resource in resources.iter().filter(|resource| &*resource.group == group) {
            let short = resource.short_names.iter();
            taken.resources.extend(
                [&resource.plural, &resource.singular].into_iter().chain(short).map(|name| name.to_string()),
            );
            taken.kinds.extend([&resource.kind, &resource.list_kind].map(|name| name.to_string()));
        }
        taken
    }

    /// Adds the names of a definition.
    pub(super) fn add(&mut self, names: &Value) {
        let named =
            |fields: &[&str]| -> Vec<String> { fields.iter().map(|field| text(names, field)).collect() };
        let is_set = |name: &String| !name.is_empty();
        self.resources
            .extend(named(&["plural", "singular"]).into_iter().chain(short_names(names)).filter(is_set));
        self.kinds.extend(named(&["kind", "listKind"]).into_iter().filter(is_set));
    }
}

/// Sets the accepted names and the conditions of a definition. Idempotent: the controller is requeued by its own
/// writes.
pub(super) fn settle(definition: &mut Value, taken: &Taken) {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    // A definition of a built-in kind gets no names, whatever its status contains.
    let is_reserved = kinds::is_reserved(name);
    let accepted_before =
        if is_reserved { Value::Null } else { definition["status"]["acceptedNames"].clone() };
    let (mut names, mut accepted) = accept(&definition["spec"]["names"], &accepted_before, taken);
    if is_reserved {
        names = json!({ "plural": "", "kind": "" });
        if accepted.holds {
            accepted = Condition::new(ACCEPTED, false, "Reserved", format!("{name:?} is a built-in kind"));
        }
    }
    let is_established = !is_reserved && conditions::holds(definition, ESTABLISHED);
    if !definition["status"].is_object() {
        definition["status"] = json!({});
    }
    definition["status"]["acceptedNames"] = names;
    let established = match (is_established, accepted.holds) {
        (true, _) => None,
        (false, true) => Some(Condition::new(
            ESTABLISHED,
            true,
            "InitialNamesAccepted",
            "the initial names have been accepted",
        )),
        (false, false) => {
            Some(Condition::new(ESTABLISHED, false, "NotAccepted", "not all names are accepted"))
        }
    };
    for condition in [Some(accepted), established, approval(definition)].into_iter().flatten() {
        conditions::set(definition, &condition);
    }
}

/// The requested names of a definition, its accepted names so far, and the result.
struct NameAcceptance<'a> {
    requested: &'a Value,
    accepted_before: &'a Value,
    accepted: Map<String, Value>,
    /// The condition. If several names conflict, the last conflict counts.
    condition: Condition,
}

/// Returns the accepted names of a definition, and the condition.
fn accept(requested: &Value, accepted_before: &Value, taken: &Taken) -> (Value, Condition) {
    let condition = Condition::new(ACCEPTED, true, "NoConflicts", "no conflicts found");
    let mut names = NameAcceptance { requested, accepted_before, accepted: Map::new(), condition };
    names.one("plural", &taken.resources, "PluralConflict");
    names.one("singular", &taken.resources, "SingularConflict");
    names.short(&taken.resources);
    names.one("kind", &taken.kinds, "KindConflict");
    names.one("listKind", &taken.kinds, "ListKindConflict");
    let categories = &requested["categories"];
    if categories.as_array().is_some_and(|all| !all.is_empty()) {
        names.accepted.insert("categories".to_owned(), categories.clone());
    }
    (names.accepted.into(), names.condition)
}

impl NameAcceptance<'_> {
    fn one(&mut self, field: &str, used: &BTreeSet<String>, reason: &'static str) {
        let (requested, accepted_before) = (text(self.requested, field), text(self.accepted_before, field));
        let is_taken = requested != accepted_before && used.contains(&requested);
        let name = if is_taken { accepted_before } else { requested.clone() };
        if is_taken {
            self.condition = Condition::new(ACCEPTED, false, reason, in_use(&requested));
        }
        // Kubernetes writes these two fields even if they are empty.
        if !name.is_empty() || matches!(field, "plural" | "kind") {
            self.accepted.insert(field.to_owned(), name.into());
        }
    }

    /// Accepts either all requested short names or none of them.
    fn short(&mut self, used: &BTreeSet<String>) {
        let (requested, accepted_before) = (short_names(self.requested), short_names(self.accepted_before));
        let taken = requested.iter().filter(|name| !accepted_before.contains(name) && used.contains(*name));
        let conflicts: Vec<String> = taken.map(|name| in_use(name)).collect();
        let names = if conflicts.is_empty() { requested } else { accepted_before };
        if !names.is_empty() {
            self.accepted.insert("shortNames".to_owned(), names.into());
        }
        let message = match &conflicts[..] {
            [] => return,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        self.condition = Condition::new(ACCEPTED, false, "ShortNamesConflict", message);
    }
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

/// Reports whether a group is one of Kubernetes' own.
pub(super) fn is_protected(group: &str) -> bool {
    let within = |domain: &&str| group == *domain || group.ends_with(&format!(".{domain}"));
    ["k8s.io", "kubernetes.io"].iter().any(within)
}

/// Returns the approval condition of a kind in one of Kubernetes' own groups. A definition without the annotation was
/// already refused on create.
fn approval(definition: &Value) -> Option<Condition> {
    let group = text(&definition["spec"], "group");
    let approval_condition = |holds, reason, message| {
        Some(Condition::new("KubernetesAPIApprovalPolicyConformant", holds, reason, message))
    };
    let annotation = definition["metadata"]["annotations"][APPROVED].as_str().unwrap_or_default();
    let rule = |how: &str| {
        format!(
            "protected groups must have approval annotation {APPROVED:?}{how}, \
             see https://github.com/kubernetes/enhancements/pull/1111"
        )
    };
    match annotation {
        _ if !is_protected(&group) => None,
        "" => approval_condition(false, "MissingAnnotation", rule("")),
        annotation if annotation.starts_with("unapproved") => {
            approval_condition(false, "UnapprovedAnnotation", format!("not approved: {annotation:?}"))
        }
        annotation if is_address(annotation) => {
            approval_condition(true, "ApprovedAnnotation", format!("approved in {annotation}"))
        }
        _ => approval_condition(
            false,
            "InvalidAnnotation",
            rule(" with either a URL or a reason starting with \"unapproved\""),
        ),
    }
}

fn is_address(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}

fn short_names(names: &Value) -> Vec<String> {
    let short = names["shortNames"].as_array().into_iter().flatten();
    short.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(names: Value) -> Value {
        json!({ "metadata": {}, "spec": { "group": "g.example", "names": names } })
    }

    fn taken() -> Taken {
        let mut first = definition(json!({
            "plural": "as", "singular": "a", "kind": "A", "listKind": "AList", "shortNames": ["x", "y"],
        }));
        settle(&mut first, &Taken::default());
        let mut taken = Taken::default();
        taken.add(&first["status"]["acceptedNames"]);
        taken
    }

    /// Expected values from a Kubernetes API server.
    #[test]
    fn a_taken_name_is_refused_and_the_last_conflict_is_reported() {
        let check = |names: Value, reason: &str, message: &str, accepted: Value| {
            let mut definition = definition(names);
            settle(&mut definition, &taken());
            let conditions = &definition["status"]["conditions"];
            assert_eq!(
                (&conditions[0]["reason"], &conditions[0]["message"]),
                (&json!(reason), &json!(message))
            );
            assert_eq!(
                (&conditions[1]["status"], &conditions[1]["reason"]),
                (&json!("False"), &json!("NotAccepted"))
            );
            assert_eq!(definition["status"]["acceptedNames"], accepted);
        };
        check(
            json!({ "plural": "bs", "singular": "a", "kind": "B", "listKind": "BList", "shortNames": ["x", "y", "z"] }),
            "ShortNamesConflict",
            "[\"x\" is already in use, \"y\" is already in use]",
            json!({ "plural": "bs", "kind": "B", "listKind": "BList" }),
        );
        check(
            json!({ "plural": "cs", "singular": "c", "kind": "A", "listKind": "AList", "shortNames": ["x"] }),
            "ListKindConflict",
            "\"AList\" is already in use",
            json!({ "plural": "cs", "singular": "c", "kind": "" }),
        );
        check(
            json!({ "plural": "ds", "singular": "d", "kind": "AList", "listKind": "AListList" }),
            "KindConflict",
            "\"AList\" is already in use",
            json!({ "plural": "ds", "singular": "d", "kind": "", "listKind": "AListList" }),
        );
        check(
            json!({ "plural": "es", "singular": "as", "kind": "E", "listKind": "EList" }),
            "SingularConflict",
            "\"as\" is already in use",
            json!({ "plural": "es", "kind": "E", "listKind": "EList" }),
        );
    }

    #[test]
    fn an_established_definition_keeps_its_accepted_names_on_a_conflict() {
        let mut definition =
            definition(json!({ "plural": "bs", "singular": "b", "kind": "B", "listKind": "BList" }));
        settle(&mut definition, &taken());
        assert!(conditions::holds(&definition, ESTABLISHED) && conditions::holds(&definition, ACCEPTED));
        definition["spec"]["names"]["shortNames"] = json!(["x"]);
        settle(&mut definition, &taken());
        assert!(conditions::holds(&definition, ESTABLISHED) && !conditions::holds(&definition, ACCEPTED));
        assert_eq!(definition["status"]["acceptedNames"].get("shortNames"), None);
        let before = definition.clone();
        settle(&mut definition, &taken());
        assert_eq!(definition, before, "a second call changes nothing");
    }

    #[test]
    fn kinds_in_protected_groups_have_an_approval_condition() {
        let check = |annotation: &str, status: &str, reason: &str, message: &str| {
            let mut definition = definition(json!({ "plural": "as", "kind": "A" }));
            definition["spec"]["group"] = "x.k8s.io".into();
            definition["metadata"]["annotations"] = json!({ APPROVED: annotation });
            let condition = approval(&definition).unwrap();
            let state = if condition.holds { "True" } else { "False" };
            assert_eq!((state, condition.reason, condition.message.as_str()), (status, reason, message));
        };
        let address = "https://github.com/kubernetes/enhancements/pull/1";
        check(address, "True", "ApprovedAnnotation", &format!("approved in {address}"));
        let annotation = "unapproved, experimental";
        check(annotation, "False", "UnapprovedAnnotation", "not approved: \"unapproved, experimental\"");
        assert_eq!(approval(&definition(json!({}))), None);
    }
}
