//! Protobuf's wire format, without anything specific to Kubernetes.
//!
//! [`WireReader`] returns the fields of one message in the order they were written. [`WireWriter`] writes from the last
//! byte to the first: a length precedes the bytes it counts, and is known by then.

use super::Problem;

/// The value of one field, as far as the wire format determines it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// The value is dropped, because no field of Kubernetes has this type.
    Fixed32,
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const GROUP_START: u64 = 3;
const GROUP_END: u64 = 4;
const FIXED32: u64 = 5;

impl<'a> Wire<'a> {
    pub(super) fn varint(self) -> Result<u64, Problem> {
        match self {
            Wire::Varint(value) => Ok(value),
            _ => Err(Problem::WireType),
        }
    }

    pub(super) fn double(self) -> Result<f64, Problem> {
        match self {
            Wire::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(Problem::WireType),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Problem> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(Problem::WireType),
        }
    }
}

#[derive(Debug)]
pub(super) struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        WireReader { rest: message }
    }

    /// Returns the number and value of the next field; `None` at the end of the message.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, Problem> {
        while !self.rest.is_empty() {
            let (number, wire_type) = self.key()?;
            if wire_type == GROUP_START {
                self.skip_group()?; // Kubernetes writes no groups, so no known field is one
                continue;
            }
            return Ok(Some((number, self.value(wire_type)?)));
        }
        Ok(None)
    }

    /// Returns the next number of a packed list; `None` at its end.
    pub(super) fn packed_varint(&mut self) -> Result<Option<u64>, Problem> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn key(&mut self) -> Result<(u32, u64), Problem> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Problem::FieldNumber)?;
        if number == 0 { Err(Problem::FieldNumber) } else { Ok((number, key & 7)) }
    }

    fn value(&mut self, wire_type: u64) -> Result<Wire<'a>, Problem> {
        Ok(match wire_type {
            VARINT => Wire::Varint(self.varint()?),
            FIXED64 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            FIXED32 => self.array::<4>().map(|_| Wire::Fixed32)?,
            BYTES => {
                let length = usize::try_from(self.varint()?).map_err(|_| Problem::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            _ => return Err(Problem::WireType),
        })
    }

    /// Skips a group whose start was read, and the groups in it. It loops instead of recursing, because the client
    /// chooses how deep they nest.
    fn skip_group(&mut self) -> Result<(), Problem> {
        let mut open = 1_u64;
        while open > 0 {
            match self.key()?.1 {
                GROUP_START => open += 1,
                GROUP_END => open -= 1,
                wire_type => {
                    self.value(wire_type)?;
                }
            }
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, Problem> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { Problem::Truncated } else { Problem::Varint })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Problem> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// A writer that prepends: fields and list elements are written last to first.
#[derive(Debug, Default)]
pub(super) struct WireWriter {
    /// Filled from its end; the first `free` bytes are unused.
    buffer: Vec<u8>,
    free: usize,
}

impl WireWriter {
    pub(super) fn written(&self) -> usize {
        self.buffer.len() - self.free
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.buffer.drain(..self.free);
        self.buffer
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        if bytes.len() > self.free {
            self.grow(bytes.len());
        }
        let free = self.free - bytes.len();
        self.buffer[free..self.free].copy_from_slice(bytes);
        self.free = free;
    }

    pub(super) fn varint_field(&mut self, number: u32, value: u64) {
        self.varint(value);
        self.key(number, VARINT);
    }

    pub(super) fn double_field(&mut self, number: u32, value: f64) {
        self.raw(&value.to_bits().to_le_bytes());
        self.key(number, FIXED64);
    }

    pub(super) fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        self.raw(bytes);
        self.varint(bytes.len() as u64);
        self.key(number, BYTES);
    }

    /// Makes everything that was written since [`WireWriter::written`] returned `end` the message in field `number`.
    pub(super) fn close(&mut self, number: u32, end: usize) {
        self.announce(number, self.written() - end);
    }

    /// Writes the key and the length of the message in field `number`.
    pub(super) fn announce(&mut self, number: u32, length: usize) {
        self.varint(length as u64);
        self.key(number, BYTES);
    }

    fn key(&mut self, number: u32, wire_type: u64) {
        self.varint(u64::from(number) << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        let mut bytes = [0; 10];
        let mut length = 0;
        while value >= 0x80 {
            bytes[length] = value as u8 | 0x80;
            value >>= 7;
            length += 1;
        }
        bytes[length] = value as u8;
        self.raw(&bytes[..=length]);
    }

    /// Makes room for `needed` more bytes. Doubling keeps the total copying linear in the bytes written.
    fn grow(&mut self, needed: usize) {
        let room = self.buffer.len().max(needed).max(1024);
        let mut larger = vec![0; room + self.written()];
        larger[room..].copy_from_slice(&self.buffer[self.free..]);
        self.buffer = larger;
        self.free = room;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Problem> {
        let mut reader = WireReader::new(bytes);
        std::iter::from_fn(|| reader.field().transpose()).collect()
    }

    #[test]
    fn fields_written_backwards_are_read_forwards() {
        let mut writer = WireWriter::default();
        let long = [7; 5000];
        writer.bytes_field(4, &long);
        writer.double_field(3, 0.5);
        let end = writer.written();
        writer.varint_field(2, u64::MAX);
        writer.varint_field(1, 300);
        writer.close(2, end);
        writer.varint_field(1, 0);
        let bytes = writer.finish();

        let inner = [&[0x08, 0xac, 0x02, 0x10][..], &[0xff; 9], &[1]].concat();
        let outer = [
            (1, Wire::Varint(0)),
            (2, Wire::Bytes(&inner)),
            (3, Wire::Fixed64(0.5_f64.to_bits())),
            (4, Wire::Bytes(&long)),
        ];
        assert_eq!(fields(&bytes).unwrap(), outer);
        assert_eq!(fields(&inner).unwrap(), [(1, Wire::Varint(300)), (2, Wire::Varint(u64::MAX))]);
    }

    #[test]
    fn bad_bytes_are_refused() {
        for (bytes, problem) in [
            (&[0x08][..], Problem::Truncated),
            (&[0x08, 0x80], Problem::Truncated),
            (&[0x0a, 0x02, 0x00], Problem::Truncated),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Problem::Truncated),
            (&[0x09, 0, 0, 0], Problem::Truncated),
            (&[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Problem::Varint),
            (&[0x00, 0x00], Problem::FieldNumber),
            (&[0x0c], Problem::WireType),
            (&[0x0e, 0x00], Problem::WireType),
            (&[0x0b, 0x0b, 0x0c], Problem::Truncated),
        ] {
            assert_eq!(fields(bytes), Err(problem), "{bytes:02x?}");
        }
    }

    #[test]
    fn nested_groups_are_skipped_at_any_depth() {
        let deep = 100_000;
        let mut bytes = [vec![0x0b; deep], vec![0x0c; deep]].concat();
        bytes.extend([0x10, 0x05]);
        assert_eq!(fields(&bytes).unwrap(), [(2, Wire::Varint(5))]);
    }
}
