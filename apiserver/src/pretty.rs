//! JSON with line breaks, for people.

use http::HeaderMap;
use http::header::USER_AGENT;

use crate::query::Query;

/// What the programs people read answers in call themselves.
const PEOPLE: &[&str] = &["curl", "Wget", "Mozilla/5.0"];

/// Whether somebody wants to read the answer: they say so, or their program does. As for Kubernetes.
pub(crate) fn is_wanted(query: &Query, headers: &HeaderMap) -> bool {
    match query.text("pretty") {
        "" => {
            let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            PEOPLE.iter().any(|name| agent.starts_with(name))
        }
        _ => matches!(query.text("pretty"), "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

/// The same JSON with every field on a line of its own. Only what stands between values changes: no value is read, so
/// numbers keep their digits and fields their order.
pub(crate) fn indented(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut at) = (0usize, 0);
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'"' => {
                let end = at + string_rest(&json[at..]);
                out.extend_from_slice(&json[at - 1..end]);
                at = end;
            }
            b'{' | b'[' => {
                out.push(byte);
                at += blank(&json[at..]);
                match json.get(at) {
                    // What is empty stays on its line.
                    Some(&close @ (b'}' | b']')) => {
                        out.push(close);
                        at += 1;
                    }
                    _ => {
                        depth += 1;
                        new_line(&mut out, depth);
                    }
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            _ => out.push(byte),
        }
    }
    out
}

/// How many bytes the string still has, its closing quote included.
fn string_rest(json: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in json.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

fn blank(json: &[u8]) -> usize {
    json.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_layout_is_the_one_people_know() {
        let values = [
            json!({}),
            json!([]),
            json!("a {b} [c], \"d\": e"),
            json!({ "a": {}, "b": [], "c": [1, [2, { "d": null }]], "e": "x\\\"y,{\n", "é": [[], {}] }),
        ];
        for value in values {
            let expected = serde_json::to_string_pretty(&value).unwrap();
            assert_eq!(String::from_utf8(indented(value.to_string().as_bytes())).unwrap(), expected);
            // Twice changes nothing.
            assert_eq!(String::from_utf8(indented(expected.as_bytes())).unwrap(), expected);
        }
        assert_eq!(indented(b"{\"n\":12345678901234567890.10}\n"), b"{\n  \"n\": 12345678901234567890.10\n}");
    }

    #[test]
    fn damaged_json_is_no_panic() {
        for text in ["", "\"", "\"\\", "{", "}", "]]]]", "[{", ",", "{\"a"] {
            indented(text.as_bytes());
        }
    }

    #[test]
    fn people_are_known_by_their_wish_or_by_their_program() {
        let check = |query: &str, agent: &str, expected: bool| {
            let headers = HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]);
            assert_eq!(is_wanted(&Query::parse(Some(query)), &headers), expected, "{query} {agent}");
        };
        check("", "kubectl/v1.36.4", false);
        check("pretty=true", "kubectl/v1.36.4", true);
        check("pretty=1", "kubectl/v1.36.4", true);
        check("", "curl/8.5.0", true);
        check("", "Mozilla/5.0 (X11)", true);
        check("pretty=false", "curl/8.5.0", false);
        check("pretty=bogus", "curl/8.5.0", false);
    }
}
