//! Prevention of privilege escalation: a user grants only the rights that they hold.
//!
//! A user who writes a role must hold all its rules, or may `escalate` the role. A user who writes a binding must hold
//! all rules of the bound role, or may `bind` the role. Without these checks the right to write roles would be the
//! right to do everything.

use openapi::meta::status::Status;
use serde_json::Value;

use crate::authn::identity::Identity;
use crate::rbac::{GROUP, Rule, cover};
use crate::registry::call::Call;
use crate::request::attributes::{Attributes, ResourceAttributes};

/// Limit for the list of missing rules in an error. Some hundred rules fit.
const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// Refuses a role or binding that grants rights which the user does not hold. `old` is the replaced object.
pub(crate) fn check(call: &Call, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    let concerned = &*call.resource.group == GROUP && call.subresource.is_none();
    if !concerned
        || call.identity.is_administrator()
        || old.is_some_and(|old| changes_only_garbage_collection(old, new))
    {
        return Ok(());
    }
    match &*call.resource.plural {
        "roles" | "clusterroles" => role(call, old, new),
        "rolebindings" | "clusterrolebindings" => binding(call, new),
        _ => Ok(()),
    }
}

fn role(call: &Call, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    if may(call, "escalate", &call.resource.plural, call.name.as_deref().unwrap_or_default()) {
        return Ok(());
    }
    holds(call, new, &rules(new)?)?;
    let gathers = |role: &Value| {
        role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty())
    };
    // The aggregated rules are not known yet, so the user must hold everything.
    if gathers(new) || old.is_some_and(gathers) {
        let any = || vec!["*".to_owned()];
        let everything = [
            Rule { verbs: any(), api_groups: any(), resources: any(), ..Rule::default() },
            Rule { verbs: any(), paths: any(), ..Rule::default() },
        ];
        let why = "must have cluster-admin privileges to use the aggregationRule";
        holds(call, new, &everything).map_err(|_| forbidden(call, new, why))?;
    }
    Ok(())
}

fn binding(call: &Call, new: &Value) -> Result<(), Status> {
    let text = |field: &str| new["roleRef"][field].as_str().unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let plural = match kind {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        // Validation reports the unknown kind.
        _ => return Ok(()),
    };
    if may(call, "bind", plural, name) {
        return Ok(());
    }
    let namespace = call.namespace.as_deref().unwrap_or_default();
    let rules =
        call.authorization.policy(|layers| layers.role_rules(namespace, kind, name).map(<[Rule]>::to_vec));
    holds(call, new, &rules.map_err(|_| call.not_found(name))?)
}

/// Refuses unless the user holds all of these rules.
fn holds(call: &Call, object: &Value, requested: &[Rule]) -> Result<(), Status> {
    let (held, unresolved) = call.authorization.rules(call.namespace.as_deref().unwrap_or_default());
    let missing = cover::missing(&held.iter().collect::<Vec<_>>(), requested).map_err(|_| {
        let why = "the rules are too large to compare with the rules you hold; use fewer verbs, groups, \
                   resources or names";
        forbidden(call, object, why)
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    let groups = match &call.identity {
        Identity::User(user) => user.groups.as_slice(),
        Identity::Anonymous => &[],
    };
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        call.identity.name(),
        cover::quoted(groups),
        cover::described(&missing)
    );
    if !unresolved.is_empty() {
        why += &format!("; resolution errors: [{}]", unresolved.join(", "));
    }
    Err(forbidden(call, object, shortened(&why)))
}

/// Limits the length of an error: it contains names that clients choose.
fn shortened(text: &str) -> &str {
    let ends = (0..=MESSAGE_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..ends.unwrap_or_default()]
}

fn may(call: &Call, verb: &str, resource: &str, name: &str) -> bool {
    let requested = Attributes::Resource(ResourceAttributes {
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        version: "*".to_owned(),
        resource: resource.to_owned(),
        subresource: String::new(),
        namespace: call.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
    });
    call.authorization.may(&call.identity, &requested).allowed
}

fn forbidden(call: &Call, object: &Value, why: &str) -> Status {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Status::forbidden(call.grouped(), name, why)
}

fn rules(role: &Value) -> Result<Vec<Rule>, Status> {
    match &role["rules"] {
        Value::Null => Ok(Vec::new()),
        rules => {
            serde_json::from_value(rules.clone()).map_err(|error| Status::bad_request(error.to_string()))
        }
    }
}

/// Reports whether only fields changed that garbage collection changes. A user who may delete a role need not hold its
/// rules.
fn changes_only_garbage_collection(old: &Value, new: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"] {
                metadata.remove(field);
            }
        }
        object
    };
    bare(old) == bare(new)
}
