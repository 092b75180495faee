use api::fleet::Metadata;

use super::references::{DependencyRef, dependencies, serves};
use super::*;

const ID: &str = "~gchtrspnbgkpnvqb";

fn cluster(name: &str, labels: Value) -> PhysicalCluster {
    let metadata = Metadata {
        name: name.to_owned(),
        labels: serde_json::from_value(labels).unwrap(),
        ..Metadata::default()
    };
    PhysicalCluster { metadata, ..PhysicalCluster::default() }
}

fn destination<'a>(cluster: &'a PhysicalCluster, overrides: &'a [Override]) -> Destination<'a> {
    Destination { logical_cluster: ID, cluster, overrides, namespace_labels: &NO_LABELS, api_access: None }
}

fn sent(object: &Value, destination: &Destination) -> Value {
    match transform(object, None, destination).unwrap() {
        Transformed::Object(object) => object,
        Transformed::NotPropagated(why) => panic!("{why}"),
    }
}

#[test]
fn namespaces_of_different_logical_clusters_do_not_collide() {
    assert_eq!(physical_namespace(ID, "shop"), "shop-m41cmv47");
    assert_ne!(physical_namespace(ID, "shop"), physical_namespace("~bbbbbbbbbbbbbbbb", "shop"));
    let (long, longer) = ("x".repeat(63), format!("{}y", "x".repeat(62)));
    assert_eq!(physical_namespace(ID, &long).len(), 63);
    assert_ne!(physical_namespace(ID, &long), physical_namespace(ID, &longer));
    assert!(!physical_namespace(ID, &format!("{}-{}", "x".repeat(53), "y".repeat(9))).contains("--"));
    let mut east = cluster("east", json!({}));
    assert_eq!(destination(&east, &[]).namespace("shop"), "shop-m41cmv47");
    east.spec.dedicated_to = Some("root:team-a".into());
    assert_eq!(destination(&east, &[]).namespace("shop"), "shop");
}

#[test]
fn server_fields_are_removed_and_the_label_and_locator_are_added() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "generation": 3, "selfLink": "x",
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "managedFields": [{}], "ownerReferences": [{}], "finalizers": ["holon.dev/splitter", "example.com/mine"],
            "labels": { "app": "web", "holon.dev/x": "y" },
            "annotations": { "note": "n", "holon.dev/placement": "east", "deployment.kubernetes.io/revision": "4",
                             "kubectl.kubernetes.io/last-applied-configuration": "{}" },
        },
        "spec": { "replicas": 3 },
        "status": { "replicas": 3 },
    });
    let east = cluster("east", json!({}));
    let locator = format!(r#"{{"logicalCluster":"{ID}","namespace":"shop","name":"web","uid":"u-1"}}"#);
    assert_eq!(
        sent(&object, &destination(&east, &[])),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop-m41cmv47",
                "labels": { "app": "web", "holon.dev/placed": "true" },
                "annotations": { "note": "n", "holon.dev/locator": locator },
            },
            "spec": { "replicas": 3 },
        })
    );
    let patch = TargetPatch(vec![("/spec/replicas".into(), json!(1))]);
    let Ok(Transformed::Object(divided)) = transform(&object, Some(&patch), &destination(&east, &[])) else {
        panic!()
    };
    assert_eq!(divided["spec"], json!({ "replicas": 1 }));
}

