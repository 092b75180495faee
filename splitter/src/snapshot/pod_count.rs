//! The number of pods of an object at a target, for capacity reservations and disruption budgets.

use api::fleet::Target;
use serde_json::Value;

use crate::division::{self, DivisionRule, TargetPatch, job};
use crate::snapshot::mailbox_objects::MailboxObject;
use crate::status::completed;

/// Counts the pods of one object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodCounter<'a> {
    pub(crate) object: &'a Value,
    pub(crate) rule: DivisionRule,
    pub(crate) replicas_at: &'a str,
    /// Whether an autoscaler on each target sets the number of replicas.
    pub(crate) is_autoscaled: bool,
}

impl PodCounter<'_> {
    /// The number of pods at a target with this patch. None if it is unknown: a DaemonSet has one per node, other
    /// kinds none.
    pub(crate) fn at(
        &self,
        target: &Target,
        mailbox_object: Option<&MailboxObject>,
        patch: Option<&TargetPatch>,
    ) -> Option<u32> {
        if completed::is_completed(self.object) {
            return Some(0);
        }
        let share = || target.share.and_then(|share| u32::try_from(share).ok());
        match self.rule {
            DivisionRule::Replicas | DivisionRule::Ordinals => {
                let current = mailbox_object.filter(|_| self.is_autoscaled);
                let current =
                    current.and_then(|mailbox_object| mailbox_object.current_replicas(self.replicas_at));
                let specified = || division::number(self.object, self.replicas_at, 1);
                Some(current.max(share()).unwrap_or_else(specified))
            }
            // The share of a Job is its completions, not its workers.
            DivisionRule::Completions => {
                let planned = patch.and_then(|patch| patch.number(job::PARALLELISM));
                let workers = || division::number(self.object, job::PARALLELISM, 1);
                Some(planned.unwrap_or_else(workers))
            }
            DivisionRule::One | DivisionRule::Schedule => Some(1),
            DivisionRule::Autoscaler | DivisionRule::Budget | DivisionRule::Copy => None,
        }
    }
}

impl TargetPatch {
    /// A number that the patch sets.
    fn number(&self, at: &str) -> Option<u32> {
        let (_, value) = self.0.iter().find(|(pointer, _)| pointer == at)?;
        u32::try_from(value.as_u64()?).ok()
    }
}
