//! Content negotiation: the form of the response that a client accepts, and the encoding of the body that it sent.
//!
//! A form is a shape in an encoding, such as a table in YAML or metadata in protobuf. The client lists alternatives;
//! the server chooses the one with the highest quality that it offers. Only built-in kinds have protobuf; watches have
//! no YAML and tables no protobuf.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use openapi::codec::Syntax;
use openapi::codec::protobuf;
use openapi::meta::status::Status;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const ACCEPTED: &[&str] = &[JSON, YAML, PROTOBUF];
const ACCEPTED_OF_WATCH: &[&str] = &["application/json;stream=watch", PROTOBUF_WATCH];

/// The shape and encoding of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Form {
    pub(crate) shape: Shape,
    pub(crate) encoding: Encoding,
    pub(crate) meta: Meta,
}

/// The version of tables and partial metadata. The versions differ only in their name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Meta {
    #[default]
    V1,
    V1Beta1,
}

impl Meta {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Meta::V1 => "meta.k8s.io/v1",
            Meta::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }

    /// Returns the version with this name. `v1beta1` has no protobuf here.
    fn named(group: Option<&str>, version: Option<&str>, encoding: Encoding) -> Option<Meta> {
        match (group?, version?, encoding) {
            ("meta.k8s.io", "v1", _) => Some(Meta::V1),
            ("meta.k8s.io", "v1beta1", Encoding::Json | Encoding::Yaml) => Some(Meta::V1Beta1),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Objects, complete.
    Whole,
    /// Rows and columns.
    Table,
    /// The metadata of one object (`PartialObjectMetadata`).
    Partial,
    /// The metadata of the objects of a list (`PartialObjectMetadataList`).
    PartialList,
    /// Aggregated discovery. Only the discovery endpoints offer it.
    Aggregated,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    /// Returns the media type of a complete response.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => JSON,
            Encoding::Yaml => YAML,
            Encoding::Protobuf => PROTOBUF,
        }
    }

    /// Returns the media type of a watch.
    pub(crate) fn stream_type(self) -> &'static str {
        if self == Encoding::Protobuf { PROTOBUF_WATCH } else { self.media_type() }
    }
}

impl Form {
    pub(crate) const JSON: Form = Form { shape: Shape::Whole, encoding: Encoding::Json, meta: Meta::V1 };
}

/// The encoding of a request body.
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
        let mut parameters = text.split(';').map(str::trim);
        let essence = parameters.next().unwrap_or_default();
        let mut media = Media { essence, parameters: Vec::new(), quality: 1000 };
        for (name, value) in parameters.filter_map(|parameter| parameter.split_once('=')) {
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

    /// Returns the form of this alternative. None if it is unknown.
    fn form(&self) -> Option<Form> {
        let encoding = match self.essence {
            JSON | "*/*" => Encoding::Json,
            YAML => Encoding::Yaml,
            PROTOBUF => Encoding::Protobuf,
            _ => return None,
        };
        let (group, version) = (self.parameter("g"), self.parameter("v"));
        let meta = Meta::named(group, version, encoding);
        let (shape, meta) = match (self.parameter("as"), (group, version)) {
            (None, _) => (Shape::Whole, Meta::V1),
            (Some("Table"), _) => (Shape::Table, meta?),
            (Some("PartialObjectMetadata"), _) => (Shape::Partial, meta?),
            (Some("PartialObjectMetadataList"), _) => (Shape::PartialList, meta?),
            (Some("APIGroupDiscoveryList"), (Some("apidiscovery.k8s.io"), Some("v2"))) => {
                (Shape::Aggregated, Meta::V1)
            }
            _ => return None,
        };
        Some(Form { shape, encoding, meta })
    }
}

/// Chooses the best form that the server offers. JSON without an Accept header.
pub(crate) fn answer(headers: &HeaderMap, offered: impl Fn(Form) -> bool) -> Result<Form, Status> {
    choose(headers, offered).ok_or_else(|| match names_known_encoding(headers) {
        true => Status::not_acceptable(ACCEPTED),
        false => Status::unknown_accept(ACCEPTED),
    })
}

/// Reports whether a client names a known encoding, even if in an unknown shape.
fn names_known_encoding(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accept.flat_map(|text| text.split(',')).any(|text| ACCEPTED.contains(&Media::parse(text).essence))
}

/// Chooses the best form for objects of a kind.
pub(crate) fn objects(headers: &HeaderMap, api_version: &str, kind: &str) -> Result<Form, Status> {
    answer(headers, |form| has(form, api_version, kind))
}

/// Chooses the best form for a list. Lists can also be watched, so an error for an unknown encoding names the media
/// types of both.
pub(crate) fn lists(headers: &HeaderMap, api_version: &str, kind: &str) -> Result<Form, Status> {
    objects(headers, api_version, kind).map_err(|status| match names_known_encoding(headers) {
        true => status,
        false => Status::unknown_accept(&[ACCEPTED, ACCEPTED_OF_WATCH].concat()),
    })
}

/// Refuses tables, for kinds that are not stored: they have no columns.
pub(crate) fn no_table(form: Form) -> Result<(), Status> {
    if form.shape == Shape::Table { Err(Status::not_acceptable(ACCEPTED)) } else { Ok(()) }
}

