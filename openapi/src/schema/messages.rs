//! The protobuf messages of `messages.txt`.
//!
//! The file names messages; here they are numbered, so that the message of a field is found by index. The file is
//! parsed once, on first use, and all names are borrowed from the program itself. [`crate::defaulting`] also uses its
//! facts about JSON.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Written by `hack/protobuf-facts`, which documents its sources.
const FACTS: &str = include_str!("messages.txt");

static TABLE: LazyLock<MessageTable> = LazyLock::new(|| MessageTable::parse(FACTS));

#[derive(Debug)]
pub(crate) struct MessageTable {
    messages: Vec<Message>,
    kinds: HashMap<(&'static str, &'static str), MessageKind>,
    /// Kinds that every API version has, such as DeleteOptions.
    anywhere: HashMap<&'static str, MessageKind>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct MessageId(usize);

#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageKind {
    pub(crate) message: MessageId,
    /// Whether its JSON omits apiVersion and kind.
    pub(crate) bare: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// `core/v1.PodSpec`
    pub(crate) name: &'static str,
    pub(crate) shape: MessageShape,
    /// Sorted by field number, which is the order of encoding.
    pub(crate) fields: Vec<MessageField>,
    /// Fields that JSON shows even if protobuf omits them, including those of inline messages.
    pub(crate) always: Vec<MessageField>,
    /// Fields that JSON can have, sorted by name, including those of inline messages.
    visible: Vec<MessageField>,
}

/// The JSON form of a message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum MessageShape {
    Object,
    /// The list in the only field.
    List,
    /// The field that is set. Its JSON type identifies it: a list, an object or a boolean.
    Union,
    /// The JSON in the only field.
    Raw,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageField {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) many: Cardinality,
    pub(crate) kind: FieldType,
    /// Whether the fields of this message appear in JSON among those of the outer message.
    pub(crate) inline: bool,
    /// Whether protobuf may omit the field. In JSON it is then `null`, unless `omit` is set.
    pub(crate) nullable: bool,
    /// Whether JSON omits the field if it is empty. A nullable field that is not a list is empty only if it is absent.
    pub(crate) omit: bool,
    pub(crate) pointer: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Cardinality {
    One,
    List,
    /// A map with string keys; Kubernetes has no others.
    Map,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum FieldType {
    Bool,
    Int32,
    Int64,
    Double,
    String,
    Bytes,
    Message(MessageId),
}

impl MessageTable {
    pub(crate) fn get() -> &'static MessageTable {
        &TABLE
    }

    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<MessageKind> {
        self.kinds.get(&(api_version, kind)).or_else(|| self.anywhere.get(kind)).copied()
    }

    /// Returns the field at a path of JSON names, starting from the named message.
    pub(crate) fn field_at(&self, message: &str, path: &[&str]) -> Option<&MessageField> {
        let mut message = self.messages.iter().find(|found| found.name == message)?;
        let (last, parents) = path.split_last()?;
        for step in parents {
            let FieldType::Message(inner) = message.named(step)?.kind else { return None };
            message = self.message(inner);
        }
        message.named(last)
    }

    pub(crate) fn message(&self, id: MessageId) -> &Message {
        &self.messages[id.0]
    }

    /// Parses the file. Panics if the generator would not have written it; a test parses it.
    fn parse(facts: &'static str) -> MessageTable {
        let lines = || facts.lines().filter(|line| !line.starts_with('#'));
        let named = lines().filter_map(|line| line.strip_prefix("message "));
        let ids: HashMap<_, _> =
            named.enumerate().map(|(id, line)| (first_word(line), MessageId(id))).collect();

        let mut table =
            MessageTable { messages: Vec::new(), kinds: HashMap::new(), anywhere: HashMap::new() };
        for line in lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["kind", "*", kind, message, ref bare @ ..] => {
                    table
                        .anywhere
                        .insert(kind, MessageKind { message: ids[message], bare: !bare.is_empty() });
                }
                ["kind", api_version, kind, message] => {
                    table
                        .kinds
                        .insert((api_version, kind), MessageKind { message: ids[message], bare: false });
                }
                ["message", name, ref shape @ ..] => {
                    let shape =
                        shape.first().map_or(MessageShape::Object, |shape| MessageShape::parse(shape));
                    table.messages.push(Message::new(name, shape));
                }
                [number, name, kind, ref omit @ ..] => {
                    let field = MessageField::parse(number, name, kind, !omit.is_empty(), &ids);
                    table.messages.last_mut().expect("fields follow a message").fields.push(field);
                }
                _ => panic!("messages.txt has an unknown line: {line}"),
            }
        }
        table.complete();
        table
    }

    /// Computes the facts that depend on several messages, once all are parsed.
    fn complete(&mut self) {
        let lists: Vec<_> = self.messages.iter().map(|message| message.shape == MessageShape::List).collect();
        for field in self.messages.iter_mut().flat_map(|message| &mut message.fields) {
            let is_list = matches!(field.kind, FieldType::Message(id) if lists[id.0]);
            field.nullable =
                field.pointer || field.many != Cardinality::One || field.kind == FieldType::Bytes || is_list;
        }
        for id in 0..self.messages.len() {
            let mut visible = self.visible(MessageId(id));
            self.messages[id].always = visible.iter().filter(|field| !field.omit).copied().collect();
            visible.sort_by_key(|field| field.name);
            self.messages[id].visible = visible;
        }
    }

    fn visible(&self, message: MessageId) -> Vec<MessageField> {
        let visible = |field: &MessageField| match field.kind {
            FieldType::Message(inner) if field.inline => self.visible(inner),
            _ => vec![*field],
        };
        self.message(message).fields.iter().flat_map(visible).collect()
    }
}

