//! Makes the definitions of all built-in types: shapes and descriptions out of the crate k8s-openapi, everything that
//! crate does not know out of `src/catalog/types.json`, written to `OUT_DIR` as one compressed JSON text.
//!
//! ```text
//! k8s-openapi (roots) ──► definitions ──► overlay ◄── types.json (hack/facts)
//!                                            └──► $OUT_DIR/definitions.json.lz4 ──► src/schema/builtin.rs
//! ```

mod overlay;
mod roots;

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/catalog/types.json");
    let facts = std::fs::read_to_string("src/catalog/types.json").expect("hack/facts wrote this table");
    let facts = serde_json::from_str(&facts).expect("hack/facts writes JSON");
    let document = overlay::document(roots::definitions(), &facts);
    let text = serde_json::to_vec(&document).expect("a tree of JSON values has a text");
    let path = Path::new(&std::env::var_os("OUT_DIR").expect("cargo sets the variable"))
        .join("definitions.json.lz4");
    std::fs::write(path, lz4_flex::compress_prepend_size(&text)).expect("OUT_DIR is writable");
}
