//! Names with a meaning, spelled once.
//!
//! ```text
//!   user's logical cluster        mailbox                               physical cluster
//!   PLACEMENT, TARGETS            PLACED, LOCATOR, ADOPT, SYNCER        PLACED, MAILBOX, ORIGIN
//!                                 PROJECTED, BELOW_UID         ◄─────   what came of it there
//! ```

/// The API group of our own kinds.
pub const GROUP: &str = "holon.dev";
/// Its version.
pub const VERSION: &str = "v1alpha1";

/// Annotation on every object of a list or watch over all logical clusters: the id of the one it lives in.
pub const LOGICAL_CLUSTER: &str = "holon.dev/logical-cluster";

/// Annotation on an object, its namespace or its logical cluster, of which the nearest counts: where it runs.
pub const PLACEMENT: &str = "holon.dev/placement";
/// Annotation on a namespace: where what is in it runs, as a sentence. The records are its Distributions.
pub const TARGETS: &str = "holon.dev/targets";

/// Label of what runs, or is to run, on a physical cluster because Holon says so: the same in the mailbox and below.
/// Its value is [`TRUE`]. What is in a mailbox without it stays there.
pub const PLACED: &str = "holon.dev/placed";
/// Label of what is in a mailbox because it is there on the physical cluster, and goes when it goes there. Its value is
/// [`TRUE`].
pub const PROJECTED: &str = "holon.dev/projected";
/// The value of labels and annotations that say that something is so.
pub const TRUE: &str = "true";

/// Annotation on what was rewritten for a physical cluster: whose it is ([`Locator`](crate::fleet::Locator), as JSON).
pub const LOCATOR: &str = "holon.dev/locator";
/// Annotation on what we made on a physical cluster: the id of the mailbox it came from. What does not have it is not
/// ours.
pub const MAILBOX: &str = "holon.dev/mailbox";
/// Annotation on what we made on a physical cluster: the uid of the object in the mailbox.
pub const ORIGIN: &str = "holon.dev/origin";
/// Annotation on an object in a mailbox, with the value [`TRUE`]: what has its name on the physical cluster becomes ours.
pub const ADOPT: &str = "holon.dev/adopt";
/// Annotation on what is projected: the uid of the object on the physical cluster.
pub const BELOW_UID: &str = "holon.dev/below-uid";

/// Finalizer on an object in a mailbox: there may be something of it on the physical cluster.
pub const SYNCER: &str = "holon.dev/syncer";
/// Who owns the fields we write on a physical cluster.
pub const FIELD_MANAGER: &str = "holon-syncer";
/// The Lease in namespace `kube-system` of a mailbox that its syncer renews: its lock, and its heartbeat.
pub const HEARTBEAT: &str = "holon-syncer";

/// Label of a logical cluster that is a mailbox: the name of its physical cluster.
pub const MAILBOX_OF: &str = "holon.dev/mailbox-of";
/// Finalizer on a PhysicalCluster: what was sent there has to be taken away first.
pub const FLEET: &str = "holon.dev/fleet";
/// Annotation on a PhysicalCluster that is deleted, with the value [`TRUE`]: what was sent there may stay there.
pub const FORGET: &str = "holon.dev/forget";
/// The service account in namespace `kube-system` of a mailbox that its syncer is.
pub const SYNCER_ACCOUNT: &str = "holon-syncer";

/// What the name of a mailbox begins with.
const MAILBOX_PREFIX: &str = "mailbox-";

/// The name of the mailbox of a physical cluster: the logical cluster of this name in the one its object lives in.
pub fn mailbox(physical_cluster: &str) -> String {
    format!("{MAILBOX_PREFIX}{physical_cluster}")
}

/// Whose mailbox a logical cluster of this name is, if it is one.
pub fn owner_of_mailbox(logical_cluster: &str) -> Option<&str> {
    logical_cluster.strip_prefix(MAILBOX_PREFIX).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_is_named_after_its_physical_cluster() {
        assert_eq!(mailbox("east"), "mailbox-east");
        assert_eq!(owner_of_mailbox(&mailbox("east")), Some("east"));
        assert_eq!((owner_of_mailbox("mailbox-"), owner_of_mailbox("team-a")), (None, None));
    }
}
