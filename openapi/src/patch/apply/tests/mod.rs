//! Stories of objects with several managers.

mod amounts;
mod properties;

use serde_json::{Value, json};

use super::{ApplyError, FieldManager, ResetFields};
use crate::catalog::resource_info::ResourceInfo;
use crate::schema::builtin;
use crate::{catalog, defaulting};

/// An object of a built-in kind, and the writes of its managers.
pub(super) struct Story {
    resource: &'static ResourceInfo,
    blank: Value,
    pub(super) live: Value,
    clock: u32,
}

impl Story {
    pub(super) fn of(group: &str, plural: &str) -> Story {
        let resource = catalog::find(group, "v1", plural).expect("a built-in kind");
        let blank = defaulting::empty_object(resource);
        Story { resource, live: blank.clone(), blank, clock: 0 }
    }

    fn writing<R>(
        &mut self,
        manager: &str,
        subresource: Option<&str>,
        write: impl FnOnce(&FieldManager<'_>) -> R,
    ) -> R {
        self.clock += 1;
        let now = format!("2026-01-01T00:00:{:02}Z", self.clock);
        let api_version = self.resource.api_version();
        write(&FieldManager {
            manager,
            api_version: &api_version,
            subresource: subresource.unwrap_or_default(),
            schema: builtin::schema(&self.resource.type_name).expect("every kind has a type"),
            blank: &self.blank,
            reset: ResetFields::of(self.resource, subresource),
            now: &now,
            knows: &|version| version == api_version,
        })
    }

    fn settle(&mut self, mut object: Value, managed: Option<Value>) {
        api::meta::merge_patch::drop_nulls(&mut object);
        defaulting::apply_defaults(self.resource, &mut object);
        object["metadata"]["uid"] = "u".into();
        match managed {
            Some(managed) => object["metadata"]["managedFields"] = managed,
            None => drop(object["metadata"].as_object_mut().unwrap().remove("managedFields")),
        }
        self.live = object;
    }

    pub(super) fn update(&mut self, manager: &str, mut new: Value) {
        defaulting::apply_defaults(self.resource, &mut new);
        let sent = new["metadata"].as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
        let old = self.live.clone();
        let managed = self.writing(manager, None, |writer| writer.updated(&old, &new, sent.as_ref()));
        self.settle(new, managed);
    }

    /// Changes one value of the live object.
    pub(super) fn set(&mut self, manager: &str, pointer: &str, value: Value) {
        let mut new = self.live.clone();
        *new.pointer_mut(pointer).expect("the object exists") = value;
        self.update(manager, new);
    }

    pub(super) fn try_apply(&mut self, manager: &str, config: &Value, force: bool) -> Result<(), ApplyError> {
        let mut config = config.clone();
        config["apiVersion"] = self.resource.api_version().into();
        config["kind"] = (*self.resource.kind).into();
        let live = self.live.clone();
        let applied = self.writing(manager, None, |writer| writer.applied(&live, &config, force))?;
        self.settle(applied.object, applied.managed_fields);
        Ok(())
    }

    pub(super) fn apply(&mut self, manager: &str, config: &Value) {
        self.try_apply(manager, config, false)
            .unwrap_or_else(|why| panic!("{manager} applies {config}: {why:?}"));
    }

    fn refusal(&mut self, manager: &str, config: &Value) -> String {
        self.try_apply(manager, config, false).expect_err("the request is rejected").status().message
    }

    /// Returns the fields that a manager owns.
    pub(super) fn owned(&self, manager: &str) -> Value {
        let entries = self.live["metadata"]["managedFields"].as_array().into_iter().flatten();
        let mut found = entries.filter(|entry| entry["manager"] == manager);
        found.next().map_or(Value::Null, |entry| entry["fieldsV1"].clone())
    }

    fn managers(&self) -> Vec<&str> {
        let entries = self.live["metadata"]["managedFields"].as_array().into_iter().flatten();
        entries.filter_map(|entry| entry["manager"].as_str()).collect()
    }
}

fn config_map(data: Value) -> Value {
    json!({ "metadata": { "name": "a" }, "data": data })
}

fn nothing() -> Value {
    json!({ "metadata": { "name": "a" } })
}

#[test]
fn the_creator_owns_the_sent_and_the_defaulted_fields() {
    let mut story = Story::of("apps", "deployments");
    story.update("creator", json!({
        "metadata": { "name": "web", "labels": { "a": "b" } },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "i", "ports": [{ "containerPort": 80 }] }] },
            },
        },
        "status": { "replicas": 7 },
    }));
    // The result of kube-apiserver 1.36.
    let expected = json!({
        "f:metadata": { "f:labels": { ".": {}, "f:a": {} } },
        "f:spec": {
            "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
            "f:strategy": { "f:rollingUpdate": { ".": {}, "f:maxSurge": {}, "f:maxUnavailable": {} }, "f:type": {} },
            "f:template": { "f:metadata": { "f:labels": { ".": {}, "f:a": {} } }, "f:spec": {
                "f:containers": { "k:{\"name\":\"c\"}": {
                    ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                    "f:ports": { ".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                        ".": {}, "f:containerPort": {}, "f:protocol": {}
                    } },
                    "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                } },
                "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                "f:terminationGracePeriodSeconds": {},
            } },
        },
    });
    assert_eq!(story.owned("creator"), expected);
}