#[test]
fn fields_that_each_server_sets_itself_are_removed() {
    let east = cluster("east", json!({}));
    let check = |version: &str, kind: &str, fields: Value, expected: Value| {
        let mut object =
            json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x", "namespace": "shop" } });
        api::meta::merge_patch::merge(&mut object, fields.clone());
        let mut transformed = sent(&object, &destination(&east, &[]));
        transformed["metadata"]["labels"].as_object_mut().unwrap().remove(PLACED);
        transformed["metadata"]["annotations"].as_object_mut().unwrap().remove(LOCATOR);
        for (field, expected) in expected.as_object().unwrap() {
            assert_eq!(&transformed[field], expected, "{object}");
        }
    };
    check(
        "v1",
        "Service",
        json!({ "spec": { "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ports": [{ "port": 80, "nodePort": 30000 }] } }),
        json!({ "spec": { "ports": [{ "port": 80 }] } }),
    );
    // A port that the user set has a field manager, one that the server allocated has none.
    let owned = json!([
        { "fieldsV1": { "f:spec": { "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { "f:nodePort": {}, "f:port": {} } } } } },
        { "fieldsV1": { "f:spec": { "f:ports": { "k:{\"port\":81,\"protocol\":\"TCP\"}": { "f:port": {} } } } } },
    ]);
    check(
        "v1",
        "Service",
        json!({ "metadata": { "managedFields": owned }, "spec": { "type": "NodePort", "ports": [
            { "port": 80, "nodePort": 30080, "protocol": "TCP" }, { "port": 80, "nodePort": 30001, "protocol": "UDP" },
            { "port": 81, "nodePort": 30002 },
        ] } }),
        json!({ "spec": { "type": "NodePort", "ports": [
            { "port": 80, "nodePort": 30080, "protocol": "TCP" }, { "port": 80, "protocol": "UDP" }, { "port": 81 },
        ] } }),
    );
    check(
        "v1",
        "Service",
        json!({ "spec": { "clusterIP": "None", "clusterIPs": ["None"] } }),
        json!({ "spec": { "clusterIP": "None", "clusterIPs": ["None"] } }),
    );
    let labels = json!({ "app": "j", "controller-uid": "u", "job-name": "x", "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "x" });
    check(
        "batch/v1",
        "Job",
        json!({ "spec": { "ttlSecondsAfterFinished": 5, "selector": {}, "template": { "metadata": { "labels": labels } } } }),
        json!({ "spec": { "template": { "metadata": { "labels": { "app": "j" } } } } }),
    );
    check(
        "batch/v1",
        "Job",
        json!({ "spec": { "manualSelector": true, "selector": { "matchLabels": { "a": "b" } } } }),
        json!({ "spec": { "manualSelector": true, "selector": { "matchLabels": { "a": "b" } } } }),
    );
    check("v1", "ServiceAccount", json!({ "secrets": [{ "name": "t" }] }), json!({ "secrets": null }));
    check(
        "v1",
        "Pod",
        json!({ "spec": { "nodeName": "east", "volumes": [{ "name": "kube-api-access-x" }, { "name": "v" }],
                          "containers": [{ "volumeMounts": [{ "name": "kube-api-access-x" }, { "name": "v" }] }] } }),
        json!({ "spec": { "volumes": [{ "name": "v" }], "containers": [{ "volumeMounts": [{ "name": "v" }] }] } }),
    );
    check(
        "v1",
        "Namespace",
        json!({ "metadata": { "name": "shop", "namespace": null, "labels": { "team": "a", "kubernetes.io/metadata.name": "shop", "pod-security.kubernetes.io/enforce": "privileged" } },
                "spec": { "finalizers": ["kubernetes"] } }),
        json!({ "metadata": { "name": "shop-m41cmv47", "labels": { "team": "a" }, "annotations": {} }, "spec": null }),
    );
    check(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        json!({ "subjects": [{ "kind": "ServiceAccount", "name": "op", "namespace": "shop" }, { "kind": "User", "name": "u" }] }),
        json!({ "subjects": [{ "kind": "ServiceAccount", "name": "op", "namespace": "shop-m41cmv47" }, { "kind": "User", "name": "u" }] }),
    );
}

#[test]
fn objects_of_no_use_downstream_are_not_propagated() {
    let east = cluster("east", json!({}));
    let mut own = cluster("own", json!({}));
    own.spec.dedicated_to = Some("root:team-a".into());
    let check = |object: Value, is_skipped: bool| {
        let mut object = object;
        object["metadata"]["namespace"] = "shop".into();
        let transformed = transform(&object, None, &destination(&east, &[])).unwrap();
        assert_eq!(matches!(transformed, Transformed::NotPropagated(_)), is_skipped, "{object}");
    };
    check(
        json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token" }),
        true,
    );
    check(json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque" }), false);
    check(json!({ "apiVersion": "v1", "kind": "Event" }), true);
    check(
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kube-root-ca.crt" } }),
        true,
    );
    check(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } }), true);
    check(
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": { "holon.dev/projected": "true" } } }),
        true,
    );
    check(json!({ "apiVersion": "example.com/v1", "kind": "Event" }), false);
    // A shared cluster gets no cluster-scoped objects.
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "all" } });
    assert!(matches!(transform(&binding, None, &destination(&east, &[])), Ok(Transformed::NotPropagated(_))));
    assert!(matches!(transform(&binding, None, &destination(&own, &[])), Ok(Transformed::Object(_))));
}

