//! How many pods of an object a target has, for whoever counts what they take or how many may be missing.

use api::fleet::Target;
use serde_json::Value;

use crate::division::autoscaled;
use crate::division::{self, Part, Rule, job};
use crate::snapshot::mailbox_objects::MailboxObject;
use crate::status::completed;

/// An object, and how it is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodCounter<'a> {
    pub(crate) object: &'a Value,
    pub(crate) rule: Rule,
    pub(crate) replicas_at: &'a str,
    /// Whether an autoscaler decides how many there are, on each target for itself.
    pub(crate) is_autoscaled: bool,
}

impl PodCounter<'_> {
    /// At a target that is to have this part of it. None if nobody knows: there is one on every node, or it makes none.
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
            // A share is what it is to finish, and not how many work on that.
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
    /// A number that is to be set.
    fn number(&self, at: &str) -> Option<u32> {
        let (_, value) = self.0.iter().find(|(pointer, _)| pointer == at)?;
        u32::try_from(value.as_u64()?).ok()
    }
}
