//! Field selectors: `metadata.name=web,status.phase!=Running`.

use super::SelectorError;
use crate::meta::go;

/// A field selector. All terms must match; the empty selector matches everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldSelector {
    pub terms: Vec<FieldTerm>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FieldTerm {
    /// `status.phase`. The caller has the selectable fields of the kind.
    pub field: String,
    pub value: String,
    /// Whether the field must not have the value.
    pub negated: bool,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let terms = terms.into_iter().filter(|term| !term.is_empty()).map(|term| {
            let (field, negated, value) = split_term(term).ok_or_else(|| {
                SelectorError(format!("invalid selector: '{text}'; can't understand '{term}'"))
            })?;
            Ok(FieldTerm { field: field.to_owned(), value: unescape(value)?, negated })
        });
        // Like Kubernetes, drops terms in which both sides are empty, with either operator.
        let is_set = |term: &FieldTerm| !(term.field.is_empty() && term.value.is_empty());
        let terms = terms.filter(|term| term.as_ref().map_or(true, is_set));
        Ok(FieldSelector { terms: terms.collect::<Result<_, _>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Reports whether all terms match. `lookup` returns the value of a field; an absent field is empty.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|term| (lookup(&term.field).unwrap_or("") == term.value) != term.negated)
    }

    /// Returns the value that a term requires of a field, if any does.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let term = self.terms.iter().find(|term| term.field == field && !term.negated)?;
        Some(&term.value)
    }

    /// Returns an error for the first field that is not in `known`.
    pub fn check(&self, known: &[&str]) -> Result<(), SelectorError> {
        match self.terms.iter().find(|term| !known.contains(&term.field.as_str())) {
            None => Ok(()),
            Some(unknown) if known.iter().all(|field| field.starts_with("metadata.")) => {
                let known: Vec<_> = known.iter().map(|field| go::quote(field)).collect();
                let known = known.join(", ");
                let field = go::quote(&unknown.field);
                Err(SelectorError(format!("{field} is not a known field selector: only {known}")))
            }
            Some(unknown) => Err(SelectorError(format!("field label not supported: {}", unknown.field))),
        }
    }
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator, which cannot be part of a field name.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(index, _)| {
        let rest = &term[index..];
        let (negated, operator) = match () {
            () if rest.starts_with("!=") => (true, 2),
            () if rest.starts_with("==") => (false, 2),
            () if rest.starts_with('=') => (false, 1),
            () => return None,
        };
        Some((&term[..index], negated, &rest[operator..]))
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            // Kubernetes prints the character's code here.
            ',' | '=' => {
                let number = u32::from(c);
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {number}"
                )));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn term(field: &str, value: &str, negated: bool) -> FieldTerm {
        FieldTerm { field: field.to_owned(), value: value.to_owned(), negated }
    }

    #[test]
    fn valid_selectors_are_parsed() {
        let rows: &[(&str, &[FieldTerm])] = &[
            ("", &[]),
            (",", &[]),
            ("a=b", &[term("a", "b", false)]),
            ("a==b", &[term("a", "b", false)]),
            ("a!=b", &[term("a", "b", true)]),
            ("b=2,a=1", &[term("a", "1", false), term("b", "2", false)]),
            ("a=", &[term("a", "", false)]),
            ("=", &[]),
            ("!=,", &[]),
            ("=b", &[term("", "b", false)]),
            (r"a=x\,y\=z\\", &[term("a", r"x,y=z\", false)]),
            ("metadata.name=ä", &[term("metadata.name", "ä", false)]),
        ];
        for (text, expected) in rows {
            assert_eq!(FieldSelector::parse(text).expect(text).terms, *expected, "{text}");
        }
    }

    #[test]
    fn invalid_selectors_are_refused() {
        for (text, expected) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\n", r"invalid field selector: invalid escape sequence: \n"),
            (r"a=\", r"invalid field selector: invalid escape sequence: \"),
        ] {
            assert_eq!(FieldSelector::parse(text).expect_err(text).to_string(), expected);
        }
    }

    #[test]
    fn matching_and_absent_fields() {
        let object = |field: &str| match field {
            "status.phase" => Some("Running"),
            _ => None,
        };
        for (text, expected) in [
            ("", true),
            ("status.phase=Running", true),
            ("status.phase!=Running", false),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("status.phase=Running,spec.nodeName=n1", false),
        ] {
            assert_eq!(FieldSelector::parse(text).expect(text).matches(object), expected, "{text}");
        }
        let selector = FieldSelector::parse("metadata.name=a,x!=y").expect("a selector");
        assert_eq!((selector.exact("metadata.name"), selector.exact("x")), (Some("a"), None));
    }

    #[test]
    fn unsupported_fields_are_refused() {
        let selector = FieldSelector::parse("spec.x=1").expect("a selector");
        let error_of = |known: &[&str]| selector.check(known).expect_err("unknown").to_string();
        assert_eq!(
            error_of(&["metadata.name", "metadata.namespace"]),
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert_eq!(error_of(&["metadata.name", "status.phase"]), "field label not supported: spec.x");
        assert_eq!(selector.check(&["spec.x"]), Ok(()));
    }

    proptest! {
        #[test]
        fn any_value_can_be_selected(value in ".{0,20}") {
            let escaped = value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
            let selector = FieldSelector::parse(&format!("f={escaped}")).expect("an escaped value");
            prop_assert_eq!(selector.exact("f"), Some(value.as_str()));
        }

        #[test]
        fn any_text_parses_or_fails_without_a_panic(text in ".{0,30}") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