#[test]
fn objects_named_by_a_pod_are_its_dependencies() {
    let spec = json!({
        "serviceAccountName": "runner",
        "imagePullSecrets": [{ "name": "pull" }],
        "volumes": [
            { "configMap": { "name": "cm-volume" } }, { "secret": { "secretName": "secret-volume" } },
            { "persistentVolumeClaim": { "claimName": "data" } },
            { "projected": { "sources": [{ "configMap": { "name": "cm-projected" } }, { "secret": { "name": "secret-projected" } },
                                         { "configMap": { "name": "kube-root-ca.crt" } }, { "serviceAccountToken": { "path": "t" } }] } },
            { "csi": { "nodePublishSecretRef": { "name": "secret-csi" } } }, { "emptyDir": {} },
        ],
        "initContainers": [{ "envFrom": [{ "configMapRef": { "name": "cm-from" } }, { "secretRef": { "name": "secret-from" } }] }],
        "containers": [{ "env": [{ "name": "A", "value": "x" }, { "valueFrom": { "configMapKeyRef": { "name": "cm-key" } } },
                                 { "valueFrom": { "secretKeyRef": { "name": "secret-key" } } }] }],
        "ephemeralContainers": [{ "envFrom": [{ "configMapRef": { "name": "cm-debug" } }] }],
    });
    let expected = [
        "ConfigMap/cm-debug",
        "ConfigMap/cm-from",
        "ConfigMap/cm-key",
        "ConfigMap/cm-projected",
        "ConfigMap/cm-volume",
        "PersistentVolumeClaim/data",
        "Secret/pull",
        "Secret/secret-csi",
        "Secret/secret-from",
        "Secret/secret-key",
        "Secret/secret-projected",
        "Secret/secret-volume",
        "ServiceAccount/runner",
    ];
    let names = |object: &Value| -> Vec<String> {
        dependencies(object)
            .into_iter()
            .map(|DependencyRef { kind, name }| format!("{kind}/{name}"))
            .collect()
    };
    let template = json!({ "spec": spec });
    assert_eq!(names(&json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec })), expected);
    assert_eq!(
        names(&json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": template } })),
        expected
    );
    assert_eq!(
        names(
            &json!({ "apiVersion": "batch/v1", "kind": "CronJob", "spec": { "jobTemplate": { "spec": { "template": template } } } })
        ),
        expected
    );
    // A custom kind that has pods.
    assert_eq!(
        names(
            &json!({ "apiVersion": "argoproj.io/v1", "kind": "Rollout", "spec": { "template": template } })
        ),
        expected
    );
    assert!(names(&json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": { "spec": { "serviceAccountName": "default" } } } })).is_empty());
}

#[test]
fn ingresses_service_accounts_and_stateful_sets_have_dependencies() {
    let check = |object: Value, expected: &[&str]| {
        let found: Vec<String> =
            dependencies(&object).into_iter().map(|need| format!("{}/{}", need.kind, need.name)).collect();
        assert_eq!(found, expected, "{object}");
    };
    let backend = |name: &str| json!({ "service": { "name": name } });
    check(
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {
            "tls": [{ "secretName": "tls" }], "defaultBackend": backend("fallback"),
            "rules": [{ "http": { "paths": [{ "backend": backend("web") }] } }] } }),
        &["Secret/tls", "Service/fallback", "Service/web"],
    );
    check(
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": [{ "name": "pull" }] }),
        &["Secret/pull"],
    );
    check(
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": { "serviceName": "db" } }),
        &["Service/db"],
    );
    check(json!({ "apiVersion": "v1", "kind": "ConfigMap" }), &[]);

    let web = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": {
        "metadata": { "labels": { "app": "web", "tier": "front" } }, "spec": { "containers": [] } } } });
    let service = |selector: Value| json!({ "spec": { "selector": selector } });
    assert!(serves(&service(json!({ "app": "web" })), &web));
    assert!(!serves(&service(json!({ "app": "db" })), &web));
    assert!(!serves(&service(json!({})), &web));
    assert!(!serves(&json!({ "spec": {} }), &web));
    assert!(serves(
        &service(json!({ "a": "b" })),
        &json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": { "a": "b" } } })
    ));
}

fn web() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "replicas": 2, "template": { "spec": {
            "initContainers": [{ "name": "init", "image": "busybox" }],
            "containers": [{ "name": "main", "image": "ghcr.io/team/app:v1", "args": ["--a", "--b"], "env": [{ "name": "A", "value": "1" }] }] } } },
    })
}

fn over(name: &str, priority: i32, rules: Value) -> Override {
    let metadata = Metadata { name: name.to_owned(), ..Metadata::default() };
    let spec = serde_json::from_value(json!({ "priority": priority, "rules": rules })).unwrap();
    Override { metadata, spec, status: None }
}

