//! Mutates a request of the corpus: a few small changes, each to one part of it.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

use crate::request::Request;
use crate::{trees, words};

/// Edge cases of protobuf varints.
const VARINTS: &[&[u8]] = &[
    &[0],
    &[0x7f],
    &[0x80],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
];
/// The limit for a mutated body. Large bodies are tried at the limits instead.
const BODY_BYTES_MAX: usize = 64 << 10;

pub(crate) fn mutated(corpus_request: &Request, corpus: &[Request], random: &mut StdRng) -> Request {
    let mut request = corpus_request.clone();
    // Mostly one change, because two often hide each other.
    let changes = 1 + (0..3).take_while(|_| random.random_bool(0.4)).count();
    for _ in 0..changes {
        match random.random_range(0..20) {
            0..3 => path(&mut request, random),
            3..6 => query(&mut request, random),
            6..8 => headers(&mut request, random),
            8 => pick(words::METHODS, random).clone_into(&mut request.method),
            9..14 => tree(&mut request, random),
            14 => in_protobuf(&mut request),
            15 => yaml(&mut request, random),
            16..18 => bytes(&mut request.body, random),
            18 => splice(&mut request, corpus, random),
            _ => request.body.clone_from(&corpus[random.random_range(0..corpus.len())].body),
        }
    }
    request.body.truncate(BODY_BYTES_MAX);
    request
}

pub(crate) fn pick<T: Copy>(from: &[T], random: &mut StdRng) -> T {
    *from.choose(random).expect("tables have rows")
}

fn path(request: &mut Request, random: &mut StdRng) {
    let mut segments: Vec<String> = request.path.split('/').skip(1).map(str::to_owned).collect();
    let at = random.random_range(0..segments.len().max(1));
    match random.random_range(0..7) {
        0 if !segments.is_empty() => drop(segments.remove(at)),
        1 => segments.insert(at.min(segments.len()), pick(words::SEGMENTS, random).to_owned()),
        2 => segments.push(pick(words::SEGMENTS, random).to_owned()),
        3 if !segments.is_empty() => segments[at] = encoded(&segments[at], random),
        4 if !segments.is_empty() => segments[at] = "a".repeat(random.random_range(1..2_000)),
        5 => segments
            .splice(0..0, ["clusters", pick(words::SEGMENTS, random)].map(str::to_owned))
            .for_each(drop),
        _ if !segments.is_empty() => pick(words::SEGMENTS, random).clone_into(&mut segments[at]),
        _ => {}
    }
    request.path = format!("/{}", segments.join("/"));
}

/// Returns the text with one of its characters percent-encoded.
fn encoded(text: &str, random: &mut StdRng) -> String {
    let at = random.random_range(0..text.chars().count().max(1));
    let serialized =
        text.chars().enumerate().map(|(index, character)| match index == at && character.is_ascii() {
            true => format!("%{:02x}", character as u32),
            false => character.to_string(),
        });
    serialized.collect()
}

fn query(request: &mut Request, random: &mut StdRng) {
    let name = pick(words::PARAMETERS, random).to_owned();
    let value = match random.random_range(0..12) {
        0 => "a".repeat(random.random_range(1..4_000)),
        1 => random.random::<u64>().to_string(),
        2 => vec!["a"; random.random_range(1..1_000)].join(","),
        _ => pick(words::VALUES, random).to_owned(),
    };
    match request.query.is_empty() || random.random_bool(0.7) {
        true => request.query.push((name, value)),
        false => {
            let at = random.random_range(0..request.query.len());
            request.query[at].1 = value;
        }
    }
}

fn headers(request: &mut Request, random: &mut StdRng) {
    let (name, values) = pick(words::HEADERS, random);
    let value = match random.random_range(0..8) {
        0 => vec![b'a'; random.random_range(1..8_000)],
        1 => (0..random.random_range(1..40)).map(|_| random.random_range(0x20..=0xff_u8)).collect(),
        _ => pick(values, random).as_bytes().to_vec(),
    };
    match random.random_bool(0.2) {
        // The header appears twice, which the server must handle.
        true => request.headers.push((name.to_owned(), value)),
        false => request.set_header(name, value),
    }
}

fn tree(request: &mut Request, random: &mut StdRng) {
    match trees::mutated(&request.body, random) {
        Some(body) => request.body = body,
        None => bytes(&mut request.body, random),
    }
}

/// Encodes the object as protobuf, if it has such a form.
fn in_protobuf(request: &mut Request) {
    let encoded = serde_json::from_slice(&request.body)
        .ok()
        .and_then(|tree| openapi::codec::protobuf::encode(&tree).ok());
    if let Some(encoded) = encoded {
        request.body = encoded;
        request.set_header("content-type", "application/vnd.kubernetes.protobuf");
    }
}

fn yaml(request: &mut Request, random: &mut StdRng) {
    let at = random.random_range(0..=request.body.len());
    let snippet = pick(words::YAML, random).repeat(if random.random_bool(0.1) { 500 } else { 1 });
    request.body.splice(at..at, snippet.into_bytes());
    request.set_header("content-type", "application/yaml");
}

fn bytes(body: &mut Vec<u8>, random: &mut StdRng) {
    let at = random.random_range(0..=body.len());
    let rest = body.len() - at;
    match random.random_range(0..7) {
        0 => body.truncate(at),
        1 if rest > 0 => body[at] ^= 1 << random.random_range(0..8),
        2 if rest > 0 => body[at] = random.random(),
        3 => drop(body.drain(at..at + random.random_range(0..=rest.min(16)))),
        4 => drop(body.splice(at..at, pick(VARINTS, random).iter().copied())),
        5 => {
            let repeated: Vec<u8> = body[at..at + rest.min(32)].repeat(random.random_range(1..200));
            body.splice(at..at, repeated);
        }
        _ => {
            let mut noise = vec![0; random.random_range(1..16)];
            random.fill_bytes(&mut noise);
            body.splice(at..at, noise);
        }
    }
}

/// Joins the beginning of this body and the end of another.
fn splice(request: &mut Request, corpus: &[Request], random: &mut StdRng) {
    let other = &corpus[random.random_range(0..corpus.len())].body;
    let (at, from) = (random.random_range(0..=request.body.len()), random.random_range(0..=other.len()));
    request.body.truncate(at);
    request.body.extend(&other[from..]);
}
