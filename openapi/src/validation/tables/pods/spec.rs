//! Rules about several parts of a pod's spec.

use serde_json::{Value, json};

use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::resources as amounts;
use crate::validation::tables::pods::{containers as of_containers, mounts};
use crate::validation::value::{at as path_in, get, has, int, is_empty, items, text, truth};
use api::meta::names::dns1123_subdomain;

const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Calls `visit` with every container of the pod and its path.
fn each_container(spec: &Value, at: &FieldPath<'_>, mut visit: impl FnMut(&Value, &FieldPath<'_>)) {
    for list in LISTS {
        for (index, container) in items(spec, list).iter().enumerate() {
            visit(container, &at.field(list).index(index));
        }
    }
}

/// Returns the volumes without errors. Mounts of other volumes are reported as unknown.
fn sound_volumes<'v>(spec: &'v Value, at: &FieldPath<'_>, found: &FieldErrors) -> Vec<&'v Value> {
    let list = at.field("volumes");
    let volumes = items(spec, "volumes").iter().enumerate();
    let sound = |index: usize| !found.has_errors_under(&list.index(index));
    volumes.filter(|(index, _)| sound(*index)).map(|(_, volume)| volume).collect()
}

pub(super) fn containers(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let volumes = sound_volumes(spec, at, found);
    let (containers, at) = (items(spec, "containers"), at.field("containers"));
    for (index, container) in containers.iter().enumerate() {
        let item = at.index(index);
        common(spec, container, &volumes, &item, found);
        let name = text(container, "name");
        if containers[..index].iter().any(|other| text(other, "name") == name) {
            found.duplicate(&item.field("name"), name);
        }
        hooks(spec, container, &item, found);
        restarts(container, &item, found);
    }
    of_containers::host_ports(containers, &at, found);
}

