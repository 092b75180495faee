//! Differences that are meant.
//!
//! One per line: `story | part of the request | why`. A story of `*` is any. Lines that begin with `#` are headings.

use std::path::Path;

pub(crate) struct Exceptions {
    rows: Vec<Row>,
    used: usize,
}

struct Row {
    line: String,
    story: String,
    part: String,
    used: bool,
}

impl Exceptions {
    pub(crate) fn read(path: &Path) -> Exceptions {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let rows = lines.map(|line| {
            let fields: Vec<_> = line.split(" | ").collect();
            let [story, part, why] = fields[..] else { panic!("not three fields: {line}") };
            assert!(!why.is_empty(), "without a reason: {line}");
            Row { line: line.to_owned(), story: story.to_owned(), part: part.to_owned(), used: false }
        });
        Exceptions { rows: rows.collect(), used: 0 }
    }

    /// Whether a difference in this request is meant. Counts it as used.
    pub(crate) fn explain(&mut self, story: &str, told: &str) -> bool {
        let is_about = |row: &&mut Row| (row.story == "*" || row.story == story) && told.contains(&row.part);
        let row = self.rows.iter_mut().find(is_about);
        row.is_some_and(|row| {
            row.used = true;
            self.used += 1;
            true
        })
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn idle(&self) -> Vec<String> {
        self.rows.iter().filter(|row| !row.used).map(|row| row.line.clone()).collect()
    }
}
