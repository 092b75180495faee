use serde_json::{Value, json};

use super::*;
use crate::catalog;

fn resource(kind: &str) -> &'static ResourceInfo {
    let (api_version, kind) = kind.split_once(' ').unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    catalog::find_kind(group, version, kind).unwrap()
}

/// Applies defaults to an object and compares some of its values.
fn check(kind: &str, mut object: Value, expected: &[(&str, Value)]) {
    apply_defaults(resource(kind), &mut object);
    for (pointer, value) in expected {
        assert_eq!(object.pointer(pointer).unwrap_or(&json!("absent")), value, "{pointer} of {object:#}");
    }
}

#[test]
fn a_pod_gets_defaults_that_a_template_does_not() {
    let spec = json!({
        "hostNetwork": true,
        "containers": [{
            "name": "a", "image": "a", "ports": [{ "containerPort": 80 }], "resources": { "limits": { "cpu": 0.5 } },
        }],
    });
    let both = |at: &str| -> Vec<(String, Value)> {
        [
            ("dnsPolicy", json!("ClusterFirst")),
            ("securityContext", json!({})),
            ("terminationGracePeriodSeconds", json!(30)),
            ("containers/0/imagePullPolicy", json!("Always")),
            ("containers/0/ports/0/protocol", json!("TCP")),
            ("containers/0/resources/limits/cpu", json!("500m")),
        ]
        .map(|(field, value)| (format!("{at}/{field}"), value))
        .to_vec()
    };
    let check = |kind: &str, object: Value, at: &str, expected_fields: &[(&str, Value)]| {
        let expected_fields =
            expected_fields.iter().map(|(field, value)| (format!("{at}/{field}"), value.clone()));
        let all: Vec<_> = both(at).into_iter().chain(expected_fields).collect();
        check(kind, object, &all.iter().map(|(at, value)| (at.as_str(), value.clone())).collect::<Vec<_>>());
    };
    check(
        "v1 Pod",
        json!({ "spec": spec }),
        "/spec",
        &[
            ("enableServiceLinks", json!(true)),
            ("containers/0/ports/0/hostPort", json!(80)),
            ("containers/0/resources/requests/cpu", json!("500m")),
        ],
    );
    check(
        "apps/v1 Deployment",
        json!({ "spec": { "template": { "spec": spec } } }),
        "/spec/template/spec",
        &[
            ("enableServiceLinks", json!("absent")),
            ("containers/0/ports/0/hostPort", json!("absent")),
            ("containers/0/resources/requests", json!("absent")),
        ],
    );
}

#[test]
fn empty_values_are_dropped_unless_required_or_behind_a_pointer() {
    let deployment = json!({
        "metadata": { "name": "x", "labels": {}, "annotations": null, "creationTimestamp": null },
        "spec": { "paused": false, "minReadySeconds": 0, "replicas": 0, "selector": {}, "template": null },
        "status": null,
    });
    let metadata = json!({ "name": "x" });
    let expected = [
        ("/metadata", metadata),
        ("/spec/paused", json!("absent")),
        ("/spec/minReadySeconds", json!("absent")),
        ("/spec/replicas", json!(0)),
        ("/spec/selector", json!({})),
        ("/spec/template/metadata", json!({})),
        ("/spec/template/spec/containers", json!(null)),
        ("/status", json!({})),
    ];
    check("apps/v1 Deployment", deployment, &expected);
    check("rbac.authorization.k8s.io/v1 Role", json!({ "rules": [] }), &[("/rules", json!(null))]);
    check("v1 ConfigMap", json!({ "data": { "a": null } }), &[("/data", json!({ "a": "" }))]);
}

#[test]
fn rules_depend_on_other_fields() {
    let policy = |spec: Value, types: Value| {
        let kind = "networking.k8s.io/v1 NetworkPolicy";
        check(kind, json!({ "spec": spec }), &[("/spec/policyTypes", types)]);
    };
    policy(json!({}), json!(["Ingress"]));
    policy(json!({ "egress": [] }), json!(["Ingress"]));
    policy(json!({ "egress": [{}] }), json!(["Ingress", "Egress"]));
    policy(json!({ "egress": [{}], "policyTypes": ["Egress"] }), json!(["Egress"]));

    let set = |strategy: Value, expected: Value| {
        let kind = "apps/v1 StatefulSet";
        check(kind, json!({ "spec": { "updateStrategy": strategy } }), &[("/spec/updateStrategy", expected)]);
    };
    set(json!({}), json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }));
    set(json!({ "type": "RollingUpdate" }), json!({ "type": "RollingUpdate" }));
    set(json!({ "type": "OnDelete" }), json!({ "type": "OnDelete" }));

    let job = |kind: &str, at: &str, spec: Value, completions: Value| {
        let mut object = json!({ "spec": { "jobTemplate": {} } });
        object.pointer_mut(at.rsplit_once('/').unwrap().0).unwrap()["spec"] = spec;
        check(kind, object, &[(&format!("{at}/completions"), completions)]);
    };
    job("batch/v1 Job", "/spec", json!({}), json!(1));
    job("batch/v1 Job", "/spec", json!({ "parallelism": 0 }), json!("absent"));
    job("batch/v1 CronJob", "/spec/jobTemplate/spec", json!({}), json!("absent"));
}

