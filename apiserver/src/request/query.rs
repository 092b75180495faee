//! The query of a request.

use std::num::{IntErrorKind, ParseIntError};

use openapi::meta::status::Status;
use storage::Revision;

/// The error for a resourceVersion that is not a number.
#[derive(Debug)]
pub(crate) struct BadVersion(String);

impl BadVersion {
    pub(crate) fn of_list(self) -> Status {
        Status::bad_request(format!("invalid resource version: {}", self.0))
    }

    pub(crate) fn of_other(self) -> Status {
        // Kubernetes answers 500 here, but the client made the error.
        Status::bad_request(self.0)
    }
}

/// Returns Go's text for a number that does not parse.
fn go(error: &ParseIntError) -> &'static str {
    match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    }
}

/// The decoded query of a request. Of several values the first counts, as in Kubernetes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Query {
        let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
        Query(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// Returns all parameters, in order.
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Returns the value of a parameter. Empty if it is absent; no parameter distinguishes the two.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value.as_str())
    }

    /// Returns all values of a parameter that can be repeated.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Reports whether a parameter is set to anything but `0` or `false`. Kubernetes takes `watch=maybe` for true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let found = self.0.iter().find(|(found, _)| found == name);
        found.is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Parses an integer; 0 if absent.
    pub(crate) fn number(&self, name: &str) -> Result<i64, Status> {
        match self.text(name) {
            "" => Ok(0),
            text => text.parse().map_err(|error: ParseIntError| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {}", go(&error)))
            }),
        }
    }

    /// Parses the requested resourceVersion; 0 if absent.
    pub(crate) fn version(&self) -> Result<Revision, BadVersion> {
        let text = self.text("resourceVersion");
        let parsed = match text {
            "" => Ok(0),
            // Go accepts no sign here, Rust would.
            _ if text.starts_with('+') => "+".parse(),
            _ => text.parse(),
        };
        parsed.map(Revision).map_err(|error: ParseIntError| {
            BadVersion(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {}",
                go(&error)
            ))
        })
    }

    /// Reports whether the request is a dry run. Any value counts; unknown ones have been
    /// [refused](crate::request::options) before.
    pub(crate) fn dry_run(&self) -> bool {
        self.all("dryRun").next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        let version = |text: &str| Query::parse(Some(text)).version();
        let error_of = |text: &str| version(text).unwrap_err().of_list().message;
        for (text, expected) in [("", 0), ("resourceVersion=0", 0), ("resourceVersion=01", 1)] {
            assert_eq!(version(text).unwrap(), Revision(expected), "{text}");
        }
        let invalid = "invalid resource version: resourceVersion: Invalid value: ";
        for (text, why) in [
            ("-1", "invalid syntax"),
            ("%2B1", "invalid syntax"),
            ("99999999999999999999", "value out of range"),
        ] {
            let display = text.replace("%2B", "+");
            let expected = format!("{invalid}\"{display}\": strconv.ParseUint: parsing \"{display}\": {why}");
            assert_eq!(error_of(&format!("resourceVersion={text}")), expected);
        }
        let number = |text: &str| Query::parse(Some(text)).number("limit");
        assert_eq!(number("limit=-1").unwrap(), -1);
        let message = number("limit=99999999999999999999").unwrap_err().message;
        assert_eq!(message, "strconv.ParseInt: parsing \"99999999999999999999\": value out of range");
    }

    #[test]
    fn a_flag_is_set_unless_its_value_is_false() {
        for (text, expected) in [
            ("", false),
            ("watch", true),
            ("watch=", true),
            ("watch=maybe", true),
            ("watch=0", false),
            ("watch=False", false),
        ] {
            assert_eq!(Query::parse(Some(text)).flag("watch"), expected, "{text}");
        }
    }
}
