//! Validation of security contexts.

use serde_json::Value;

use crate::validation::common::descending_path;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{Between, Code, Each, OneOf, Required};
use crate::validation::rule::Rule::{Check, Field};
use crate::validation::rule::{FieldRule, Table};
use crate::validation::value::{get, has, items, text};

/// Valid ids of users and groups.
const ID: &[FieldRule] = &[Between(0, i32::MAX as i64)];

pub(in crate::validation) const RULES: Table = &[
    (
        "core.v1.SecurityContext",
        &[
            Field("runAsUser", ID),
            Field("runAsGroup", ID),
            Field("procMount", &[OneOf(&["Default", "Unmasked"])]),
            Check(escalation),
        ],
    ),
    (
        "core.v1.PodSecurityContext",
        &[
            Field("fsGroup", ID),
            Field("runAsUser", ID),
            Field("runAsGroup", ID),
            Field("supplementalGroups", &[Each(ID)]),
            Field("sysctls", &[Code(sysctls)]),
            Field("fsGroupChangePolicy", &[OneOf(&["Always", "OnRootMismatch"])]),
            Field("supplementalGroupsPolicy", &[OneOf(&["Merge", "Strict"])]),
            Field("seLinuxChangePolicy", &[OneOf(&["Recursive"])]),
        ],
    ),
    (
        "core.v1.SeccompProfile",
        &[
            Field(
                "type",
                &[
                    Required("type is required when seccompProfile is set"),
                    OneOf(&["Localhost", "RuntimeDefault", "Unconfined"]),
                ],
            ),
            Check(seccomp_profile),
        ],
    ),
    (
        "core.v1.AppArmorProfile",
        &[
            Field(
                "type",
                &[
                    Required("type is required when appArmorProfile is set"),
                    OneOf(&["Localhost", "RuntimeDefault", "Unconfined"]),
                ],
            ),
            Check(app_armor_profile),
        ],
    ),
];

fn escalation(context: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if get(context, "allowPrivilegeEscalation").as_bool() != Some(false) {
        return;
    }
    if get(context, "privileged").as_bool() == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        found.invalid(at, context.clone(), detail);
    }
    let added = items(get(context, "capabilities"), "add");
    if added.iter().any(|capability| capability == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        found.invalid(at, context.clone(), detail);
    }
}

fn seccomp_profile(profile: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (path, at) = (get(profile, "localhostProfile"), at.field("localhostProfile"));
    match (text(profile, "type"), path.as_str()) {
        ("Localhost", None) => found.required(&at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(path)) => found.faults(&at, path, descending_path(path)),
        (_, Some(_)) => {
            found.invalid(&at, profile.clone(), "can only be set when seccomp type is Localhost");
        }
        _ => {}
    }
}

const MAX_PROFILE: usize = 4095;

fn app_armor_profile(profile: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (name, at) = (text(profile, "localhostProfile"), at.field("localhostProfile"));
    match text(profile, "type") {
        "Localhost" if name.trim() != name => found.invalid(&at, name, "must not be padded with whitespace"),
        "Localhost" if name.is_empty() => {
            found.required(&at, "must be set when AppArmor type is Localhost");
        }
        "Localhost" if name.len() > MAX_PROFILE => found.too_long(&at, MAX_PROFILE),
        "RuntimeDefault" | "Unconfined" if has(profile, "localhostProfile") => {
            found.invalid(&at, name, "can only be set when AppArmor type is Localhost");
        }
        _ => {}
    }
}

const MAX_SYSCTL: usize = 253;
const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn sysctls(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let sysctls = value.as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let item = at.index(index);
        let (name, at) = (text(sysctl, "name"), item.field("name"));
        if name.is_empty() {
            found.required(&at, "");
        } else if name.len() > MAX_SYSCTL || !name.split(['.', '/']).all(is_sysctl_segment) {
            let detail = format!("must have at most {MAX_SYSCTL} characters and match regex {SYSCTL}");
            found.invalid(&at, name, detail);
        } else if sysctls[..index].iter().any(|other| text(other, "name") == name) {
            found.duplicate(&at, name);
        }
    }
}

fn is_sysctl_segment(segment: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    segment.bytes().all(|byte| plain(byte) || byte == b'-' || byte == b'_')
        && segment.bytes().next().is_some_and(plain)
        && segment.bytes().next_back().is_some_and(plain)
}
