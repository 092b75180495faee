//! The tables from which objects of a kind are generated: `test/sequences/*.json`.
//!
//! | field | |
//! |---|---|
//! | `at` | the path of the collection |
//! | `base` | an object that can be created, except for its name |
//! | `parts` | by JSON pointer, the values that a step may set |
//! | `status` | the same, through `/status`; absent where a kind has none |
//! | `scale` | whether there is a `/scale` |
//! | `strategic` | strategic merge patches with directives |
//! | `definition` | the definition, for a custom kind |

use std::path::Path;

use serde_json::Value;

pub(crate) struct KindTable {
    /// The name of the file.
    pub(crate) name: String,
    pub(crate) at: String,
    pub(crate) base: Value,
    pub(crate) parts: Vec<FieldValues>,
    pub(crate) status: Vec<FieldValues>,
    pub(crate) scale: bool,
    pub(crate) strategic: Vec<Value>,
    pub(crate) definition: Option<Value>,
}

pub(crate) struct FieldValues {
    pub(crate) pointer: String,
    pub(crate) values: Vec<Value>,
}

/// Reads all tables, ordered by name.
pub(crate) fn read(directory: &Path) -> Vec<KindTable> {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    files.iter().map(|path| kind(path)).collect()
}

fn kind(path: &Path) -> KindTable {
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let mut table: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let definition = table["definition"].take();
    KindTable {
        at: table["at"].as_str().expect("a path").to_owned(),
        base: table["base"].take(),
        parts: parts(&table["parts"]),
        status: parts(&table["status"]),
        scale: table["scale"] == true,
        strategic: table["strategic"].as_array().cloned().unwrap_or_default(),
        definition: Some(definition).filter(Value::is_object),
        name,
    }
}

fn parts(table: &Value) -> Vec<FieldValues> {
    let fields = table.as_object().into_iter().flatten();
    let field = |(pointer, values): (&String, &Value)| FieldValues {
        pointer: pointer.clone(),
        values: values.as_array().expect("values").clone(),
    };
    fields.map(field).collect()
}
