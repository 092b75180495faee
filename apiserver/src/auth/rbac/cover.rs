//! Whether somebody who holds some rules may hand out others: only what they have themselves.
//!
//! A rule that is to be handed out is broken down into its smallest parts (one verb, one group, one resource, one name,
//! or one verb and one path), and each must be covered by one rule that is held. What is left over is named.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{ANY, Rule, leads_to, names};

/// The parts of `wanted` that `held` does not cover.
pub fn missing(held: &[&Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(parts);
    parts.filter(|part| !held.iter().any(|rule| covers(rule, part))).collect()
}

/// The smallest parts of a rule.
fn parts(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    let mut found = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = Rule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..Rule::default()
                };
                match rule.resource_names.as_slice() {
                    [] => found.push(part),
                    named => found
                        .extend(named.iter().map(|name| Rule { resource_names: one(name), ..part.clone() })),
                }
            }
        }
    }
    for path in &rule.paths {
        found.extend(rule.verbs.iter().map(|verb| Rule {
            verbs: one(verb),
            paths: one(path),
            ..Rule::default()
        }));
    }
    found
}

fn covers(rule: &Rule, part: &Rule) -> bool {
    let all = |list: &[String], words: &[String]| words.iter().all(|word| names(list, word));
    let resource = |wanted: &String| {
        names(&rule.resources, wanted)
            || wanted
                .split_once('/')
                .is_some_and(|(_, part)| rule.resources.contains(&format!("{ANY}/{part}")))
    };
    all(&rule.verbs, &part.verbs)
        && all(&rule.api_groups, &part.api_groups)
        && part.resources.iter().all(resource)
        && part.paths.iter().all(|path| rule.paths.iter().any(|held| leads_to(held, path)))
        && match (rule.resource_names.is_empty(), part.resource_names.is_empty()) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => part.resource_names.iter().all(|name| rule.resource_names.contains(name)),
        }
}

/// Missing rules, a line each, as Kubernetes lists them: what differs in the verb alone is one.
pub fn described(missing: &[Rule]) -> String {
    let mut lines = BTreeSet::new();
    let mut together: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    for rule in missing {
        match rule.paths.is_empty() {
            true => {
                let same = Rule { verbs: Vec::new(), ..rule.clone() };
                together.entry(same).or_default().extend(rule.verbs.iter().cloned());
            }
            false => drop(lines.insert(line(rule))),
        }
    }
    lines.extend(together.into_iter().map(|(rule, verbs)| line(&Rule { verbs, ..rule })));
    Vec::from_iter(lines).join("\n")
}

fn line(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.paths),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let said = parts.iter().filter(|(_, words)| !words.is_empty());
    let said: Vec<_> = said.map(|(name, words)| format!("{name}:{}", quoted(words))).collect();
    format!("{{{}}}", said.join(", "))
}

/// `["a" "b"]`
pub(crate) fn quoted(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    format!("[{}]", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `verbs|groups|resources|names|paths`, each a list with commas; a dash is the empty group.
    fn rule(text: &str) -> Rule {
        let mut parts = text.split('|').map(|part| {
            let words = part.split(',').filter(|word| !word.is_empty());
            words.map(|word| word.trim_matches('-').to_owned()).collect::<Vec<_>>()
        });
        let mut next = || parts.next().unwrap_or_default();
        let (verbs, api_groups, resources, resource_names) = (next(), next(), next(), next());
        Rule { verbs, api_groups, resources, resource_names, paths: next() }
    }

    #[test]
    fn what_one_has_one_may_hand_out() {
        let check = |held: &[&str], wanted: &str, expected: &str| {
            let held: Vec<Rule> = held.iter().map(|text| rule(text)).collect();
            let found = missing(&held.iter().collect::<Vec<_>>(), &[rule(wanted)]);
            assert_eq!(described(&found), expected, "{held:?} for {wanted}");
        };
        check(&["get,list|-|pods"], "get|-|pods", "");
        check(&["get|-|pods", "list|-|pods"], "get,list|-|pods", "");
        check(&["*|*|*"], "fly|x|y/z|n", "");
        check(&["*|*|*"], "get||||/x", r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#);
        check(&["get||||/x*"], "get||||/x/*", "");
        check(&["get||||/x/*"], "get||||/x*", r#"{NonResourceURLs:["/x*"], Verbs:["get"]}"#);
        check(&["get|-|*/log"], "get|-|pods/log", "");
        check(
            &["get|-|pods"],
            "get|-|pods/log",
            r#"{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}"#,
        );
        check(&["get|-|pods|a,b"], "get|-|pods|a", "");
        check(
            &["get|-|pods|a"],
            "get|-|pods|a,b",
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}"#,
        );
        check(&["get|-|pods|a"], "get|-|pods", r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#);
        check(
            &[],
            "get,list|-,apps|pods",
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n\
             {APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}",
        );
    }

    fn some(words: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
        let word = prop::sample::select(words).prop_map(str::to_owned);
        prop::collection::vec(word, 0..3)
    }

    prop_compose! {
        fn any_rule()(
            verbs in some(&["get", "list", "*"]), api_groups in some(&["", "apps", "*"]),
            resources in some(&["pods", "pods/log", "*/log", "*"]), resource_names in some(&["a", "b"]),
            paths in some(&["/a", "/a/b", "/a/*", "*"]),
        ) -> Rule {
            Rule { verbs, api_groups, resources, resource_names, paths }
        }
    }

    proptest! {
        /// What is covered allows nothing that is not allowed already: otherwise a grant could add a right.
        #[test]
        fn a_covered_rule_adds_nothing(
            held in prop::collection::vec(any_rule(), 0..4), wanted in any_rule(),
            verb in 0..3usize, group in 0..3usize, resource in 0..3usize, name in 0..3usize, path in 0..4usize,
        ) {
            use crate::authorize::{Attributes, ResourceAttributes};
            let owned: Vec<&Rule> = held.iter().collect();
            if missing(&owned, std::slice::from_ref(&wanted)).is_empty() {
                let (resource, subresource) = [("pods", ""), ("pods", "log"), ("nodes", "log")][resource];
                let asked = [
                    Attributes::Resource(ResourceAttributes {
                        verb: ["get", "list", "fly"][verb].to_owned(),
                        group: ["", "apps", "batch"][group].to_owned(),
                        resource: resource.to_owned(),
                        subresource: subresource.to_owned(),
                        name: ["", "a", "b"][name].to_owned(),
                        ..ResourceAttributes::default()
                    }),
                    Attributes::Path {
                        verb: ["get", "list", "fly"][verb].to_owned(),
                        path: ["/a", "/a/b", "/a/c", "/"][path].to_owned(),
                    },
                ];
                for asked in asked {
                    prop_assert!(!wanted.allows(&asked) || held.iter().any(|rule| rule.allows(&asked)));
                }
            }
        }
    }
}