impl Message {
    fn new(name: &'static str, shape: MessageShape) -> Message {
        Message { name, shape, fields: Vec::new(), always: Vec::new(), visible: Vec::new() }
    }

    /// Returns the field with this name in JSON.
    pub(crate) fn named(&self, name: &str) -> Option<&MessageField> {
        let index = self.visible.binary_search_by_key(&name, |field| field.name).ok()?;
        Some(&self.visible[index])
    }

    pub(crate) fn field(&self, number: u32) -> Option<&MessageField> {
        // Most messages number their fields from one without gaps.
        let guess = self.fields.get((number as usize).wrapping_sub(1)).filter(|field| field.number == number);
        guess.or_else(|| {
            let index = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
            Some(&self.fields[index])
        })
    }
}

impl MessageShape {
    fn parse(word: &str) -> MessageShape {
        match word {
            "list" => MessageShape::List,
            "union" => MessageShape::Union,
            "raw" => MessageShape::Raw,
            "time" => MessageShape::Time,
            "microtime" => MessageShape::MicroTime,
            "quantity" => MessageShape::Quantity,
            "int-or-string" => MessageShape::IntOrString,
            _ => panic!("messages.txt has an unknown shape: {word}"),
        }
    }
}

impl MessageField {
    fn parse(
        number: &str,
        name: &'static str,
        kind: &str,
        omit: bool,
        ids: &HashMap<&str, MessageId>,
    ) -> MessageField {
        let number = number.parse().expect("a field begins with its number");
        let (many, kind) = match (kind.strip_prefix("[]"), kind.strip_prefix("map[]")) {
            (Some(element), _) => (Cardinality::List, element),
            (_, Some(value)) => (Cardinality::Map, value),
            _ => (Cardinality::One, kind),
        };
        let pointer = kind.starts_with('*');
        let kind = match kind.trim_start_matches('*') {
            "bool" => FieldType::Bool,
            "int32" => FieldType::Int32,
            "int64" => FieldType::Int64,
            "double" => FieldType::Double,
            "string" => FieldType::String,
            "bytes" => FieldType::Bytes,
            message => FieldType::Message(ids[message]),
        };
        MessageField { number, name, many, kind, inline: name == "-", nullable: false, omit, pointer }
    }
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_parse_and_fields_are_found_by_number() {
        let table = MessageTable::get();
        assert!(table.messages.len() > 600 && table.kinds.len() > 150);
        for message in &table.messages {
            assert!(message.fields.is_sorted_by_key(|field| field.number));
            for field in &message.fields {
                assert_eq!(message.field(field.number).map(|found| found.name), Some(field.name));
            }
            assert!(message.field(u32::MAX).is_none());
        }
    }

    /// Decoding and encoding rely on this without checking it.
    #[test]
    fn shapes_have_the_fields_they_need() {
        let table = MessageTable::get();
        for message in &table.messages {
            let fields = &message.fields;
            match message.shape {
                MessageShape::List => assert!(fields.len() == 1 && fields[0].many == Cardinality::List),
                MessageShape::Union => assert_eq!(fields.len(), 2),
                MessageShape::Object => {}
                _ => assert!(fields.is_empty()),
            }
            for field in fields.iter().filter(|field| field.inline) {
                let FieldType::Message(inner) = field.kind else { panic!("an inline {:?}", field.kind) };
                assert!(
                    table.message(inner).shape == MessageShape::Object
                        && field.many == Cardinality::One
                        && !field.pointer
                );
            }
        }
    }
}
