//! Looking after one object, whichever way it goes.

use std::time::Duration;

use api::meta::time;
use api::names::{BELOW_UID, FIELD_MANAGER, PHYSICAL_CLUSTER, PROJECTED, TRUE};
use controller::queue::Outcome;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::mirror::Object;
use crate::sides::{Sides, Subject};
use crate::troubles::{Cure, Trouble};
use crate::{down, project};

/// How often we look whether somebody has done something about it that no event tells.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

pub(crate) async fn look(sides: &Sides, subject: Subject) -> Outcome {
    let Some(pair) = sides.pair(&subject) else { return Outcome::Done };
    if sides.is_stray(&subject) {
        down::look_at_stray(sides, &subject, &pair).await;
    }
    let looked = if pair.is_placed(&sides.settings.mailbox) {
        down::look(sides, &subject, pair).await
    } else if subject.kind.is_projected() {
        project::look(sides, &subject, pair).await
    } else {
        sides.forget(&subject);
        Ok(Outcome::Done)
    };
    match looked {
        Ok(outcome) => {
            if sides.troubles.clear(&subject) {
                sides.beat.notify_one();
            }
            outcome
        }
        Err(Trouble { cure: Cure::Reread, .. }) => Outcome::Failed,
        Err(trouble) => {
            troubled(sides, &subject, &trouble).await;
            match trouble.cure {
                Cure::Retry | Cure::Reread => Outcome::Failed,
                Cure::Event => Outcome::Done,
                Cure::Time => Outcome::Again(LOOK_AGAIN),
            }
        }
    }
}

/// Says what is the matter: in the report, and once at the object.
async fn troubled(sides: &Sides, subject: &Subject, trouble: &Trouble) {
    let is_news = sides.troubles.set(subject, trouble);
    if is_news {
        sides.beat.notify_one();
    }
    tracing::debug!(kind = %subject.kind.plural, object = %subject.key, ?trouble, "not done");
    if !is_news || !trouble.is_of_one() || !sides.lease.leads() {
        return;
    }
    if let Some(object) = sides.pair(subject).and_then(|pair| pair.mailbox) {
        tell(sides, &object, trouble).await;
    }
}

/// Writes an Event about an object of the mailbox.
pub(crate) async fn tell(sides: &Sides, object: &Value, trouble: &Trouble) {
    let kind = controller::kind::Kind::new("", "v1", "events", "Event", true);
    let event = event(object, trouble, &sides.settings.name);
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    // The report says it too; an event that cannot be written is not missed.
    if let Err(error) = sides.mailbox.create(&kind, namespace, &event).await {
        tracing::debug!(%error, "cannot write an event");
    }
}

/// An Event in the mailbox. What is for the user is labelled as everything else that users are shown from there.
fn event(object: &Value, trouble: &Trouble, physical_cluster: &str) -> Value {
    let about = Object(object);
    let namespace = if about.namespace().is_empty() { "default" } else { about.namespace() };
    let now = Timestamp::now();
    let (second, exact) = (time::seconds(now), now.as_nanosecond());
    let (labels, message) = match trouble.is_for_user() {
        true => (
            json!({ PROJECTED: TRUE, PHYSICAL_CLUSTER: physical_cluster }),
            format!("physical cluster {physical_cluster}: {}", trouble.message),
        ),
        false => (json!({}), trouble.message.clone()),
    };
    // A projection may have to be made anew; what it shows stays the same.
    let uid = about.annotation(BELOW_UID).unwrap_or(about.uid());
    json!({
        "apiVersion": "v1", "kind": "Event", "type": "Warning",
        "metadata": { "name": format!("{}.{exact:x}", about.name()), "namespace": namespace, "labels": labels },
        "involvedObject": {
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": about.name(),
            "namespace": about.namespace(), "uid": uid,
        },
        "reason": trouble.reason, "message": message, "source": { "component": FIELD_MANAGER },
        "firstTimestamp": second, "lastTimestamp": second, "count": 1,
    })
}
