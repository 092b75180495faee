use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::request::attributes::ResourceAttributes;

fn role(rules: Value) -> Option<Role> {
    Some(serde_json::from_value(json!({ "rules": rules })).unwrap())
}

fn binding(kind: &str, role: &str, subjects: &[(&str, &str)]) -> Option<Binding> {
    let subjects: Vec<_> = subjects
        .iter()
        .map(|(kind, name)| {
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            json!({ "kind": kind, "name": name, "namespace": namespace })
        })
        .collect();
    let role = json!({ "kind": kind, "name": role });
    Some(serde_json::from_value(json!({ "subjects": subjects, "roleRef": role })).unwrap())
}

fn pods(verb: &str, namespace: &str) -> Attributes {
    Attributes::Resource(ResourceAttributes {
        verb: verb.to_owned(),
        resource: "pods".to_owned(),
        namespace: namespace.to_owned(),
        ..ResourceAttributes::default()
    })
}

fn reader() -> Option<Role> {
    role(json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }]))
}

fn decide(own: &Policy, shared: &Policy, name: &str, groups: &[&str], attributes: &Attributes) -> Decision {
    let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
    Layers { own: Some(own), shared }.decide(UserInfo { name, groups: &groups }, attributes)
}

#[test]
fn subjects_are_allowed_by_the_roles_bound_to_them_with_a_reason() {
    let mut policy = Policy::default();
    policy.set_role(PolicyKey::new("", "reader"), reader());
    policy.set_role(PolicyKey::new("shop", "local"), reader());
    let to = |subjects: &[(&str, &str)]| binding("ClusterRole", "reader", subjects);
    policy.set_binding(PolicyKey::new("", "all"), to(&[("User", "ann"), ("Group", "dev")]));
    policy.set_binding(PolicyKey::new("shop", "some"), to(&[("User", "bob"), ("ServiceAccount", "robot")]));
    let local = binding("Role", "local", &[("ServiceAccount", "ci/bot"), ("Group", "ops")]);
    policy.set_binding(PolicyKey::new("shop", "local"), local);
    policy.set_binding(PolicyKey::new("", "lost"), binding("ClusterRole", "gone", &[("User", "eve")]));
    policy.set_binding(PolicyKey::new("shop", "lost"), binding("Role", "reader", &[("User", "eve")]));
    let check = |name: &str, groups: &[&str], namespace: &str, expected: Option<&str>| {
        let found = decide(&policy, &Policy::default(), name, groups, &pods("get", namespace));
        let reason = expected.map_or(String::new(), |by| format!("RBAC: allowed by {by}"));
        let expected = Decision { allowed: expected.is_some(), reason };
        assert_eq!(found, expected, "{name} {groups:?} in {namespace:?}");
    };
    let ann = "ClusterRoleBinding \"all\" of ClusterRole \"reader\" to User \"ann\"";
    let dev = "ClusterRoleBinding \"all\" of ClusterRole \"reader\" to Group \"dev\"";
    check("ann", &[], "", Some(ann));
    check("ann", &["dev"], "shop", Some(ann));
    check("x", &["other", "dev"], "", Some(dev));
    check("bob", &[], "shop", Some("RoleBinding \"some/shop\" of ClusterRole \"reader\" to User \"bob\""));
    check("bob", &[], "", None);
    check("bob", &[], "other", None);
    let robot = "RoleBinding \"some/shop\" of ClusterRole \"reader\" to ServiceAccount \"robot/shop\"";
    check("system:serviceaccount:shop:robot", &[], "shop", Some(robot));
    check("system:serviceaccount:ci:robot", &[], "shop", None);
    let bot = "RoleBinding \"local/shop\" of Role \"local\" to ServiceAccount \"bot/ci\"";
    check("system:serviceaccount:ci:bot", &[], "shop", Some(bot));
    check("dev", &[], "", None);
    check("", &[], "", None);
    assert!(!decide(&policy, &Policy::default(), "ann", &[], &pods("list", "")).allowed);

    let lost = decide(&policy, &Policy::default(), "eve", &[], &pods("get", "shop"));
    let expected = "RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, \
                    role.rbac.authorization.k8s.io \"reader\" not found]";
    assert_eq!((lost.allowed, lost.reason.as_str()), (false, expected));
}

#[test]
fn a_logical_cluster_overrides_shared_roles_and_bindings() {
    let (mut shared, mut own) = (Policy::default(), Policy::default());
    shared.set_role(PolicyKey::new("", "reader"), reader());
    let to = |name: &str| binding("ClusterRole", "reader", &[("User", name)]);
    shared.set_binding(PolicyKey::new("", "all"), to("ann"));
    let may = |own: &Policy, name: &str| decide(own, &shared, name, &[], &pods("get", "")).allowed;
    assert!(may(&own, "ann") && !may(&own, "bob"));
    // Changed, then deleted, then as in the shared layer.
    own.set_binding(PolicyKey::new("", "all"), to("bob"));
    assert!(!may(&own, "ann") && may(&own, "bob"));
    own.set_binding(PolicyKey::new("", "all"), None);
    assert!(!may(&own, "ann") && !may(&own, "bob"));
    own.unset_binding(&PolicyKey::new("", "all"));
    assert!(may(&own, "ann") && own.is_empty());
    // The same for the role.
    own.set_role(PolicyKey::new("", "reader"), role(json!([])));
    assert!(!may(&own, "ann"));
    own.set_role(PolicyKey::new("", "reader"), None);
    assert!(!may(&own, "ann"));
    own.unset_role(&PolicyKey::new("", "reader"));
    assert!(may(&own, "ann") && own.is_empty());
}

