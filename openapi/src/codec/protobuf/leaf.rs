//! Messages that are scalars in JSON: times, quantities, and int-or-string values.
//!
//! An empty message and `null` both mean the zero value of the type, in both directions.

use serde_json::Value;

use super::Problem;
use super::time;
use super::wire::{WireReader, WireWriter};

pub(super) fn read_time(message: &[u8]) -> Result<Value, Problem> {
    // The nanoseconds are ignored, as JSON cannot represent them and both encodings must mean the same time.
    let (seconds, _) = read_timestamp(message)?;
    written_time(seconds, None)
}

pub(super) fn read_micro_time(message: &[u8]) -> Result<Value, Problem> {
    let (seconds, nanos) = read_timestamp(message)?;
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000).ok_or(Problem::Time)?;
    written_time(seconds, Some(nanos / 1000))
}

fn written_time(seconds: i64, micros: Option<u32>) -> Result<Value, Problem> {
    if seconds == time::ZERO && micros.unwrap_or(0) == 0 {
        return Ok(Value::Null);
    }
    time::format(seconds, micros).map(Value::String).ok_or(Problem::Time)
}

fn read_timestamp(message: &[u8]) -> Result<(i64, i64), Problem> {
    let mut reader = WireReader::new(message);
    let (mut seconds, mut nanos) = (if message.is_empty() { time::ZERO } else { 0 }, 0);
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => seconds = wire.varint()? as i64,
            2 => nanos = wire.varint()? as i64,
            _ => {}
        }
    }
    Ok((seconds, nanos))
}

pub(super) fn write_time(out: &mut WireWriter, value: &Value) -> Result<(), Problem> {
    if let Some((seconds, _)) = parsed_time(value)? {
        out.varint_field(2, 0);
        out.varint_field(1, seconds as u64);
    }
    Ok(())
}

pub(super) fn write_micro_time(out: &mut WireWriter, value: &Value) -> Result<(), Problem> {
    if let Some((seconds, nanos)) = parsed_time(value)? {
        out.varint_field(2, u64::from(nanos / 1000 * 1000));
        out.varint_field(1, seconds as u64);
    }
    Ok(())
}

fn parsed_time(value: &Value) -> Result<Option<(i64, u32)>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => {
            let time = time::parse(text).ok_or(Problem::Expected("a time"))?;
            Ok(Some(time).filter(|time| *time != (time::ZERO, 0)))
        }
        _ => Err(Problem::Expected("a time")),
    }
}

pub(super) fn read_quantity(message: &[u8]) -> Result<Value, Problem> {
    let mut reader = WireReader::new(message);
    let mut text = "0".into();
    while let Some((number, wire)) = reader.field()? {
        if number == 1 {
            text = String::from_utf8_lossy(wire.bytes()?);
        }
    }
    Ok(Value::String(text.into_owned()))
}

pub(super) fn write_quantity(out: &mut WireWriter, value: &Value) -> Result<(), Problem> {
    match value {
        Value::Null => out.bytes_field(1, b"0"),
        Value::String(text) => out.bytes_field(1, text.as_bytes()),
        Value::Number(number) => out.bytes_field(1, number.to_string().as_bytes()),
        _ => return Err(Problem::Expected("a quantity")),
    }
    Ok(())
}

pub(super) fn read_int_or_string(message: &[u8]) -> Result<Value, Problem> {
    let mut reader = WireReader::new(message);
    let (mut is_string, mut int, mut string) = (0, 0, "".into());
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => is_string = wire.varint()?,
            2 => int = wire.varint()? as i32,
            3 => string = String::from_utf8_lossy(wire.bytes()?),
            _ => {}
        }
    }
    match is_string {
        0 => Ok(Value::from(int)),
        1 => Ok(Value::String(string.into_owned())),
        _ => Err(Problem::Expected("a number or a string")),
    }
}

pub(super) fn write_int_or_string(out: &mut WireWriter, value: &Value) -> Result<(), Problem> {
    let (is_string, int, string) = match value {
        Value::Null => (0, 0, ""),
        Value::String(string) => (1, 0, string.as_str()),
        _ => (0, int32(value)?, ""),
    };
    out.bytes_field(3, string.as_bytes());
    out.varint_field(2, int as u64);
    out.varint_field(1, is_string);
    Ok(())
}

/// Checks that a number fits 32 bits and returns it as the 64 bits that protobuf writes.
pub(super) fn int32(value: &Value) -> Result<i64, Problem> {
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number.map(i64::from).ok_or(Problem::Expected("a number of 32 bits"))
}
