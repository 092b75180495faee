//! Authorization of certificate signing requests by signer.
//!
//! A request for a certificate names a signer. Approving it takes the right to `approve` for that signer, setting the
//! certificate the right to `sign` for it. Both are rights on `signers`, by the signer's name or by `domain/*`. A
//! request to the server's own signer must not ask for the administrators' group.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use openapi::meta::status::Status;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;

use crate::admission::guard::AdmissionRequest;
use crate::authn::identity::ADMINISTRATORS;
use crate::authz::authorization::Authorization;
use crate::request::attributes::{Attributes, ResourceAttributes};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
/// The signer whose certificates the server accepts from clients.
const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Checks the rights on the signer that a write needs.
pub(super) fn check(authorization: &Authorization, request: &AdmissionRequest<'_>) -> Result<(), Status> {
    if (&*request.resource.group, &*request.resource.plural) != (GROUP, REQUESTS) {
        return Ok(());
    }
    match (request.subresource, request.before, request.after) {
        (None, None, Some(new)) => check_subject(request, new),
        (Some("approval"), Some(old), Some(_)) => check_right(authorization, request, "approve", old),
        (Some("status"), Some(old), Some(new)) if signs(old, new) => {
            check_right(authorization, request, "sign", old)
        }
        _ => Ok(()),
    }
}

/// Reports whether the certificate or the conditions change.
fn signs(old: &Value, new: &Value) -> bool {
    ["certificate", "conditions"].iter().any(|field| old["status"][*field] != new["status"][*field])
}

/// Requires a right on the signer of a certificate signing request.
fn check_right(
    authorization: &Authorization,
    request: &AdmissionRequest<'_>,
    verb: &str,
    object: &Value,
) -> Result<(), Status> {
    let signer = object["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let is_allowed = |name: &str| {
        let attributes = Attributes::Resource(ResourceAttributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        });
        authorization.may(request.who, &attributes).allowed
    };
    match is_allowed(signer) || is_allowed(&domain) {
        true => Ok(()),
        false => {
            let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
            Err(forbidden(request, object, &why))
        }
    }
}

/// Refuses a request to the server's own signer that names the administrators' group.
fn check_subject(request: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
    if object["spec"]["signerName"] != CLIENTS {
        return Ok(());
    }
    match organizations(&object["spec"]["request"]) {
        // Validation reports a malformed request.
        None => Ok(()),
        Some(groups) if groups.iter().any(|group| group == ADMINISTRATORS) => {
            let why = format!("use of {CLIENTS} signer with {ADMINISTRATORS} group is not allowed");
            Err(forbidden(request, object, &why))
        }
        Some(_) => Ok(()),
    }
}

/// Returns the groups (organizations) that the certificate would contain. None if the request cannot be parsed.
fn organizations(request: &Value) -> Option<Vec<String>> {
    let pem = STANDARD.decode(request.as_str()?).ok()?;
    let (_, pem) = parse_x509_pem(&pem).ok()?;
    let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let groups = parsed.certification_request_info.subject.iter_organization();
    groups.map(|group| group.as_str().ok().map(str::to_owned)).collect()
}

fn forbidden(request: &AdmissionRequest<'_>, object: &Value, why: &str) -> Status {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Status::forbidden(request.grouped(), name, why)
}
