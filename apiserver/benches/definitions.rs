//! Measures serving the custom kinds of logical clusters, with equal and with different definitions.
//!
//! ```text
//!   cargo bench -p apiserver --bench definitions [-- 1000 20]
//! ```
//!
//! Writes so many definitions into so many logical clusters, and prints the memory that the server uses to serve
//! them, and the memory that the store uses to hold them.

use std::sync::Arc;
use std::time::Instant;

use api::cluster::Id;
use apiserver::keys::Collection;
use apiserver::kinds::Registry;
use apiserver::objects::stored;
use serde_json::{Map, Value, json};
use storage::memory::Memory;
use storage::{Change, Expect, Store};

const DEFINITIONS: Collection<'static> =
    Collection { group: "apiextensions.k8s.io", plural: "customresourcedefinitions" };
/// Fields of each kind: with their descriptions, some fifteen kilobytes of schema.
const FIELDS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let number = |nth: usize, otherwise| {
        arguments().nth(nth - 1).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (clusters, definitions): (u64, u64) = (number(1, 1000), number(2, 20));
    for (is_same, label) in [(true, "the same"), (false, "something else")] {
        let store = Arc::new(Memory::new());
        for cluster in 1..=clusters {
            for nth in 0..definitions {
                let about = if is_same { String::new() } else { format!(" in {cluster}") };
                let value = stored::encode(&definition(nth, &about));
                let key = DEFINITIONS.key(Id::new(cluster), None, &format!("things{nth}.shop.example"));
                store.commit(key, Expect::Absent, Change::Put(value)).await.expect("written");
            }
        }
        let (before, begun) = (resident_bytes(), Instant::now());
        let registry = Registry::new(store.clone());
        registry.load().await.expect("read");
        let (took, more) = (begun.elapsed(), resident_bytes().saturating_sub(before));
        println!(
            "{clusters} logical clusters with {definitions} definitions, each {label}: read in {took:.1?}, \
             {} KB more for serving them, {} bytes a logical cluster",
            more >> 10,
            more / clusters
        );
        drop(registry);
    }
}

fn definition(nth: u64, about: &str) -> Value {
    let field = |field: usize| {
        let description = format!("Field {field} says something about field {}{about}.", field + 1).repeat(2);
        (format!("field{field}"), json!({ "type": "string", "maxLength": 64, "description": description }))
    };
    let fields: Map<String, Value> = (0..FIELDS).map(field).collect();
    let (plural, kind) = (format!("things{nth}"), format!("Thing{nth}"));
    let names =
        json!({ "plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List") });
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": { "type": "object", "properties": fields } } } },
    });
    json!({
        "metadata": { "name": format!("{plural}.shop.example") },
        "spec": { "group": "shop.example", "scope": "Namespaced", "names": names, "versions": [version] },
        "status": { "acceptedNames": names, "conditions": [{ "type": "Established", "status": "True" }] },
    })
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The arguments, without the one that cargo adds.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench")
}
