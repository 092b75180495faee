//! Every `kubectl create KIND`, `run`, `expose` and `autoscale`. Their bodies are protobuf.

use testkit::Kubectl;

const N: &str = "--namespace=creating";

pub(crate) fn suite(k: &Kubectl) {
    k.says(&["create", "namespace", "creating"], "namespace/creating created");
    small(k);
    workloads(k);
    services(k);
    rights(k);
    identity(k);
    shorthands(k);
}

fn small(k: &Kubectl) {
    let file = k.file("settings.ini", "colour=blue\n");
    let literal = ["create", "configmap", "settings", N, "--from-literal=a=1", "--from-file", &file];
    k.says(&literal, "configmap/settings created");
    k.says(&["create", "configmap", "from-env", N, "--from-env-file", &file], "created");
    k.field(&["cm", "from-env", N], "{.data.colour}", "blue");
    k.says(&["create", "secret", "generic", "plain", N, "--from-literal=password=p"], "secret/plain created");
    let registry = ["--docker-server=r.example", "--docker-username=ada", "--docker-password=p"];
    let create = [&["create", "secret", "docker-registry", "pull", N], &registry[..]].concat();
    k.says(&create, "secret/pull created");
    k.field(&["secret", "pull", N], "{.type}", "kubernetes.io/dockerconfigjson");
    let (certificate, key) = (k.file("crt", CERTIFICATE), k.file("key", KEY));
    k.says(
        &["create", "secret", "tls", "web", N, "--cert", &certificate, "--key", &key],
        "secret/web created",
    );
    k.field(&["secret", "web", N], "{.type}", "kubernetes.io/tls");
    k.says(&["create", "serviceaccount", "robot", N], "serviceaccount/robot created");
    k.says(&["create", "quota", "small", N, "--hard=cpu=2,pods=10"], "resourcequota/small created");
    let budget = ["create", "poddisruptionbudget", "web", N, "--selector=app=web", "--min-available=50%"];
    k.says(&budget, "poddisruptionbudget.policy/web created");
    let class = ["create", "priorityclass", "suite-high", "--value=1000", "--description=first"];
    k.says(&class, "priorityclass.scheduling.k8s.io/suite-high created");
    k.says(&["delete", "priorityclass", "suite-high"], "deleted");
    k.fails(
        &["create", "configmap", "settings", N],
        "error: failed to create configmap: configmaps \"settings\" already exists",
    );
    k.fails(&["create", "configmap", "Bad_Name", N], "a lowercase RFC 1123 subdomain must consist of");
}

fn workloads(k: &Kubectl) {
    let deployment = ["create", "deployment", "web", N, "--image=web:1", "--replicas=3", "--port=80"];
    k.says(&deployment, "deployment.apps/web created");
    k.field(&["deploy", "web", N], "{.spec.replicas} {.spec.strategy.type}", "3 RollingUpdate");
    k.says(&["create", "job", "once", N, "--image=job:1", "--", "run", "it"], "job.batch/once created");
    k.field(&["job", "once", N], "{.spec.backoffLimit} {.spec.completionMode}", "6 NonIndexed");
    let cron = ["create", "cronjob", "nightly", N, "--image=job:1", "--schedule=0 3 * * *"];
    k.says(&cron, "cronjob.batch/nightly created");
    k.says(&["create", "job", "tonight", N, "--from=cronjob/nightly"], "job.batch/tonight created");
    k.field(&["job", "tonight", N], "{.metadata.ownerReferences[0].kind}", "CronJob");
    let ingress = ["create", "ingress", "front", N, "--class=public", "--rule=shop.example/*=web:80,tls=web"];
    k.says(&ingress, "ingress.networking.k8s.io/front created");
    k.fails(&["create", "deployment", "web", N, "--image=web:1"], "already exists");
}

fn services(k: &Kubectl) {
    k.says(&["create", "service", "clusterip", "inner", N, "--tcp=80:8080"], "service/inner created");
    k.says(
        &["create", "service", "clusterip", "headless", N, "--clusterip=None"],
        "service/headless created",
    );
    k.says(&["create", "service", "nodeport", "node", N, "--tcp=81:8080"], "service/node created");
    k.says(&["create", "service", "loadbalancer", "outer", N, "--tcp=82:8080"], "service/outer created");
    let external = ["create", "service", "externalname", "else", N, "--external-name=e.example"];
    k.says(&external, "service/else created");
    k.says(&["get", "svc", "inner", "headless", "node", "outer", "else", N], "ExternalName");
    k.field(&["svc", "headless", N], "{.spec.clusterIP} {.spec.type}", "None ClusterIP");
    k.field(&["svc", "inner", N], "{.spec.sessionAffinity} {.spec.ports[0].protocol}", "None TCP");
}