/// Chooses the best form for the events of a watch.
pub(crate) fn events(headers: &HeaderMap, api_version: &str, kind: &str) -> Result<Form, Status> {
    let offered = |form: Form| form.encoding != Encoding::Yaml && has(form, api_version, kind);
    choose(headers, offered).ok_or_else(|| Status::not_acceptable(ACCEPTED_OF_WATCH))
}

/// Chooses the encoding of a response that is not an object of the requested kind, above all of an error. Never fails.
pub(crate) fn encoding(headers: &HeaderMap) -> Encoding {
    choose(headers, |form| form.shape == Shape::Whole).unwrap_or(Form::JSON).encoding
}

fn has(form: Form, api_version: &str, kind: &str) -> bool {
    match (form.shape, form.encoding) {
        (Shape::Aggregated, _) | (Shape::Table, Encoding::Protobuf) => false,
        (Shape::Whole, Encoding::Protobuf) => protobuf::knows(api_version, kind),
        _ => true,
    }
}

fn choose(headers: &HeaderMap, offered: impl Fn(Form) -> bool) -> Option<Form> {
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    if accept.iter().all(|text| text.trim().is_empty()) {
        return Some(Form::JSON);
    }
    let mut alternatives: Vec<Media<'_>> =
        accept.iter().flat_map(|text| text.split(',')).map(Media::parse).collect();
    // A stable sort: alternatives of equal quality stay in the client's order.
    alternatives.sort_by_key(|media| std::cmp::Reverse(media.quality));
    let forms = alternatives.iter().filter(|media| media.quality > 0).filter_map(Media::form);
    forms.into_iter().find(|form| offered(*form))
}

/// Returns the encoding of a request body.
pub(crate) fn body(headers: &HeaderMap) -> Result<Written, Status> {
    let text = headers.get(CONTENT_TYPE).map_or(Ok(""), |value| value.to_str()).unwrap_or_default();
    let mut parameters = text.split(';').map(str::trim);
    let essence = parameters.next().unwrap_or_default();
    // A parameter without `=` makes the whole media type invalid.
    if !parameters.all(|parameter| parameter.is_empty() || parameter.contains('=')) {
        return Err(Status::unsupported_media_type(ACCEPTED));
    }
    match essence {
        "" | JSON => Ok(Written::Text(Syntax::Json)),
        YAML => Ok(Written::Text(Syntax::Yaml)),
        PROTOBUF => Ok(Written::Protobuf),
        _ => Err(Status::unsupported_media_type(ACCEPTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())])
    }

    #[test]
    fn the_best_available_encoding_is_chosen() {
        use Encoding::{Json, Protobuf, Yaml};
        use Shape::{Partial, Table, Whole};
        let check = |accept: &str, expected: Option<(Shape, Encoding)>| {
            let found = objects(&headers(accept), "v1", "ConfigMap").ok();
            assert_eq!(found.map(|form| (form.shape, form.encoding)), expected, "{accept}");
        };
        check("", Some((Whole, Json)));
        check("*/*", Some((Whole, Json)));
        check("application/json", Some((Whole, Json)));
        check("application/yaml", Some((Whole, Yaml)));
        check("application/vnd.kubernetes.protobuf,application/json", Some((Whole, Protobuf)));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some((Table, Json)));
        check("application/json;v=v1;g=meta.k8s.io;as=Table", Some((Table, Json)));
        check("application/yaml;v=v1;g=meta.k8s.io;as=Table", Some((Table, Yaml)));
        check("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Some((Table, Json)));
        check("application/json;as=Table;v=v9;g=meta.k8s.io", None);
        check("application/*", None);
        check("application/json;as=Other;v=v1;g=meta.k8s.io", None);
        check("application/vnd.kubernetes.protobuf;v=v1;g=meta.k8s.io;as=Table", None);
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Some((Partial, Protobuf)),
        );
        check("application/cbor, application/json;q=0.5", Some((Whole, Json)));
        check("application/json;q=0.1, application/vnd.kubernetes.protobuf;q=0.9", Some((Whole, Protobuf)));
        check("application/json;q=0", None);
        check("text/html", None);
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            Some((Whole, Json)),
        );
    }

    #[test]
    fn kinds_without_protobuf_fall_back_to_the_next_media_type() {
        let accept = headers("application/vnd.kubernetes.protobuf,application/json");
        assert_eq!(objects(&accept, "holon.dev/v1alpha1", "LogicalCluster").ok(), Some(Form::JSON));
        assert!(objects(&headers(PROTOBUF), "holon.dev/v1alpha1", "LogicalCluster").is_err());
        let partial =
            headers("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        assert!(objects(&partial, "holon.dev/v1alpha1", "LogicalCluster").is_ok());
    }

    #[test]
    fn events_are_lines_or_frames_and_errors_fall_back_to_json() {
        assert!(events(&headers(YAML), "v1", "ConfigMap").is_err());
        assert_eq!(encoding(&headers(YAML)), Encoding::Yaml);
        assert_eq!(encoding(&headers("text/html")), Encoding::Json);
        let table =
            headers("application/json;as=Table;v=v1;g=meta.k8s.io,application/vnd.kubernetes.protobuf");
        assert_eq!(encoding(&table), Encoding::Protobuf);
    }
}
