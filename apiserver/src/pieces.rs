//! A list on its way to a client, piece by piece.
//!
//! In JSON a list is a head, its objects with commas between them, and a tail, whatever its shape. Each piece is
//! made when the client has taken the one before.

use bytes::{BufMut, Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::Timestamp;
use openapi::codec;
use openapi::codec::protobuf;
use openapi::publish::tables;
use openapi::publish::tables::ColumnDefinitions;
use serde_json::{Value, json};
use storage::{Entry, ReadError};

use crate::negotiate::{Encoding, Shape};
use crate::render::{self, Style};
use crate::server::{Body, Broken};
use crate::stored;
use crate::verbs::list::Reader;

/// About so much is sent at a time. A client that does not read holds three pieces at most: one in HTTP, one on its way
/// to TLS and one in it. A record of TLS and a frame of HTTP/2 are at most twice as long.
pub(crate) const PIECE_BYTES: usize = 8 << 10;
/// What most objects that make a piece longer than that fit into.
const PIECE_ROOM: usize = PIECE_BYTES + (2 << 10);

/// A buffer for one piece.
pub(crate) fn room_for_a_piece() -> BytesMut {
    BytesMut::with_capacity(PIECE_ROOM)
}

/// Marks an answer that is sent in pieces and has an end, unlike a watch. It is longer than one piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Long;

/// A list in JSON as an answer.
pub(crate) async fn list_in_json(style: Style, metadata: Value, reader: Reader) -> Response<Body> {
    let media_type = style.form.encoding.media_type();
    let mut pieces = Pieces::new(style, &metadata, reader);
    // What fits into one piece is sent with its length.
    let first = pieces.next().await.unwrap_or(Ok(Bytes::new()));
    let mut response = render::typed(StatusCode::OK, media_type, first.clone().unwrap_or_default());
    if pieces.reader.is_some() || first.is_err() {
        let rest = stream::unfold(pieces, async |mut pieces| Some((pieces.next().await?, pieces)));
        let all = stream::once(async move { first }).chain(rest);
        *response.body_mut() = StreamBody::new(all.map_ok(Frame::data)).boxed_unsync();
        response.extensions_mut().insert(Long);
    }
    response
}

/// A list as an answer in one of the encodings that cannot be made in pieces.
pub(crate) async fn list_as_a_whole(style: Style, metadata: &Value, entries: &[Entry]) -> Response<Body> {
    let media_type = style.form.encoding.media_type();
    let body = match style.form.encoding {
        Encoding::Protobuf => in_protobuf(&style, metadata, entries),
        Encoding::Json | Encoding::Yaml => {
            let encoding = style.form.encoding;
            let mut pieces = Pieces::new(style, metadata, Reader::of(entries.to_vec()));
            let mut json = Vec::new();
            while let Some(Ok(piece)) = pieces.next().await {
                json.extend_from_slice(&piece);
            }
            let tree = codec::parse_json(&json).unwrap_or_default();
            let mut out = BytesMut::new();
            render::encode(encoding, &tree, &mut out);
            out.into()
        }
    };
    render::typed(StatusCode::OK, media_type, body)
}

fn in_protobuf(style: &Style, metadata: &Value, entries: &[Entry]) -> Vec<u8> {
    let shown = entries.iter().filter_map(|entry| style.tree(entry, entry.revision()));
    let shown = shown.map(|tree| style.shown(&tree, ColumnDefinitions::Omitted, &[]));
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
    reader: Option<Reader>,
}

impl Pieces {
    fn new(style: Style, metadata: &Value, reader: Reader) -> Pieces {
        let (kind, api_version) = kind(&style);
        let list = match style.form.shape {
            Shape::Table => {
                let definitions = json!(tables::definitions(&style.row.columns));
                format!("\"columnDefinitions\":{definitions},\"rows\"")
            }
            _ => "\"items\"".to_owned(),
        };
        let head = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},{list}:["
        );
        let heading = stored::heading(&style.row.api_version(), &style.row.kind);
        let mut out = room_for_a_piece();
        out.put_slice(head.as_bytes());
        Pieces { style, now: Timestamp::now(), heading, out, is_first: true, reader: Some(reader) }
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
                    let mut row = tables::row(&self.style.row.columns, &tree, self.style.include, self.now);
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

impl Pieces {
    /// The next piece; none after the last. What cannot be read to its end breaks off.
    async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        match self.fill().await {
            Ok(piece) => piece.map(Ok),
            Err(error) => {
                tracing::debug!(%error, "a list breaks off");
                self.reader = None;
                Some(Err(Broken))
            }
        }
    }

    async fn fill(&mut self) -> Result<Option<Bytes>, ReadError> {
        let Some(mut reader) = self.reader.take() else { return Ok(None) };
        while self.out.len() < PIECE_BYTES {
            match reader.next().await? {
                Some(entry) => self.item(&entry),
                None => {
                    self.out.put_slice(b"]}");
                    return Ok(Some(std::mem::take(&mut self.out).freeze()));
                }
            }
        }
        self.reader = Some(reader);
        Ok(Some(std::mem::replace(&mut self.out, room_for_a_piece()).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::call::Reach;
    use crate::negotiate::Form;
    use openapi::catalog;
    use openapi::publish::tables::IncludeObject;
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
        Style { form, row, include: IncludeObject::Nothing, reach: Reach::One, elsewhere: None }
    }

    async fn written(shape: Shape, entries: Vec<Entry>) -> Vec<Bytes> {
        let mut pieces = Pieces::new(style(shape), &json!({}), Reader::of(entries));
        let mut written = Vec::new();
        while let Some(piece) = pieces.next().await {
            written.push(piece.unwrap());
        }
        written
    }

    #[tokio::test]
    async fn pieces_make_one_list_in_every_shape() {
        for (shape, list) in [(Shape::Whole, "items"), (Shape::PartialList, "items"), (Shape::Table, "rows")]
        {
            let pieces = written(shape, entries(2000)).await;
            let whole: Value = serde_json::from_slice(&pieces.concat()).unwrap();
            assert_eq!(whole[list].as_array().unwrap().len(), 2000, "{shape:?}");
            assert!(
                pieces.len() > 1 && pieces.iter().all(|piece| piece.len() < PIECE_BYTES + 1024),
                "{shape:?}"
            );
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_leaves_no_trace() {
        let damaged =
            || Entry::new(Key::from("d"), Revision(1), Bytes::from_static(b"\xff\xff\xff\xff\0\0\0\0{"));
        for shape in [Shape::Whole, Shape::PartialList, Shape::Table] {
            let [first, last] = entries(2).try_into().unwrap();
            let mixed = vec![damaged(), first, damaged(), last, damaged()];
            let pieces = written(shape, mixed).await;
            let whole: Value = serde_json::from_slice(&pieces.concat()).unwrap();
            let list = if shape == Shape::Table { "rows" } else { "items" };
            assert_eq!(whole[list].as_array().unwrap().len(), 2, "{whole}");
        }
    }
}
