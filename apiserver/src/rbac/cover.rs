//! Decides whether a user who holds some rules may grant others: only rights that the user holds.
//!
//! A rule that one held rule covers completely is covered. Any other rule is split into its smallest rules (one verb,
//! one group, one resource, one name; or one verb and one path), and each of these must be covered by one held rule.
//! The others are reported as missing.
//!
//! A rule of 300 values can be split into a million, and tenants choose the values. So the comparisons are counted: a
//! grant that needs too many is refused without a decision ([`Unchecked`]), and an error names only the first missing
//! ones.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::rbac::rule::{ANY, Rule, leads_to};

/// Maximum comparisons of values for one decision: some ten milliseconds. 500 of them against 500 short rules fit.
const COMPARED_MAX: u64 = 2_000_000;
/// Maximum missing rules in an error. Kubernetes has no limit.
const REPORTED_MAX: usize = 1000;

/// The decision would need too many comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unchecked;

/// Returns the smallest rules of `requested` that `held` does not cover, up to a maximum.
pub fn missing(held: &[&Rule], requested: &[Rule]) -> Result<Vec<Rule>, Unchecked> {
    let work = Work(Cell::new(COMPARED_MAX));
    let mut missing = Vec::new();
    for rule in requested {
        if covered(held, AtomicRule::whole(rule), &work)? {
            continue;
        }
        for atomic in atomic_rules(rule) {
            if !covered(held, atomic, &work)? {
                missing.push(atomic.rule());
            }
            if missing.len() >= REPORTED_MAX {
                return Ok(missing);
            }
        }
    }
    Ok(missing)
}

/// The number of comparisons that are left.
struct Work(Cell<u64>);

impl Work {
    fn take(&self, values: usize) -> Result<(), Unchecked> {
        let remaining = self.0.get().checked_sub(values as u64).ok_or(Unchecked)?;
        self.0.set(remaining);
        Ok(())
    }
}

/// A rule, or one of the smallest rules that it consists of, as slices of the rule.
#[derive(Clone, Copy)]
struct AtomicRule<'a> {
    verbs: &'a [String],
    groups: &'a [String],
    resources: &'a [String],
    names: &'a [String],
    paths: &'a [String],
}

impl<'a> AtomicRule<'a> {
    fn whole(rule: &'a Rule) -> AtomicRule<'a> {
        AtomicRule {
            verbs: &rule.verbs,
            groups: &rule.api_groups,
            resources: &rule.resources,
            names: &rule.resource_names,
            paths: &rule.paths,
        }
    }

    fn rule(self) -> Rule {
        Rule {
            verbs: self.verbs.to_vec(),
            api_groups: self.groups.to_vec(),
            resources: self.resources.to_vec(),
            resource_names: self.names.to_vec(),
            paths: self.paths.to_vec(),
        }
    }
}

/// Splits a rule into its smallest rules, lazily.
fn atomic_rules(rule: &Rule) -> impl Iterator<Item = AtomicRule<'_>> {
    let whole = AtomicRule::whole(rule);
    // A rule without names applies to all names, which is one rule.
    let name_chunks = move || {
        let all = whole.names.is_empty().then_some(whole.names);
        all.into_iter().chain(whole.names.chunks(1))
    };
    let on_resources = whole.groups.chunks(1).flat_map(move |groups| {
        whole.resources.chunks(1).flat_map(move |resources| {
            whole.verbs.chunks(1).flat_map(move |verbs| {
                name_chunks().map(move |names| AtomicRule { verbs, groups, resources, names, paths: &[] })
            })
        })
    });
    let on_paths = whole.paths.chunks(1).flat_map(move |paths| {
        whole.verbs.chunks(1).map(move |verbs| AtomicRule {
            verbs,
            groups: &[],
            resources: &[],
            names: &[],
            paths,
        })
    });
    on_resources.chain(on_paths)
}

