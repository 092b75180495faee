//! Validation of the conversion between versions.

use std::collections::HashSet;

use serde_json::Value;

use api::meta::field::FieldError;
use api::meta::names::dns1035_label;

use super::{FAULTS_MAX, items, text};

const STRATEGY: &str = "spec.conversion.strategy";
const CLIENT: &str = "spec.conversion.webhookClientConfig";
const REVIEWS: &str = "spec.conversion.conversionReviewVersions";

/// Checks the conversion strategy. A kind with one version may have a webhook, which is never called. A kind with
/// several would lose what its clients write, so it is rejected as long as webhooks are not supported.
pub(super) fn validate(conversion: &Value, versions: usize, found: &mut Vec<FieldError>) {
    let webhook = &conversion["webhook"];
    match text(&conversion["strategy"]) {
        _ if conversion.is_null() => return,
        "Webhook" => {
            validate_client(&webhook["clientConfig"], found);
            validate_reviews(&webhook["conversionReviewVersions"], found);
            if versions > 1 {
                let detail = "conversion by webhook is not served yet, use None";
                found.push(FieldError::forbidden(STRATEGY, detail));
            }
            return;
        }
        "None" => {}
        "" => found.push(FieldError::required(STRATEGY, "")),
        other => found.push(FieldError::not_supported(STRATEGY, other, &["None", "Webhook"])),
    }
    let unwanted = "should not be set when strategy is not set to Webhook";
    if !webhook["clientConfig"].is_null() {
        found.push(FieldError::forbidden(CLIENT, unwanted));
    }
    if items(&webhook["conversionReviewVersions"]).next().is_some() {
        found.push(FieldError::forbidden(REVIEWS, unwanted));
    }
}

fn validate_client(client: &Value, found: &mut Vec<FieldError>) {
    if client.is_null() {
        return found.push(FieldError::required(CLIENT, "required when strategy is set to Webhook"));
    }
    match (client["url"].as_str(), client.get("service")) {
        (None, Some(service)) => {
            for field in ["name", "namespace"] {
                if text(&service[field]).is_empty() {
                    found.push(FieldError::required(format!("{CLIENT}.service.{field}"), ""));
                }
            }
        }
        (Some(url), None) => {
            let form = "desired format: https://host[/path]";
            let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
            if scheme != "https" {
                let detail = format!("'https' is the only allowed URL scheme; {form}");
                found.push(FieldError::invalid(format!("{CLIENT}.url"), scheme, detail));
            }
            if rest.is_empty() || rest.starts_with('/') {
                let detail = format!("host must be specified; {form}");
                found.push(FieldError::invalid(format!("{CLIENT}.url"), "", detail));
            }
        }
        _ => found.push(FieldError::required(CLIENT, "exactly one of url or service is required")),
    }
}

fn validate_reviews(versions: &Value, found: &mut Vec<FieldError>) {
    let names: Vec<&str> = items(versions).map(text).collect();
    if names.is_empty() {
        return found.push(FieldError::required(REVIEWS, ""));
    }
    let mut seen = HashSet::new();
    for (index, name) in names.iter().enumerate() {
        if found.len() >= FAULTS_MAX {
            break;
        }
        let at = format!("{REVIEWS}[{index}]");
        if !seen.insert(name) {
            found.push(FieldError::invalid(at, *name, "duplicate version"));
            continue;
        }
        found.extend(
            dns1035_label(name).into_iter().map(|fault| FieldError::invalid(at.clone(), *name, fault)),
        );
    }
    if !names.iter().any(|name| matches!(*name, "v1" | "v1beta1")) {
        let detail = "must include at least one of v1, v1beta1";
        found.push(FieldError::invalid(REVIEWS, versions.clone(), detail));
    }
}
