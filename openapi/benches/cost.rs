//! What the parts of a write and of a list cost, in microseconds of one core, for a Deployment as people write them.
//!
//! ```text
//! cargo bench -p openapi --bench cost [-- part of a name]
//! ```
//!
//! A whole create may take 100 µs of the server, a listed object 3 µs. Numbers of a build without optimizations mean
//! nothing.

use std::hint::black_box;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec::protobuf;
use openapi::codec::{Syntax, decode_as};
use openapi::defaulting::{apply_defaults, empty_object, prepare_create};
use openapi::patch::apply::{FieldManager, ResetFields};
use openapi::patch::strategic::StrategicPatch;
use openapi::publish::tables::{IncludeObject, row as table_row};
use openapi::schema::SchemaRef;
use openapi::schema::builtin;
use openapi::{catalog, validation};
use serde_json::{Value, json};

/// How long each part is repeated. The fastest of some rounds counts: others only had the machine taken away.
const ROUND: Duration = Duration::from_millis(100);
const ROUNDS: usize = 5;

fn main() {
    let only = arguments().next().unwrap_or_default();
    let row = catalog::find("apps", "v1", "deployments").expect("deployments are built in");
    let schema = builtin::schema(&row.type_name).expect("every kind has a type");
    let now = Timestamp::UNIX_EPOCH;
    let sent = deployment();
    let text = sent.to_string();
    let defaulted = defaulted(row, &sent);
    let bytes = protobuf::encode(&defaulted).expect("a Deployment has a message");
    let patch = json!({ "spec": { "replicas": 5, "template": { "spec": { "containers": [
        { "name": "web", "image": "registry.example/web:2" }
    ] } } } });
    println!(
        "{} bytes of JSON, {} stored, {} of protobuf",
        text.len(),
        defaulted.to_string().len(),
        bytes.len()
    );

    let measure = |name: &str, work: &mut dyn FnMut()| {
        if name.contains(&only) {
            println!("{:>8.2} µs  {name}", fastest(work));
        }
    };
    measure("copy of the tree", &mut || drop(black_box(defaulted.clone())));
    measure("JSON read without a schema", &mut || {
        black_box(serde_json::from_str::<Value>(&text).expect("JSON"));
    });
    measure("JSON written", &mut || drop(black_box(defaulted.to_string())));
    measure("decode_as, JSON", &mut || {
        black_box(decode_as(text.as_bytes(), Syntax::Json, schema).expect("a Deployment"));
    });
    measure("fill, and a copy", &mut || {
        let mut object = sent.clone();
        apply_defaults(row, &mut object);
        black_box(object);
    });
    measure("prepare_create, and a copy", &mut || {
        let mut object = defaulted.clone();
        prepare_create(row, &mut object, now);
        black_box(object);
    });
    measure("validation::validate_create", &mut || {
        assert!(black_box(validation::validate_create(row, &defaulted)).is_empty())
    });
    measure("strategic merge patch, and two copies", &mut || {
        let parsed = StrategicPatch::parse(patch.clone()).expect("a patch");
        black_box(parsed.apply(defaulted.clone(), schema).expect("it applies"));
    });
    managed_fields(row, schema, &sent, &defaulted, &measure);
    measure("protobuf decode", &mut || drop(black_box(protobuf::decode(&bytes).expect("a Deployment"))));
    measure("protobuf encode", &mut || drop(black_box(protobuf::encode(&defaulted).expect("a Deployment"))));
    measure("table row with metadata", &mut || {
        black_box(table_row(&row.columns, &defaulted, IncludeObject::Metadata, now));
    });
    measure("all of a create: decode, fill, prepare, check, write", &mut || {
        let mut object = decode_as(text.as_bytes(), Syntax::Json, schema).expect("a Deployment").value;
        apply_defaults(row, &mut object);
        prepare_create(row, &mut object, now);
        assert!(validation::validate_create(row, &object).is_empty());
        black_box(object.to_string());
    });
}

