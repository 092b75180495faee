//! Decides whether a user who holds some rules may grant others: only rights that the user holds.
//!
//! A rule that one held rule covers completely is covered. Any other rule is split into its smallest parts (one verb,
//! one group, one resource, one name; or one verb and one path), and each part must be covered by one held rule. The
//! other parts are reported as missing.
//!
//! A rule of 300 words can have a million parts, and tenants choose the words. So the comparisons are counted: a grant
//! that needs too many is refused without a decision ([`Unchecked`]), and an error names only the first missing parts.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::rbac::rule::{ANY, Rule, leads_to};

/// Maximum comparisons of words for one decision: some ten milliseconds. 500 parts against 500 short rules fit.
const COMPARED_MAX: u64 = 2_000_000;
/// Maximum missing parts in an error. Kubernetes has no limit.
const NAMED_MAX: usize = 1000;

/// The decision would need too many comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unchecked;

/// Returns the parts of `wanted` that `held` does not cover, up to a maximum.
pub fn missing(held: &[&Rule], wanted: &[Rule]) -> Result<Vec<Rule>, Unchecked> {
    let work = Work(Cell::new(COMPARED_MAX));
    let mut missing = Vec::new();
    for rule in wanted {
        if covered(held, Part::whole(rule), &work)? {
            continue;
        }
        for part in parts(rule) {
            if !covered(held, part, &work)? {
                missing.push(part.rule());
            }
            if missing.len() >= NAMED_MAX {
                return Ok(missing);
            }
        }
    }
    Ok(missing)
}

/// The number of comparisons that are left.
struct Work(Cell<u64>);

impl Work {
    fn take(&self, words: usize) -> Result<(), Unchecked> {
        let left = self.0.get().checked_sub(words as u64).ok_or(Unchecked)?;
        self.0.set(left);
        Ok(())
    }
}

/// A rule or one of its parts, as slices of the rule.
#[derive(Clone, Copy)]
struct Part<'a> {
    verbs: &'a [String],
    groups: &'a [String],
    resources: &'a [String],
    names: &'a [String],
    paths: &'a [String],
}

impl<'a> Part<'a> {
    fn whole(rule: &'a Rule) -> Part<'a> {
        Part {
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

/// Splits a rule into its smallest parts, lazily.
fn parts(rule: &Rule) -> impl Iterator<Item = Part<'_>> {
    let whole = Part::whole(rule);
    // A rule without names applies to all names, which is one part.
    let named = move || {
        let all = whole.names.is_empty().then_some(whole.names);
        all.into_iter().chain(whole.names.chunks(1))
    };
    let on_resources = whole.groups.chunks(1).flat_map(move |groups| {
        whole.resources.chunks(1).flat_map(move |resources| {
            whole.verbs.chunks(1).flat_map(move |verbs| {
                named().map(move |names| Part { verbs, groups, resources, names, paths: &[] })
            })
        })
    });
    let on_paths = whole.paths.chunks(1).flat_map(move |paths| {
        whole.verbs.chunks(1).map(move |verbs| Part { verbs, groups: &[], resources: &[], names: &[], paths })
    });
    on_resources.chain(on_paths)
}

/// Reports whether one of the rules covers this part.
fn covered(held: &[&Rule], part: Part<'_>, work: &Work) -> Result<bool, Unchecked> {
    for rule in held {
        if covers(rule, part, work)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn covers(rule: &Rule, part: Part<'_>, work: &Work) -> Result<bool, Unchecked> {
    let all = |held: &[String], words: &[String], is: &dyn Fn(&str, &str) -> bool| {
        for word in words {
            work.take(1 + held.len())?;
            if !held.iter().any(|held| is(held, word)) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let is_word = |held: &str, word: &str| held == ANY || held == word;
    Ok(all(&rule.verbs, part.verbs, &is_word)?
        && all(&rule.api_groups, part.groups, &is_word)?
        && all(&rule.resources, part.resources, &is_resource)?
        && all(&rule.paths, part.paths, &leads_to)?
        && match (rule.resource_names.is_empty(), part.names.is_empty()) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => all(&rule.resource_names, part.names, &|held, name| held == name)?,
        })
}

/// Reports whether a held resource covers another: `*/log` covers `pods/log`.
fn is_resource(held: &str, wanted: &str) -> bool {
    held == ANY
        || held == wanted
        || held
            .strip_prefix("*/")
            .is_some_and(|part| wanted.split_once('/').is_some_and(|(_, it)| it == part))
}

/// Formats missing rules, one per line, as Kubernetes does. Rules that differ only in the verb are merged.
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

/// Formats a list as `["a" "b"]`.
pub(crate) fn quoted(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    format!("[{}]", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses `verbs|groups|resources|names|paths`, each a list with commas; a dash is the core group.
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
    fn rules_not_covered_by_held_rules_are_missing() {
        let check = |held: &[&str], wanted: &str, expected: &str| {
            let held: Vec<Rule> = held.iter().map(|text| rule(text)).collect();
            let found = missing(&held.iter().collect::<Vec<_>>(), &[rule(wanted)]).unwrap();
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

    fn words(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("w{number}")).collect()
    }

    /// Regression: a role of 1.6 KB with 70 verbs, groups and resources and 10 names was split into 3.4 million rules,
    /// and no other request was answered meanwhile.
    #[test]
    fn many_combinations_cost_little() {
        let wide = Rule {
            verbs: words(70),
            api_groups: words(70),
            resources: words(70),
            resource_names: words(10),
            paths: Vec::new(),
        };
        let other = Rule { resource_names: words(9), ..wide.clone() };
        let all = rule("*|*|*");
        assert_eq!(
            missing(&[&other, &all], std::slice::from_ref(&wide)),
            Ok(Vec::new()),
            "one rule has it all"
        );
        assert_eq!(missing(&[], std::slice::from_ref(&wide)).unwrap().len(), NAMED_MAX);
        assert_eq!(missing(&[&other], std::slice::from_ref(&wide)), Err(Unchecked));
        // The number of rules on either side is bounded too.
        let many: Vec<Rule> = words(5000).iter().map(|word| rule(&format!("get|-|{word}"))).collect();
        assert_eq!(missing(&many.iter().collect::<Vec<_>>(), &many), Err(Unchecked));
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
        /// A covered rule allows nothing that the held rules do not allow: otherwise a grant could add a right.
        #[test]
        fn a_covered_rule_adds_nothing(
            held in prop::collection::vec(any_rule(), 0..4), wanted in any_rule(),
            verb in 0..3usize, group in 0..3usize, resource in 0..3usize, name in 0..3usize, path in 0..4usize,
        ) {
            use crate::request::attributes::{Attributes, ResourceAttributes};
            let owned: Vec<&Rule> = held.iter().collect();
            if missing(&owned, std::slice::from_ref(&wanted)).unwrap().is_empty() {
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