#[test]
fn all_rules_of_a_user_are_listed() {
    let mut policy = Policy::default();
    policy.set_role(PolicyKey::new("", "reader"), reader());
    let to = |name: &str| binding("ClusterRole", name, &[("User", "ann"), ("Group", "dev")]);
    policy.set_binding(PolicyKey::new("shop", "b"), to("reader"));
    policy.set_binding(PolicyKey::new("", "c"), to("gone"));
    let groups = ["dev".to_owned()];
    let layers = Layers { own: None, shared: &policy };
    let (rules, missing) = layers.rules(UserInfo { name: "ann", groups: &groups }, "shop");
    assert!(rules.iter().all(|rule| **rule == reader().unwrap().rules[0]) && !rules.is_empty());
    assert_eq!(missing, ["clusterrole.rbac.authorization.k8s.io \"gone\" not found"]);
    assert!(layers.rules(UserInfo { name: "ann", groups: &groups }, "").0.is_empty());
}

/// A change to a policy: an entry is set, marked as deleted or removed.
#[derive(Clone, Debug)]
enum Change {
    Role(PolicyKey, Option<bool>),
    Binding(PolicyKey, Option<Vec<usize>>),
    Forget(PolicyKey),
}

const SUBJECTS: [(&str, &str); 4] =
    [("User", "ann"), ("Group", "dev"), ("ServiceAccount", "shop/bot"), ("ServiceAccount", "bot")];

fn places() -> impl Strategy<Value = PolicyKey> {
    let names = prop::sample::select(vec!["a", "b", "c"]);
    (prop::sample::select(vec!["", "shop"]), names)
        .prop_map(|(namespace, name)| PolicyKey::new(namespace, name))
}

fn changes() -> impl Strategy<Value = Change> {
    let subjects = prop::collection::vec(0..SUBJECTS.len(), 0..3);
    prop_oneof![
        (places(), prop::option::of(any::<bool>())).prop_map(|(place, role)| Change::Role(place, role)),
        (places(), prop::option::of(subjects)).prop_map(|(place, to)| Change::Binding(place, to)),
        places().prop_map(Change::Forget),
    ]
}

fn apply(policy: &mut Policy, change: &Change) {
    match change {
        Change::Role(place, role) => {
            let allowing = role.map(|allows| if allows { reader() } else { self::role(json!([])) });
            policy.set_role(place.clone(), allowing.flatten());
        }
        Change::Binding(place, subjects) => {
            let subjects = subjects.as_ref().map(|to| to.iter().map(|at| SUBJECTS[*at]).collect::<Vec<_>>());
            let kind = if place.namespace.is_empty() { "ClusterRole" } else { "Role" };
            let made = subjects.and_then(|subjects| binding(kind, &place.name, &subjects));
            policy.set_binding(place.clone(), made);
        }
        Change::Forget(place) => {
            policy.unset_role(place);
            policy.unset_binding(place);
        }
    }
}

/// Makes the same decision by scanning all bindings.
fn scanned(own: &Policy, shared: &Policy, user: UserInfo<'_>, attributes: &Attributes) -> bool {
    let Attributes::Resource(resource) = attributes else { return false };
    let layers = Layers { own: Some(own), shared };
    let places = own.bindings.keys().chain(shared.bindings.keys());
    places.filter(|place| ["", &resource.namespace].contains(&&*place.namespace)).any(|place| {
        let found = own.bindings.get(place).or_else(|| shared.bindings.get(place));
        let Some(Some(binding)) = found else { return false };
        let subject_names =
            binding.subjects.iter().filter_map(|subject| subject.subject_name(&place.namespace));
        let mut matches = subject_names.map(|subject_name| match subject_name {
            SubjectName::User(name) => name == user.name,
            SubjectName::Group(name) => user.groups.contains(&name),
        });
        let rules = layers.role_rules(&place.namespace, &binding.role_ref.kind, &binding.role_ref.name);
        matches.any(|matches| matches)
            && rules.is_ok_and(|rules| rules.iter().any(|rule| rule.allows(attributes)))
    })
}

proptest! {
    /// The index finds the same bindings as a scan, whatever changes led to the policy.
    #[test]
    fn the_lookup_agrees_with_a_scan(
        shared in prop::collection::vec(changes(), 0..12), own in prop::collection::vec(changes(), 0..12),
        user in 0..4usize, in_dev in any::<bool>(), namespace in prop::sample::select(vec!["", "shop", "other"]),
    ) {
        let mut layers = [Policy::default(), Policy::default()];
        for (policy, changes) in layers.iter_mut().zip([&shared, &own]) {
            changes.iter().for_each(|change| apply(policy, change));
        }
        let [shared, own] = &layers;
        let groups: Vec<String> = in_dev.then(|| "dev".to_owned()).into_iter().collect();
        let name = ["ann", "bob", "system:serviceaccount:shop:bot", "system:serviceaccount:other:bot"][user];
        let (user, attributes) = (UserInfo { name, groups: &groups }, pods("get", namespace));
        let found = Layers { own: Some(own), shared }.decide(user, &attributes);
        prop_assert_eq!(found.allowed, scanned(own, shared, user, &attributes));
        prop_assert_eq!(found.allowed, found.reason.starts_with("RBAC: allowed by "));
    }
}
