//! A list on its way to a client, piece by piece.
//!
//! In JSON a list is a head, its objects with commas between them, and a tail, whatever its shape. Each piece is
//! made when the client has taken the one before.

use std::vec;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::Timestamp;
use openapi::decode;
use openapi::protobuf;
use openapi::table::{self, Heading};
use serde_json::{Value, json};
use storage::Entry;

use crate::negotiate::{Encoding, Shape};
use crate::render::{self, Style};
use crate::server::{Body, Broken};
use crate::stored;

/// About so much is sent at a time: enough that the calls per byte do not count, too little to weigh in memory.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Marks an answer that is sent in pieces and has an end, unlike a watch. It is longer than one piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Long;

/// A list as an answer.
pub(crate) fn list(style: Style, metadata: Value, entries: Vec<Entry>) -> Response<Body> {
    let media_type = style.form.encoding.media_type();
    let whole = |body: Vec<u8>| render::typed(StatusCode::OK, media_type, body);
    match style.form.encoding {
        Encoding::Json => {
            let mut pieces = Pieces::new(style, &metadata, entries);
            // What fits into one piece is sent with its length.
            let first = pieces.next().unwrap_or_default();
            let mut response = render::typed(StatusCode::OK, media_type, first.clone());
            if pieces.entries.is_some() {
                let all = std::iter::once(first).chain(pieces);
                let frames = stream::iter(all.map(|piece| Ok::<_, Broken>(Frame::data(piece))));
                *response.body_mut() = StreamBody::new(frames).boxed_unsync();
                response.extensions_mut().insert(Long);
            }
            response
        }
        Encoding::Yaml => {
            let pieces = Pieces::new(style, &metadata, entries);
            let json = pieces.fold(Vec::new(), |mut all, piece| {
                all.extend_from_slice(&piece);
                all
            });
            let tree = decode::tree(&json).unwrap_or_default();
            let mut out = BytesMut::new();
            render::encode(Encoding::Yaml, &tree, &mut out);
            whole(out.into())
        }
        Encoding::Protobuf => whole(in_protobuf(&style, &metadata, &entries)),
    }
}

fn in_protobuf(style: &Style, metadata: &Value, entries: &[Entry]) -> Vec<u8> {
    let shown = entries.iter().filter_map(|entry| style.tree(entry, entry.revision()));
    let shown = shown.map(|tree| style.shown(&tree, Heading::Omitted, &[]));
    let items: Vec<Vec<u8>> = shown.filter_map(|tree| protobuf::message(&tree).ok()).collect();
    let (kind, api_version) = kind(style);
    // The kind was looked up when the encoding was chosen.
    protobuf::list(&api_version, &kind, metadata, &items).unwrap_or_default()
}

/// What a list of this shape calls itself.
fn kind(style: &Style) -> (String, String) {
    let meta = || style.form.meta.api_version().to_owned();
    match style.form.shape {
        Shape::PartialList => ("PartialObjectMetadataList".to_owned(), meta()),
        Shape::Table => ("Table".to_owned(), meta()),
        _ => (style.row.list_kind.to_string(), style.row.api_version()),
    }
}

struct Pieces {
    style: Style,
    now: Timestamp,
    /// What every object of the kind begins with.
    heading: String,
    /// What has been written and not been taken.
    out: BytesMut,
    is_first: bool,
    /// None when the tail has been written too.
    entries: Option<vec::IntoIter<Entry>>,
}

impl Pieces {
    fn new(style: Style, metadata: &Value, entries: Vec<Entry>) -> Pieces {
        let (kind, api_version) = kind(&style);
        let list = match style.form.shape {
            Shape::Table => {
                let definitions = json!(table::definitions(&style.row.columns));
                format!("\"columnDefinitions\":{definitions},\"rows\"")
            }
            _ => "\"items\"".to_owned(),
        };
        let head = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},{list}:["
        );
        let heading = stored::heading(&style.row.api_version(), &style.row.kind);
        let (out, entries) = (BytesMut::from(head.as_bytes()), Some(entries.into_iter()));
        Pieces { style, now: Timestamp::now(), heading, out, is_first: true, entries }
    }

    /// Writes one object, or nothing at all.
    fn item(&mut self, entry: &Entry) {
        let before = self.out.len();
        if !self.is_first {
            self.out.put_u8(b',');
        }
        let begun = self.out.len();
        match self.style.form.shape {
            Shape::Table => {
                if let Some(tree) = self.style.tree(entry, entry.revision()) {
                    let mut row = table::row(&self.style.row.columns, &tree, self.style.include, self.now);
                    self.style.name_row(&mut row);
                    render::put(&mut self.out, &row);
                }
            }
            _ => self.style.item(entry, &self.heading, &mut self.out),
        }
        match self.out.len() > begun {
            true => self.is_first = false,
            false => self.out.truncate(before),
        }
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut entries = self.entries.take()?;
        while self.out.len() < PIECE_BYTES {
            match entries.next() {
                Some(entry) => self.item(&entry),
                None => {
                    self.out.put_slice(b"]}");
                    return Some(self.out.split().freeze());
                }
            }
        }
        self.entries = Some(entries);
        Some(self.out.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::call::Reach;
    use crate::negotiate::Form;
    use openapi::catalog;
    use openapi::table::Include;
    use storage::{Key, Revision};

    fn entries(count: usize) -> Vec<Entry> {
        let entry = |number: usize| {
            let object =
                json!({ "metadata": { "name": format!("m{number}") }, "data": { "x": "y".repeat(100) } });
            Entry::new(Key::from(format!("k{number}")), Revision(7), stored::encode(&object))
        };
        (0..count).map(entry).collect()
    }

    fn style(shape: Shape) -> Style {
        let row = Arc::clone(catalog::find("", "v1", "configmaps").unwrap());
        let form = Form { shape, ..Form::JSON };
        Style { form, row, include: Include::Nothing, reach: Reach::One, elsewhere: None }
    }

    #[test]
    fn pieces_make_one_list_in_every_shape() {
        for (shape, list) in [(Shape::Whole, "items"), (Shape::PartialList, "items"), (Shape::Table, "rows")]
        {
            let pieces: Vec<Bytes> = Pieces::new(style(shape), &json!({}), entries(2000)).collect();
            let whole: Value = serde_json::from_slice(&pieces.concat()).unwrap();
            assert_eq!(whole[list].as_array().unwrap().len(), 2000, "{shape:?}");
            assert!(
                pieces.len() > 1 && pieces.iter().all(|piece| piece.len() < PIECE_BYTES + 1024),
                "{shape:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_leaves_no_trace() {
        let damaged =
            || Entry::new(Key::from("d"), Revision(1), Bytes::from_static(b"\xff\xff\xff\xff\0\0\0\0{"));
        for shape in [Shape::Whole, Shape::PartialList, Shape::Table] {
            let [first, last] = entries(2).try_into().unwrap();
            let mixed = vec![damaged(), first, damaged(), last, damaged()];
            let pieces: Vec<Bytes> = Pieces::new(style(shape), &json!({}), mixed).collect();
            let whole: Value = serde_json::from_slice(&pieces.concat()).unwrap();
            let list = if shape == Shape::Table { "rows" } else { "items" };
            assert_eq!(whole[list].as_array().unwrap().len(), 2, "{whole}");
        }
    }
}