#[test]
fn a_secret_keeps_text_as_bytes() {
    let secret = json!({ "stringData": { "a": "b" }, "data": { "a": "Yw==", "c": "" } });
    let expected = [
        ("/data", json!({ "a": "Yg==", "c": "" })),
        ("/stringData", json!("absent")),
        ("/type", json!("Opaque")),
    ];
    check("v1 Secret", secret, &expected);
}

#[test]
fn a_new_object_has_no_past() {
    let job = resource("batch/v1 Job");
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [] } });
    let mut object = json!({
        "metadata": { "name": "x", "uid": "u" }, "spec": { "template": template }, "status": { "active": 1 },
    });
    apply_defaults(job, &mut object);
    prepare_create(job, &mut object, Timestamp::UNIX_EPOCH);
    let labels = json!({
        "a": "b", "job-name": "x", "batch.kubernetes.io/job-name": "x",
        "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u",
    });
    assert_eq!(object["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(object["metadata"]["labels"], labels, "where it has none of its own");
    assert_eq!(
        object["spec"]["selector"]["matchLabels"],
        json!({ "batch.kubernetes.io/controller-uid": "u" })
    );
    assert_eq!(object["status"], json!({}));
}

#[test]
fn an_updated_service_keeps_its_allocations() {
    let service = resource("v1 Service");
    let mut old = json!({
        "spec": { "type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                  "ports": [{ "name": "a", "port": 80, "nodePort": 30001 }] },
    });
    apply_defaults(service, &mut old);
    prepare_create(service, &mut old, Timestamp::UNIX_EPOCH);
    let replaced = |spec: Value| {
        let mut new = json!({ "spec": spec });
        apply_defaults(service, &mut new);
        prepare_update(service, &old, &mut new, Timestamp::UNIX_EPOCH);
        new
    };
    let silent = json!({ "type": "NodePort", "ports": [{ "name": "a", "port": 80 }] });
    assert_eq!(replaced(silent), old, "an update without a change changed the object");
    let inside = replaced(json!({ "ports": [{ "name": "a", "port": 80, "nodePort": 30001 }] }));
    assert_eq!(inside["spec"]["clusterIP"], "10.0.0.1");
    assert_eq!(inside["spec"]["ports"][0].get("nodePort"), None, "no use for it any more");
    let alias = replaced(json!({ "type": "ExternalName", "externalName": "example.com" }));
    for gone in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
        assert_eq!(alias["spec"].get(gone), None, "{gone}");
    }
}

#[test]
fn a_status_is_defaulted_alone() {
    let volume = resource("v1 PersistentVolume");
    let old = json!({
        "spec": { "volumeMode": "Block" }, "status": { "phase": "Bound", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z" },
    });
    let replaced = |status: Value| {
        let mut new = json!({ "spec": {}, "status": status });
        apply_defaults(volume, &mut new);
        prepare_status(volume, &old, &mut new, Timestamp::UNIX_EPOCH);
        assert_eq!(new["spec"]["volumeMode"], "Block");
        new["status"]["lastPhaseTransitionTime"].clone()
    };
    assert_eq!(replaced(json!({ "phase": "Bound" })), "2020-01-01T00:00:00Z", "since it is in this phase");
    assert_eq!(replaced(json!({ "phase": "Released" })), "1970-01-01T00:00:00Z", "now");
    let status = json!({ "phase": "Released", "lastPhaseTransitionTime": "2021-01-01T00:00:00Z" });
    assert_eq!(replaced(status), "2021-01-01T00:00:00Z", "the time that the client sent");
}

#[test]
fn the_qos_class_follows_from_all_containers() {
    let pod_qos_class = |containers: Value| {
        let mut pod = json!({ "spec": { "containers": containers } });
        apply_defaults(resource("v1 Pod"), &mut pod);
        prepare_create(resource("v1 Pod"), &mut pod, Timestamp::UNIX_EPOCH);
        pod["status"]["qosClass"].clone()
    };
    let limited = json!({ "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } });
    let asking = json!({ "resources": { "requests": { "cpu": "1" } } });
    assert_eq!(pod_qos_class(json!([{}])), "BestEffort");
    assert_eq!(pod_qos_class(json!([limited, limited])), "Guaranteed");
    assert_eq!(pod_qos_class(json!([limited, {}])), "Burstable");
    assert_eq!(pod_qos_class(json!([asking])), "Burstable");
}

#[test]
fn custom_kinds_are_not_changed() {
    let mut custom = resource("v1 Pod").clone();
    custom.origin = Origin::Custom;
    let before = json!({ "spec": { "containers": [{}] }, "status": { "phase": "Odd" } });
    let mut object = before.clone();
    apply_defaults(&custom, &mut object);
    prepare_create(&custom, &mut object, Timestamp::UNIX_EPOCH);
    prepare_update(&custom, &json!({}), &mut object, Timestamp::UNIX_EPOCH);
    assert_eq!(object, before);
}
