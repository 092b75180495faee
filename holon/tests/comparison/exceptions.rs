//! Known differences.
//!
//! One per line: `story | part of the request | part of the difference | reason`. `*` matches any. Lines that begin with
//! `#` are headings. A request is explained when each of its differences is.

use std::path::Path;

pub(crate) struct Exceptions(Vec<Exception>);

struct Exception {
    line: String,
    story: String,
    request: String,
    difference: String,
    used: bool,
}

impl Exceptions {
    pub(crate) fn none() -> Exceptions {
        Exceptions(Vec::new())
    }

    pub(crate) fn read(path: &Path) -> Exceptions {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let exceptions = lines.map(|line| {
            let fields: Vec<_> = line.split(" | ").map(str::to_owned).collect();
            let Ok([story, request, difference, reason]) = <[String; 4]>::try_from(fields) else {
                panic!("not four fields: {line}")
            };
            assert!(!reason.is_empty(), "without a reason: {line}");
            Exception { line: line.to_owned(), story, request, difference, used: false }
        });
        Exceptions(exceptions.collect())
    }

    /// Returns whether this difference is known. Counts the exception as used.
    pub(crate) fn explain(&mut self, story: &str, request: &str, difference: &str) -> bool {
        let is_about = |exception: &&mut Exception| {
            (exception.story == "*" || exception.story == story)
                && (exception.request == "*" || request.contains(&exception.request))
                && (exception.difference == "*" || difference.contains(&exception.difference))
        };
        let exception = self.0.iter_mut().find(is_about);
        exception.is_some_and(|exception| {
            exception.used = true;
            true
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the lines of the exceptions that explained no difference.
    pub(crate) fn unused(&self) -> Vec<String> {
        self.0.iter().filter(|exception| !exception.used).map(|exception| exception.line.clone()).collect()
    }
}
