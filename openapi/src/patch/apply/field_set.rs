//! A set of fields as a tree: the fields of one object, each with those below it.
//!
//! ```text
//! spec ──┬── replicas ●                    ● in the set
//!        └── template ── spec ── containers ── [name="web"] ● ── image ●
//! ```
//!
//! A field on the path to a member need not be a member itself. Nodes are sorted by their elements, so two sets are
//! combined in one pass. A node without members at or below it does not exist, so an empty set has no nodes.

use std::cmp::Ordering;
use std::fmt::Write;
use std::ops::ControlFlow;

use super::path_element::PathElement;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet<'a> {
    nodes: Vec<FieldSetNode<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldSetNode<'a> {
    pub(super) element: PathElement<'a>,
    pub(super) member: bool,
    pub(super) children: FieldSet<'a>,
}

impl FieldSetNode<'_> {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl<'a> FieldSet<'a> {
    /// Returns the set of these paths of field names.
    pub(super) fn of_fields(paths: &[&[&'a str]]) -> FieldSet<'a> {
        let mut set = FieldSet::default();
        for path in paths {
            set.insert_fields(path);
        }
        set
    }

    fn insert_fields(&mut self, path: &[&'a str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let element = PathElement::Field(first);
        let index = match self.nodes.binary_search_by(|node| node.element.cmp(&element)) {
            Ok(index) => index,
            Err(index) => {
                self.nodes
                    .insert(index, FieldSetNode { element, member: false, children: FieldSet::default() });
                index
            }
        };
        match rest.is_empty() {
            true => self.nodes[index].member = true,
            false => self.nodes[index].children.insert_fields(rest),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn nodes(&self) -> &[FieldSetNode<'a>] {
        &self.nodes
    }

    /// Returns the nodes for changes that keep their order and leave none without members.
    pub(super) fn nodes_mut(&mut self) -> &mut [FieldSetNode<'a>] {
        &mut self.nodes
    }

    pub(super) fn into_nodes(self) -> Vec<FieldSetNode<'a>> {
        self.nodes
    }

    /// Appends a node, unless it has no members. A caller that does not append in order calls [`FieldSet::sort`].
    pub(super) fn push(&mut self, element: PathElement<'a>, member: bool, children: FieldSet<'a>) {
        if member || !children.is_empty() {
            self.nodes.push(FieldSetNode { element, member, children });
        }
    }

    /// Sorts the nodes and merges those with the same element.
    pub(super) fn sort(&mut self) {
        if self.nodes.windows(2).all(|pair| pair[0].element < pair[1].element) {
            return;
        }
        self.nodes.sort_by(|one, other| one.element.cmp(&other.element));
        self.nodes.dedup_by(|next, first| {
            let same = next.element == first.element;
            if same {
                first.member |= next.member;
                first.children =
                    std::mem::take(&mut first.children).union(std::mem::take(&mut next.children));
            }
            same
        });
    }

    pub(super) fn get(&self, element: &PathElement<'_>) -> Option<&FieldSetNode<'a>> {
        let index = self.nodes.binary_search_by(|node| compare(&node.element, element)).ok()?;
        Some(&self.nodes[index])
    }

    pub(super) fn has_fields(&self, path: &[&str]) -> bool {
        match path.split_first() {
            None => false,
            Some((first, rest)) => {
                self.get(&PathElement::Field(first)).is_some_and(|node| match rest.is_empty() {
                    true => node.member,
                    false => node.children.has_fields(rest),
                })
            }
        }
    }

    /// Returns the members of either set.
    pub(super) fn union(self, other: FieldSet<'a>) -> FieldSet<'a> {
        if self.is_empty() || other.is_empty() {
            return if self.is_empty() { other } else { self };
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut left, mut right) = (self.nodes.into_iter().peekable(), other.nodes.into_iter().peekable());
        while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
            match one.element.cmp(&other.element) {
                Ordering::Less => nodes.extend(left.next()),
                Ordering::Greater => nodes.extend(right.next()),
                Ordering::Equal => {
                    nodes.extend(left.next().zip(right.next()).map(|(one, other)| FieldSetNode {
                        element: one.element,
                        member: one.member || other.member,
                        children: one.children.union(other.children),
                    }))
                }
            }
        }
        nodes.extend(left.chain(right));
        FieldSet { nodes }
    }

    /// Returns the members of any of the sets. Sets are merged in pairs, so that early members are not visited again
    /// for each later set.
    pub(super) fn union_all(sets: impl IntoIterator<Item = FieldSet<'a>>) -> FieldSet<'a> {
        let mut sets: Vec<_> = sets.into_iter().collect();
        while sets.len() > 1 {
            let mut rest = sets.into_iter();
            let mut halved = Vec::with_capacity(rest.len().div_ceil(2));
            while let Some(one) = rest.next() {
                halved.push(one.union(rest.next().unwrap_or_default()));
            }
            sets = halved;
        }
        sets.pop().unwrap_or_default()
    }

    /// Returns the members of both sets.
    pub(super) fn intersection(&self, other: &FieldSet<'_>) -> FieldSet<'a> {
        let mut both = FieldSet::default();
        each_pair(&self.nodes, &other.nodes, |one, other| {
            let member = one.member && other.member;
            let children = one.children.intersection(&other.children);
            if member || !children.is_empty() {
                both.nodes.push(FieldSetNode { element: one.element.clone(), member, children });
            }
        });
        both
    }

    /// Removes the members of `other`.
    pub(super) fn difference(self, other: &FieldSet<'_>) -> FieldSet<'a> {
        self.without(other, &|node, removed| {
            node.member &= !removed.member;
            node.children = std::mem::take(&mut node.children).difference(&removed.children);
        })
    }

    /// Removes the members of `other` and everything below them.
    pub(super) fn recursive_difference(self, other: &FieldSet<'_>) -> FieldSet<'a> {
        self.without(other, &|node, removed| {
            node.member &= !removed.member;
            node.children = match removed.member {
                true => FieldSet::default(),
                false => std::mem::take(&mut node.children).recursive_difference(&removed.children),
            };
        })
    }

    fn without(
        mut self,
        other: &FieldSet<'_>,
        take: &dyn Fn(&mut FieldSetNode<'a>, &FieldSetNode<'_>),
    ) -> FieldSet<'a> {
        if self.is_empty() || other.is_empty() {
            return self;
        }
        let mut removed = other.nodes.as_slice();
        self.nodes.retain_mut(|node| {
            removed = from(removed, &node.element);
            match removed.first() {
                Some(found) if compare(&found.element, &node.element).is_eq() => {
                    take(node, found);
                    !node.is_empty()
                }
                _ => true,
            }
        });
        self
    }

    /// Returns the members at or below the paths that match a pattern. A pattern is a path of field names; `*` is any
    /// element.
    pub(super) fn matching(self, patterns: &[&[&str]]) -> FieldSet<'a> {
        if patterns.iter().any(|pattern| pattern.is_empty()) {
            return self;
        }
        let mut matched = FieldSet::default();
        for node in self.nodes {
            let takes =
                |step: &str| step == "*" || matches!(node.element, PathElement::Field(name) if name == step);
            let further: Vec<&[&str]> = patterns.iter().filter(|p| takes(p[0])).map(|p| &p[1..]).collect();
            if !further.is_empty() {
                matched.push(node.element, node.member, node.children.matching(&further));
            }
        }
        matched
    }

    /// Reports whether `other` contains all members.
    pub(super) fn is_within(&self, other: &FieldSet<'_>) -> bool {
        self.nodes.iter().all(|node| {
            other.get(&node.element).is_some_and(|found| {
                (found.member || !node.member) && node.children.is_within(&found.children)
            })
        })
    }

    /// Returns the number of members.
    pub(super) fn count(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.count()).sum()
    }

    /// Calls `visit` with the path of every member as messages show it, parents before children, until it breaks. All
    /// paths together may be far longer than the object they come from.
    pub(super) fn each_path(&self, visit: &mut dyn FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        self.each_path_under(&mut String::new(), visit)
    }

    fn each_path_under(
        &self,
        path: &mut String,
        visit: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let length = path.len();
        let enter = |path: &mut String, node: &FieldSetNode<'_>| {
            path.truncate(length);
            write!(path, "{}", node.element).expect("a string takes any text");
        };
        for node in self.nodes.iter().filter(|node| node.member) {
            enter(path, node);
            visit(path)?;
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            enter(path, node);
            node.children.each_path_under(path, visit)?;
        }
        ControlFlow::Continue(())
    }
}

/// Compares elements that borrow from different objects.
fn compare(one: &PathElement<'_>, other: &PathElement<'_>) -> Ordering {
    one.cmp(other)
}

/// Returns the nodes from `element` on. It searches in growing steps: an object may have very many owners of few fields
/// each, and a scan of all changes for each owner would be too slow.
fn from<'x, 'a>(nodes: &'x [FieldSetNode<'a>], element: &PathElement<'_>) -> &'x [FieldSetNode<'a>] {
    let before = |node: &FieldSetNode<'_>| compare(&node.element, element).is_lt();
    let mut end = 1;
    while nodes.get(end - 1).is_some_and(before) {
        end *= 2;
    }
    let start = end / 2;
    let end = end.min(nodes.len());
    &nodes[start + nodes[start..end].partition_point(before)..]
}

fn each_pair<'x, 'a, 'b>(
    mut left: &'x [FieldSetNode<'a>],
    mut right: &'x [FieldSetNode<'b>],
    mut pair: impl FnMut(&'x FieldSetNode<'a>, &'x FieldSetNode<'b>),
) {
    while let ([one, after_one @ ..], [other, after_other @ ..]) = (left, right) {
        match compare(&one.element, &other.element) {
            Ordering::Less => left = from(after_one, &other.element),
            Ordering::Greater => right = from(after_other, &one.element),
            Ordering::Equal => {
                pair(one, other);
                (left, right) = (after_one, after_other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fields_v1;
    use super::*;

    fn check(
        operation: fn(FieldSet<'static>, FieldSet<'static>) -> FieldSet<'static>,
        rows: &[(&str, &str, &str)],
    ) {
        let set = |text: &str| {
            let paths: Vec<Vec<&'static str>> =
                text.split_whitespace().map(|path| path.to_owned().leak().split('.').collect()).collect();
            let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
            FieldSet::of_fields(&paths)
        };
        for (one, other, expected) in rows {
            assert_eq!(operation(set(one), set(other)), set(expected), "{one} and {other}");
        }
    }

    #[test]
    fn sets_are_combined_member_by_member() {
        check(FieldSet::union, &[("a b.c", "b b.d", "a b b.c b.d"), ("", "a", "a"), ("a", "", "a")]);
        check(
            |one, other| one.intersection(&other),
            &[("a b.c d", "a.x b.c d.e", "b.c"), ("a a.b", "a", "a"), ("a", "b", "")],
        );
        check(
            |one, other| one.difference(&other),
            &[("a a.b c", "a", "a.b c"), ("a.b a.c", "a.b a.c", ""), ("a", "a.b", "a")],
        );
        check(
            |one, other| one.recursive_difference(&other),
            &[("a a.b c.d", "a", "c.d"), ("a.b.c a.d", "a.b", "a.d"), ("a a.b", "a.b", "a")],
        );
    }

    #[test]
    fn few_fields_are_found_among_many() {
        let names: Vec<String> = (0..40).map(|n| format!("{n:02}")).collect();
        let set = |step: usize| {
            let paths: Vec<[&str; 1]> = names.iter().step_by(step).map(|name| [name.as_str()]).collect();
            FieldSet::of_fields(&paths.iter().map(|path| path.as_slice()).collect::<Vec<_>>())
        };
        for (one, other) in (1..40).flat_map(|one| (1..40).map(move |other| (one, other))) {
            let both = (0..40).filter(|n| n % one == 0 && n % other == 0).count();
            let intersection = set(one).intersection(&set(other));
            assert_eq!(intersection.count(), both, "{one} and {other}");
            let rest = set(one).difference(&set(other));
            assert_eq!(rest.count(), set(one).count() - both, "{one} without {other}");
            assert_eq!(rest.union(intersection), set(one));
        }
    }

    #[test]
    fn a_pattern_keeps_the_fields_it_matches() {
        let fields = json!({ "f:spec": { "f:containers": { "k:{\"name\":\"a\"}": {
            ".": {}, "f:image": {}, "f:resources": { "f:limits": {} }
        } }, "f:nodeName": {} } });
        let set = fields_v1::decode(&fields).unwrap();
        let matched = set.matching(&[&["spec", "containers", "*", "resources"]]);
        let container = ".spec.containers[name=\"a\"]";
        let mut paths = Vec::new();
        let _ = matched.each_path(&mut |path| {
            paths.push(path.to_owned());
            ControlFlow::Continue(())
        });
        assert_eq!(paths, [container.to_owned(), format!("{container}.resources.limits")]);
        assert_eq!(matched.count(), 2);
    }

    #[test]
    fn many_sets_become_one_as_two_do() {
        let names: Vec<String> = (0..9).map(|n| format!("f{n}")).collect();
        for count in 0..names.len() {
            let sets = || names[..count].iter().map(|name| FieldSet::of_fields(&[&["a", name], &[name]]));
            assert_eq!(FieldSet::union_all(sets()), sets().fold(FieldSet::default(), FieldSet::union));
        }
    }
}
