//! Patches of the three types on existing objects.

use openapi::codec::typed::decode_tree;
use openapi::codec::{Syntax, decode};
use openapi::patch::json::JsonPatch;
use openapi::patch::merge::MergePatch;
use openapi::patch::strategic::StrategicPatch;
use serde_json::{Value, json};

use super::SampledKind;
use super::cluster::{Cluster, ServerResponse};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Type {
    Json,
    Merge,
    Strategic,
}

impl Type {
    fn media_type(self) -> &'static str {
        match self {
            Type::Json => "application/json-patch+json",
            Type::Merge => "application/merge-patch+json",
            Type::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

pub(crate) fn compare(cluster: &Cluster, kind: &SampledKind, differences: &mut Vec<String>) {
    let created = cluster.send("POST", kind.path, "application/json", &kind.sample.to_string());
    assert_eq!(created.code, 201, "{}", created.body);
    for (patch_type, patch) in patches(kind.kind) {
        let patch = patch.to_string();
        // A controller may write in between; then the responses are not comparable.
        let outcome = (0..10).find_map(|_| compare_one(cluster, kind, patch_type, &patch));
        match outcome {
            Some(Ok(())) => {}
            Some(Err(difference)) => {
                differences.push(format!("{} {patch_type:?} {patch}\n{difference}", kind.kind))
            }
            None => differences.push(format!("{} {patch_type:?} {patch}: it never held still", kind.kind)),
        }
    }
}

/// Returns `None` if the object changed meanwhile.
fn compare_one(
    cluster: &Cluster,
    kind: &SampledKind,
    patch_type: Type,
    patch: &str,
) -> Option<Result<(), String>> {
    let path = format!("{}/sample", kind.path);
    let live = cluster.get(&path).body;
    let theirs = cluster.send("PATCH", &format!("{path}?dryRun=All"), patch_type.media_type(), patch);
    let ours = ours(kind, patch_type, patch, live.clone());
    let ours = match ours {
        Ok((object, warnings)) => {
            let answer =
                cluster.send("PUT", &format!("{path}?dryRun=All"), "application/json", &object.to_string());
            ServerResponse { warnings, ..answer }
        }
        Err(answer) => answer,
    };
    if cluster.get(&path).body["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"] {
        return None;
    }
    let (theirs, ours) = (comparable(theirs), comparable(ours));
    Some(match theirs == ours {
        true => Ok(()),
        false => Err(format!(
            "  theirs {} {} {:?}\n  ours   {} {} {:?}",
            theirs.code, theirs.body, theirs.warnings, ours.code, ours.body, ours.warnings
        )),
    })
}

fn ours(
    kind: &SampledKind,
    patch_type: Type,
    patch: &str,
    live: Value,
) -> Result<(Value, Vec<String>), ServerResponse> {
    let refuse = |status: openapi::meta::status::Status| ServerResponse {
        code: status.code,
        body: serde_json::to_value(&status).expect("a status is JSON"),
        warnings: Vec::new(),
    };
    let read = decode(patch.as_bytes(), Syntax::Json).expect("patches here are JSON");
    let mut warnings: Vec<String> = read.strict_errors.iter().map(ToString::to_string).collect();
    let (patched, printed) = match patch_type {
        Type::Json => {
            let patch = JsonPatch::parse(read.value).map_err(|error| refuse(error.status()))?;
            warnings.extend(patch.strict_errors.iter().map(ToString::to_string));
            (patch.apply(live).map_err(|error| refuse(error.status()))?, String::new())
        }
        Type::Merge => {
            let patch = MergePatch::parse(read.value).map_err(|error| refuse(error.status()))?;
            let mut object = live;
            patch.apply(&mut object);
            (object, String::new())
        }
        Type::Strategic => {
            let patch = StrategicPatch::parse(read.value).map_err(|error| refuse(error.status()))?;
            let printed = patch.shown();
            (patch.apply(live, &kind.schema).map_err(|error| refuse(error.status()))?, printed)
        }
    };
    let decoded = decode_tree(patched, &kind.schema)
        .map_err(|mismatch| refuse(openapi::patch::unreadable(&printed, &mismatch.to_string())))?;
    warnings.extend(decoded.strict_errors.iter().map(ToString::to_string));
    Ok((decoded.value, warnings))
}

/// Returns the comparable parts: without values that a dry run generates, and without known differences.
fn comparable(mut answer: ServerResponse) -> ServerResponse {
    answer.warnings.retain(|text| text.contains("field \""));
    if answer.body["kind"] != "Status" {
        if let Some(metadata) = answer.body["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        return answer;
    }
    // Kubernetes answers 500 to a contradictory strategic merge patch; we answer 422 with the same message.
    let code = if answer.code == 500 { 422 } else { answer.code };
    let message = answer.message();
    // The messages about a mistyped object differ, because Kubernetes has three decoders.
    let message = if message.starts_with(" \"\" is invalid: patch: ") { "unreadable" } else { message };
    ServerResponse { code, body: json!(message), warnings: answer.warnings }
}

fn patches(kind: &str) -> Vec<(Type, Value)> {
    let common = [
        (Type::Json, json!([])),
        (Type::Json, json!({})),
        (Type::Json, json!([{"op": 1}])),
        (Type::Json, json!([{"op": "add", "path": "/metadata/labels", "value": {"n": "1"}}])),
        (Type::Json, json!([{"op": "replace", "path": "/metadata/annotations", "value": {"n": "1"}}])),
        (Type::Json, json!([{"op": "replace", "path": "/spec/nope", "value": 1}])),
        (Type::Json, json!([{"op": "remove", "path": "/spec/nope"}])),
        (Type::Json, json!([{"op": "test", "path": "/spec/nope", "value": null}])),
        (Type::Json, json!([{"op": "test", "path": "/metadata/name", "value": "other"}])),
        (Type::Json, json!([{"op": "jump", "path": "/spec"}])),
        (Type::Json, json!([{"op": "add", "path": "/metadata/labels", "value": {}, "bogus": 1}])),
        (Type::Json, json!([{"op": "copy", "from": "/metadata/name", "path": "/metadata/annotations"}])),
        (Type::Json, json!([{"op": "add", "path": "/metadata/annotations/a~1b", "value": "c"}])),
        (Type::Merge, json!({})),
        (Type::Merge, json!([])),
        (Type::Merge, json!(null)),
        (Type::Merge, json!({"metadata": {"labels": {"a": null, "c": "3"}}})),
        (Type::Merge, json!({"metadata": {"annotations": null, "bogus": {"x": null}}})),
        (Type::Merge, json!({"spec": {"bogus": 1}})),
        (Type::Merge, json!({"metadata": {"labels": "odd"}})),
        (Type::Strategic, json!({})),
        (Type::Strategic, json!([])),
        (Type::Strategic, json!(null)),
        (
            Type::Strategic,
            json!({"metadata": {"labels": {"a": null, "c": "3"}, "finalizers": ["example.com/z"]}}),
        ),
        (Type::Strategic, json!({"metadata": {"annotations": {"$patch": "replace", "n": "1"}}})),
        (Type::Strategic, json!({"metadata": {"annotations": {"$patch": "delete", "n": "1"}}})),
        (Type::Strategic, json!({"metadata": {"labels": {"$retainKeys": ["b"], "b": "9"}}})),
        (Type::Strategic, json!({"metadata": {"labels": {"$retainKeys": ["b"], "c": "9"}}})),
        (Type::Strategic, json!({"$patch": "merge"})),
        (Type::Strategic, json!({"spec": {"$patch": "odd"}})),
        (Type::Strategic, json!({"spec": {"bogus": {"$setElementOrder/x": [1]}}})),
        (
            Type::Strategic,
            json!({"metadata": {"ownerReferences": [
            {"uid": "u1", "apiVersion": "v1", "kind": "Pod", "name": "o", "controller": null}]}}),
        ),
    ];
    let patches_of_kind = match kind {
        "Deployment" => deployment_patches(),
        "Service" => service_patches(),
        _ => pod_patches(),
    };
    common.into_iter().chain(patches_of_kind).collect()
}

fn deployment_patches() -> Vec<(Type, Value)> {
    let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let containers = |list: Value| pod(json!({"containers": list}));
    let web = |fields: Value| {
        let mut container = json!({"name": "web"});
        container.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        containers(json!([container]))
    };
    let strategic = [
        web(json!({"image": "web:2"})),
        containers(json!([{"name": "new", "image": "new:1"}])),
        containers(json!([{"name": "new", "image": "new:1"}, {"name": "log", "image": "log:2"}])),
        containers(json!([{"name": "mesh"}, {"name": "web"}])),
        containers(json!([{"name": "log", "$patch": "delete"}])),
        containers(json!([{"name": "absent", "$patch": "delete"}, {"name": "mesh", "image": "mesh:2"}])),
        containers(json!([{"$patch": "replace"}, {"name": "only", "image": "only:1"}])),
        containers(json!([{"name": "web", "$patch": "merge"}])),
        containers(json!([{"image": "nameless"}])),
        containers(json!(["web"])),
        containers(json!([])),
        containers(json!(null)),
        web(json!({"args": ["c"]})),
        web(json!({"args": null})),
        web(json!({"env": [{"name": "B", "value": "20"}, {"name": "D", "value": "4"}]})),
        web(json!({"env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": null}]})),
        web(json!({"env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                   "$setElementOrder/env": [{"name": "C"}, {"name": "E"}, {"name": "A"}]})),
        web(json!({"$setElementOrder/env": [{"name": "C"}, {"name": "A"}]})),
        web(json!({"$setElementOrder/env": [{"name": "A"}], "env": [{"name": "X", "value": "1"}]})),
        web(json!({"ports": [{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 8080}]})),
        web(json!({"ports": [{"containerPort": 443, "$patch": "delete"}]})),
        web(json!({"resources": {"limits": {"cpu": "1000m", "memory": null}, "requests": {"cpu": 0.1}}})),
        web(json!({"resources": {"limits": {"cpu": "many"}}})),
        web(
            json!({"volumeMounts": [{"mountPath": "/v", "readOnly": true}, {"mountPath": "/w", "name": "w"}]}),
        ),
        web(json!({"livenessProbe": {"httpGet": {"path": "/", "port": 80}}})),
        pod(json!({"$setElementOrder/containers": [{"name": "mesh"}, {"name": "web"}]})),
        pod(json!({"$setElementOrder/containers": [{"name": "log"}, {"name": "new"}, {"name": "web"}],
                   "containers": [{"name": "new", "image": "new:1"}, {"name": "mesh", "$patch": "delete"}]})),
        pod(
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}),
        ),
        pod(json!({"volumes": [{"name": "v", "emptyDir": null, "hostPath": {"path": "/h"}}]})),
        pod(json!({"volumes": [{"name": "w", "configMap": {"items": [{"key": "k", "path": "p"}]}}]})),
        pod(json!({"tolerations": [{"key": "u", "operator": "Exists"}]})),
        pod(json!({"imagePullSecrets": [{"name": "s3"}, {"name": "s1"}]})),
        pod(json!({"imagePullSecrets": [{"name": "s2", "$patch": "delete"}]})),
        pod(json!({"nodeSelector": {"$patch": "replace", "zone": "a"}})),
        pod(json!({"nodeSelector": null, "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["x"]}]})),
        json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}),
        json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 3}}}}),
        json!({"spec": {"replicas": "x"}}),
        json!({"spec": {"template": 5}}),
        json!({"spec": {"replicas": null, "minReadySeconds": 5}}),
        json!({"metadata": {"finalizers": ["example.com/z", "example.com/b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/b", "example.com/q"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"],
                            "$setElementOrder/finalizers": ["example.com/c", "example.com/z", "example.com/b"],
                            "finalizers": ["example.com/z"]}}),
        json!({"metadata": {"$setElementOrder/finalizers": ["example.com/c", "example.com/a"]}}),
        json!({"metadata": {"$setElementOrder/finalizers": ["example.com/x"], "finalizers": ["example.com/y"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList": ["a"]}}),
        json!({"metadata": {"$setElementOrder": ["a"]}}),
        json!({"metadata": {"finalizers": [1]}}),
        json!({"metadata": {"finalizers": [null]}}),
        json!({"metadata": {"finalizers": null}}),
    ];
    let steps = [
        json!([{"op": "remove", "path": "/spec/template/spec/containers/-1"}]),
        json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "x", "image": "x"}}]),
        json!([{"op": "add", "path": "/spec/template/spec/containers/9", "value": {"name": "x", "image": "x"}}]),
        json!([{"op": "move", "from": "/spec/template/spec/containers/0", "path": "/spec/template/spec/containers/2"}]),
        json!([{"op": "replace", "path": "/spec/replicas", "value": "x"}]),
        json!([{"op": "replace", "path": "", "value": {}}]),
        json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "web:3"},
               {"op": "test", "path": "/spec/template/spec/containers/0/image", "value": "web:3"}]),
    ];
    let merges = [
        containers(json!([{"name": "a", "image": "a", "args": null}])),
        pod(json!({"nodeSelector": {"disk": null}, "tolerations": null})),
    ];
    let strategic = strategic.into_iter().map(|patch| (Type::Strategic, patch));
    let steps = steps.into_iter().map(|patch| (Type::Json, patch));
    strategic.chain(steps).chain(merges.into_iter().map(|patch| (Type::Merge, patch))).collect()
}

