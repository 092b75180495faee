//! Indented JSON, for people.

use bytes::{Buf, Bytes};
use futures::stream;
use http::HeaderMap;
use http::header::USER_AGENT;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::http::body::Body;
use crate::http::body::CHUNK_BYTES;
use crate::request::query::Query;

/// User agents of programs whose output people read.
const PEOPLE: &[&str] = &["curl", "Wget", "Mozilla/5.0"];

/// Reports whether the response is to be indented: by `pretty` in the query, or else by the user agent. As in
/// Kubernetes.
pub(crate) fn is_requested(query: &Query, headers: &HeaderMap) -> bool {
    match query.text("pretty") {
        "" => {
            let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            PEOPLE.iter().any(|name| agent.starts_with(name))
        }
        _ => matches!(query.text("pretty"), "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

/// Returns the JSON with every field on a line of its own.
pub(crate) fn indented(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    Indenter::default().write(json, usize::MAX, &mut out);
    out
}

/// Indents a body that arrives in chunks. Indentation can multiply the size by a hundred, so one chunk may become
/// several.
pub(crate) fn indent_chunks(body: Body) -> Body {
    let state = Some((body, Bytes::new(), Indenter::default()));
    let frames = stream::unfold(state, async |state| {
        let (mut body, mut rest, mut indenter) = state?;
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        while out.len() < ENOUGH_BYTES {
            if rest.is_empty() {
                match body.frame().await {
                    Some(Ok(frame)) => rest = frame.into_data().unwrap_or_default(),
                    Some(Err(broken)) => return Some((Err(broken), None)),
                    None => return Some((Ok(Frame::data(Bytes::from(out))), None)),
                }
            }
            let used = indenter.write(&rest, ENOUGH_BYTES, &mut out);
            rest.advance(used);
        }
        Some((Ok(Frame::data(Bytes::from(out))), Some((body, rest, indenter))))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A chunk is sent once it has this many bytes: the last indentation can add half a kilobyte.
const ENOUGH_BYTES: usize = CHUNK_BYTES - 512;

/// Inserts line breaks and indentation into JSON that arrives in chunks. Only bytes between values change, so numbers
/// keep their digits and fields their order.
#[derive(Debug, Default)]
struct Indenter {
    depth: usize,
    place: JsonPosition,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum JsonPosition {
    #[default]
    Between,
    /// After an opening bracket.
    Opened,
    InString,
    /// After a backslash.
    Escaped,
}

impl Indenter {
    /// Indents the beginning of `json` until `out` has `enough` bytes or a little more. Returns the number of bytes
    /// consumed.
    fn write(&mut self, json: &[u8], enough: usize, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < json.len() && out.len() < enough {
            at += match self.place {
                JsonPosition::InString => self.string(&json[at..], enough - out.len(), out),
                JsonPosition::Escaped => {
                    out.push(json[at]);
                    self.place = JsonPosition::InString;
                    1
                }
                JsonPosition::Between | JsonPosition::Opened => {
                    self.byte(json[at], out);
                    1
                }
            };
        }
        at
    }

    /// Copies the rest of a string, up to its end, the next backslash or the available room. Returns the number of
    /// bytes copied.
    fn string(&mut self, json: &[u8], available: usize, out: &mut Vec<u8>) -> usize {
        let json = &json[..json.len().min(available)];
        let found = memchr::memchr2(b'"', b'\\', json);
        let used = found.map_or(json.len(), |at| at + 1);
        out.extend_from_slice(&json[..used]);
        self.place = match found.map(|at| json[at]) {
            Some(b'"') => JsonPosition::Between,
            Some(_) => JsonPosition::Escaped,
            None => JsonPosition::InString,
        };
        used
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        let is_close = matches!(byte, b'}' | b']');
        if byte.is_ascii_whitespace() {
            return;
        }
        if self.place == JsonPosition::Opened {
            self.place = JsonPosition::Between;
            // An empty object or array stays on one line.
            if is_close {
                return out.push(byte);
            }
            self.depth += 1;
            self.new_line(out);
        }
        if is_close {
            self.depth = self.depth.saturating_sub(1);
            self.new_line(out);
        }
        out.push(byte);
        match byte {
            b'"' => self.place = JsonPosition::InString,
            b'{' | b'[' => self.place = JsonPosition::Opened,
            b',' => self.new_line(out),
            b':' => out.push(b' '),
            _ => {}
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use serde_json::json;

    #[test]
    fn the_layout_is_that_of_kubernetes() {
        let values = [
            json!({}),
            json!([]),
            json!("a {b} [c], \"d\": e"),
            json!({ "a": {}, "b": [], "c": [1, [2, { "d": null }]], "e": "x\\\"y,{\n", "é": [[], {}] }),
        ];
        for value in values {
            let expected = serde_json::to_string_pretty(&value).unwrap();
            assert_eq!(String::from_utf8(indented(value.to_string().as_bytes())).unwrap(), expected);
            // Indenting twice changes nothing.
            assert_eq!(String::from_utf8(indented(expected.as_bytes())).unwrap(), expected);
        }
        assert_eq!(indented(b"{\"n\":12345678901234567890.10}\n"), b"{\n  \"n\": 12345678901234567890.10\n}");
    }

    /// Chunk boundaries and growing chunks do not change the result.
    #[tokio::test]
    async fn chunk_boundaries_do_not_change_the_output() {
        let deep = (0..100).fold(json!("x\\\"y,{\n".repeat(1000)), |inner, _| json!([{}, inner]));
        let value = json!({ "a": { "b": [1, 2, []] }, "deep": deep, "c": vec![json!({}); 3000] });
        let expected = serde_json::to_string_pretty(&value).unwrap();
        let json = value.to_string().into_bytes();
        for length in [1, 7, 4096] {
            let chunks: Vec<Bytes> = json.chunks(length).map(Bytes::copy_from_slice).collect();
            let frames = stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk)));
            let mut body = indent_chunks(StreamBody::new(frames).boxed_unsync());
            let mut written = Vec::new();
            while let Some(frame) = body.frame().await {
                let chunk = frame.unwrap().into_data().unwrap();
                assert!(chunk.len() <= CHUNK_BYTES, "{}", chunk.len());
                written.extend_from_slice(&chunk);
            }
            assert!(written == expected.as_bytes(), "{length}");
        }
    }

    #[test]
    fn damaged_json_is_no_panic() {
        for text in ["", "\"", "\"\\", "{", "}", "]]]]", "[{", ",", "{\"a"] {
            indented(text.as_bytes());
        }
    }

    #[test]
    fn output_is_indented_by_parameter_or_user_agent() {
        let check = |query: &str, agent: &str, expected: bool| {
            let headers = HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]);
            assert_eq!(is_requested(&Query::parse(Some(query)), &headers), expected, "{query} {agent}");
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
