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

use crate::authn::identity::ADMINISTRATORS;
use crate::registry::call::Call;
use crate::request::attributes::{Attributes, ResourceAttributes};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
/// The signer whose certificates the server accepts from clients.
const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Checks the rights on the signer that a write needs. `old` is the replaced object.
pub(crate) fn check(call: &Call, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    if (&*call.resource.group, &*call.resource.plural) != (GROUP, REQUESTS) {
        return Ok(());
    }
    match (call.subresource.as_deref(), old) {
        (None, None) => ask(call, new),
        (Some("approval"), Some(old)) => may(call, "approve", old),
        (Some("status"), Some(old)) if signs(old, new) => may(call, "sign", old),
        _ => Ok(()),
    }
}

/// Reports whether the certificate or the conditions change.
fn signs(old: &Value, new: &Value) -> bool {
    ["certificate", "conditions"].iter().any(|field| old["status"][*field] != new["status"][*field])
}

fn may(call: &Call, verb: &str, request: &Value) -> Result<(), Status> {
    let signer = request["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let is_allowed = |name: &str| {
        let wanted = Attributes::Resource(ResourceAttributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        });
        call.authorization.may(&call.identity, &wanted).allowed
    };
    match is_allowed(signer) || is_allowed(&domain) {
        true => Ok(()),
        false => {
            let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
            Err(forbidden(call, request, &why))
        }
    }
}

fn ask(call: &Call, request: &Value) -> Result<(), Status> {
    if request["spec"]["signerName"] != CLIENTS {
        return Ok(());
    }
    match organizations(&request["spec"]["request"]) {
        // Validation reports a malformed request.
        None => Ok(()),
        Some(groups) if groups.iter().any(|group| group == ADMINISTRATORS) => {
            let why = format!("use of {CLIENTS} signer with {ADMINISTRATORS} group is not allowed");
            Err(forbidden(call, request, &why))
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

fn forbidden(call: &Call, request: &Value, why: &str) -> Status {
    let name = request["metadata"]["name"].as_str().unwrap_or_default();
    Status::forbidden(call.grouped(), name, why)
}