fn service_patches() -> Vec<(Type, Value)> {
    [
        json!({"spec": {"ports": [{"port": 80, "targetPort": "web"}]}}),
        json!({"spec": {"ports": [{"port": 8080, "name": "alt"}]}}),
        json!({"spec": {"ports": [{"port": 443, "$patch": "delete"}]}}),
        json!({"spec": {"$setElementOrder/ports": [{"port": 443}, {"port": 80}]}}),
        json!({"spec": {"selector": {"$patch": "replace", "app": "db"}}}),
        json!({"spec": {"externalIPs": ["192.0.2.3"]}}),
        json!({"spec": {"type": "NodePort"}}),
        json!({"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}}),
        json!({"spec": {"ports": null}}),
        json!({"spec": {"clusterIP": null}}),
    ]
    .map(|patch| (Type::Strategic, patch))
    .to_vec()
}

fn pod_patches() -> Vec<(Type, Value)> {
    [
        json!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}}),
        json!({"spec": {"containers": [{"name": "c", "image": "c:1"}]}}),
        json!({"spec": {"activeDeadlineSeconds": 100}}),
        json!({"spec": {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["z"]}]}}),
        json!({"spec": {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 2}]}}),
        json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
        json!({"metadata": {"$patch": "replace", "name": "sample"}}),
    ]
    .map(|patch| (Type::Strategic, patch))
    .to_vec()
}
