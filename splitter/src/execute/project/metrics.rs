//! `kubectl top` in a user's logical cluster: it serves `metrics.k8s.io` if a physical cluster it uses does.
//!
//! A mailbox serves that group while its physical cluster does. A logical cluster gets the same definitions, as
//! projections, while a cluster it uses serves them. There are no objects of these kinds: requests are forwarded to the
//! physical clusters.

use api::cluster::Id;
use api::metrics::{self, METRICS};
use api::names::{PROJECTED, TRUE};
use controller::informer::Key;
use controller::remote::{CallError, ObjectPath};

use super::ProjectionMetadata;
use crate::context::Splitter;

/// Whether a definition belongs to the metrics API.
pub(crate) fn is_metrics_definition(definition: &str) -> bool {
    definition.split_once('.').is_some_and(|(_, group)| group == METRICS.0)
}

/// Creates or deletes the metrics definitions of a logical cluster that uses these mailboxes.
pub(super) async fn ensure_definitions(
    splitter: &Splitter,
    cluster: Id,
    mailboxes: &[Id],
) -> Result<(), CallError> {
    let view = &splitter.caches.config.definitions;
    let find = |cluster: Id, name: &str| view.get(&Key { cluster: Some(cluster), ..Key::new("", name) });
    let server = splitter.caches.server.within(cluster);
    for mut definition in metrics::definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let is_served = mailboxes.iter().any(|mailbox| find(*mailbox, &name).is_some());
        match find(cluster, &name) {
            None if is_served => {
                definition["metadata"]["labels"][PROJECTED] = TRUE.into();
                server.create(&view.kind, "", &definition).await?;
            }
            Some(found) if !is_served && ProjectionMetadata::of(&found).is_projection() => {
                server.delete(ObjectPath::new(&view.kind, "", &name), &found.uid).await?;
            }
            // A definition of the user is kept.
            Some(_) | None => {}
        }
    }
    Ok(())
}