/// Deciding who owns which field.
fn managed_fields(
    row: &ResourceInfo,
    schema: &SchemaRef,
    sent: &Value,
    defaulted: &Value,
    measure: &dyn Fn(&str, &mut dyn FnMut()),
) {
    let writer = FieldManager {
        manager: "kubectl",
        api_version: "apps/v1",
        subresource: "",
        schema,
        blank: &empty_object(row),
        reset: ResetFields::of(row, None),
        now: "2026-01-01T00:00:00Z",
        knows: &|version| version == "apps/v1",
    };
    let mut tracked = defaulted.clone();
    tracked["metadata"]["uid"] = "u".into();
    tracked["metadata"]["managedFields"] =
        writer.updated(writer.blank, defaulted, None).expect("managed fields");
    let mut changed = defaulted.clone();
    changed["spec"]["replicas"] = 7.into();
    let applied = writer.applied(writer.blank, sent, false).expect("no other manager conflicts");
    let mut stored = applied.object.clone();
    apply_defaults(row, &mut stored);
    stored["metadata"]["uid"] = "u".into();
    stored["metadata"]["managedFields"] = applied.managed_fields.expect("managed fields");
    measure("managed fields of a create", &mut || {
        black_box(writer.updated(writer.blank, defaulted, None));
    });
    measure("managed fields of an update of one field", &mut || {
        black_box(writer.updated(&tracked, &changed, tracked["metadata"].get("managedFields")));
    });
    measure("managed fields of an update of nothing", &mut || {
        black_box(writer.updated(&tracked, &tracked, tracked["metadata"].get("managedFields")));
    });
    measure("apply that creates", &mut || drop(black_box(writer.applied(writer.blank, sent, false))));
    measure("apply that changes nothing", &mut || drop(black_box(writer.applied(&stored, sent, false))));
    let mut less = sent.clone();
    less["spec"].as_object_mut().expect("a spec").remove("replicas");
    measure("apply that removes a field", &mut || drop(black_box(writer.applied(&stored, &less, false))));
}

/// Microseconds.
fn fastest(work: &mut dyn FnMut()) -> f64 {
    work(); // tables are made on first use
    let round = |_| {
        let (start, mut times) = (Instant::now(), 0_u32);
        while start.elapsed() < ROUND {
            (0..10).for_each(|_| work());
            times += 10;
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(times)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn defaulted(row: &ResourceInfo, sent: &Value) -> Value {
    let mut object = sent.clone();
    object["metadata"]["uid"] = "5f3ac1a2-0ee0-4c0b-a3b8-7f8ea5e0a1a1".into();
    object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    apply_defaults(row, &mut object);
    prepare_create(row, &mut object, Timestamp::UNIX_EPOCH);
    object
}

fn deployment() -> Value {
    let labels = json!({ "app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "shop",
        "app.kubernetes.io/version": "1.14.2", "app.kubernetes.io/managed-by": "Helm" });
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "http" }, "periodSeconds": 10, "failureThreshold": 3 });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop", "labels": labels,
            "annotations": { "meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "shop" } },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "shop" } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 0 } },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": "web",
                    "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 1000 },
                    "containers": [{
                        "name": "web", "image": "registry.example/web:1.14.2",
                        "args": ["--listen=:8080", "--log-level=info"],
                        "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
                        "env": [
                            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                            { "name": "DATABASE_HOST", "value": "postgres.shop.svc" },
                        ],
                        "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
                        "readinessProbe": probe("/ready"), "livenessProbe": probe("/live"),
                        "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                        "volumeMounts": [{ "name": "config", "mountPath": "/etc/web", "readOnly": true }],
                    }],
                    "volumes": [{ "name": "config", "configMap": { "name": "web" } }],
                },
            },
        },
    })
}

/// The arguments, without the one that cargo adds.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench")
}
