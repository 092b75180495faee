//! Physical clusters, as they can be used.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::PhysicalCluster;
use controller::informer::{Key, Object};

use super::Clusters;

/// A physical cluster, and where its mailbox is.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// The logical cluster its object is in.
    pub home: Id,
    pub object: PhysicalCluster,
    /// Its mailbox, by the logical cluster of that name below its home. `status.mailbox` only shows it: tenants have written
    /// another cluster's mailbox there, and ran pods on that cluster.
    pub(crate) mailbox: Option<Id>,
}

impl Member {
    pub fn name(&self) -> &str {
        &self.object.metadata.name
    }

    /// Whether it reports.
    pub fn is_ready(&self) -> bool {
        let conditions = self.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
        conditions.iter().any(|said| said.r#type == "Ready" && said.status == "True")
    }

    pub fn mailbox(&self) -> Option<Id> {
        self.mailbox
    }
}

/// What about a physical cluster is different.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Changed {
    Nothing,
    /// How much room there is.
    Room,
    /// What it is, what it may be used for, or whether it is there.
    Nature,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Members {
    all: BTreeMap<(Id, String), Arc<Member>>,
}

impl Members {
    pub fn put(&mut self, object: &Object, clusters: &Clusters) -> Changed {
        let Some(home) = object.key.cluster else { return Changed::Nothing };
        let Some(read) = object.parse::<PhysicalCluster>() else { return Changed::Nothing };
        let name = (home, object.key.name.clone());
        let mailbox = clusters.mailbox_of(home, &name.1);
        let member = Arc::new(Member { home, object: read, mailbox });
        match self.all.insert(name, member.clone()) {
            Some(before) => changed(&before, &member),
            None => Changed::Nature,
        }
    }

    /// The mailbox of a physical cluster appeared or went.
    pub fn set_mailbox(&mut self, home: Id, name: &str, mailbox: Option<Id>) -> Changed {
        match self.all.get_mut(&(home, name.to_owned())) {
            Some(member) if member.mailbox != mailbox => {
                Arc::make_mut(member).mailbox = mailbox;
                Changed::Nature
            }
            _ => Changed::Nothing,
        }
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some(home) = key.cluster {
            self.all.remove(&(home, key.name.clone()));
        }
    }

    fn within(&self, home: Id) -> impl Iterator<Item = (&str, &Arc<Member>)> {
        let from = self.all.range((home, String::new())..).take_while(move |((at, _), _)| *at == home);
        from.map(|((_, name), member)| (name.as_str(), member))
    }

    /// Which versions are known of those of one logical cluster.
    pub fn versions(&self, home: Id) -> HashMap<String, u64> {
        let version = |member: &Member| member.object.metadata.resource_version.parse().unwrap_or_default();
        self.within(home).map(|(name, member)| (name.to_owned(), version(member))).collect()
    }

    /// What can be seen from a logical cluster: its own and those of all it is below. Of several of one name, the nearest.
    pub fn seen_from(&self, cluster: Id, clusters: &Clusters) -> Vec<Arc<Member>> {
        let mut seen: BTreeMap<&str, &Arc<Member>> = BTreeMap::new();
        for home in clusters.lineage(cluster) {
            for (name, member) in self.within(home) {
                seen.entry(name).or_insert(member);
            }
        }
        seen.into_values().cloned().collect()
    }

    /// Those that are not themselves reports in mailboxes.
    pub fn all(&self, clusters: &Clusters) -> Vec<Arc<Member>> {
        let members = self.all.values().filter(|member| !clusters.is_mailbox(member.home));
        members.cloned().collect()
    }

    pub fn get(&self, home: Id, name: &str) -> Option<Arc<Member>> {
        self.all.get(&(home, name.to_owned())).cloned()
    }

    pub fn by_mailbox(&self, mailbox: Id) -> Option<Arc<Member>> {
        self.all.values().find(|member| member.mailbox() == Some(mailbox)).cloned()
    }
}

fn changed(before: &Member, now: &Member) -> Changed {
    let nature = |member: &Member| {
        let status = member.object.status.clone().unwrap_or_default();
        let metadata = &member.object.metadata;
        (
            metadata.labels.clone(),
            (metadata.is_being_deleted(), crate::fleet::is_forgotten(&member.object)),
            member.mailbox,
            member.is_ready(),
            status.kinds.clone(),
            (status.uid.clone(), status.classes.clone()),
        )
    };
    let room = |member: &Member| {
        let status = member.object.status.clone().unwrap_or_default();
        (status.allocatable, status.requested, status.quotas, status.capacity)
    };
    if before.object.spec != now.object.spec || nature(before) != nature(now) {
        Changed::Nature
    } else if room(before) != room(now) {
        Changed::Room
    } else {
        Changed::Nothing
    }
}
