//! List streaming: a list is sent chunk by chunk.
//!
//! ```text
//!            head                  first  object  between  object  …   empty    tail
//!   JSON     {"kind":…,"items":[                  ,                             ]}
//!   YAML     apiVersion: …⏎items:  ⏎      - …⏎              - …⏎        []⏎     kind: …⏎metadata: …⏎
//!   protobuf its length, metadata                                               two empty fields
//! ```
//!
//! Every list has these parts, in every encoding and shape; `empty` replaces the objects of an empty list. A chunk is
//! rendered only when the client has taken the one before. A protobuf list begins with its length, so its objects are
//! encoded twice: once to add up the lengths and once to send them.

use bytes::{BufMut, Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::Timestamp;
use openapi::codec::protobuf::{self, ProtobufError};
use openapi::codec::yaml;
use openapi::publish::tables::{self, ColumnDefinitions};
use serde_json::{Value, json};
use storage::{Entry, ReadError};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::http::body::{Body, Broken};
use crate::http::body::{CHUNK_BYTES, chunk_buffer};
use crate::objects::stored;
use crate::request::negotiation::{Encoding, Shape};
use crate::response::list_reader::ListReader;
use crate::response::render;
use crate::response::render::Style;

/// The size of a large chunk. Small chunks spend a third of the CPU time of a long list on rendering and encrypting
/// them.
const LARGE_CHUNK_BYTES: usize = 16 << 10;
/// The number of lists that are sent in large chunks at a time. Each holds at most two such chunks, so clients that do
/// not read hold at most 512 KB in addition to their usual share. All other lists are sent in small chunks.
const LARGE_LISTS_MAX: usize = 16;
static LARGE_LISTS: Semaphore = Semaphore::const_new(LARGE_LISTS_MAX);
/// The typical size of a table row or of an object's metadata.
const ITEM_BYTES: usize = 1 << 10;

/// Marks a response that is sent in several chunks but, unlike a watch, has an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Long {
    /// Estimated length.
    pub(crate) bytes: u64,
}

/// Responds with a list.
pub(crate) async fn list(
    style: Style,
    metadata: &Value,
    reader: ListReader,
) -> Result<Response<Body>, Interruption> {
    let media_type = style.form.encoding.media_type();
    let mut chunks = ListChunks::new(style, metadata, reader).await?;
    let bytes = chunks.guess();
    // A list that fits into one chunk is sent with its length.
    let first = chunks.next_chunk().await?.unwrap_or_default();
    let mut response = render::typed(StatusCode::OK, media_type, first.clone());
    if chunks.reader.is_some() {
        chunks.large = LARGE_LISTS.try_acquire().ok();
        let rest = stream::unfold(chunks, async |mut chunks| Some((chunks.next().await?, chunks)));
        let all = stream::once(async move { Ok(first) }).chain(rest);
        *response.body_mut() = StreamBody::new(all.map_ok(Frame::data)).boxed_unsync();
        response.extensions_mut().insert(Long { bytes });
    }
    Ok(response)
}

/// The error that ends a list early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Interruption {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot encode the list as protobuf: {0}")]
    Protobuf(#[from] ProtobufError),
    #[error("the encoded size of the list changed while it was being sent")]
    Changed,
}

/// Returns kind and version of the list.
fn kind(style: &Style) -> (String, String) {
    let meta = || style.form.meta.api_version().to_owned();
    match style.form.shape {
        Shape::PartialList => ("PartialObjectMetadataList".to_owned(), meta()),
        Shape::Table => ("Table".to_owned(), meta()),
        _ => (style.resource.list_kind.to_string(), style.resource.api_version()),
    }
}

/// The parts of a list around its objects, as in the table above.
struct Envelope {
    head: Vec<u8>,
    first: &'static str,
    between: &'static str,
    empty: &'static str,
    tail: Vec<u8>,
}

