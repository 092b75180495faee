//! Writes a tree as YAML, in the layout of `kubectl get -o yaml`: keys in order, lists not indented.

use serde_json::Value;

/// Writes a document.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => object(&mut out, map, 0),
        Value::Array(list) if !list.is_empty() => array(&mut out, list, 0),
        leaf => {
            scalar(&mut out, leaf);
            out.push('\n');
        }
    }
    out
}

fn object(out: &mut String, map: &serde_json::Map<String, Value>, depth: usize) {
    for (index, (key, value)) in map.iter().enumerate() {
        // The first key of an object in a list follows the dash.
        if index > 0 || out.is_empty() || out.ends_with('\n') {
            indent(out, depth);
        }
        text(out, key);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                object(out, inner, depth + 1);
            }
            Value::Array(list) if !list.is_empty() => {
                out.push('\n');
                array(out, list, depth);
            }
            leaf => {
                out.push(' ');
                scalar(out, leaf);
                out.push('\n');
            }
        }
    }
}

fn array(out: &mut String, list: &[Value], depth: usize) {
    for (index, value) in list.iter().enumerate() {
        if index > 0 || out.is_empty() || out.ends_with('\n') {
            indent(out, depth);
        }
        out.push_str("- ");
        match value {
            Value::Object(inner) if !inner.is_empty() => object(out, inner, depth + 1),
            Value::Array(inner) if !inner.is_empty() => array(out, inner, depth + 1),
            leaf => {
                scalar(out, leaf);
                out.push('\n');
            }
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

fn scalar(out: &mut String, leaf: &Value) {
    match leaf {
        Value::String(string) => text(out, string),
        // Numbers, booleans, null and empty values are written as in JSON, which is also YAML.
        other => out.push_str(&other.to_string()),
    }
}

/// Writes a string: plain if it is unambiguous, otherwise in double quotes as in JSON. YAML 1.2 alone would need fewer
/// quotes, but a reader of any version of YAML must get the same text back.
fn text(out: &mut String, text: &str) {
    match is_plain(text) {
        true => out.push_str(text),
        false => out.push_str(&Value::from(text).to_string()),
    }
}

fn is_plain(text: &str) -> bool {
    let tame = |c: char| c.is_ascii_alphanumeric() || "-_./+ ()".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let words = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    starts
        && text.chars().all(tame)
        && !text.ends_with(' ')
        && !words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::codec::Syntax;
    use serde_json::json;

    #[test]
    fn an_object_is_written_as_kubectl_prints_it() {
        let object = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": { "name": "a", "labels": { "app.kubernetes.io/name": "a" }, "annotations": {} },
            "spec": { "containers": [{ "name": "c", "args": ["-v", "yes"] }, { "name": "d" }] },
        });
        let expected = "\
apiVersion: v1
kind: Pod
metadata:
  annotations: {}
  labels:
    app.kubernetes.io/name: a
  name: a
spec:
  containers:
  - args:
    - \"-v\"
    - \"yes\"
    name: c
  - name: d
";
        assert_eq!(write(&object), expected);
    }

    #[test]
    fn written_yaml_reads_back_the_same() {
        let texts = [
            "",
            " ",
            "a ",
            " a",
            "yes",
            "No",
            "null",
            "~",
            "0777",
            "1e3",
            "0x1f",
            "1_000",
            "2026-11-16",
            "a: b",
            "a #b",
            "- a",
            "a\nb\n",
            "\t",
            "é",
            "\u{85}\u{2028}",
            "{a}",
            "[",
            "*x",
            "&x",
            "!x",
            "|",
            ">",
            "%",
            "@",
            "`",
            "'",
            "\"",
            "\\",
            "=",
            "<<",
            ".inf",
            "-",
            "?",
            "a:",
            "1:30",
            "/usr/bin",
            "y",
            "plain words",
        ];
        let mut trees: Vec<Value> =
            texts.iter().map(|text| json!({ *text: text, "list": [text, [text]] })).collect();
        trees.push(json!([[], {}, null, true, -1, 1.5, i64::MAX, [[1, [2]], { "a": [{ "b": [] }] }]]));
        for tree in trees {
            let written = write(&tree);
            let read = codec::decode(written.as_bytes(), Syntax::Yaml).map(|decoded| decoded.value);
            assert_eq!(read.as_ref().ok(), Some(&tree), "{written}");
        }
    }
}
