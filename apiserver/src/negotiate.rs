//! In which form a client wants its answer, and in which form it sent its body.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use openapi::decode::Syntax;
use openapi::status::Status;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const ACCEPTED: &[&str] = &[JSON, YAML, PROTOBUF];

/// What an answer looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Json,
    Protobuf,
    /// Rows and columns.
    Table,
    /// Who the objects are, and nothing else.
    Partial,
    /// Everything a server offers, at once. Only discovery has it.
    Aggregated,
}

/// What a body is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    Text(Syntax),
    Protobuf,
}

/// One alternative of an Accept header.
#[derive(Debug)]
struct Media<'a> {
    essence: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths.
    quality: u32,
}

impl<'a> Media<'a> {
    fn parse(text: &'a str) -> Media<'a> {
        let mut parts = text.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let mut media = Media { essence, parameters: Vec::new(), quality: 1000 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" => {
                    media.quality =
                        value.trim().parse().map_or(1000, |q: f32| (q.clamp(0.0, 1.0) * 1000.0) as u32)
                }
                name => media.parameters.push((name, value.trim().trim_matches('"'))),
            }
        }
        media
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    /// The form this alternative stands for, if we have it.
    fn form(&self) -> Option<Form> {
        let json = matches!(self.essence, JSON | "*/*" | "application/*");
        match self.parameter("as") {
            None if json => Some(Form::Json),
            None if self.essence == PROTOBUF => Some(Form::Protobuf),
            Some("Table") if self.essence == JSON => Some(Form::Table),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if self.essence == JSON => {
                Some(Form::Partial)
            }
            Some("APIGroupDiscoveryList") if self.essence == JSON && self.parameter("v") == Some("v2") => {
                Some(Form::Aggregated)
            }
            _ => None,
        }
    }
}

/// The best form that `offered` has. Without an Accept header, JSON.
pub(crate) fn answer(headers: &HeaderMap, offered: impl Fn(Form) -> bool) -> Result<Form, Status> {
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    if accept.iter().all(|text| text.trim().is_empty()) {
        return Ok(Form::Json);
    }
    let mut alternatives: Vec<Media<'_>> =
        accept.iter().flat_map(|text| text.split(',')).map(Media::parse).collect();
    // A stable sort: among equals the client's order counts.
    alternatives.sort_by_key(|media| std::cmp::Reverse(media.quality));
    let wanted = alternatives.iter().filter(|media| media.quality > 0).filter_map(Media::form);
    wanted.into_iter().find(|form| offered(*form)).ok_or_else(|| Status::not_acceptable(ACCEPTED))
}

/// What the body of a write is written in.
pub(crate) fn body(headers: &HeaderMap) -> Result<Written, Status> {
    let text = headers.get(CONTENT_TYPE).map_or(Ok(""), |value| value.to_str()).unwrap_or_default();
    match text.split(';').next().unwrap_or_default().trim() {
        "" | JSON => Ok(Written::Text(Syntax::Json)),
        YAML => Ok(Written::Text(Syntax::Yaml)),
        PROTOBUF => Ok(Written::Protobuf),
        _ => Err(Status::unsupported_media_type(ACCEPTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_what_is_there_is_chosen() {
        let check = |accept: &str, expected: Option<Form>| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            let found = answer(&headers, |form| form != Form::Aggregated).ok();
            assert_eq!(found, expected, "{accept}");
        };
        check("", Some(Form::Json));
        check("*/*", Some(Form::Json));
        check("application/json", Some(Form::Json));
        check("application/vnd.kubernetes.protobuf,application/json", Some(Form::Protobuf));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table));
        check("application/json;v=v1;g=meta.k8s.io;as=Table", Some(Form::Table));
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Some(Form::Partial),
        );
        check("application/cbor, application/json;q=0.5", Some(Form::Json));
        check("application/json;q=0.1, application/vnd.kubernetes.protobuf;q=0.9", Some(Form::Protobuf));
        check("application/json;q=0", None);
        check("text/html", None);
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            Some(Form::Json),
        );
    }
}
