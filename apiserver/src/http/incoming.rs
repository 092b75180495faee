//! Reads the body of a request, within limits of length and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use openapi::meta::status::Status;

use crate::http::limits::Arrival;

/// As for Kubernetes.
pub(crate) const BODY_BYTES_MAX: usize = 3 << 20;
/// A client that still sends when the connection closes may never hear why. So of a body that is too large this
/// much is read and thrown away before it is refused.
const DISCARDED_BYTES_MAX: usize = 16 * BODY_BYTES_MAX;
/// As long as any request that is not a watch may take.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// A body on its way here, from a socket or from a test.
pub trait Incoming: http_body::Body<Data = Bytes, Error: Into<BoxError>> {}

impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError>>> Incoming for B {}

/// Why a body could not be read.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reads a body, up to its limit, until a tenant with fewer bytes needs the room.
pub(crate) async fn read(body: impl Incoming, arrival: &Arrival) -> Result<Bytes, Status> {
    tokio::select! {
        biased;
        read = collect(body, arrival) => read,
        evicted = arrival.evicted() => Err(evicted),
        () = tokio::time::sleep(BODY_LIMIT) => {
            Err(Status::timeout("the body did not come within the limit", 1))
        }
    }
}

async fn collect(body: impl Incoming, arrival: &Arrival) -> Result<Bytes, Status> {
    let mut body = std::pin::pin!(body);
    let (mut kept, mut seen) = (BytesMut::new(), 0);
    while let Some(frame) = body.as_mut().frame().await {
        let frame = frame
            .map_err(|error| Status::bad_request(format!("the body could not be read: {}", error.into())))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen <= BODY_BYTES_MAX {
            arrival.add(data.len());
            kept.extend_from_slice(&data);
        } else if seen > DISCARDED_BYTES_MAX {
            break;
        }
    }
    match seen <= BODY_BYTES_MAX {
        true => Ok(kept.freeze()),
        false => Err(Status::too_large(&format!("limit is {BODY_BYTES_MAX}"))),
    }
}
