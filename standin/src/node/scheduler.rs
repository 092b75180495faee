//! Puts pods on nodes: those that fit, the emptiest first; or says why none does.

use std::collections::BTreeMap;

use api::meta::quantity::Amounts;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::fits;
use super::pace::{Misfortune, Pace};
use crate::clock::later;
use crate::control::pods::is_finished;
use crate::kind::Kind;
use crate::object::{created, is_being_deleted, list, name, namespace, number, text, time, uid};
use crate::plan::{Event, Plan, Write};
use crate::world::World;

const SCHEDULER: &str = "default-scheduler";

/// Looks at all namespaces: they share the nodes.
pub(crate) fn step(world: &World, pace: Pace, now: Timestamp, plan: &mut Plan) {
    let is_waiting = |pod: &&Value| {
        text(pod, "/spec/nodeName").is_empty()
            && !is_being_deleted(pod)
            && !is_finished(pod)
            && list(pod, "/spec/schedulingGates").is_empty()
    };
    let mut waiting: Vec<&Value> = world.every(Kind::Pods).filter(is_waiting).collect();
    if waiting.is_empty() {
        return;
    }
    waiting.sort_by_key(|pod| (-number(pod, "/spec/priority").unwrap_or_default(), created(pod)));
    let mut room = Room::of(world);
    for pod in waiting {
        let due = later(world.stage(pod, now).1, pace.of(pod).schedule);
        if due > now {
            plan.wake(due);
            continue;
        }
        match room.place(world, pod) {
            Ok(node) => bind(pod, &node, plan),
            Err(why) => refuse(pod, why, now, plan),
        }
    }
}

fn bind(pod: &Value, node: &str, plan: &mut Plan) {
    plan.writes.push(Write::Bind {
        namespace: namespace(pod).to_owned(),
        name: name(pod).to_owned(),
        uid: uid(pod).to_owned(),
        node: node.to_owned(),
    });
    let told = format!("Successfully assigned {}/{} to {node}", namespace(pod), name(pod));
    plan.tell(Event::new(Kind::Pods, pod, "Scheduled", told).from(SCHEDULER));
}

fn refuse(pod: &Value, why: String, now: Timestamp, plan: &mut Plan) {
    let old = crate::object::condition(pod, "PodScheduled");
    if old.is_some_and(|old| old["status"] == "False" && text(old, "/message") == why) {
        return;
    }
    let since = old.filter(|old| old["status"] == "False").map(|old| old["lastTransitionTime"].clone());
    let mut conditions = list(pod, "/status/conditions").to_vec();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| time(now)),
        "observedGeneration": crate::object::generation(pod),
    }));
    let mut status = pod["status"].clone();
    status["phase"] = "Pending".into();
    status["conditions"] = conditions.into();
    plan.status(Kind::Pods, pod, status);
    plan.tell(Event::new(Kind::Pods, pod, "FailedScheduling", why).warning().from(SCHEDULER));
}

/// A node, and what is left of it.
struct Place<'a> {
    node: &'a Value,
    all: Amounts,
    free: Amounts,
}

struct Room<'a>(BTreeMap<&'a str, Place<'a>>);

impl<'a> Room<'a> {
    fn of(world: &'a World) -> Room<'a> {
        let place = |node: &'a Value| {
            let all = fits::allocatable(node);
            (name(node), Place { node, free: all.clone(), all })
        };
        let mut room = Room(world.every(Kind::Nodes).map(place).collect());
        for pod in world.every(Kind::Pods).filter(|pod| !is_finished(pod)) {
            room.take(text(pod, "/spec/nodeName"), &fits::requests(pod));
        }
        room
    }

    fn take(&mut self, node: &str, amounts: &Amounts) {
        let Some(place) = self.0.get_mut(node) else { return };
        for (resource, amount) in amounts {
            *place.free.entry(resource.clone()).or_default() -= amount;
        }
    }

    /// The node for a pod, which has less room then; or why there is none.
    fn place(&mut self, world: &World, pod: &Value) -> Result<String, String> {
        let wanted = fits::requests(pod);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut fitting = Vec::new();
        let mut would_fit_empty = false;
        let unclaimed = unclaimed(world, pod);
        for place in self.0.values() {
            let misfortune = Misfortune::of(pod) == Some(Misfortune::Unschedulable);
            let why = misfortune
                .then(|| "node(s) were told to refuse it".to_owned())
                .or_else(|| unclaimed.clone())
                .or_else(|| fits::refusal(place.node, pod));
            would_fit_empty |= why.is_none() && fits::lacking(&place.all, &wanted).is_none();
            match why.or_else(|| fits::lacking(&place.free, &wanted)) {
                None => fitting.push(place),
                Some(why) => *reasons.entry(why).or_default() += 1,
            }
        }
        let best = fitting.into_iter().min_by_key(|place| place.used());
        let Some(best) = best.map(|place| name(place.node).to_owned()) else {
            return Err(told(self.0.len(), &reasons, would_fit_empty));
        };
        self.take(&best, &wanted);
        Ok(best)
    }
}

impl Place<'_> {
    /// The share of its fullest resource that is taken, in thousandths, and how many pods are there.
    fn used(&self) -> (i128, i128) {
        let taken = |resource: &str| {
            let (all, free) = (self.all.get(resource)?, self.free.get(resource)?);
            Some((*all - *free, *all))
        };
        let share = |resource| {
            let (taken, all) = taken(resource).filter(|(_, all)| *all > 0)?;
            Some(taken * 1000 / all)
        };
        let share = share("cpu").max(share("memory")).unwrap_or_default();
        (share, taken("pods").map_or(0, |(taken, _)| taken))
    }
}

/// A claim of the pod that has no volume yet.
fn unclaimed(world: &World, pod: &Value) -> Option<String> {
    let claims = list(pod, "/spec/volumes").iter();
    let names =
        claims.map(|volume| text(volume, "/persistentVolumeClaim/claimName")).filter(|name| !name.is_empty());
    for claim in names {
        match world.get(Kind::Claims, namespace(pod), claim) {
            None => return Some(format!("persistentvolumeclaim {claim:?} not found")),
            Some(claim) if text(claim, "/status/phase") != "Bound" => {
                return Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
            Some(_) => {}
        }
    }
    None
}

/// As the scheduler of Kubernetes puts it.
fn told(nodes: usize, reasons: &BTreeMap<String, usize>, would_fit_empty: bool) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let listed: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    let eviction = match would_fit_empty {
        true => "No preemption victims found for incoming pod.",
        false => "Preemption is not helpful for scheduling.",
    };
    format!(
        "0/{nodes} nodes are available: {}. no new claims to deallocate, preemption: 0/{nodes} nodes are available: {nodes} {eviction}",
        listed.join(", ")
    )
}