#[test]
fn a_field_is_removed_when_its_last_applier_drops_it() {
    let mut story = Story::of("", "configmaps");
    story.apply("one", &config_map(json!({ "x": "1", "y": "1", "z": "1" })));
    story.apply("two", &config_map(json!({ "y": "1" })));
    story.apply("one", &config_map(json!({ "z": "1" })));
    assert_eq!(story.live["data"], json!({ "y": "1", "z": "1" }), "x was one's alone, y also two's");
    story.apply("one", &nothing());
    story.apply("two", &nothing());
    assert!(story.live.get("data").is_none() && story.managers().is_empty());
}

#[test]
fn fields_of_others_are_taken_only_by_force() {
    let mut story = Story::of("", "configmaps");
    story.apply("one", &config_map(json!({ "x": "1" })));
    let message = story.refusal("two", &config_map(json!({ "x": "2" })));
    assert_eq!(message, "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    story.set("editor", "/data/x", "3".into());
    let message = story.refusal("one", &config_map(json!({ "x": "1" })));
    assert_eq!(message, "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.x");
    story.try_apply("one", &config_map(json!({ "x": "1" })), true).unwrap();
    assert_eq!((story.live["data"]["x"].as_str(), story.managers()), (Some("1"), vec!["one"]));
}

#[test]
fn applying_an_equal_value_shares_its_ownership() {
    let mut story = Story::of("", "configmaps");
    story.apply("one", &config_map(json!({ "x": "1" })));
    let before = story.live.clone();
    story.apply("two", &config_map(json!({ "x": "1" })));
    assert_eq!(story.managers(), ["two", "one"], "two has changed nothing, so there is no time");
    story.apply("two", &nothing());
    assert_eq!(story.live, before);
}

#[test]
fn an_updater_owns_changed_fields_and_removed_fields_have_no_owner() {
    let mut story = Story::of("", "configmaps");
    story.update("maker", config_map(json!({ "x": "1", "y": "1" })));
    story.set("editor", "/data/x", "2".into());
    assert_eq!(story.owned("editor"), json!({ "f:data": { "f:x": {} } }));
    assert_eq!(story.owned("maker"), json!({ "f:data": { ".": {}, "f:y": {} } }));
    story.update("editor", config_map(json!({ "y": "1" })));
    assert_eq!(story.managers(), ["maker"]);
}

#[test]
fn items_and_map_entries_have_separate_owners() {
    let mut story = Story::of("", "services");
    let service = |ports: Value| json!({ "metadata": { "name": "a" }, "spec": { "ports": ports } });
    story.apply("one", &service(json!([{ "name": "web", "port": 80 }])));
    story.apply("two", &service(json!([{ "name": "dns", "port": 80, "protocol": "UDP" }])));
    let ports = story.live["spec"]["ports"].as_array().unwrap().clone();
    assert_eq!(ports.len(), 2, "a port without a protocol is one of TCP");
    story.apply("one", &service(json!([{ "name": "http", "port": 80, "protocol": "TCP" }])));
    assert_eq!(story.live["spec"]["ports"].as_array().unwrap().len(), 2);
    story.apply("one", &service(json!([])));
    assert_eq!(story.live["spec"]["ports"][0]["name"], "dns");

    let mut story = Story::of("", "configmaps");
    let finalized = |names: &[&str]| json!({ "metadata": { "name": "a", "finalizers": names } });
    story.apply("one", &finalized(&["a/x", "a/y"]));
    story.apply("two", &finalized(&["a/z", "a/y"]));
    story.apply("one", &finalized(&["a/x"]));
    assert_eq!(story.live["metadata"]["finalizers"], json!(["a/x", "a/z", "a/y"]));
    assert_eq!(
        story.owned("two"),
        json!({ "f:metadata": { "f:finalizers": { "v:\"a/y\"": {}, "v:\"a/z\"": {} } } })
    );
}

#[test]
fn atomic_fields_are_owned_and_replaced_as_one_value() {
    let mut story = Story::of("", "services");
    let service = |selector: Value| json!({ "metadata": { "name": "a" }, "spec": { "selector": selector } });
    story.apply("one", &service(json!({ "app": "a" })));
    assert_eq!(story.owned("one"), json!({ "f:spec": { "f:selector": {} } }));
    let message = story.refusal("two", &service(json!({ "tier": "b" })));
    assert_eq!(message, "Apply failed with 1 conflict: conflict with \"one\": .spec.selector");
    story.apply("one", &service(json!({ "tier": "b" })));
    assert_eq!(story.live["spec"]["selector"], json!({ "tier": "b" }));
}

#[test]
fn null_is_owned_and_means_that_the_server_chooses() {
    let mut story = Story::of("apps", "deployments");
    let deployment =
        |replicas: Value| json!({ "metadata": { "name": "a" }, "spec": { "replicas": replicas } });
    story.apply("one", &deployment(json!(3)));
    story.apply("one", &deployment(Value::Null));
    assert_eq!(story.live["spec"]["replicas"], 1);
    assert_eq!(story.owned("one"), json!({ "f:spec": { "f:replicas": {} } }));
}

#[test]
fn invalid_applied_configurations_are_refused() {
    let message = |group: &str, plural: &str, config: Value| Story::of(group, plural).refusal("one", &config);
    let pod = |spec: Value| json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": spec });
    let typed = "failed to create typed patch object";
    for (spec, why) in [
        (json!({ "foo": 1 }), ".spec.foo: field not declared in schema"),
        (json!({ "hostNetwork": 1 }), ".spec.hostNetwork: expected boolean, got &{1}"),
        (json!({ "priority": "x" }), ".spec.priority: expected numeric (int or float), got string"),
        (json!({ "nodeName": 5 }), ".spec.nodeName: expected string, got &value.valueUnstructured{Value:5}"),
        (json!({ "containers": {} }), ".spec.containers: expected list, got &{map[]}"),
        (json!({ "securityContext": [1] }), ".spec.securityContext: expected map, got &{[1]}"),
        (
            json!({ "containers": [{ "name": "a" }, { "name": "a" }] }),
            ".spec.containers: duplicate entries for key [name=\"a\"]",
        ),
        (
            json!({ "containers": [1], "foo": 1 }),
            "errors:\n  .spec.containers: element 0: associative list with keys may not have non-map elements\n  .spec.foo: field not declared in schema",
        ),
    ] {
        assert_eq!(message("", "pods", pod(spec)), format!("{typed} (n/p; /v1, Kind=Pod): {why}"));
    }
    let finalizers = json!({ "metadata": { "name": "a", "finalizers": ["x", "x"] } });
    let why = ".metadata.finalizers: duplicate entries for key [=\"x\"]";
    assert_eq!(message("", "configmaps", finalizers), format!("{typed} (/a; /v1, Kind=ConfigMap): {why}"));
    let managed = json!({ "metadata": { "name": "a", "managedFields": [] } });
    assert_eq!(message("", "configmaps", managed), "metadata.managedFields must be nil");
}

#[test]
fn fields_from_before_the_first_apply_get_an_owner() {
    let mut story = Story::of("", "configmaps");
    story.live = config_map(json!({ "x": "1" }));
    story.live["metadata"]["uid"] = "u".into();
    story.set("editor", "/data/x", "2".into());
    assert!(story.managers().is_empty(), "an object has managed fields before the first apply");
    let message = story.refusal("one", &config_map(json!({ "x": "3" })));
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.x"
    );
    story.apply("one", &config_map(json!({ "y": "3" })));
    assert_eq!(story.owned("before-first-apply"), json!({ "f:data": { ".": {}, "f:x": {} } }));
}