/// Reports whether one of the rules covers this one.
fn covered(held: &[&Rule], atomic: AtomicRule<'_>, work: &Work) -> Result<bool, Unchecked> {
    for rule in held {
        if covers(rule, atomic, work)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn covers(rule: &Rule, atomic: AtomicRule<'_>, work: &Work) -> Result<bool, Unchecked> {
    let all = |held: &[String], values: &[String], is: &dyn Fn(&str, &str) -> bool| {
        for value in values {
            work.take(1 + held.len())?;
            if !held.iter().any(|held| is(held, value)) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let is_same_or_any = |held: &str, value: &str| held == ANY || held == value;
    Ok(all(&rule.verbs, atomic.verbs, &is_same_or_any)?
        && all(&rule.api_groups, atomic.groups, &is_same_or_any)?
        && all(&rule.resources, atomic.resources, &is_resource)?
        && all(&rule.paths, atomic.paths, &leads_to)?
        && match (rule.resource_names.is_empty(), atomic.names.is_empty()) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => all(&rule.resource_names, atomic.names, &|held, name| held == name)?,
        })
}

/// Reports whether a held resource covers another: `*/log` covers `pods/log`.
fn is_resource(held: &str, requested: &str) -> bool {
    held == ANY
        || held == requested
        || held
            .strip_prefix("*/")
            .is_some_and(|subresource| requested.split_once('/').is_some_and(|(_, it)| it == subresource))
}

/// Formats missing rules, one per line, as Kubernetes does. Rules that differ only in the verb are merged.
pub fn described(missing: &[Rule]) -> String {
    let mut lines = BTreeSet::new();
    let mut by_verbs: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    for rule in missing {
        match rule.paths.is_empty() {
            true => {
                let same = Rule { verbs: Vec::new(), ..rule.clone() };
                by_verbs.entry(same).or_default().extend(rule.verbs.iter().cloned());
            }
            false => drop(lines.insert(line(rule))),
        }
    }
    lines.extend(by_verbs.into_iter().map(|(rule, verbs)| line(&Rule { verbs, ..rule })));
    Vec::from_iter(lines).join("\n")
}

fn line(rule: &Rule) -> String {
    let fields = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.paths),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let set_fields = fields.iter().filter(|(_, values)| !values.is_empty());
    let set_fields: Vec<_> = set_fields.map(|(name, values)| format!("{name}:{}", quoted(values))).collect();
    format!("{{{}}}", set_fields.join(", "))
}

/// Formats a list as `["a" "b"]`.
pub(crate) fn quoted(values: &[String]) -> String {
    let values: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses `verbs|groups|resources|names|paths`, each a list with commas; a dash is the core group.
    fn rule(text: &str) -> Rule {
        let mut fields = text.split('|').map(|field| {
            let values = field.split(',').filter(|value| !value.is_empty());
            values.map(|value| value.trim_matches('-').to_owned()).collect::<Vec<_>>()
        });
        let mut next = || fields.next().unwrap_or_default();
        let (verbs, api_groups, resources, resource_names) = (next(), next(), next(), next());
        Rule { verbs, api_groups, resources, resource_names, paths: next() }
    }

    #[test]
    fn rules_not_covered_by_held_rules_are_missing() {
        let check = |held: &[&str], requested: &str, expected: &str| {
            let held: Vec<Rule> = held.iter().map(|text| rule(text)).collect();
            let found = missing(&held.iter().collect::<Vec<_>>(), &[rule(requested)]).unwrap();
            assert_eq!(described(&found), expected, "{held:?} for {requested}");
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

    fn distinct_values(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("w{number}")).collect()
    }

    /// Regression: a role of 1.6 KB with 70 verbs, groups and resources and 10 names was split into 3.4 million rules,
    /// and no other request was answered meanwhile.
    #[test]
    fn many_combinations_cost_little() {
        let wide = Rule {
            verbs: distinct_values(70),
            api_groups: distinct_values(70),
            resources: distinct_values(70),
            resource_names: distinct_values(10),
            paths: Vec::new(),
        };
        let other = Rule { resource_names: distinct_values(9), ..wide.clone() };
        let all = rule("*|*|*");
        assert_eq!(
            missing(&[&other, &all], std::slice::from_ref(&wide)),
            Ok(Vec::new()),
            "one rule covers everything"
        );
        assert_eq!(missing(&[], std::slice::from_ref(&wide)).unwrap().len(), REPORTED_MAX);
        assert_eq!(missing(&[&other], std::slice::from_ref(&wide)), Err(Unchecked));
        // The number of rules on either side is bounded too.
        let many: Vec<Rule> =
            distinct_values(5000).iter().map(|value| rule(&format!("get|-|{value}"))).collect();
        assert_eq!(missing(&many.iter().collect::<Vec<_>>(), &many), Err(Unchecked));
    }

    fn some(distinct_values: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
        let value = prop::sample::select(distinct_values).prop_map(str::to_owned);
        prop::collection::vec(value, 0..3)
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
        /// A covered rule allows nothing that the held rules do not allow: otherwise a grant could add a right.
        #[test]
        fn a_covered_rule_adds_nothing(
            held in prop::collection::vec(any_rule(), 0..4), requested in any_rule(),
            verb in 0..3usize, group in 0..3usize, resource in 0..3usize, name in 0..3usize, path in 0..4usize,
        ) {
            use crate::request::attributes::{Attributes, ResourceAttributes};
            let owned: Vec<&Rule> = held.iter().collect();
            if missing(&owned, std::slice::from_ref(&requested)).unwrap().is_empty() {
                let (resource, subresource) = [("pods", ""), ("pods", "log"), ("nodes", "log")][resource];
                let requests = [
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
                for request in requests {
                    prop_assert!(!requested.allows(&request) || held.iter().any(|rule| rule.allows(&request)));
                }
            }
        }
    }
}
