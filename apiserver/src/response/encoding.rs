//! Response encoding: indentation and compression, if the client accepts them.
//!
//! Only bodies with an end are encoded, a long list chunk by chunk. A watch is sent unchanged.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, StreamBody};

use crate::http::body::{Body, Broken, whole};
use crate::http::compression;
use crate::http::compression::{Effort, GZIP, WORTH_BYTES};
use crate::request::info::RequestInfo;
use crate::request::negotiation::JSON;
use crate::request::path::Target;
use crate::response::list_stream::Long;
use crate::response::pretty;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResponseEncoding {
    pretty: bool,
    gzip: bool,
}

impl ResponseEncoding {
    pub(crate) fn of(info: &RequestInfo, headers: &HeaderMap) -> ResponseEncoding {
        // OpenAPI documents are megabytes in size, and are encoded once and sent as they are.
        let document = matches!(info.target(), Some(Target::OpenApiV2 | Target::OpenApiV3 { .. }));
        ResponseEncoding {
            pretty: !document && pretty::is_requested(&info.query, headers),
            gzip: compression::is_accepted(headers),
        }
    }

    /// Indents and compresses a response.
    pub(crate) async fn apply(self, mut response: Response<Body>) -> Response<Body> {
        let long = response.extensions().get::<Long>().copied();
        let Some(length) = response.body().size_hint().exact().or(long.map(|long| long.bytes)) else {
            return response;
        };
        let headers = response.headers();
        let is_packed = headers.contains_key(CONTENT_ENCODING);
        let is_large = length > WORTH_BYTES && !is_packed;
        let is_json =
            headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON.as_bytes()));
        let pretty = self.pretty && is_json && !is_packed && length > 0;
        let gzip = self.gzip && is_large;
        let varies_by_accept_encoding =
            headers.get_all(VARY).iter().any(|varies| varies == ACCEPT_ENCODING.as_str());
        if is_large && !varies_by_accept_encoding {
            response.headers_mut().append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
        }
        if !pretty && !gzip {
            return response;
        }
        let (mut head, body) = response.into_parts();
        if long.is_some() {
            let body = if pretty { pretty::indent_chunks(body) } else { body };
            if !gzip {
                return Response::from_parts(head, body);
            }
            head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(GZIP));
            return Response::from_parts(head, compression::gzip_chunks(body));
        }
        // A body that breaks off stays a broken body.
        let Ok(body) = body.collect().await else {
            let broken = StreamBody::new(futures::stream::iter([Err(Broken)]));
            return Response::from_parts(head, broken.boxed_unsync());
        };
        let changed = change(body.to_bytes(), pretty, gzip, is_large).await;
        if gzip {
            head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(GZIP));
        }
        head.headers.remove(CONTENT_LENGTH);
        Response::from_parts(head, whole(Full::new(changed)))
    }
}

/// Encodes a body. Large bodies take milliseconds, so they are encoded on a blocking thread.
async fn change(body: Bytes, pretty: bool, gzip: bool, is_large: bool) -> Bytes {
    let work = move |body: &Bytes| {
        let body = if pretty { pretty::indented(body).into() } else { body.clone() };
        if gzip { compression::gzip(&body, Effort::Once) } else { body }
    };
    match is_large {
        false => work(&body),
        true => {
            let done = tokio::task::spawn_blocking(move || work(&body)).await;
            done.expect("the closure does not panic and is not cancelled")
        }
    }
}