#[test]
fn managed_fields_are_cleared_by_an_empty_list_and_kept_on_invalid_ones() {
    let mut story = Story::of("", "configmaps");
    story.update("maker", config_map(json!({ "x": "1" })));
    story.update("other", config_map(json!({ "x": "1" })));
    assert_eq!(story.managers(), ["maker"]);
    for nonsense in [json!([{ "manager": "m" }]), json!([1])] {
        let mut new = config_map(json!({ "x": "1" }));
        new["metadata"]["managedFields"] = nonsense;
        story.update("other", new);
        assert_eq!(story.managers(), ["maker"]);
    }
    for empty in [json!([]), json!([{}])] {
        let mut cleared = Story::of("", "configmaps");
        cleared.update("maker", config_map(json!({ "x": "1" })));
        let (old, new) = (cleared.live.clone(), config_map(json!({ "x": "2" })));
        assert_eq!(cleared.writing("other", None, |writer| writer.updated(&old, &new, Some(&empty))), None);
    }
}

#[test]
fn writes_without_changes_keep_the_time() {
    let mut story = Story::of("", "configmaps");
    story.apply("one", &config_map(json!({ "x": "1" })));
    let before = story.live.clone();
    story.apply("one", &config_map(json!({ "x": "1" })));
    assert_eq!(story.live, before);
    let same = before.clone();
    story.update("two", same);
    assert_eq!(story.live, before);
}

