//! The status of an object below, into the mailbox.

use api::meta::time;
use controller::remote::Patch;
use serde_json::{Value, json};

use crate::mirror::{Generations, Object, Wanted, fingerprint, holds, raised};
use crate::sides::{Pair, Sides, Subject, place};
use crate::troubles::{REFUSED, Trouble};

/// Writes the status of a placed object, if it differs.
pub(crate) async fn status(sides: &Sides, subject: &Subject, pair: &Pair) -> Result<(), Trouble> {
    let (Some(mailbox), Some(below)) = (&pair.mailbox, &pair.below) else { return Ok(()) };
    if pair.followed.name.has_own_status() {
        return Ok(());
    }
    let wanted = Wanted::of(mailbox, &sides.settings.mailbox).beside(mailbox, Some(below));
    let generations = Generations {
        mailbox: Object(mailbox).generation(),
        below: Object(below).generation(),
        settled: holds(below, &wanted, sides.memory(subject).sent),
    };
    match raised(below, generations) {
        Some(status) => write(sides, subject, pair, mailbox, status).await,
        None => Ok(()),
    }
}

/// Kinds that users look at for conditions of their own, and of which nothing else says what became of them.
const CONDITIONED: &[(&str, &str)] = &[("", "services")];
/// Condition of these: whether it is on its physical clusters as it should be. It goes with the next status from there.
const SENT: &str = "Sent";

/// Says on a placed object that the physical cluster refused it.
pub(crate) async fn refused(
    sides: &Sides,
    subject: &Subject,
    pair: &Pair,
    message: &str,
) -> Result<(), Trouble> {
    let is_conditioned = CONDITIONED.contains(&(&*subject.kind.group, &*subject.kind.plural));
    let Some(mailbox) = pair.mailbox.as_ref().filter(|_| is_conditioned) else { return Ok(()) };
    let message = format!("physical cluster {}: {message}", sides.settings.name);
    let mut status = mailbox["status"].as_object().cloned().unwrap_or_default();
    let found = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_said = |said: &Value| said["type"] == SENT && said["message"] == *message;
    if found.iter().any(is_said) {
        return Ok(());
    }
    let mut conditions: Vec<Value> = found.into_iter().filter(|said| said["type"] != SENT).collect();
    conditions.push(json!({
        "type": SENT, "status": "False", "reason": REFUSED, "message": message,
        "lastTransitionTime": time::now(),
    }));
    status.insert("conditions".to_owned(), conditions.into());
    write(sides, subject, pair, mailbox, Value::Object(status)).await
}

/// Writes this status into the mailbox, if it has another.
pub(crate) async fn write(
    sides: &Sides,
    subject: &Subject,
    pair: &Pair,
    mailbox: &Value,
    status: Value,
) -> Result<(), Trouble> {
    let (wanted, found) = (fingerprint(&status), fingerprint(&mailbox["status"]));
    // The mailbox may make something else of it, such as leaving out a field it does not know. That is no difference.
    let same = wanted == found || sides.memory(subject).status == Some((wanted, found));
    if same || !sides.lease.leads() {
        return Ok(());
    }
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": Object(mailbox).uid() },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let part = if pair.followed.row.status { "status" } else { "" };
    let place = place(&pair.followed, &subject.key).part(part);
    let written = sides.mailbox.patch(place, Patch::Json, &change).await;
    let written = written.map_err(Trouble::failed("CannotReportStatus"))?;
    let made = fingerprint(&written["status"]);
    sides.remember(subject, |memory| memory.status = Some((wanted, made)));
    Ok(())
}