#[test]
fn an_override_changes_objects_for_selected_clusters_only() {
    let (east, west) =
        (cluster("east", json!({ "region": "eu" })), cluster("west", json!({ "region": "us" })));
    let check = |rule: Value, pointer: &str, expected: Value| {
        let mut rule = rule;
        rule["clusterSelector"] = json!({ "matchLabels": { "region": "eu" } });
        let overrides = [over("o", 0, json!([rule]))];
        let changed = sent(&web(), &destination(&east, &overrides));
        assert_eq!(changed.pointer(pointer), Some(&expected), "{rule} {changed}");
        assert_eq!(
            sent(&web(), &destination(&west, &overrides)),
            sent(&web(), &destination(&west, &[])),
            "{rule}"
        );
    };
    let main = "/spec/template/spec/containers/0";
    check(
        json!({ "images": [{ "registry": "mirror.eu" }] }),
        &format!("{main}/image"),
        json!("mirror.eu/team/app:v1"),
    );
    check(
        json!({ "images": [{ "registry": "mirror.eu" }] }),
        "/spec/template/spec/initContainers/0/image",
        json!("mirror.eu/busybox"),
    );
    check(
        json!({ "images": [{ "container": "init", "tag": "1" }] }),
        &format!("{main}/image"),
        json!("ghcr.io/team/app:v1"),
    );
    check(
        json!({ "env": [{ "set": [{ "name": "A", "value": "2" }, { "name": "B" }] }] }),
        &format!("{main}/env"),
        json!([{ "name": "A", "value": "2" }, { "name": "B", "value": "" }]),
    );
    check(json!({ "env": [{ "container": "main", "remove": ["A"] }] }), &format!("{main}/env"), json!([]));
    check(
        json!({ "args": [{ "container": "main", "remove": ["--a"], "append": ["--eu"] }] }),
        &format!("{main}/args"),
        json!(["--b", "--eu"]),
    );
    check(
        json!({ "labels": { "set": { "example.com/tier": "gold" }, "remove": ["app"] } }),
        "/metadata/labels",
        json!({ "example.com/tier": "gold", "holon.dev/placed": "true" }),
    );
    check(json!({ "annotations": { "set": { "note": "n" } } }), "/metadata/annotations/note", json!("n"));
    check(
        json!({ "mergePatch": { "spec": { "paused": true, "replicas": null } } }),
        "/spec/paused",
        json!(true),
    );
    check(
        json!({ "jsonPatch": [{ "op": "add", "path": "/spec/minReadySeconds", "value": 9 }] }),
        "/spec/minReadySeconds",
        json!(9),
    );
    check(
        json!({ "jsonPatch": [{ "op": "copy", "from": "/spec/replicas", "path": "/spec/minReadySeconds" }] }),
        "/spec/minReadySeconds",
        json!(2),
    );
    check(
        json!({ "computed": [{ "path": "/spec/minReadySeconds", "expression": "object.spec.replicas * 10" }] }),
        "/spec/minReadySeconds",
        json!(20),
    );
    check(
        json!({ "computed": [{ "path": "/metadata/labels/region", "expression": "cluster.metadata.labels.region" }] }),
        "/metadata/labels/region",
        json!("eu"),
    );
}

