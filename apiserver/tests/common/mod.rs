//! A small template for tests: two collections, one of them with namespaces.

use apiserver::clusters::bootstrap::BootstrapObject;
use apiserver::keys::Collection;
use serde_json::{Value, json};

pub(crate) const MAPS: Collection<'static> = Collection { group: "", plural: "configmaps" };
pub(crate) const CLASSES: Collection<'static> =
    Collection { group: "scheduling.k8s.io", plural: "priorityclasses" };

fn map(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace },
        "data": { "from": "the template" },
    })
}

pub(crate) fn objects() -> Vec<BootstrapObject> {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": { "name": "system" }, "value": 7,
    });
    vec![
        BootstrapObject { collection: MAPS, value: map("default", "b") },
        BootstrapObject { collection: MAPS, value: map("default", "d") },
        BootstrapObject { collection: MAPS, value: map("kube-system", "b") },
        BootstrapObject { collection: CLASSES, value: class },
    ]
}
