//! `kubectl top` in a mailbox: where the physical cluster measures use, the mailbox serves `metrics.k8s.io`, too.
//!
//! The mailbox gets definitions of the two kinds, so that discovery shows them and roles can name them. There are no
//! objects of them: who reads is led to the physical cluster.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use api::cluster::Id;
use api::tunnel::{METRICS, measured};
use bytes::Bytes;
use controller::kind::Kind;
use controller::remote::{CallError, Place, Remote};
use http::{Request, StatusCode};

use super::lock;
use super::way::Way;

/// Somebody may install or remove what measures.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Until the server can be asked.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps what a mailbox says about use right, for as long as it is polled.
pub(super) async fn keep(way: &Way, mailbox: Id, server: &Mutex<Option<Remote>>) -> Infallible {
    loop {
        let here = lock(server).clone().map(|server| server.within(mailbox));
        let wait = match here {
            None => PAUSE,
            Some(here) => {
                if let Err(error) = look(way, &here).await {
                    tracing::warn!(%mailbox, %error, "cannot say whether use is measured; will try again");
                }
                LOOK_EVERY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

async fn look(way: &Way, here: &Remote) -> Result<(), CallError> {
    let Some(is_measured) = is_measured(way).await else { return Ok(()) };
    let kind = Kind::new(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        false,
    );
    for definition in measured() {
        let place = Place::new(&kind, "", definition["metadata"]["name"].as_str().unwrap_or_default());
        match (is_measured, here.get(place).await?) {
            (true, None) => drop(here.create(&kind, "", &definition).await?),
            (false, Some(old)) => {
                here.delete(place, old["metadata"]["uid"].as_str().unwrap_or_default()).await?;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    Ok(())
}

/// Whether the physical cluster measures use; none if it does not say.
async fn is_measured(way: &Way) -> Option<bool> {
    let (group, version) = METRICS;
    let _room = way.enter().ok()?;
    let request = Request::get(format!("/apis/{group}/{version}")).body(Bytes::new()).ok()?;
    match way.ask(request, None).await.ok()?.status() {
        StatusCode::OK => Some(true),
        StatusCode::NOT_FOUND => Some(false),
        _ => None,
    }
}
