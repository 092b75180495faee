//! The default priority levels and flow schemas of Kubernetes.

use serde_json::{Value, json};

use crate::clusters::bootstrap::template::TIME;

pub(super) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// A priority level.
pub(super) struct Level {
    name: &'static str,
    shares: u32,
    /// The part of its share that other levels may borrow while it is unused.
    lendable_percent: u32,
    when_full: WhenFull,
}

enum WhenFull {
    /// Unlimited.
    Exempt,
    Reject,
    /// Requests wait in queues with 50 places; `hand` of the queues serve each caller.
    Queue {
        queues: u32,
        hand: u32,
    },
}

const fn level(name: &'static str, shares: u32, lendable_percent: u32, when_full: WhenFull) -> Level {
    Level { name, shares, lendable_percent, when_full }
}

pub(super) const LEVELS: &[Level] = &[
    level("catch-all", 5, 0, WhenFull::Reject),
    level("exempt", 0, 0, WhenFull::Exempt),
    level("global-default", 20, 50, WhenFull::Queue { queues: 128, hand: 6 }),
    level("leader-election", 10, 0, WhenFull::Queue { queues: 16, hand: 4 }),
    level("node-high", 40, 25, WhenFull::Queue { queues: 64, hand: 6 }),
    level("system", 30, 33, WhenFull::Queue { queues: 64, hand: 6 }),
    level("workload-high", 40, 50, WhenFull::Queue { queues: 128, hand: 6 }),
    level("workload-low", 100, 90, WhenFull::Queue { queues: 128, hand: 6 }),
];

fn metadata(name: &str) -> Value {
    json!({ "name": name, "generation": 1, "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" } })
}

impl Level {
    pub(super) fn object(&self) -> Value {
        let (shares, lendable) = (self.shares, self.lendable_percent);
        let limited = |response: Value| {
            json!({
                "type": "Limited",
                "limited": {
                    "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response,
                },
            })
        };
        let spec = match self.when_full {
            WhenFull::Exempt => json!({
                "type": "Exempt",
                "exempt": { "nominalConcurrencyShares": shares, "lendablePercent": lendable },
            }),
            WhenFull::Reject => limited(json!({ "type": "Reject" })),
            WhenFull::Queue { queues, hand } => limited(json!({
                "type": "Queue",
                "queuing": { "queues": queues, "handSize": hand, "queueLengthLimit": 50 },
            })),
        };
        json!({
            "apiVersion": VERSION, "kind": "PriorityLevelConfiguration", "metadata": metadata(self.name),
            "spec": spec, "status": {},
        })
    }
}

/// A flow schema: which requests use which priority level.
pub(super) struct Schema {
    name: &'static str,
    level: &'static str,
    precedence: u32,
    /// The distinguisher of flows.
    by: Option<&'static str>,
    subjects: Value,
    requests: Value,
}

impl Schema {
    pub(super) fn object(&self) -> Value {
        let mut rule = self.requests.clone();
        rule["subjects"] = self.subjects.clone();
        let mut spec = json!({
            "matchingPrecedence": self.precedence,
            "priorityLevelConfiguration": { "name": self.level },
            "rules": [rule],
        });
        if let Some(by) = self.by {
            spec["distinguisherMethod"] = json!({ "type": by });
        }
        let message = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named \"{}\" and it exists",
            self.level
        );
        json!({
            "apiVersion": VERSION, "kind": "FlowSchema", "metadata": metadata(self.name), "spec": spec,
            "status": { "conditions": [{
                "type": "Dangling", "status": "False", "reason": "Found", "message": message,
                "lastTransitionTime": TIME,
            }] },
        })
    }
}

fn group(name: &str) -> Value {
    json!({ "kind": "Group", "group": { "name": name } })
}

fn user(name: &str) -> Value {
    json!({ "kind": "User", "user": { "name": name } })
}

fn service_accounts_of(namespace: &str) -> Value {
    json!({ "kind": "ServiceAccount", "serviceAccount": { "name": "*", "namespace": namespace } })
}

fn anything() -> Value {
    json!({
        "nonResourceRules": [{ "nonResourceURLs": ["*"], "verbs": ["*"] }],
        "resourceRules": [{
            "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "namespaces": ["*"], "clusterScope": true,
        }],
    })
}

fn leases(verbs: &[&str]) -> Value {
    json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs, "namespaces": ["*"] })
}

pub(super) fn schemas() -> Vec<Schema> {
    let all_users = || json!([group("system:unauthenticated"), group("system:authenticated")]);
    let nodes = || json!([group("system:nodes")]);
    let (controllers, scheduler) =
        (|| user("system:kube-controller-manager"), || user("system:kube-scheduler"));
    let (by_user, by_namespace) = (Some("ByUser"), Some("ByNamespace"));
    let probes = json!({
        "nonResourceRules": [{ "nonResourceURLs": ["/healthz", "/readyz", "/livez"], "verbs": ["get"] }],
    });
    let of_nodes = json!({
        "apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"], "namespaces": ["*"],
        "clusterScope": true,
    });
    let leading = json!({ "resourceRules": [leases(&["get", "create", "update"])] });
    let leaders = json!([controllers(), scheduler(), service_accounts_of("kube-system")]);
    let schema = |name, level, precedence, by, subjects, requests| Schema {
        name,
        level,
        precedence,
        by,
        subjects,
        requests,
    };
    let in_system = json!([service_accounts_of("kube-system")]);
    let accounts = json!([group("system:serviceaccounts")]);
    let kept_nodes = json!({ "resourceRules": [of_nodes, leases(&["*"])] });
    vec![
        schema("exempt", "exempt", 1, None, json!([group("system:masters")]), anything()),
        schema("probes", "exempt", 2, None, all_users(), probes),
        schema("system-leader-election", "leader-election", 100, by_user, leaders, leading),
        schema("system-node-high", "node-high", 400, by_user, nodes(), kept_nodes),
        schema("system-nodes", "system", 500, by_user, nodes(), anything()),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            by_namespace,
            json!([controllers()]),
            anything(),
        ),
        schema("kube-scheduler", "workload-high", 800, by_namespace, json!([scheduler()]), anything()),
        schema("kube-system-service-accounts", "workload-high", 900, by_namespace, in_system, anything()),
        schema("service-accounts", "workload-low", 9000, by_user, accounts, anything()),
        schema("global-default", "global-default", 9900, by_user, all_users(), anything()),
        schema("catch-all", "catch-all", 10_000, by_user, all_users(), anything()),
    ]
}
