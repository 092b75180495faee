//! Names with a meaning, spelled once.
//!
//! ```text
//!   user's logical cluster        mailbox                               physical cluster
//!   PLACEMENT, TARGETS            PLACED, LOCATOR, ADOPT, SYNCER        PLACED, MAILBOX, ORIGIN
//!   PROJECTED, LOCATOR_BELOW  ◄── PROJECTED, BELOW_UID         ◄─────   what came of it there
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
/// Label of what is in a mailbox, or in a user's logical cluster, because it is there on the physical cluster, and goes
/// when it goes there. Its value is [`TRUE`]. Nobody but us puts it on or takes it off.
pub const PROJECTED: &str = "holon.dev/projected";
/// Label of what is [`PROJECTED`]: the name of the physical cluster it is on.
pub const PHYSICAL_CLUSTER: &str = "holon.dev/physical-cluster";
/// The value of labels and annotations that say that something is so.
pub const TRUE: &str = "true";

/// Annotation on a namespace that was sent to a physical cluster: the ids of all mailboxes it came through, the first one
/// first. A logical cluster, also of another Holon, can be a physical cluster; what came through a mailbox is not sent there
/// again.
pub const VIA: &str = "holon.dev/via";
/// Annotation on what was rewritten for a physical cluster: whose it is ([`Locator`](crate::fleet::Locator), as JSON).
pub const LOCATOR: &str = "holon.dev/locator";
/// Annotation on what we made on a physical cluster: the id of the mailbox it came from. What does not have it is not
/// ours. On what is shown to users: the mailbox it is shown from.
pub const MAILBOX: &str = "holon.dev/mailbox";
/// Annotation on what we made on a physical cluster: the uid of the object in the mailbox.
pub const ORIGIN: &str = "holon.dev/origin";
/// Annotation on an object in a mailbox, with the value [`TRUE`]: what has its name on the physical cluster becomes ours.
pub const ADOPT: &str = "holon.dev/adopt";
/// Annotation on what is projected: the uid of the object on the physical cluster.
pub const BELOW_UID: &str = "holon.dev/below-uid";

/// Annotation on what is shown to users: `namespace/name` of what it shows in its [`MAILBOX`].
pub const LOCATOR_BELOW: &str = "holon.dev/locator-below";
/// Annotation on what is shown to users: what was last written there, as a hash.
pub const SHOWN: &str = "holon.dev/shown";

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
/// Annotation on a Distribution: what was wanted when it was decided. If something else is wanted, it is decided anew.
pub const WISH: &str = "holon.dev/wish";
/// Annotation on a Distribution: since when something comes or goes.
pub const MOVING_SINCE: &str = "holon.dev/moving-since";
/// Annotation on a Distribution: how many were found to fit where pods had to wait for room, and when, as JSON.
pub const ESTIMATES: &str = "holon.dev/estimates";
/// Finalizer on a Distribution and on what is shown to users: what is elsewhere because of it goes first.
pub const SPLITTER: &str = "holon.dev/splitter";
/// Annotation on an object in a mailbox: what the splitter last wrote there, as a hash.
pub const SPREAD: &str = "holon.dev/spread";
/// Annotation on an object in a mailbox: the generation of the user's object it was made from.
pub const STANDS_FOR: &str = "holon.dev/stands-for";

/// Annotation on an object in a mailbox: which template it has, with all that was rewritten for its physical cluster. On the
/// pods of a Deployment: which of the user's templates that is, which those of several clusters have in common.
pub const TEMPLATE: &str = "holon.dev/template";
/// Annotation on an object in a mailbox, with the value [`TRUE`]: how many replicas there are is decided below, by what
/// scales it there.
pub const SCALED_BELOW: &str = "holon.dev/scaled-below";
/// Annotation on a Service in a mailbox: the node ports that its user asked for, with commas between them. The mailbox gives
/// its Services others, which mean nothing on the physical cluster.
pub const NODE_PORTS: &str = "holon.dev/node-ports";
/// Annotation on an object of a custom kind that can be scaled, with the value [`TRUE`]: its replicas are divided.
pub const DIVIDE: &str = "holon.dev/divide";

/// Annotation on a Secret in a mailbox by which pods reach their logical cluster: the service account it is of
/// ([`Locator`](crate::fleet::Locator), as JSON).
pub const API_ACCESS: &str = "holon.dev/api-access";
/// Annotation beside it: from when on its token is to be replaced, well before it ends.
pub const RENEW_AFTER: &str = "holon.dev/renew-after";
/// Annotation on an object in a mailbox that has pods: how they were told to reach their logical cluster, as JSON.
pub const API_HOME: &str = "holon.dev/api-home";

/// The service account in namespace `kube-system` of a mailbox that its syncer is.
pub const SYNCER_ACCOUNT: &str = "holon-syncer";
/// What somebody is told whose token is one of ours, and wrong in nothing but that its time is over.
pub const TOKEN_EXPIRED: &str = "Unauthorized: the token has expired";

/// Annotation on the namespace on a physical cluster in which its syncer runs: the id of the mailbox it is the syncer of.
pub const SEAT_OF: &str = "holon.dev/seat-of";
/// Annotation on the report of a syncer, in its mailbox: nothing is left for it to do, and it may go. Its value is
/// [`TRUE`], and [`HEARD`] once the syncer has read it.
pub const DISMISSED: &str = "holon.dev/dismissed";
/// See [`DISMISSED`].
pub const HEARD: &str = "heard";

/// Whether a label or annotation of this key is reserved for Holon.
pub fn is_own_key(key: &str) -> bool {
    key.strip_prefix(GROUP).is_some_and(|rest| rest.starts_with('/'))
}

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
