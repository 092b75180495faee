//! Which pods a physical cluster takes: the levels `privileged` and `baseline` of the Pod Security Standards.
//!
//! A tenant is cluster-admin in their own logical cluster, so no policy there can keep a pod from requesting access to
//! the host. A physical cluster that several logical clusters share takes pods that `baseline` allows, whatever the
//! labels of a namespace.
//!
//! The rules are tables over the pod spec. Containers of every kind are checked alike: a policy that forgets init or
//! ephemeral containers is none (CVE-2023-2728).

use api::fleet::{PhysicalClusterSpec, PodSecurity};
use serde_json::Value;

use crate::transform::references::pod_spec_at;

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const HOST_NAMESPACES: [&str; 3] = ["hostNetwork", "hostPID", "hostIPC"];
const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
const SELINUX_TYPES: &[&str] =
    &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
/// Values of a security context that lift a confinement, for a pod and for each of its containers.
const UNCONFINED: &[(&str, &str)] = &[
    ("/windowsOptions/hostProcess", "true"),
    ("/seccompProfile/type", "Unconfined"),
    ("/appArmorProfile/type", "Unconfined"),
    ("/procMount", "Unmasked"),
    ("/privileged", "true"),
];
/// The prefix of the PriorityClasses that are the cluster's own.
const SYSTEM: &str = "system-";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Handlers with a host field. With a host other than the pod, the kubelet connects to whatever address a tenant names.
const HANDLERS: &[&str] =
    &["livenessProbe", "readinessProbe", "startupProbe", "lifecycle/postStart", "lifecycle/preStop"];

/// The level of a physical cluster. A cluster with a single logical cluster has no other tenant to protect.
pub fn level(spec: &PhysicalClusterSpec) -> PodSecurity {
    match (spec.pod_security, &spec.dedicated_to) {
        (Some(level), _) => level,
        (None, Some(_)) => PodSecurity::Privileged,
        (None, None) => PodSecurity::Baseline,
    }
}

/// The violations of `baseline` in an object that has pods, or in a Service. Empty if all of it is allowed.
pub fn violations(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(at) = pod_spec_at(object) {
        let pod = object.pointer(at).unwrap_or(&Value::Null);
        let metadata =
            at.strip_suffix("/spec").and_then(|parent| object.pointer(&format!("{parent}/metadata")));
        check_pod(pod, &mut found);
        check_annotations(metadata.unwrap_or(&Value::Null), &mut found);
    }
    if object["kind"] == "Service" && !is_empty(&object["spec"]["externalIPs"]) {
        found.push("externalIPs".to_owned());
    }
    found.sort();
    found.dedup();
    found
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

fn items<'a>(holder: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    holder[name].as_array().into_iter().flatten()
}

fn check_pod(pod: &Value, found: &mut Vec<String>) {
    found.extend(HOST_NAMESPACES.iter().filter(|name| pod[**name] == true).map(|name| (*name).to_owned()));
    // Not part of the standard: a tenant's pods would preempt those of others and of the cluster itself.
    let priority = pod["priorityClassName"].as_str().filter(|name| name.starts_with(SYSTEM));
    found.extend(priority.map(|name| format!("PriorityClass {name}")));
    if items(pod, "volumes").any(|volume| !volume["hostPath"].is_null()) {
        found.push("hostPath volumes".to_owned());
    }
    let sysctls = items(&pod["securityContext"], "sysctls").filter_map(|sysctl| sysctl["name"].as_str());
    found.extend(sysctls.filter(|name| !SYSCTLS.contains(name)).map(|name| format!("sysctl {name}")));
    check_context(&pod["securityContext"], found);
    for container in CONTAINERS.iter().flat_map(|list| items(pod, list)) {
        check_container(container, found);
    }
}

fn check_container(container: &Value, found: &mut Vec<String>) {
    check_context(&container["securityContext"], found);
    let added = items(&container["securityContext"]["capabilities"], "add").filter_map(Value::as_str);
    found.extend(added.filter(|name| !CAPABILITIES.contains(name)).map(|name| format!("capability {name}")));
    let is_host_port = |port: &Value| port["hostPort"].as_i64().is_some_and(|number| number != 0);
    if items(container, "ports").any(is_host_port) {
        found.push("hostPort".to_owned());
    }
    let names_host = |handler: &&str| {
        let handler = container.pointer(&format!("/{handler}")).unwrap_or(&Value::Null);
        ["httpGet", "tcpSocket"]
            .iter()
            .any(|action| handler[*action]["host"].as_str().unwrap_or_default() != "")
    };
    if HANDLERS.iter().any(names_host) {
        found.push("host of a probe or lifecycle hook".to_owned());
    }
}

fn check_context(context: &Value, found: &mut Vec<String>) {
    let is = |(pointer, value): &&(&str, &str)| {
        let set = context.pointer(pointer).unwrap_or(&Value::Null);
        set == *value || *value == "true" && *set == true
    };
    let describe = |(pointer, value): &(&str, &str)| match *value {
        "true" => pointer.trim_start_matches('/').replace('/', "."),
        value => format!("{} {value}", pointer.trim_start_matches('/').replace('/', ".")),
    };
    found.extend(UNCONFINED.iter().filter(is).map(describe));
    let selinux = &context["seLinuxOptions"];
    let text = |field: &str| selinux[field].as_str().unwrap_or_default();
    if !SELINUX_TYPES.contains(&text("type")) || !text("user").is_empty() || !text("role").is_empty() {
        found.push("seLinuxOptions".to_owned());
    }
}

