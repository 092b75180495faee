//! The same RBAC policies in Holon and in a real kube-apiserver: the same access reviews must get the same answers.
//!
//! The test generates policies, some two hundred overlapping roles and bindings of users and accounts with all unusual
//! forms of a rule, and then access reviews about them. They follow from a fixed seed, so a difference is reproducible.

use serde_json::{Value, json};
use testkit::Server;
use testkit::peers::{Cluster, Proxy, Request};

use crate::GROUP;
use crate::common::HOLON;

const SEED: u64 = 20_261_116;
const ROUNDS: usize = 20;
const REVIEWS: usize = 75;
const NAMESPACES: [&str; 2] = ["red", "blue"];

/// A small random number generator that gives the same numbers everywhere.
struct PolicyGenerator(u64);

impl PolicyGenerator {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end as u64).unwrap()
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn pick_some(&mut self, of: &[&str], least: usize) -> Vec<String> {
        let count = least + self.below(3);
        (0..count).map(|_| self.pick(of).to_owned()).collect()
    }

    fn rule(&mut self, with_paths: bool) -> Value {
        let verbs = self.pick_some(&["get", "list", "create", "access", "*"], 2);
        if with_paths && self.below(4) == 0 {
            let paths = ["/", "/a", "/a/", "/a/*", "/a*", "*", "/healthz"];
            return json!({ "verbs": verbs, "nonResourceURLs": self.pick_some(&paths, 1) });
        }
        let resources = ["pods", "pods/log", "*/log", "pods/*", "secrets", "namespaces", "deployments", "*"];
        let mut rule = json!({
            "verbs": verbs,
            "apiGroups": self.pick_some(&["", "apps", "*"], 2),
            "resources": self.pick_some(&resources, 2),
        });
        if self.below(3) == 0 {
            rule["resourceNames"] = json!(self.pick_some(&["x", "y", ""], 1));
        }
        rule
    }

    fn rules(&mut self, with_paths: bool) -> Vec<Value> {
        (0..=self.below(2)).map(|_| self.rule(with_paths)).collect()
    }

    /// Returns one of the users of a round, as a subject of a binding.
    fn subject(&mut self, round: usize, namespaced: bool) -> Value {
        match self.below(if namespaced { 4 } else { 3 }) {
            0 => {
                json!({ "apiGroup": GROUP, "kind": "User", "name": format!("{}-{round}", self.pick(&["ann", "bob"])) })
            }
            1 => {
                json!({ "apiGroup": GROUP, "kind": "Group", "name": format!("{}-{round}", self.pick(&["dev", "ops"])) })
            }
            2 => {
                json!({ "kind": "ServiceAccount", "name": format!("bot-{round}"), "namespace": self.pick(&NAMESPACES) })
            }
            // Without a namespace it means the namespace of the binding.
            _ => json!({ "kind": "ServiceAccount", "name": format!("bot-{round}") }),
        }
    }

    /// Returns all objects of a round, with the paths of their collections.
    fn policy(&mut self, round: usize) -> Vec<(String, Value)> {
        let mut objects = Vec::new();
        for number in 0..3 {
            let role =
                json!({ "metadata": { "name": format!("c{number}-{round}") }, "rules": self.rules(true) });
            objects.push((format!("/apis/{GROUP}/v1/clusterroles"), role));
        }
        for namespace in NAMESPACES {
            let role = json!({ "metadata": { "name": format!("r-{round}") }, "rules": self.rules(false) });
            objects.push((format!("/apis/{GROUP}/v1/namespaces/{namespace}/roles"), role));
        }
        for number in 0..8 {
            let namespaced = number > 2;
            // The last role of either list never exists.
            let (kind, name) = match namespaced && self.below(2) == 0 {
                true => ("Role", self.pick(&["r", "r", "lost"])),
                false => ("ClusterRole", self.pick(&["c0", "c1", "c2", "lost"])),
            };
            let subjects: Vec<_> = (0..=self.below(2)).map(|_| self.subject(round, namespaced)).collect();
            let binding = json!({
                "metadata": { "name": format!("b{number}-{round}") },
                "roleRef": { "apiGroup": GROUP, "kind": kind, "name": format!("{name}-{round}") },
                "subjects": subjects,
            });
            let path = match namespaced {
                true => format!("/apis/{GROUP}/v1/namespaces/{}/rolebindings", self.pick(&NAMESPACES)),
                false => format!("/apis/{GROUP}/v1/clusterrolebindings"),
            };
            objects.push((path, binding));
        }
        objects
    }

    fn access_review(&mut self, round: usize) -> Value {
        let account = format!("system:serviceaccount:{}:bot", self.pick(&NAMESPACES));
        let user = format!("{}-{round}", self.pick(&["ann", "bob", "eve", &account]));
        let groups: Vec<_> =
            self.pick_some(&["dev", "ops"], 0).iter().map(|group| format!("{group}-{round}")).collect();
        let mut spec = json!({ "user": user, "groups": groups });
        if self.below(4) == 0 {
            let path = self.pick(&["/", "/a", "/a/", "/a/b", "/ab", "/healthz"]);
            spec["nonResourceAttributes"] =
                json!({ "path": path, "verb": self.pick(&["get", "access", "list"]) });
            return spec;
        }
        let (resource, subresource) = [
            ("pods", ""),
            ("pods", "log"),
            ("pods", "exec"),
            ("secrets", ""),
            ("nodes", "log"),
            ("pods/log", ""),
            ("namespaces", ""),
            ("deployments", ""),
        ][self.below(8)];
        spec["resourceAttributes"] = json!({
            "verb": self.pick(&["get", "list", "create", "delete"]),
            "group": self.pick(&["", "", "apps", "batch"]),
            "resource": resource,
            "subresource": subresource,
            "namespace": self.pick(&["", "red", "blue", "green"]),
            "name": self.pick(&["", "x", "y", "z"]),
        });
        spec
    }
}