impl Envelope {
    fn json(style: &Style, metadata: &Value) -> Envelope {
        let (kind, api_version) = kind(style);
        let list = match style.form.shape {
            Shape::Table => {
                let definitions = json!(tables::definitions(&style.resource.columns));
                format!("\"columnDefinitions\":{definitions},\"rows\"")
            }
            _ => "\"items\"".to_owned(),
        };
        let head = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},{list}:["
        );
        Envelope { head: head.into_bytes(), first: "", between: ",", empty: "", tail: b"]}".to_vec() }
    }

    /// Renders the list without objects and splits it where they belong.
    fn yaml(style: &Style, metadata: &Value) -> Envelope {
        let (kind, api_version) = kind(style);
        let mut tree = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
        let list = match style.form.shape {
            Shape::Table => {
                tree["columnDefinitions"] = json!(tables::definitions(&style.resource.columns));
                "rows"
            }
            _ => "items",
        };
        tree[list] = json!([]);
        let empty = yaml::write(&tree);
        // Only the list itself begins a line with its name.
        let (head, tail) = empty.split_once(&format!("\n{list}: []\n")).unwrap_or((&empty, ""));
        let head = format!("{head}\n{list}:").into_bytes();
        Envelope { head, first: "\n", between: "", empty: " []\n", tail: tail.into() }
    }

    fn protobuf(list: &protobuf::List, metadata: &Value, length: usize) -> Result<Envelope, ProtobufError> {
        let head = list.head(metadata, length)?;
        Ok(Envelope { head, first: "", between: "", empty: "", tail: list.tail() })
    }
}

/// Renders the objects of a list.
struct ItemWriter {
    style: Style,
    now: Timestamp,
    /// The bytes that every object of the kind begins with.
    heading: String,
    protobuf: Option<protobuf::List>,
}

impl ItemWriter {
    fn new(style: Style) -> Result<ItemWriter, ProtobufError> {
        let (kind, api_version) = kind(&style);
        let protobuf = match style.form.encoding {
            Encoding::Protobuf => Some(protobuf::List::new(&api_version, &kind)?),
            Encoding::Json | Encoding::Yaml => None,
        };
        let heading = stored::heading(&style.resource.api_version(), &style.resource.kind);
        Ok(ItemWriter { style, now: Timestamp::now(), heading, protobuf })
    }

    /// Writes one object, or nothing if it cannot be encoded.
    fn write(&self, entry: &Entry, out: &mut BytesMut) {
        match (self.style.form.encoding, self.style.form.shape) {
            (Encoding::Json, Shape::Table) => {
                if let Some(row) = self.row(entry) {
                    render::put(out, &row);
                }
            }
            (Encoding::Json, _) => self.style.item(entry, &self.heading, out),
            (Encoding::Yaml, shape) => {
                let tree = if shape == Shape::Table { self.row(entry) } else { self.style.item_tree(entry) };
                if let Some(tree) = tree {
                    out.put_slice(yaml::write(&Value::Array(vec![tree])).as_bytes());
                }
            }
            (Encoding::Protobuf, _) => {
                let tree = self.style.tree(entry, entry.revision());
                let transformed =
                    tree.map(|tree| self.style.transform(&tree, ColumnDefinitions::Omitted, &[]));
                let item =
                    transformed.zip(self.protobuf.as_ref()).and_then(|(tree, list)| list.item(&tree).ok());
                out.put_slice(&item.unwrap_or_default());
            }
        }
    }

    fn row(&self, entry: &Entry) -> Option<Value> {
        let tree = self.style.tree(entry, entry.revision())?;
        let mut row = tables::row(&self.style.resource.columns, &tree, self.style.include, self.now);
        self.style.set_row_version(&mut row);
        Some(row)
    }

    /// Estimates the size of one object.
    fn guess(&self, entry: &Entry) -> usize {
        let stored = entry.value().len();
        match (self.style.form.shape, self.style.form.encoding) {
            (Shape::Whole, Encoding::Yaml) => stored + stored / 4,
            (Shape::Whole, _) => stored + stored::ADDED_BYTES_MAX,
            _ => stored.min(ITEM_BYTES),
        }
    }

    /// Adds up the encoded size of all objects.
    async fn add_up(&self, mut reader: ListReader) -> Result<usize, ReadError> {
        let (mut out, mut length) = (BytesMut::new(), 0);
        while let Some(entry) = reader.next().await? {
            self.write(&entry, &mut out);
            length += out.len();
            out.clear();
            // Lets other tasks run on this thread.
            tokio::task::consume_budget().await;
        }
        Ok(length)
    }
}

struct ListChunks {
    items: ItemWriter,
    envelope: Envelope,
    /// Bytes that have been rendered and not sent.
    out: BytesMut,
    is_first: bool,
    /// Protobuf: the announced size of the objects that are still to be written.
    announced: Option<usize>,
    /// None once the tail is written.
    reader: Option<ListReader>,
    /// The permit for large chunks.
    large: Option<SemaphorePermit<'static>>,
}

