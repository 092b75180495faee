//! Completion indexes of an indexed Job, and their text form in the status: `0-2,5`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::objects::fields::{annotation, list};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Returns the completion index of a pod.
pub(super) fn of(pod: &Value) -> Option<i64> {
    annotation(pod, INDEX)?.parse().ok()
}

/// Sets the completion index of a pod.
pub(super) fn set(pod: &mut Value, job: &str, index: i64) {
    pod["metadata"]["generateName"] = format!("{job}-{index}-").into();
    pod["metadata"]["annotations"][INDEX] = index.to_string().into();
    pod["metadata"]["labels"][INDEX] = index.to_string().into();
    pod["spec"]["hostname"] = format!("{job}-{index}").into();
    let variable = json!({
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": { "fieldRef": { "fieldPath": format!("metadata.labels['{INDEX}']") } },
    });
    for field in ["containers", "initContainers"] {
        for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
            let mut variables = list(container, "/env").to_vec();
            variables.push(variable.clone());
            container["env"] = variables.into();
        }
    }
}

pub(super) fn parse(text: &str) -> BTreeSet<i64> {
    let range = |range_text: &str| {
        let (first, last) = range_text.split_once('-').unwrap_or((range_text, range_text));
        Some(first.parse::<i64>().ok()?..=last.parse::<i64>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

pub(super) fn print(indexes: &BTreeSet<i64>) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for index in indexes {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => ranges.push((*index, *index)),
        }
    }
    let range = |(first, last): &(i64, i64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_indexes_are_printed_as_ranges() {
        for (indexes, text) in
            [(vec![], ""), (vec![3], "3"), (vec![0, 1], "0,1"), (vec![0, 1, 2, 5, 7, 8], "0-2,5,7,8")]
        {
            let indexes: BTreeSet<i64> = indexes.into_iter().collect();
            assert_eq!(print(&indexes), text);
            assert_eq!(parse(text), indexes);
        }
    }
}