struct ComparedServer(Proxy);

impl ComparedServer {
    fn create(&self, path: &str, body: &Value) -> u16 {
        self.0.send(Request::json("POST", path, body.to_string().as_bytes())).code
    }

    fn review(&self, spec: &Value) -> (bool, String) {
        let body = json!({ "spec": spec }).to_string();
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = self.0.send(Request::json("POST", path, body.as_bytes())).json();
        let status = &answer["status"];
        let allowed = status["allowed"].as_bool().unwrap_or_else(|| panic!("{spec}: {answer}"));
        (allowed, status["reason"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the policies take effect.
    fn await_policies(&self) {
        let marker = json!({
            "metadata": { "name": "marker" },
            "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": "marker" }],
        });
        assert_eq!(self.create(&format!("/apis/{GROUP}/v1/clusterrolebindings"), &marker), 201);
        let probe = json!({ "user": "marker", "nonResourceAttributes": { "path": "/", "verb": "get" } });
        let is_effective = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            self.review(&probe).0
        });
        assert!(is_effective, "a binding is not effective after ten seconds");
    }
}

/// Returns a comparable reason. If several bindings allow something, either may be named; if several roles are missing,
/// each is named, in any order.
fn comparable(reason: &str) -> Vec<String> {
    if reason.starts_with("RBAC: allowed by ") {
        return vec!["allowed by a binding".to_owned()];
    }
    let mut reasons: Vec<_> =
        reason.trim_start_matches("RBAC: ").trim_matches(['[', ']']).split(", ").collect();
    reasons.sort_unstable();
    reasons.into_iter().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn holon_authorizes_like_a_kube_apiserver() {
    let kubectl = testkit::peers::program("kubectl");
    let cluster = Cluster::start_bare(&[]);
    let holon = Server::start(HOLON);
    let theirs = ComparedServer(Proxy::start(&kubectl, &cluster.kubeconfig()));
    let ours = ComparedServer(Proxy::start(&kubectl, &holon.file("admin.kubeconfig")));
    let mut generator = PolicyGenerator(SEED);
    for namespace in NAMESPACES {
        let body = json!({ "metadata": { "name": namespace } });
        assert_eq!([&theirs, &ours].map(|server| server.create("/api/v1/namespaces", &body)), [201, 201]);
    }
    for round in 0..ROUNDS {
        for (path, body) in generator.policy(round) {
            let codes = [&theirs, &ours].map(|server| server.create(&path, &body));
            assert_eq!(codes[0], codes[1], "{path} {body}");
        }
    }
    for server in [&theirs, &ours] {
        server.await_policies();
    }
    let (mut reviewed, mut allowed, mut named_alike, mut wrong) = (0, 0, 0, Vec::new());
    for round in 0..ROUNDS {
        for _ in 0..REVIEWS {
            let access_review = generator.access_review(round);
            let (theirs, ours) = (theirs.review(&access_review), ours.review(&access_review));
            reviewed += 1;
            allowed += usize::from(theirs.0);
            named_alike += usize::from(theirs.0 && theirs.1 == ours.1);
            if (theirs.0, comparable(&theirs.1)) != (ours.0, comparable(&ours.1)) {
                wrong.push(format!("{access_review}\n  theirs {theirs:?}\n  ours   {ours:?}"));
            }
        }
    }
    println!(
        "{reviewed} reviews, {allowed} allowed, {named_alike} of them by the same binding, {} different",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{} different:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        reviewed >= 1000 && allowed * 10 > reviewed && allowed * 10 < reviewed * 9,
        "the generated reviews are too one-sided"
    );
}