/// The older way to choose an AppArmor profile.
fn check_annotations(metadata: &Value, found: &mut Vec<String>) {
    let mut annotations = metadata["annotations"].as_object().into_iter().flatten();
    let is_unconfined =
        |(name, value): (&String, &Value)| name.starts_with(APPARMOR) && value == "unconfined";
    if annotations.any(is_unconfined) {
        found.push("AppArmor unconfined".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(pod: Value) -> Value {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": { "spec": pod } } })
    }

    /// A tenant ran a privileged pod with the host's network and file system on a physical cluster that others use, and the
    /// labels pod-security.kubernetes.io/enforce of its namespace had no effect. Every field that grants the same is checked,
    /// in every list of containers.
    #[test]
    fn baseline_refuses_access_to_the_host() {
        let check = |mut pod: Value, expected: &[&str]| {
            if pod["containers"].is_null() {
                pod["containers"] = json!([]);
            }
            assert_eq!(violations(&deployment(pod.clone())), expected, "{pod}");
            let bare = json!({ "apiVersion": "v1", "kind": "Pod", "spec": pod });
            assert_eq!(violations(&bare), expected, "{bare}");
            let cron = json!({ "apiVersion": "batch/v1", "kind": "CronJob",
                "spec": { "jobTemplate": { "spec": { "template": { "spec": pod } } } } });
            assert_eq!(violations(&cron), expected, "{cron}");
        };
        check(json!({ "containers": [{ "image": "nginx", "ports": [{ "containerPort": 80 }] }] }), &[]);
        check(
            json!({ "hostNetwork": true, "hostPID": true, "hostIPC": true }),
            &["hostIPC", "hostNetwork", "hostPID"],
        );
        check(json!({ "hostNetwork": false }), &[]);
        check(
            json!({ "priorityClassName": "system-node-critical" }),
            &["PriorityClass system-node-critical"],
        );
        check(json!({ "priorityClassName": "high" }), &[]);
        check(json!({ "volumes": [{ "name": "a", "hostPath": { "path": "/" } }] }), &["hostPath volumes"]);
        check(
            json!({ "securityContext": { "windowsOptions": { "hostProcess": true } } }),
            &["windowsOptions.hostProcess"],
        );
        check(
            json!({ "securityContext": { "seccompProfile": { "type": "Unconfined" } } }),
            &["seccompProfile.type Unconfined"],
        );
        check(json!({ "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } } }), &[]);
        check(
            json!({ "securityContext": { "sysctls": [{ "name": "kernel.msgmax" }] } }),
            &["sysctl kernel.msgmax"],
        );
        check(json!({ "securityContext": { "seLinuxOptions": { "type": "spc_t" } } }), &["seLinuxOptions"]);
        for list in CONTAINERS {
            let of = |container: Value| json!({ list: [{ "image": "a" }, container] });
            check(of(json!({ "securityContext": { "privileged": true } })), &["privileged"]);
            check(of(json!({ "securityContext": { "privileged": false } })), &[]);
            check(of(json!({ "securityContext": { "procMount": "Unmasked" } })), &["procMount Unmasked"]);
            check(
                of(json!({ "securityContext": { "capabilities": { "add": ["SYS_ADMIN", "CHOWN"] } } })),
                &["capability SYS_ADMIN"],
            );
            check(
                of(json!({ "securityContext": { "capabilities": { "add": ["ALL"] } } })),
                &["capability ALL"],
            );
            check(of(json!({ "ports": [{ "containerPort": 80, "hostPort": 80 }] })), &["hostPort"]);
            check(
                of(json!({ "livenessProbe": { "httpGet": { "host": "169.254.169.254" } } })),
                &["host of a probe or lifecycle hook"],
            );
            check(
                of(json!({ "lifecycle": { "preStop": { "tcpSocket": { "host": "10.0.0.1" } } } })),
                &["host of a probe or lifecycle hook"],
            );
        }
        let service = |addresses: Value| json!({ "apiVersion": "v1", "kind": "Service", "spec": { "externalIPs": addresses } });
        assert_eq!(violations(&service(json!(["10.0.0.1"]))), ["externalIPs"]);
        assert_eq!(violations(&service(json!([]))), Vec::<String>::new());
        let mut old = deployment(json!({ "containers": [] }));
        old["spec"]["template"]["metadata"] =
            json!({ "annotations": { "container.apparmor.security.beta.kubernetes.io/web": "unconfined" } });
        assert_eq!(violations(&old), ["AppArmor unconfined"]);
    }

    #[test]
    fn shared_clusters_are_baseline_unless_configured_otherwise() {
        let check = |pod_security, dedicated_to: Option<&str>, expected| {
            let dedicated_to = dedicated_to.map(str::to_owned);
            let spec = PhysicalClusterSpec { pod_security, dedicated_to, ..PhysicalClusterSpec::default() };
            assert_eq!(level(&spec), expected);
        };
        check(None, None, PodSecurity::Baseline);
        check(None, Some("root:team-a"), PodSecurity::Privileged);
        check(Some(PodSecurity::Privileged), None, PodSecurity::Privileged);
        check(Some(PodSecurity::Baseline), Some("root:team-a"), PodSecurity::Baseline);
    }
}