impl ListChunks {
    async fn new(style: Style, metadata: &Value, reader: ListReader) -> Result<ListChunks, Interruption> {
        let items = ItemWriter::new(style)?;
        let (envelope, announced) = match (&items.protobuf, items.style.form.encoding) {
            (Some(list), _) => {
                let length = items.add_up(reader.clone()).await?;
                (Envelope::protobuf(list, metadata, length)?, Some(length))
            }
            (None, Encoding::Yaml) => (Envelope::yaml(&items.style, metadata), None),
            (None, _) => (Envelope::json(&items.style, metadata), None),
        };
        let mut out = chunk_buffer();
        out.put_slice(&envelope.head);
        Ok(ListChunks { items, envelope, out, is_first: true, announced, reader: Some(reader), large: None })
    }

    /// Estimates the length of the list.
    fn guess(&self) -> u64 {
        let items = self.reader.iter().map(|reader| reader.add_up(|entry| self.items.guess(entry))).sum();
        self.announced.unwrap_or(items) as u64
    }

    /// Renders the next chunk. None after the last. A read error ends the body early.
    async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        match self.next_chunk().await {
            Ok(chunk) => chunk.map(Ok),
            Err(error) => {
                tracing::debug!(%error, "list response aborted");
                Some(Err(Broken))
            }
        }
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Interruption> {
        let Some(mut reader) = self.reader.take() else { return Ok(None) };
        let chunk_bytes = if self.large.is_some() { LARGE_CHUNK_BYTES } else { CHUNK_BYTES };
        while let Some(entry) = reader.peek().await? {
            let guess = self.items.guess(entry);
            if !self.out.is_empty() && self.out.len() + guess > chunk_bytes {
                self.reader = Some(reader);
                return Ok(Some(std::mem::take(&mut self.out).freeze()));
            }
            // The buffer is allocated only now, so that a list which waits for its client holds none.
            if self.out.is_empty() {
                self.out.reserve(guess.max(chunk_bytes));
            }
            let Some(entry) = reader.next().await? else { break };
            self.write(&entry)?;
        }
        if self.is_first {
            self.out.put_slice(self.envelope.empty.as_bytes());
        }
        self.out.put_slice(&self.envelope.tail);
        match self.announced {
            None | Some(0) => Ok(Some(std::mem::take(&mut self.out).freeze())),
            Some(_) => Err(Interruption::Changed),
        }
    }

    /// Writes one object with its separator, or nothing if it cannot be encoded.
    fn write(&mut self, entry: &Entry) -> Result<(), Interruption> {
        let before = self.out.len();
        let sign = if self.is_first { self.envelope.first } else { self.envelope.between };
        self.out.put_slice(sign.as_bytes());
        let begun = self.out.len();
        self.items.write(entry, &mut self.out);
        let length = self.out.len() - begun;
        match length {
            0 => self.out.truncate(before),
            _ => self.is_first = false,
        }
        if let Some(announced) = &mut self.announced {
            *announced = announced.checked_sub(length).ok_or(Interruption::Changed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::request::info::Reach;
    use crate::request::negotiation::Form;
    use openapi::catalog;
    use openapi::codec::{self, Syntax};
    use openapi::publish::tables::IncludeObject;
    use storage::{Key, Revision};

    fn entries(count: usize) -> Vec<Entry> {
        let entry = |number: usize| {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": format!("m{number}") }, "data": { "x": "y".repeat(100) },
            });
            Entry::new(Key::from(format!("k{number}")), Revision(7), stored::encode(&object))
        };
        (0..count).map(entry).collect()
    }

    fn style(shape: Shape, encoding: Encoding) -> Style {
        let resource = Arc::clone(catalog::find("", "v1", "configmaps").unwrap());
        let form = Form { shape, encoding, ..Form::JSON };
        Style { form, resource, include: IncludeObject::Nothing, reach: Reach::One, elsewhere: None }
    }

    const SHAPES: [Shape; 3] = [Shape::Whole, Shape::PartialList, Shape::Table];
    const ENCODINGS: [Encoding; 3] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];

    /// Returns all forms of a list. Tables have no protobuf.
    fn forms() -> impl Iterator<Item = (Shape, Encoding)> {
        let all = SHAPES.into_iter().flat_map(|shape| ENCODINGS.map(|encoding| (shape, encoding)));
        all.filter(|form| *form != (Shape::Table, Encoding::Protobuf))
    }

    async fn chunks(shape: Shape, encoding: Encoding, entries: Vec<Entry>) -> ListChunks {
        let metadata = json!({ "resourceVersion": "7", "continue": "items: []" });
        ListChunks::new(style(shape, encoding), &metadata, ListReader::of(entries)).await.unwrap()
    }

