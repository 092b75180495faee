//! Known differences.
//!
//! One per line: `story | part of the request | part of the difference | why`. `*` matches any. Lines that begin with
//! `#` are headings. A request is explained when each of its differences is.

use std::path::Path;

pub(crate) struct Exceptions(Vec<Row>);

struct Row {
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
        let rows = lines.map(|line| {
            let fields: Vec<_> = line.split(" | ").map(str::to_owned).collect();
            let Ok([story, request, difference, why]) = <[String; 4]>::try_from(fields) else {
                panic!("not four fields: {line}")
            };
            assert!(!why.is_empty(), "without a reason: {line}");
            Row { line: line.to_owned(), story, request, difference, used: false }
        });
        Exceptions(rows.collect())
    }

    /// Returns whether this difference is known. Counts the exception as used.
    pub(crate) fn explain(&mut self, story: &str, request: &str, difference: &str) -> bool {
        let is_about = |row: &&mut Row| {
            (row.story == "*" || row.story == story)
                && (row.request == "*" || request.contains(&row.request))
                && (row.difference == "*" || difference.contains(&row.difference))
        };
        let row = self.0.iter_mut().find(is_about);
        row.is_some_and(|row| {
            row.used = true;
            true
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn idle(&self) -> Vec<String> {
        self.0.iter().filter(|row| !row.used).map(|row| row.line.clone()).collect()
    }
}