/// Rules for any container that depend on its pod.
fn common(spec: &Value, container: &Value, volumes: &[&Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    mounts::are_volumes(container, volumes, at, found);
    amounts::claims(
        get(container, "resources"),
        items(spec, "resourceClaims"),
        &at.field("resources"),
        found,
    );
    resizing(container, text(spec, "restartPolicy"), &at.field("resizePolicy"), found);
    let proc_mount = text(get(container, "securityContext"), "procMount");
    if proc_mount == "Unmasked" && get(spec, "hostUsers").as_bool() != Some(false) {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        found.invalid(&at.field("securityContext.procMount"), proc_mount, detail);
    }
}

/// Validates resize policies. Some errors are reported at the list instead of the item.
fn resizing(container: &Value, restart_policy: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let policies = items(container, "resizePolicy");
    for (index, policy) in policies.iter().enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if policies[..index].iter().any(|other| text(other, "resourceName") == resource) {
            found.duplicate(&at.index(index), resource);
        }
        for (word, words) in [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])] {
            match word {
                "" => found.required(at, ""),
                _ if words.contains(&word) => {}
                _ => found.not_supported(at, word, &words),
            }
        }
        if restart_policy == "Never" && restart != "NotRequired" {
            found.invalid(at, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// Checks that a hook sleeps no longer than the grace period of the pod.
fn hooks(spec: &Value, container: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (lifecycle, at) = (get(container, "lifecycle"), at.field("lifecycle"));
    for hook in ["postStart", "preStop"] {
        let sleep = get(get(lifecycle, hook), "sleep");
        let (seconds, grace) = (int(sleep, "seconds"), int(spec, "terminationGracePeriodSeconds"));
        if !sleep.is_null() && (seconds < 0 || seconds > grace) {
            let detail =
                format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            found.invalid(&at.field(hook).field("sleep"), seconds, detail);
        }
    }
}

const MAX_RESTART_RULES: usize = 20;

fn restarts(container: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (policy, rules) = (text(container, "restartPolicy"), items(container, "restartPolicyRules"));
    let policies = ["Always", "Never", "OnFailure"];
    if policy.is_empty() && !rules.is_empty() {
        found.required(&at.field("restartPolicy"), "must specify restartPolicy when restart rules are used");
    } else if !policy.is_empty() && !policies.contains(&policy) {
        found.not_supported(&at.field("restartPolicy"), policy, &policies);
    }
    if rules.len() > MAX_RESTART_RULES {
        found.too_many(&at.field("restartPolicyRules"), rules.len(), MAX_RESTART_RULES);
    }
}

pub(super) fn init_containers(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let volumes = sound_volumes(spec, at, found);
    let (containers, at) = (items(spec, "initContainers"), at.field("initContainers"));
    for (index, container) in containers.iter().enumerate() {
        let item = at.index(index);
        common(spec, container, &volumes, &item, found);
        restarts(container, &item, found);
        let name = text(container, "name");
        let mut others = items(spec, "containers").iter().chain(&containers[..index]);
        if !name.is_empty() && others.any(|other| text(other, "name") == name) {
            found.duplicate(&item.field("name"), name);
        }
        of_containers::host_ports(std::slice::from_ref(container), &at, found);
        if text(container, "restartPolicy") == "Always" {
            hooks(spec, container, &item, found);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if has(container, field) {
                let detail = "may not be set for init containers without restartPolicy=Always";
                found.forbidden(&item.field(field), detail);
            }
        }
        for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
            if text(policy, "restartPolicy") == "RestartContainer" {
                let list = item.field("resizePolicy");
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                found.invalid(&list.index(index).field("restartPolicy"), "RestartContainer", detail);
            }
        }
    }
}

/// Fields that an ephemeral container cannot have, in the order in which Kubernetes checks them.
const NOT_EPHEMERAL: [&str; 8] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

pub(super) fn ephemeral_containers(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let volumes = sound_volumes(spec, at, found);
    let (containers, at) = (items(spec, "ephemeralContainers"), at.field("ephemeralContainers"));
    let forbidden = "cannot be set for an Ephemeral Container";
    for (index, container) in containers.iter().enumerate() {
        let item = at.index(index);
        common(spec, container, &volumes, &item, found);
        image_is_trimmed(container, &item, found);
        let name = text(container, "name");
        let others = || items(spec, "containers").iter().chain(items(spec, "initContainers"));
        if others().chain(&containers[..index]).any(|other| text(other, "name") == name) {
            found.duplicate(&item.field("name"), name);
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others().any(|other| text(other, "name") == target) {
            found.not_found(&item.field("targetContainerName"), target);
        }
        for field in NOT_EPHEMERAL.into_iter().filter(|field| !is_empty(get(container, field))) {
            found.forbidden(&item.field(field), forbidden);
        }
        for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
            let mounts = item.field("volumeMounts");
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    found.forbidden(&mounts.index(index).field(field), forbidden);
                }
            }
        }
    }
}

pub(super) fn images_are_trimmed(spec: &Value, list: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, container) in items(spec, list).iter().enumerate() {
        image_is_trimmed(container, &at.field(list).index(index), found);
    }
}

fn image_is_trimmed(container: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let image = text(container, "image");
    if image.trim() != image {
        found.invalid(&at.field("image"), image, "must not have leading or trailing whitespace");
    }
}

/// Validates the resources of the whole pod.
pub(super) fn resources(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if has(value, "claims") {
        found.forbidden(&at.field("claims"), "claims may not be set for Resources at pod-level");
    }
    amounts::pod_requirements(value, at, found);
}

pub(super) fn overhead(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let overhead = get(spec, "overhead");
    if !overhead.is_null() {
        let limits = json!({ "limits": overhead });
        amounts::container_requirements(&limits, &at.field("overhead"), found);
    }
}

