//! The number of pods of an object at a target, for capacity reservations and disruption budgets.

use api::fleet::Target;
use serde_json::Value;

use crate::division::autoscaled;
use crate::division::{self, Part, Rule, job};
use crate::snapshot::mailbox_objects::MailboxObject;
use crate::status::completed;

/// Counts the pods of one object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodCounter<'a> {
    pub(crate) object: &'a Value,
    pub(crate) rule: Rule,
    pub(crate) replicas_at: &'a str,
    /// Whether an autoscaler on each target sets the number of replicas.
    pub(crate) is_autoscaled: bool,
}

impl PodCounter<'_> {
    /// The number of pods at a target with this part of the object. None if it is unknown: a DaemonSet has one per node,
    /// other kinds none.
    pub(crate) fn at(
        &self,
        target: &Target,
        copy: Option<&MailboxObject>,
        part: Option<&Part>,
    ) -> Option<u32> {
        if completed::is_completed(self.object) {
            return Some(0);
        }
        let share = || target.share.and_then(|share| u32::try_from(share).ok());
        match self.rule {
            Rule::Replicas | Rule::Ordinals => {
                let there = copy.filter(|_| self.is_autoscaled);
                let there = there.and_then(|copy| autoscaled::there(copy, self.replicas_at));
                let whole = || division::number(self.object, self.replicas_at, 1);
                Some(there.max(share()).unwrap_or_else(whole))
            }
            // The share of a Job is its completions, not its workers.
            Rule::Completions => {
                let told = part.and_then(|part| part.number(job::PARALLELISM));
                let workers = || division::number(self.object, job::PARALLELISM, 1);
                Some(told.unwrap_or_else(workers))
            }
            Rule::One | Rule::Schedule => Some(1),
            Rule::Autoscaler | Rule::Budget | Rule::Copy => None,
        }
    }
}

impl Part {
    /// A number that the part sets.
    fn number(&self, at: &str) -> Option<u32> {
        let (_, value) = self.0.iter().find(|(pointer, _)| pointer == at)?;
        u32::try_from(value.as_u64()?).ok()
    }
}
