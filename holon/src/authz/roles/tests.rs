use api::names::MAILBOX_OF;
use apiserver::rbac::controller_role::GrantScope;
use apiserver::request::attributes::{Attributes, ResourceAttributes};

use super::*;

/// A request of a controller: the logical cluster, and `verb group resource [name]` or `verb /path`.
type ControllerRequest = (&'static str, &'static str);

const FLEET_REQUESTS: &[ControllerRequest] = &[
    ("user", "watch holon.dev physicalclusters"),
    ("user", "list coordination.k8s.io leases"),
    ("user", "patch holon.dev physicalclusters/status east"),
    ("user", "create holon.dev logicalclusters"),
    ("user", "get - secrets east"),
    ("root", "create coordination.k8s.io leases"),
    ("root", "update coordination.k8s.io leases holon-fleet"),
    ("mailbox", "get /apis"),
    ("mailbox", "create - serviceaccounts"),
    ("mailbox", "patch - serviceaccounts holon-syncer"),
    ("mailbox", "create rbac.authorization.k8s.io clusterroles"),
    ("mailbox", "escalate rbac.authorization.k8s.io clusterroles holon:syncer"),
    ("mailbox", "delete apps deployments web"),
];

const SPLITTER_REQUESTS: &[ControllerRequest] = &[
    ("user", "watch - secrets"),
    ("user", "list apps deployments"),
    ("user", "get batch jobs once"),
    ("user", "watch autoscaling horizontalpodautoscalers"),
    ("user", "watch discovery.k8s.io endpointslices"),
    ("user", "watch networking.k8s.io ingresses"),
    ("user", "watch policy poddisruptionbudgets"),
    ("user", "list holon.dev placements"),
    ("user", "watch apiextensions.k8s.io customresourcedefinitions"),
    ("user", "delete holon.dev distributions deployment-web"),
    ("user", "patch holon.dev distributions/status deployment-web"),
    ("user", "patch holon.dev physicalclusters east"),
    ("user", "patch holon.dev physicalclusters/status east"),
    ("user", "patch holon.dev statusrules/status mine"),
    ("user", "patch - namespaces shop"),
    ("user", "patch apps deployments/status web"),
    ("user", "patch batch jobs/status once"),
    ("user", "delete batch jobs once"),
    ("user", "patch - replicationcontrollers/scale web"),
    ("user", "patch apps deployments/scale web"),
    ("user", "patch example.com gardens/scale rose"),
    ("user", "patch autoscaling horizontalpodautoscalers/status web"),
    ("user", "patch networking.k8s.io ingresses/status web"),
    ("user", "patch policy poddisruptionbudgets/status web"),
    ("user", "create - pods"),
    ("user", "create - pods/binding web-1"),
    ("user", "patch - pods/ephemeralcontainers web-1"),
    ("user", "update - nodes/status east"),
    ("user", "create apiextensions.k8s.io customresourcedefinitions"),
    ("user", "delete apiextensions.k8s.io customresourcedefinitions pods.metrics.k8s.io"),
    ("user", "update - pods/status web-1"),
    ("user", "delete apps replicasets web-1"),
    ("user", "update apps replicasets/status web-1"),
    ("user", "create batch jobs"),
    ("user", "update batch jobs/status once-1"),
    ("user", "create discovery.k8s.io endpointslices"),
    ("user", "create events.k8s.io events"),
    ("user", "create - serviceaccounts/token bot"),
    ("user", "create authorization.k8s.io subjectaccessreviews"),
    ("user", "list rbac.authorization.k8s.io clusterrolebindings"),
    ("user", "watch example.com gardens"),
    ("user", "patch example.com gardens/status rose"),
    ("mailbox", "update apps deployments web"),
];

const TUNNEL_REQUESTS: &[ControllerRequest] = &[
    ("user", "list - pods"),
    ("mailbox", "get - pods web-1"),
    ("mailbox", "get - namespaces shop"),
    ("mailbox", "create apiextensions.k8s.io customresourcedefinitions"),
];