    async fn written(shape: Shape, encoding: Encoding, entries: Vec<Entry>) -> Vec<Bytes> {
        let mut chunks = chunks(shape, encoding, entries).await;
        let mut written = Vec::new();
        while let Some(chunk) = chunks.next().await {
            written.push(chunk.unwrap());
        }
        written
    }

    /// Decodes a list as a client does.
    fn read(encoding: Encoding, chunks: &[Bytes]) -> Value {
        let bytes = chunks.concat();
        match encoding {
            Encoding::Json => serde_json::from_slice(&bytes).unwrap(),
            Encoding::Yaml => codec::decode(&bytes, Syntax::Yaml).unwrap().value,
            Encoding::Protobuf => protobuf::decode(&bytes).unwrap().value,
        }
    }

    fn count(shape: Shape, list: &Value) -> usize {
        let field = if shape == Shape::Table { "rows" } else { "items" };
        // An empty protobuf list has no `items`.
        list[field].as_array().map_or(0, Vec::len)
    }

    #[tokio::test]
    async fn chunks_make_one_list_in_every_form() {
        for (shape, encoding) in forms() {
            for objects in [0, 1, 2000] {
                let chunks = written(shape, encoding, entries(objects)).await;
                let list = read(encoding, &chunks);
                assert_eq!(count(shape, &list), objects, "{shape:?} {encoding:?}");
                assert_eq!(list["metadata"]["continue"], "items: []", "{shape:?} {encoding:?}");
                assert_eq!(chunks.len() > 1, objects > 1, "{shape:?} {encoding:?}");
                let longest = chunks.iter().map(Bytes::len).max();
                assert!(longest <= Some(CHUNK_BYTES), "{shape:?} {encoding:?}: {longest:?}");
            }
        }
    }

    /// A list that ends frees its permit for another.
    #[tokio::test]
    async fn as_many_lists_as_allowed_are_sent_in_large_chunks() {
        let longest = async || {
            let metadata = json!({ "resourceVersion": "7" });
            let reader = ListReader::of(entries(2000));
            let response = list(style(Shape::Whole, Encoding::Json), &metadata, reader).await.unwrap();
            let mut body = response.into_body().into_data_stream();
            let mut longest = 0;
            while let Some(chunk) = body.next().await {
                longest = longest.max(chunk.unwrap().len());
            }
            longest
        };
        assert!((CHUNK_BYTES + 1..=LARGE_CHUNK_BYTES).contains(&longest().await));
        let all = LARGE_LISTS.acquire_many(LARGE_LISTS_MAX as u32).await.unwrap();
        assert!(longest().await <= CHUNK_BYTES);
        drop(all);
        assert!(longest().await > CHUNK_BYTES);
    }

    /// The chunks of a list together are the same list in every encoding.
    #[tokio::test]
    async fn a_list_is_the_same_in_json_and_yaml() {
        for shape in SHAPES {
            let json = read(Encoding::Json, &written(shape, Encoding::Json, entries(20)).await);
            let yaml = written(shape, Encoding::Yaml, entries(20)).await.concat();
            assert_eq!(String::from_utf8(yaml).unwrap(), yaml::write(&json), "{shape:?}");
        }
    }

    #[tokio::test]
    async fn unreadable_entries_are_left_out_of_lists() {
        let damaged =
            || Entry::new(Key::from("d"), Revision(1), Bytes::from_static(b"\xff\xff\xff\xff\0\0\0\0{"));
        for (shape, encoding) in forms() {
            let [first, last] = entries(2).try_into().unwrap();
            let mixed = vec![damaged(), first, damaged(), last, damaged()];
            let list = read(encoding, &written(shape, encoding, mixed).await);
            assert_eq!(count(shape, &list), 2, "{list}");
            let none = read(encoding, &written(shape, encoding, vec![damaged()]).await);
            assert_eq!(count(shape, &none), 0, "{none}");
        }
    }

    /// A client would misread a protobuf list whose objects take more or fewer bytes than announced.
    #[tokio::test]
    async fn a_list_that_changed_after_its_length_was_announced_breaks_off() {
        for sent in [1, 3] {
            let mut chunks = chunks(Shape::Whole, Encoding::Protobuf, entries(2)).await;
            chunks.reader = Some(ListReader::of(entries(sent)));
            assert_eq!(chunks.next().await, Some(Err(Broken)), "{sent}");
            assert_eq!(chunks.next().await, None, "{sent}");
        }
    }
}
