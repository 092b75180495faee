//! What a request asks for beside its path.

use openapi::field::FieldError;
use openapi::status::{Grouped, Status};

/// The query of a request, decoded. The first of several values counts, as for Kubernetes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Query {
        let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
        Query(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// Empty if absent: no parameter tells the two apart.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value.as_str())
    }

    /// Every value, for the few parameters that can be given several times.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// `true`, `1`, or there without a value.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let found = self.0.iter().find(|(found, _)| found == name);
        found.is_some_and(|(_, value)| {
            matches!(value.as_str(), "" | "1" | "t" | "T" | "true" | "TRUE" | "True")
        })
    }

    /// A whole number, zero if absent.
    pub(crate) fn number(&self, name: &str) -> Result<u64, Status> {
        match self.text(name) {
            "" => Ok(0),
            text => text.parse().map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
            }),
        }
    }

    /// Whether nothing is to be stored. A word that is not known must not turn into a real write.
    pub(crate) fn dry_run(&self) -> Result<bool, Status> {
        dry_run(&[self.text("dryRun")])
    }
}

/// What the words of `dryRun` mean, in a query or in the options of a deletion.
pub(crate) fn dry_run(words: &[&str]) -> Result<bool, Status> {
    let said: Vec<&&str> = words.iter().filter(|word| !word.is_empty()).collect();
    match said.iter().find(|word| ***word != "All") {
        None => Ok(!said.is_empty()),
        Some(word) => {
            let error = FieldError::not_supported("dryRun", **word, &["All"]);
            Err(Status::invalid(Grouped::new("meta.k8s.io", "Options"), "", &[error]))
        }
    }
}