/// Requests that no controller may send, even if a tenant tricks it into trying.
const FORBIDDEN_REQUESTS: &[ControllerRequest] = &[
    ("user", "create rbac.authorization.k8s.io clusterrolebindings"),
    ("user", "patch rbac.authorization.k8s.io clusterroles view"),
    ("user", "delete - namespaces shop"),
    ("user", "update - secrets mine"),
    ("user", "delete - secrets mine"),
    ("user", "update apps deployments web"),
    ("user", "patch apps deployments web"),
    ("user", "delete apps deployments web"),
    ("user", "patch example.com gardens rose"),
    ("user", "patch certificates.k8s.io certificatesigningrequests/status mine"),
    ("user", "update certificates.k8s.io certificatesigningrequests/approval mine"),
    ("user", "patch apiextensions.k8s.io customresourcedefinitions/status gardens.example.com"),
    ("user", "delete apiextensions.k8s.io customresourcedefinitions gardens.example.com"),
    ("user", "create authentication.k8s.io tokenreviews"),
    ("user", "impersonate - users ann"),
    ("user", "delete holon.dev physicalclusters east"),
    ("user", "get /metrics"),
    ("root", "create rbac.authorization.k8s.io clusterrolebindings"),
    ("root", "get /metrics"),
];

fn attributes(request: &str) -> Attributes {
    let fields: Vec<&str> = request.split(' ').collect();
    if fields[1].starts_with('/') {
        return Attributes::Path { verb: fields[0].to_owned(), path: fields[1].to_owned() };
    }
    let (resource, subresource) = fields[2].split_once('/').unwrap_or((fields[2], ""));
    Attributes::Resource(ResourceAttributes {
        verb: fields[0].to_owned(),
        group: fields[1].trim_matches('-').to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        name: fields.get(3).copied().unwrap_or_default().to_owned(),
        ..ResourceAttributes::default()
    })
}

fn allows(table: &str, (scope, request): &ControllerRequest) -> bool {
    let controller_role = ControllerRole::read(table).unwrap();
    let extra_scope = match *scope {
        "mailbox" => Some(GrantScope::Labelled(MAILBOX_OF.to_owned())),
        "root" => Some(GrantScope::Root),
        _ => None,
    };
    let attributes = attributes(request);
    let mut scopes = [Some(GrantScope::Everywhere), extra_scope].into_iter().flatten();
    scopes.any(|scope| controller_role.allows(&scope, &attributes))
}

#[test]
fn controller_roles_allow_all_their_requests_and_every_line_is_needed() {
    for (table, requests) in
        [(FLEET, FLEET_REQUESTS), (SPLITTER, SPLITTER_REQUESTS), (TUNNEL, TUNNEL_REQUESTS)]
    {
        for request in requests {
            assert!(allows(table, request), "{request:?}");
        }
        let lines: Vec<&str> = table.lines().collect();
        let is_rule = |line: &&str| line.starts_with("  ") && !line.trim_start().starts_with(['#', 'b']);
        for removed in lines.iter().filter(|line| is_rule(line)) {
            let rest: Vec<&str> = lines.iter().filter(|line| *line != removed).copied().collect();
            let is_needed = requests.iter().any(|request| !allows(&rest.join("\n"), request));
            assert!(is_needed, "no request needs {removed:?}");
        }
    }
}

#[test]
fn controllers_may_do_nothing_else() {
    for request in FORBIDDEN_REQUESTS {
        for (controller, table) in [("fleet", FLEET), ("splitter", SPLITTER), ("tunnel", TUNNEL)] {
            assert!(!allows(table, request), "{controller}: {request:?}");
        }
    }
    // Each controller has only its own rights.
    let users = [
        ("user", "list - secrets"),
        ("user", "create - pods"),
        ("user", "create - serviceaccounts/token bot"),
        ("user", "patch apps deployments/status web"),
    ];
    users.iter().for_each(|request| assert!(!allows(FLEET, request), "{request:?}"));
    let fleets = [
        ("user", "create holon.dev logicalclusters"),
        ("user", "delete holon.dev logicalclusters team-a"),
        ("mailbox", "create rbac.authorization.k8s.io clusterroles"),
        ("mailbox", "patch certificates.k8s.io certificatesigningrequests/status mine"),
    ];
    fleets.iter().for_each(|request| assert!(!allows(SPLITTER, request), "{request:?}"));
}
