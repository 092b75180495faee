//! The envelope of a Kubernetes object in protobuf: four bytes, and a message with the object's type and bytes.

use super::Problem;
use super::wire::{WireReader, WireWriter};

pub(super) const MAGIC: &[u8] = b"k8s\0";

#[derive(Debug)]
pub(super) struct OpenedEnvelope<'a> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
    pub(super) raw: &'a [u8],
}

/// Returns the bytes after [`MAGIC`], of which there must be some.
pub(super) fn body(bytes: &[u8]) -> Result<&[u8], Problem> {
    match bytes.strip_prefix(MAGIC) {
        None if bytes.is_empty() => Err(Problem::Nothing),
        None => Err(Problem::NotAnEnvelope),
        Some([]) => Err(Problem::EmptyEnvelope),
        Some(body) => Ok(body),
    }
}

/// Decodes an envelope that [`body`] returned.
pub(super) fn open(body: &[u8]) -> Result<OpenedEnvelope<'_>, Problem> {
    let mut opened = OpenedEnvelope { api_version: "", kind: "", raw: &[] };
    let mut reader = WireReader::new(body);
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => open_type(wire.bytes()?, &mut opened)?,
            2 => opened.raw = wire.bytes()?,
            // The content encoding. None is defined.
            3 if !wire.bytes()?.is_empty() => return Err(Problem::Encoding),
            _ => {}
        }
    }
    Ok(opened)
}

fn open_type<'a>(message: &'a [u8], opened: &mut OpenedEnvelope<'a>) -> Result<(), Problem> {
    let mut reader = WireReader::new(message);
    while let Some((number, wire)) = reader.field()? {
        let field = match number {
            1 => &mut opened.api_version,
            2 => &mut opened.kind,
            _ => continue,
        };
        *field = str::from_utf8(wire.bytes()?).map_err(|_| Problem::Expected("text"))?;
    }
    Ok(())
}

/// Writes the fields after the object and returns where the object ends.
pub(super) fn begin(out: &mut WireWriter) -> usize {
    out.bytes_field(4, b"");
    out.bytes_field(3, b"");
    out.written()
}

/// Writes the fields before an object of `length` bytes.
pub(super) fn close(out: &mut WireWriter, length: usize, api_version: &str, kind: &str) {
    out.announce(2, length);
    let end = out.written();
    out.bytes_field(2, kind.as_bytes());
    out.bytes_field(1, api_version.as_bytes());
    out.close(1, end);
    out.raw(MAGIC);
}