#[test]
fn entries_of_unserved_versions_are_removed() {
    let mut story = Story::of("", "configmaps");
    story.update("maker", config_map(json!({ "x": "1", "y": "1" })));
    story.live["metadata"]["managedFields"][0]["apiVersion"] = "v0".into();
    story.set("editor", "/data/x", "2".into());
    assert_eq!(story.managers(), ["editor"]);
}

#[test]
fn client_side_apply_migrates_to_server_side_apply() {
    const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut story = Story::of("", "configmaps");
    let applied = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": "1", "y": "1" } });
    let mut sent = applied.clone();
    sent["metadata"]["annotations"] = json!({ ANNOTATION: applied.to_string() });
    story.update("kubectl-client-side-apply", sent);
    let message = story.refusal("kubectl2", &config_map(json!({ "x": "2" })));
    assert!(message.contains("kubectl-client-side-apply"), "{message}");
    story.apply("kubectl", &config_map(json!({ "x": "2" })));
    let kept: Value =
        serde_json::from_str(story.live["metadata"]["annotations"][ANNOTATION].as_str().unwrap()).unwrap();
    assert_eq!(kept["data"], json!({ "x": "2" }));
    // The stored config keeps its annotations, even if they are empty without this annotation.
    let mut sent = config_map(json!({ "x": "2" }));
    sent["metadata"]["annotations"] = json!({ ANNOTATION: "{}" });
    story.try_apply("kubectl", &sent, true).unwrap();
    let kept = story.live["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
    assert!(kept.contains("\"annotations\":{}"), "{kept}");
    // Fields that another manager changed since belong to that manager.
    story.set("editor", "/data/y", "9".into());
    let message = story.refusal("kubectl", &config_map(json!({ "x": "2", "y": "3" })));
    assert_eq!(message, "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.y");
}

#[test]
fn subresources_have_their_own_entries() {
    let mut story = Story::of("apps", "deployments");
    story.update("maker", json!({ "metadata": { "name": "a" }, "spec": { "replicas": 1 } }));
    let old = story.live.clone();
    let mut new = old.clone();
    new["status"]["replicas"] = 1.into();
    new["spec"]["replicas"] = 5.into();
    let managed =
        story.writing("kubelet", Some("status"), |writer| writer.updated(&old, &new, None)).unwrap();
    let entry = &managed[1];
    assert_eq!((&entry["manager"], &entry["subresource"]), (&json!("kubelet"), &json!("status")));
    assert_eq!(entry["fieldsV1"], json!({ "f:status": { "f:replicas": {} } }));
}
