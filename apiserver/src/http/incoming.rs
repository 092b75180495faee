//! Reads request bodies, with limits on length and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use openapi::meta::status::Status;

use crate::http::limits::Arrival;

/// As in Kubernetes.
pub(crate) const BODY_BYTES_MAX: usize = 3 << 20;
/// A client that is still sending when the connection closes may never receive the response. So the server reads and
/// discards this much of a body that is too large before it refuses it.
const DISCARDED_BYTES_MAX: usize = 16 * BODY_BYTES_MAX;
/// The same as the deadline of a request.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// A request body, from a connection or a test.
pub trait Incoming: http_body::Body<Data = Bytes, Error: Into<BoxError>> {}

impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError>>> Incoming for B {}

/// The error of a body that cannot be read.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reads a body up to its maximum length, unless a tenant with fewer bytes needs the memory.
pub(crate) async fn read(body: impl Incoming, arrival: &Arrival) -> Result<Bytes, Status> {
    tokio::select! {
        biased;
        read = collect(body, arrival) => read,
        evicted = arrival.evicted() => Err(evicted),
        () = tokio::time::sleep(BODY_LIMIT) => {
            let limit = BODY_LIMIT.as_secs();
            Err(Status::timeout(&format!("the request body did not arrive within {limit} seconds"), 1))
        }
    }
}

async fn collect(body: impl Incoming, arrival: &Arrival) -> Result<Bytes, Status> {
    let mut body = std::pin::pin!(body);
    let (mut received, mut received_bytes) = (BytesMut::new(), 0);
    while let Some(frame) = body.as_mut().frame().await {
        let frame = frame.map_err(|error| {
            Status::bad_request(format!("cannot read the request body: {}", error.into()))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        received_bytes += data.len();
        if received_bytes <= BODY_BYTES_MAX {
            arrival.add(data.len());
            received.extend_from_slice(&data);
        } else if received_bytes > DISCARDED_BYTES_MAX {
            break;
        }
    }
    match received_bytes <= BODY_BYTES_MAX {
        true => Ok(received.freeze()),
        false => Err(Status::too_large(&format!("limit is {BODY_BYTES_MAX}"))),
    }
}
