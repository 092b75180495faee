//! `kubectl top` in a mailbox: the mailbox serves `metrics.k8s.io` while its physical cluster does.
//!
//! The mailbox gets CustomResourceDefinitions of the two kinds, so that discovery lists them and roles can name them.
//! It stores no objects of them: reads are forwarded to the physical cluster.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use api::cluster::Id;
use api::metrics::{self, METRICS};
use bytes::Bytes;
use controller::kind::ResourceKind;
use controller::remote::{CallError, ObjectPath, Remote};
use http::{Request, StatusCode};
use tunnel::ClusterConnection;

use super::lock;

/// How soon an installed or removed metrics server is noticed.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// The retry interval while this server has no client for mailboxes.
const WAIT_FOR_SERVER: Duration = Duration::from_secs(1);

/// Keeps the definitions in a mailbox equal to what its physical cluster serves, while it is polled.
pub(super) async fn keep_served(
    connection: &ClusterConnection,
    mailbox: Id,
    server: &Mutex<Option<Remote>>,
) -> Infallible {
    loop {
        let remote = lock(server).clone().map(|server| server.within(mailbox));
        let wait = match remote {
            None => WAIT_FOR_SERVER,
            Some(remote) => {
                if let Err(error) = reconcile_definitions(connection, &remote).await {
                    tracing::warn!(%mailbox, %error, "cannot update the definitions of metrics.k8s.io; will try again");
                }
                CHECK_EVERY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

async fn reconcile_definitions(connection: &ClusterConnection, mailbox: &Remote) -> Result<(), CallError> {
    let Some(is_served) = is_served(connection).await else { return Ok(()) };
    let kind = ResourceKind::new(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        false,
    );
    for definition in metrics::definitions() {
        let place = ObjectPath::new(&kind, "", definition["metadata"]["name"].as_str().unwrap_or_default());
        match (is_served, mailbox.get(place).await?) {
            (true, None) => drop(mailbox.create(&kind, "", &definition).await?),
            (false, Some(old)) => {
                mailbox.delete(place, old["metadata"]["uid"].as_str().unwrap_or_default()).await?;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    Ok(())
}

/// Returns whether the physical cluster serves resource metrics. `None` if it did not answer.
async fn is_served(connection: &ClusterConnection) -> Option<bool> {
    let (group, version) = METRICS;
    let _permit = connection.acquire_stream().ok()?;
    let request = Request::get(format!("/apis/{group}/{version}")).body(Bytes::new()).ok()?;
    match connection.send(request, None).await.ok()?.status() {
        StatusCode::OK => Some(true),
        StatusCode::NOT_FOUND => Some(false),
        _ => None,
    }
}
