//! Kinds about the cluster itself: nodes, namespaces, classes, leases, requests for certificates.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::check::metadata::{UNQUALIFIED_FINALIZER, is_qualified_finalizer};
use crate::check::net;
use crate::check::path::{Found, Path};
use crate::check::resources;
use crate::check::rule::Check::{AtLeast, Labels, OneOf, Text};
use crate::check::rule::Rule::{Field, Into, Whole};
use crate::check::rule::{REQUIRED, Table};
use crate::check::value::{at as path_in, entries, get, int, items, text, truth};
use crate::names::{dns1123_label, qualified_name};

pub(super) const RULES: Table = &[
    ("core.v1.Node", &[Whole(node)]),
    ("core.v1.NamespaceSpec", &[Whole(namespace_finalizers)]),
    (
        "scheduling.v1.PriorityClass",
        &[Whole(priority), Field("preemptionPolicy", &[OneOf(&["PreemptLowerPriority", "Never"])])],
    ),
    (
        "node.v1.RuntimeClass",
        &[Field("handler", &[REQUIRED, Text(dns1123_label)]), Into("overhead"), Into("scheduling")],
    ),
    ("node.v1.Overhead", &[Whole(overhead)]),
    ("node.v1.Scheduling", &[Field("nodeSelector", &[Labels]), Into("tolerations")]),
    (
        "coordination.v1.LeaseSpec",
        &[
            Field("leaseDurationSeconds", &[AtLeast(1, "must be greater than 0")]),
            Field("leaseTransitions", &[AtLeast(0, "must be greater than or equal to 0")]),
        ],
    ),
    ("certificates.v1.CertificateSigningRequestSpec", &[Whole(certificate)]),
];

fn node(node: &Value, at: &Path<'_>, found: &mut Found) {
    let spec = get(node, "spec");
    super::scheduling::taints(items(spec, "taints"), &at.field("metadata.taints"), found);
    for part in ["capacity", "allocatable"] {
        for (name, value) in entries(get(node, "status"), part) {
            let list = at.field("status").field(part).to_string();
            resources::amount(name, value, &Path::TOP.field(&list).field(name), found);
        }
    }
    let (ranges, at) = (items(spec, "podCIDRs"), at.field("spec.podCIDRs"));
    for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
        found.faults(&at.index(index), range, net::cidr(range));
    }
    let sixes = ranges.iter().filter_map(Value::as_str).filter(|range| range.contains(':')).count();
    if ranges.len() > 2 || (ranges.len() == 2 && sixes != 1) {
        found.invalid(&at, ranges.to_vec(), "may specify no more than one CIDR for each IP family");
    }
}

/// What somebody gave a node once stays.
pub(crate) fn check_update_node(old: &Value, new: &Value, found: &mut Found) {
    let (old, new, at) = (get(old, "spec"), get(new, "spec"), Path::TOP.field("spec"));
    let (olds, news) = (items(old, "podCIDRs"), items(new, "podCIDRs"));
    let changed = match olds.len() == news.len() {
        true => olds.iter().zip(news).filter(|(old, new)| old != new).count(),
        false if olds.is_empty() => 0,
        false => 1,
    };
    for _ in 0..changed {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        found.forbidden(&at.field("podCIDRs"), detail);
    }
    let id = text(old, "providerID");
    if !id.is_empty() && id != text(new, "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        found.forbidden(&at.field("providerID"), detail);
    }
}

fn namespace_finalizers(spec: &Value, at: &Path<'_>, found: &mut Found) {
    let at = at.field("finalizers");
    for name in items(spec, "finalizers").iter().filter_map(Value::as_str) {
        found.faults(&at, name, qualified_name(name));
        if !is_qualified_finalizer(name) {
            found.invalid(&at, name, UNQUALIFIED_FINALIZER);
        }
    }
}

const HIGHEST_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn priority(class: &Value, at: &Path<'_>, found: &mut Found) {
    let name = path_in(class, "metadata.name").as_str().unwrap_or_default();
    let value = int(class, "value");
    if !name.starts_with("system-") {
        if value > HIGHEST_PRIORITY {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
            found.forbidden(&at.field("value"), detail);
        }
        return;
    }
    let fault = match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
        None => format!("{name} is not a known system priority class"),
        Some((_, known)) if *known != value => format!("value of {name} PriorityClass must be {known}"),
        Some(_) if truth(class, "globalDefault") => {
            format!("globalDefault of {name} PriorityClass must be false")
        }
        Some(_) => return,
    };
    let detail = format!(
        "priority class names with 'system-' prefix are reserved for system use only. error: {fault}"
    );
    found.forbidden(&at.field("metadata.name"), detail);
}

fn overhead(overhead: &Value, at: &Path<'_>, found: &mut Found) {
    let limits = json!({ "limits": get(overhead, "podFixed") });
    resources::container_requirements(&limits, at, found);
}

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn certificate(spec: &Value, at: &Path<'_>, found: &mut Found) {
    let request = text(spec, "request");
    if !is_request(request) {
        found.invalid(&at.field("request"), request, "PEM block type must be CERTIFICATE REQUEST");
    }
    let usages = items(spec, "usages");
    if usages.is_empty() {
        found.required(&at.field("usages"), "");
    }
    for (index, usage) in usages.iter().enumerate() {
        let list = at.field("usages");
        let name = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&name) {
            found.not_supported(&list.index(index), name, USAGES);
        }
        if usages[..index].contains(usage) {
            found.duplicate(&list.index(index), name);
        }
    }
    signer(text(spec, "signerName"), &at.field("signerName"), found);
    let seconds = get(spec, "expirationSeconds");
    if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        found.invalid(&at.field("expirationSeconds"), seconds.clone(), detail);
    }
}

/// Whether the first block of PEM in base64 is a request. What it asks for is for the signer to read.
fn is_request(base64: &str) -> bool {
    let pem = STANDARD.decode(base64).unwrap_or_default();
    let pem = String::from_utf8_lossy(&pem);
    let label = |line: &str, mark: &str| -> Option<String> {
        Some(line.trim_end().strip_prefix(mark)?.strip_suffix("-----")?.to_owned())
    };
    let mut lines = pem.lines();
    let begun = lines.find_map(|line| label(line, "-----BEGIN "));
    let ended = lines.find_map(|line| label(line, "-----END "));
    begun.as_deref() == Some("CERTIFICATE REQUEST") && begun == ended
}

/// `example.com/signer`.
fn signer(name: &str, at: &Path<'_>, found: &mut Found) {
    if name.is_empty() {
        return found.required(at, "");
    }
    let parts: Vec<_> = name.split('/').collect();
    match parts.as_slice() {
        [domain, path] => {
            if domain.len() > 253 {
                found.too_long(at, 253);
            }
            let faults = crate::names::dns1123_subdomain(domain);
            if !faults.is_empty() {
                found.invalid(at, *domain, faults.join(","));
            } else if domain.split('.').count() < 2 {
                let detail = "should be a domain with at least two segments separated by dots";
                found.invalid(at, *domain, detail);
            }
            if path.is_empty() {
                let detail = "validating label \"\": a lowercase RFC 1123 subdomain must consist of lower case \
                              alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
                found.invalid(at, "", detail);
            }
        }
        _ => {
            let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            found.invalid(at, name, detail);
        }
    }
}