fn rights(k: &Kubectl) {
    let role = ["create", "role", "reader", N, "--verb=get,list", "--resource=pods,deployments.apps"];
    k.says(&role, "role.rbac.authorization.k8s.io/reader created");
    let binding = ["create", "rolebinding", "reader", N, "--role=reader", "--serviceaccount=creating:robot"];
    k.says(&binding, "rolebinding.rbac.authorization.k8s.io/reader created");
    let role = ["create", "clusterrole", "suite-reader", "--verb=get", "--resource=nodes"];
    k.says(&role, "clusterrole.rbac.authorization.k8s.io/suite-reader created");
    let urls = ["create", "clusterrole", "suite-urls", "--verb=get", "--non-resource-url=/metrics"];
    k.says(&urls, "created");
    let binding =
        ["create", "clusterrolebinding", "suite-reader", "--clusterrole=suite-reader", "--user=ada"];
    k.says(&binding, "clusterrolebinding.rbac.authorization.k8s.io/suite-reader created");
    k.says(&["set", "subject", "clusterrolebinding", "suite-reader", "--group=builders"], "subjects updated");
    k.field(&["clusterrolebinding", "suite-reader"], "{.subjects[*].name}", "ada builders");
    k.says(&["delete", "clusterrolebinding/suite-reader"], "deleted");
    k.says(&["delete", "clusterrole", "suite-reader", "suite-urls"], "\"suite-urls\" deleted");
}

fn identity(k: &Kubectl) {
    k.says(&["auth", "whoami"], "Username");
    k.prints(&["auth", "can-i", "create", "deployments", N], "yes");
    k.says(&["auth", "can-i", "--list", N], "*.*");
}

fn shorthands(k: &Kubectl) {
    k.says(
        &["run", "single", N, "--image=one:1", "--port=80", "--labels=app=single", "--env=A=b"],
        "pod/single created",
    );
    k.field(&["pod", "single", N], "{.spec.containers[0].env[0].value}", "b");
    k.says(&["run", "exposed", N, "--image=one:1", "--port=80", "--expose"], "service/exposed created");
    k.says(&["run", "dry", N, "--image=one:1", "--dry-run=server", "-o", "name"], "pod/dry");
    k.says(&["run", "dry", N, "--image=one:1", "--dry-run=client", "-o", "yaml"], "kind: Pod");
    k.says(&["expose", "deployment", "web", N, "--port=8080", "--target-port=80"], "service/web exposed");
    k.field(&["svc", "web", N], "{.spec.selector.app} {.spec.ports[0].targetPort}", "web 80");
    k.says(&["expose", "pod", "single", N, "--name=single", "--port=80", "--type=NodePort"], "exposed");
    let autoscale = ["autoscale", "deployment", "web", N, "--min=2", "--max=5", "--cpu-percent=80"];
    k.says(&autoscale, "horizontalpodautoscaler.autoscaling/web autoscaled");
    let target = "{.spec.minReplicas} {.spec.metrics[0].resource.target.averageUtilization}";
    k.field(&["hpa", "web", N], target, "2 80");
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBjTCCATOgAwIBAgIUQ7082AZYXZOB67ygx9H8W5jIPrMwCgYIKoZIzj0EAwIw
GzEZMBcGA1UEAwwQc2hvcC5leGFtcGxlLmNvbTAgFw0yNjExMTYwNjU3MDFaGA8y
MTI2MTAyMzA2NTcwMVowGzEZMBcGA1UEAwwQc2hvcC5leGFtcGxlLmNvbTBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABIW7//9JHaJdNt4tatcz6pPX2zZXyrXjo2Vj
X+st6Sh4A6iT/HAmTO98z1LsT01Zh02P/fLJWGF5oQw+SEQdRIajUzBRMB0GA1Ud
DgQWBBQZfEY5LbwRSWgpNhAjDJ/PVpHyfDAfBgNVHSMEGDAWgBQZfEY5LbwRSWgp
NhAjDJ/PVpHyfDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQDA
DVPPcXruA8TiiOQAKeMeRlAbZwC/zPUZROcMDTvougIgMAmoObCrq6FHzMswuHAE
I4N4NZ4kjVS+K0f5FoQqAiI=
-----END CERTIFICATE-----
";

const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg14Z54xQ59x2U6I68
c8mjpCLNKO8mVGLFJH10Z3Ez1/ehRANCAASFu///SR2iXTbeLWrXM+qT19s2V8q1
46NlY1/rLekoeAOok/xwJkzvfM9S7E9NWYdNj/3yyVhheaEMPkhEHUSG
-----END PRIVATE KEY-----
";
