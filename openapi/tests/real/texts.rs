//! Selectors and quantities.

use api::meta::quantity::Quantity;
use api::meta::selector::{FieldSelector, LabelSelector};
use serde_json::json;

use super::cluster::Cluster;

/// Valid and invalid label selectors.
const LABEL_SELECTORS: &[&str] = &[
    "",
    "a",
    "a=b",
    "a==b",
    "a!=b",
    "a in (b,c)",
    "a notin (b)",
    "!a",
    "a in ()",
    "a in (,)",
    "a in (x,,y)",
    "a=",
    "a=,b",
    "a>1",
    "a<1",
    "in",
    "in in (in)",
    "notin",
    ",",
    "a,",
    "a,,b",
    "a b",
    "a=b c",
    "a in b",
    "a in (b",
    "a in (b c)",
    "a in (=)",
    "a in b)",
    "(",
    ")",
    "a==(",
    "a=)",
    "!",
    "!!a",
    "!a=b",
    "a>x",
    "a>",
    "a=!b",
    "a===b",
    "a/b=c",
    "a/b/c",
    "-a",
    "a=-",
    "a=b@",
    "A.B/c",
    "a in (b@,c@)",
    "=a",
    "a!",
    "a!b",
    "a<>b",
    "é",
    "a=é",
];

/// Valid and invalid field selectors.
const FIELD_SELECTORS: &[&str] = &[
    "",
    ",",
    "metadata.name=a",
    "metadata.name==a",
    "metadata.name!=a",
    "spec.nodeName=",
    "a",
    "metadata.name",
    "metadata.name=a,b",
    "metadata.name=a=b",
    r"metadata.name=a\=b",
    r"metadata.name=\,",
    r"metadata.name=\n",
    r"metadata.name=\",
    "spec.foo=1",
    "=",
    "!=",
    "metadata.name=a,,spec.nodeName=b",
];

/// Valid and invalid quantities.
const QUANTITIES: &[&str] = &[
    "0",
    "-0",
    "0Ki",
    "1",
    "1000m",
    "1500m",
    "0.5",
    ".5",
    "5.",
    "1.500",
    "1.234",
    "3.000",
    "1000",
    "1024",
    "10000000",
    "0.5Gi",
    "1.5Gi",
    "1.1Gi",
    "1024Mi",
    "1000Ki",
    "1025Ki",
    "0.1Ki",
    "1e3",
    "1E3",
    "1e1",
    "1.1e1",
    "1e-3",
    "12e6",
    "1000e0",
    "100n",
    "0.1n",
    "1u",
    "1e-100",
    "+5",
    "01Mi",
    "007",
    "9Ei",
    "1Ei",
    "7Ei",
    "1e100",
    "+",
    ".",
    "",
    "1234567890123456789012345",
    "1.2.3",
    "five",
    "1 Gi",
    "1ki",
    "1K",
    "1e",
    "e3",
    "1Kii",
    "--1",
    "1m1",
    "12345678901234567890m",
    "0.000000001",
    "123456789.123456789",
    "1e18",
    "1e19",
    "999999999999999999",
    "1P",
    "1Pi",
    "2048Gi",
    "1536Mi",
];

pub(crate) fn compare_selectors(cluster: &Cluster, differences: &mut Vec<String>) {
    let pods = "/api/v1/namespaces/default/pods";
    for text in LABEL_SELECTORS {
        let answer = cluster.get(&format!("{pods}?labelSelector={}", escape(text)));
        let ours = LabelSelector::parse(text).err().map(|error| error.to_string());
        differ(differences, "label selector", text, answer.code, answer.message(), ours);
    }
    for text in FIELD_SELECTORS {
        let answer = cluster.get(&format!("{pods}?fieldSelector={}", escape(text)));
        let selectable = ["metadata.name", "metadata.namespace", "spec.nodeName"];
        let ours = FieldSelector::parse(text).and_then(|selector| selector.check(&selectable)).err();
        differ(
            differences,
            "field selector",
            text,
            answer.code,
            answer.message(),
            ours.map(|e| e.to_string()),
        );
    }
}

fn differ(
    differences: &mut Vec<String>,
    subject: &str,
    text: &str,
    code: u16,
    theirs: &str,
    ours: Option<String>,
) {
    let same = match &ours {
        None => code == 200,
        Some(ours) => code == 400 && ours == theirs,
    };
    if !same {
        differences.push(format!("{subject} {text:?}\n  theirs {code} {theirs:?}\n  ours   {ours:?}"));
    }
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

pub(crate) fn compare_quantities(cluster: &Cluster, differences: &mut Vec<String>) {
    for text in QUANTITIES {
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": text}}});
        let path = "/api/v1/namespaces/default/resourcequotas?dryRun=All";
        let answer = cluster.send("POST", path, "application/json", &quota.to_string());
        let theirs = match answer.code {
            201 => answer.body["spec"]["hard"]["requests.cpu"].as_str().unwrap_or_default().to_owned(),
            _ => answer.message().rsplit("ResourceQuota: ").next().unwrap_or_default().to_owned(),
        };
        let ours = match text.parse::<Quantity>() {
            Ok(quantity) => quantity.to_milli().to_string(),
            Err(error) => error.to_string(),
        };
        if ours != theirs {
            differences.push(format!("quantity {text:?}\n  theirs {theirs:?}\n  ours   {ours:?}"));
        }
    }
}