#[test]
fn overrides_are_applied_in_order_and_all_or_none() {
    let east = cluster("east", json!({}));
    let step = |value: u32| json!([{ "jsonPatch": [{ "op": "add", "path": "/spec/x", "value": value }] }]);
    let overrides =
        [over("b", 0, step(2)), over("z", -1, step(1)), over("a", 5, step(5)), over("c", 0, step(3))];
    assert_eq!(sent(&web(), &destination(&east, &overrides))["spec"]["x"], 5);
    assert_eq!(sent(&web(), &destination(&east, &overrides[..2]))["spec"]["x"], 2);
    let fails = |rules: Value, words: &str| {
        let error =
            transform(&web(), None, &destination(&east, &[over("bad", 0, rules.clone())])).unwrap_err();
        assert!(error.to_string().contains(words), "{rules}: {error}");
    };
    fails(
        json!([{}, { "jsonPatch": [{ "op": "remove", "path": "/spec/nothing" }] }]),
        "Override bad, spec.rules[1]: Remove of /spec/nothing",
    );
    fails(
        json!([{ "jsonPatch": [{ "op": "test", "path": "/spec/replicas", "value": 3 }] }]),
        "Test of /spec/replicas",
    );
    fails(json!([{ "jsonPatch": [{ "op": "add", "path": "/spec/x" }] }]), "value");
    fails(
        json!([{ "computed": [{ "path": "/spec/x", "expression": "objct.spec" }] }]),
        "1:1: undeclared reference \"objct\"",
    );
    fails(json!([{ "clusterSelector": { "expressions": ["cluster.x > 1"] } }]), "no such field \"x\"");
    // On a shared cluster, another namespace would be another user's.
    fails(
        json!([{ "mergePatch": { "metadata": { "namespace": "kube-system" } } }]),
        "may not change metadata.namespace",
    );
    fails(json!([{ "mergePatch": { "metadata": { "name": "other" } } }]), "may not change metadata.name");
    fails(json!([{ "mergePatch": { "kind": "DaemonSet" } }]), "may not change kind");
    let doubling: Vec<Value> =
        (0..40).map(|n| json!({ "op": "copy", "from": "/spec", "path": format!("/spec/x{n}") })).collect();
    fails(json!([{ "jsonPatch": doubling }]), "copies more than 3145728 bytes");
    let nesting: Vec<Value> =
        (0..200).map(|_| json!({ "op": "copy", "from": "/spec", "path": "/spec/x" })).collect();
    fails(json!([{ "jsonPatch": nesting }]), "/spec/x is too deep");
    // The results of expressions count towards the same limit as copies.
    let computed: Vec<Value> =
        (0..40).map(|n| json!({ "path": format!("/spec/x{n}"), "expression": "object.spec" })).collect();
    fails(json!([{ "computed": computed }]), "copies more than 3145728 bytes");
    // A long path nests its value deeper every time. A value that is too deep would overflow the stack of recursive code.
    let path = format!("/spec{}", "/a".repeat(100));
    let deeper: Vec<Value> = (0..40).map(|_| json!({ "path": path, "expression": "object.spec" })).collect();
    fails(json!([{ "computed": deeper }]), "more than 127 levels deep");
    let forged = [over(
        "forger",
        0,
        json!([{ "annotations": { "set": { LOCATOR: "{}" } }, "labels": { "remove": [PLACED] } }]),
    )];
    let transformed = sent(&web(), &destination(&east, &forged));
    assert!(transformed["metadata"]["annotations"][LOCATOR].as_str().unwrap().contains(ID));
    assert_eq!(transformed["metadata"]["labels"][PLACED], "true");
}

#[test]
fn pods_call_the_api_they_were_applied_to() {
    let api_access =
        ApiAccess { host: "holon.example".into(), port: 6443, secret: "runner-api".into(), mounts: true };
    let east = cluster("east", json!({}));
    let rewritten = |spec: Value| {
        let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "op", "namespace": "shop" }, "spec": { "template": { "spec": spec } } });
        let destination = Destination { api_access: Some(&api_access), ..destination(&east, &[]) };
        let once = sent(&object, &destination);
        let mut twice = once.clone();
        api_access::rewrite(&mut twice, &api_access);
        assert_eq!(once, twice, "twice changes nothing");
        once["spec"]["template"]["spec"].clone()
    };
    let folder = "/var/run/secrets/kubernetes.io/serviceaccount";
    let variables = json!([
        { "name": "KUBERNETES_SERVICE_HOST", "value": "holon.example" },
        { "name": "KUBERNETES_SERVICE_PORT", "value": "6443" },
        { "name": "KUBERNETES_SERVICE_PORT_HTTPS", "value": "6443" },
    ]);
    assert_eq!(
        rewritten(json!({ "containers": [{ "name": "c" }] })),
        json!({
            "automountServiceAccountToken": false,
            "volumes": [{ "name": "holon-api-access", "secret": { "secretName": "runner-api" } }],
            "containers": [{ "name": "c", "env": variables,
                             "volumeMounts": [{ "name": "holon-api-access", "mountPath": folder, "readOnly": true }] }],
        })
    );
    // A pod without automount gets no token; a host that the user set stays; a projected volume of the user is
    // redirected.
    let spec = rewritten(json!({
        "automountServiceAccountToken": false,
        "volumes": [{ "name": "mine", "projected": { "sources": [
            { "serviceAccountToken": { "path": "t" } }, { "serviceAccountToken": { "path": "v", "audience": "vault" } },
            { "configMap": { "name": "kube-root-ca.crt" } }] } }],
        "containers": [{ "name": "c", "env": [{ "name": "KUBERNETES_SERVICE_HOST", "value": "mine" }] }],
    }));
    assert_eq!(spec["containers"][0]["env"][0]["value"], "mine");
    assert_eq!(spec["containers"][0]["volumeMounts"], Value::Null);
    let from = |key: &str, path: &str| json!({ "secret": { "name": "runner-api", "items": [{ "key": key, "path": path }] } });
    assert_eq!(
        spec["volumes"],
        json!([{ "name": "mine", "projected": { "sources": [
        from("token", "t"), { "serviceAccountToken": { "path": "v", "audience": "vault" } }, from("ca.crt", "ca.crt")] } }])
    );
}
