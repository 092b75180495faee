//! Reading: every output form of `get`, selectors, pages, and `describe` of every kind.

use testkit::Kubectl;

const TWO: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: alpha, namespace: looking, labels: {tier: front, rank: '2'}}
data: {x: one}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: beta, namespace: looking, labels: {tier: back, rank: '1'}}
data: {x: two, y: three}
";

pub(crate) fn suite(k: &Kubectl) {
    k.says(&["create", "namespace", "looking"], "created");
    k.with(&["apply"], TWO, "configmap/beta created");
    forms(k);
    choices(k);
    kinds(k);
    descriptions(k);
}

/// Our objects have this label. The ConfigMap that a controller creates in every namespace does not.
const OURS: &str = "tier";

fn forms(k: &Kubectl) {
    let get = |form: &str, expected: &str| {
        k.says(&["get", "configmaps", "-n", "looking", "-l", OURS, "-o", form], expected);
    };
    get("json", "\"kind\": \"List\"");
    get("yaml", "kind: List");
    get("wide", "NAME    DATA   AGE");
    get("name", "configmap/alpha\nconfigmap/beta\n");
    get("jsonpath={.items[*].metadata.name}", "alpha beta");
    get("jsonpath={range .items[*]}{.metadata.name}={.data.x};{end}", "alpha=one;beta=two;");
    get("custom-columns=NAME:.metadata.name,RANK:.metadata.labels.rank", "alpha   2\nbeta    1\n");
    get("go-template={{range .items}}{{.metadata.name}},{{end}}", "alpha,beta,");
    k.says(&["get", "cm", "alpha", "-n", "looking", "-o", "json"], "\"kind\": \"ConfigMap\"");
    k.says(&["get", "cm", "alpha", "-n", "looking", "-o", "yaml"], "kind: ConfigMap");
    k.says(&["get", "cm", "alpha", "-n", "looking", "-o", "json", "--show-managed-fields"], "alpha");
    k.says(&["get", "cm", "-n", "looking", "--show-labels"], "rank=2,tier=front");
    k.says(&["get", "cm", "-n", "looking", "-L", "tier"], "TIER");
    k.says(&["get", "cm/alpha", "cm/beta", "-n", "looking", "--no-headers"], "beta ");
    k.says(&["get", "cm,secrets", "-n", "looking"], "configmap/alpha ");
    // An older kubectl omits the server's path here; the root has this namespace too.
    k.says(&["get", "--raw", "/api/v1/namespaces/default"], "\"uid\":");
    k.says(&["get", "all", "-n", "looking"], "No resources found in looking namespace.");
    k.says(&["get", "cm", "-A"], "looking ");
    k.fails(
        &["get", "cm", "gamma", "-n", "looking"],
        "Error from server (NotFound): configmaps \"gamma\" not found",
    );
    k.prints(&["get", "cm", "gamma", "-n", "looking", "--ignore-not-found"], "");
    k.fails(&["get", "unicorns"], "the server doesn't have a resource type \"unicorns\"");
}

fn choices(k: &Kubectl) {
    let names = |arguments: &[&str], expected: &str| {
        k.prints(&[&["get", "cm", "-n", "looking", "-o", "name"], arguments].concat(), expected);
    };
    names(&["-l", "tier=front"], "configmap/alpha");
    names(&["-l", "tier in (back,side)"], "configmap/beta");
    names(&["-l", "tier,tier!=front"], "configmap/beta");
    names(&["-l", "rank,!missing"], "configmap/alpha\nconfigmap/beta");
    names(&["--field-selector", "metadata.name=beta"], "configmap/beta");
    names(&["-l", OURS, "--field-selector", "metadata.name!=beta"], "configmap/alpha");
    names(&["-l", OURS, "--sort-by", ".metadata.labels.rank"], "configmap/beta\nconfigmap/alpha");
    names(&["-l", OURS, "--chunk-size=1"], "configmap/alpha\nconfigmap/beta");
    let chunks = ["get", "cm", "-n", "looking", "-l", OURS, "--chunk-size=1", "--sort-by=.metadata.name"];
    k.says(&chunks, "alpha ");
    k.fails(&["get", "cm", "-n", "looking", "-l", "a=b=c"], "found '=', expected: ',' or 'end of string'");
    k.fails(
        &["get", "cm", "-n", "looking", "--field-selector", "data.x=1"],
        "\"data.x\" is not a known field selector",
    );
}

fn kinds(k: &Kubectl) {
    k.says(&["api-resources"], "persistentvolumeclaims");
    k.says(&["api-resources", "--namespaced=false", "-o", "wide"], "storage.k8s.io/v1");
    k.says(&["api-resources", "--api-group=apps", "--verbs=list,watch", "-o", "name"], "deployments.apps");
    k.says(&["api-versions"], "networking.k8s.io/v1");
    k.says(&["explain", "pods.spec.containers.livenessProbe"], "failureThreshold");
    k.says(&["explain", "statefulset", "--recursive"], "volumeClaimTemplates");
    k.says(&["explain", "hpa", "--api-version=autoscaling/v1"], "autoscaling");
    k.says(&["explain", "deploy", "--output=plaintext-openapiv2"], "FIELDS");
    k.fails(&["explain", "deploy.spec.wings"], "field \"wings\" does not exist");
    k.says(&["cluster-info"], "Kubernetes control plane");
    k.says(&["version"], "Server Version");
    k.says(&["get", "--raw", "/version"], "gitVersion");
    k.says(&["get", "--raw", "/livez"], "ok");
}

/// One object each of many kinds, for `describe`.
const DESCRIBED: &str = "
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers: [{name: main, image: 'main:1', resources: {limits: {cpu: 1}}}]
---
apiVersion: v1
kind: Service
metadata: {name: service}
spec: {selector: {app: a}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {pods: 10}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Pod, max: {cpu: 4}}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: stateful}
spec:
  serviceName: service
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: main, image: 'main:1'}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: main, image: 'main:1'}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: ingress}
spec: {defaultBackend: {service: {name: service, port: {number: 80}}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: policy}
spec: {podSelector: {}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaler}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: stateful}, maxReplicas: 3}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: budget}
spec: {minAvailable: 1, selector: {matchLabels: {app: a}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: cron}
spec:
  schedule: '@daily'
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: 'main:1'}]}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: role}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: account}
";

fn descriptions(k: &Kubectl) {
    k.with(&["apply", "-n", "looking"], DESCRIBED, "serviceaccount/account created");
    for (object, expected) in [
        ("pod/pod", "QoS Class:"),
        ("svc/service", "Type:                     ClusterIP"),
        ("pvc/claim", "Access Modes"),
        ("quota/quota", "Resource    Used  Hard"),
        ("limits/limits", "Pod "),
        ("sts/stateful", "Pods Status"),
        ("ds/daemon", "Number of Nodes Scheduled"),
        ("ing/ingress", "Default backend"),
        ("netpol/policy", "Policy Types: Ingress"),
        ("hpa/scaler", "Max replicas:"),
        ("pdb/budget", "Min available:"),
        ("cj/cron", "Concurrency Policy:            Allow"),
        ("role/role", "Resources"),
        ("sa/account", "Image pull secrets:  <none>"),
        ("cm/alpha", "one"),
        ("ns/looking", "Status:       Active"),
    ] {
        k.says(&["describe", object, "-n", "looking"], expected);
    }
    k.says(&["get", "all", "-n", "looking"], "statefulset.apps/stateful ");
    k.says(&["get", "svc,pods,pvc,ing,hpa,pdb,quota,cj,sts,ds", "-n", "looking", "-o", "wide"], "ingress ");
}