/// Checks that the host ports of a pod with `hostNetwork` equal its container ports.
pub(super) fn host_network(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if !truth(spec, "hostNetwork") {
        return;
    }
    for (index, container) in items(spec, "containers").iter().enumerate() {
        let container_at = at.field("containers");
        let container_at = container_at.index(index);
        for (index, port) in items(container, "ports").iter().enumerate() {
            let (host, container_port) = (int(port, "hostPort"), int(port, "containerPort"));
            if host != 0 && host != container_port {
                let ports = container_at.field("ports");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                found.invalid(&ports.index(index).field("hostPort"), host, detail);
            }
        }
    }
}

/// Checks which host namespaces a pod shares, and which exclude each other.
pub(super) fn namespaces(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if truth(spec, "shareProcessNamespace") && truth(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        found.invalid(&at.field("securityContext.shareProcessNamespace"), true, detail);
    }
    if get(spec, "hostUsers").as_bool() == Some(false) {
        for (field, reported_name) in
            [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")]
        {
            if truth(spec, field) {
                found.forbidden(&at.field(reported_name), "when `hostUsers` is false");
            }
        }
    }
}

const MAX_HOST_NAME: usize = 64;

pub(super) fn host_name(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let Some(name) = get(spec, "hostnameOverride").as_str() else { return };
    let at = at.field("hostnameOverride");
    if truth(spec, "setHostnameAsFQDN") {
        found.forbidden(&at, "may not be specified when setHostnameAsFQDN is true");
    }
    if truth(spec, "hostNetwork") {
        found.forbidden(&at, "may not be specified when hostNetwork is true");
    }
    if name.len() > MAX_HOST_NAME {
        found.too_long(&at, MAX_HOST_NAME);
    }
    found.faults(&at, name, dns1123_subdomain(name));
}

/// Fields that a Windows pod cannot have.
const NOT_ON_WINDOWS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
];

const NOT_IN_WINDOWS_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

pub(super) fn os(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if !has(spec, "os") {
        return;
    }
    let security = get(spec, "securityContext");
    match text(get(spec, "os"), "name") {
        "" => found.required(&at.field("os.name"), ""),
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            if has(security, "windowsOptions") {
                found.forbidden(&at.field("securityContext.windowsOptions"), detail);
            }
            each_container(spec, at, |container, at| {
                if !path_in(container, "securityContext.windowsOptions").is_null() {
                    found.forbidden(&at.field("securityContext.windowsOptions"), detail);
                }
            });
        }
        "windows" => {
            let detail = "cannot be set for a windows pod";
            for field in NOT_ON_WINDOWS.into_iter().filter(|field| !is_empty(get(security, field))) {
                found.forbidden(&at.field("securityContext").field(field), detail);
            }
            for field in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
                if has(spec, field) && (field == "hostUsers" || truth(spec, field)) {
                    found.forbidden(&at.field(field), detail);
                }
            }
            each_container(spec, at, |container, at| {
                let security = get(container, "securityContext");
                for field in NOT_IN_WINDOWS_CONTAINERS.into_iter().filter(|field| has(security, field)) {
                    found.forbidden(&at.field("securityContext").field(field), detail);
                }
            });
        }
        other => found.not_supported(&at.field("os"), other, &["linux", "windows"]),
    }
}

/// Checks that variables from a file use a volume of type `emptyDir`.
pub(super) fn files_of_variables(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    each_container(spec, at, |container, at| {
        for (index, variable) in items(container, "env").iter().enumerate() {
            let source = get(get(variable, "valueFrom"), "fileKeyRef");
            if source.is_null() {
                continue;
            }
            let name = text(source, "volumeName");
            let volume = items(spec, "volumes").iter().find(|volume| text(volume, "name") == name);
            let list = at.field("env");
            let item = list.index(index);
            let name_at = item.field("valueFrom.fileKeyRef.volumeName");
            match volume {
                None => found.not_found(&name_at, name),
                Some(volume) if has(volume, "emptyDir") => {}
                Some(_) => found.invalid(&name_at, name, "referenced volume must be of type emptyDir"),
            }
        }
    });
}
