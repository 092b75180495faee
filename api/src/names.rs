//! Names of labels, annotations, finalizers and the like, each defined once.
//!
//! ```text
//!   user's logical cluster        mailbox                               physical cluster
//!   PLACEMENT, TARGETS            PLACED, LOCATOR, ADOPT, SYNCER        PLACED, MAILBOX, ORIGIN
//!   PROJECTED, DOWNSTREAM_NAME  ◄── PROJECTED, DOWNSTREAM_UID         ◄─────   objects created there
//! ```

/// The API group of Holon's own kinds.
pub const GROUP: &str = "holon.dev";
/// Its version.
pub const VERSION: &str = "v1alpha1";

/// Annotation on every object in a list or watch over all logical clusters: the id of its logical cluster.
pub const LOGICAL_CLUSTER: &str = "holon.dev/logical-cluster";

/// Annotation on an object, its namespace or its logical cluster: where the object runs. The nearest annotation counts.
pub const PLACEMENT: &str = "holon.dev/placement";
/// Annotation on a namespace: a sentence about where its objects run. The Distributions have the details.
pub const TARGETS: &str = "holon.dev/targets";

/// Label of placed objects, which Holon applies to a physical cluster: in the mailbox and on the physical cluster. Its
/// value is [`TRUE`]. Objects in a mailbox without it are not applied.
pub const PLACED: &str = "holon.dev/placed";
/// Label of projected objects in a mailbox or a user's logical cluster: they exist because an object exists on the
/// physical cluster, and are deleted with it. Its value is [`TRUE`]. Only Holon sets or removes it.
pub const PROJECTED: &str = "holon.dev/projected";
/// Label of a [`PROJECTED`] object: the name of its physical cluster.
pub const PHYSICAL_CLUSTER: &str = "holon.dev/physical-cluster";
/// The value of boolean labels and annotations.
pub const TRUE: &str = "true";

/// Annotation on a namespace on a physical cluster: the ids of all mailboxes it came through, the first one first. A
/// logical cluster, also of another Holon, can be a physical cluster; an object that came through a mailbox is not
/// placed in that mailbox again.
pub const VIA: &str = "holon.dev/via";
/// Annotation on an object that was transformed for a physical cluster: the user's object it was made from
/// ([`Locator`](crate::fleet::Locator), as JSON).
pub const LOCATOR: &str = "holon.dev/locator";
/// Annotation on an object that a syncer created on a physical cluster: the id of its mailbox. Objects without it do
/// not belong to Holon. On an object projected to users: the mailbox it was projected from.
pub const MAILBOX: &str = "holon.dev/mailbox";
/// Annotation on an object that a syncer created on a physical cluster: the uid of the object in the mailbox.
pub const ORIGIN: &str = "holon.dev/origin";
/// Annotation on an object in a mailbox, with the value [`TRUE`]: the syncer adopts an existing object of the same name
/// on the physical cluster.
pub const ADOPT: &str = "holon.dev/adopt";
/// Annotation on a projected object: the uid of the object on the physical cluster.
pub const DOWNSTREAM_UID: &str = "holon.dev/downstream-uid";

/// Annotation on an object projected to users: `namespace/name` of the object in its [`MAILBOX`].
pub const DOWNSTREAM_NAME: &str = "holon.dev/downstream-name";
/// Annotation on an object projected to users: a hash of what the splitter last wrote.
pub const PROJECTED_HASH: &str = "holon.dev/projected-hash";

/// Finalizer on an object in a mailbox: the object may exist on the physical cluster.
pub const SYNCER: &str = "holon.dev/syncer";
/// The field manager of the syncers' writes on physical clusters.
pub const FIELD_MANAGER: &str = "holon-syncer";
/// The Lease in namespace `kube-system` of a mailbox that its syncer renews: a lock and a heartbeat.
pub const HEARTBEAT: &str = "holon-syncer";

/// Label of a logical cluster that is a mailbox: the name of its physical cluster.
pub const MAILBOX_OF: &str = "holon.dev/mailbox-of";
/// Finalizer on a PhysicalCluster: the objects that were placed there must be removed first.
pub const FLEET: &str = "holon.dev/fleet";
/// Annotation on a PhysicalCluster that is deleted, with the value [`TRUE`]: objects that were placed there may stay.
pub const FORGET: &str = "holon.dev/forget";
/// Annotation on a Distribution: a fingerprint of the effective placement that its targets satisfy. If the effective
/// placement changes, the targets are chosen again.
pub const PLACEMENT_HASH: &str = "holon.dev/placement-hash";
/// Annotation on a Distribution: since when a target is arriving or leaving.
pub const MOVING_SINCE: &str = "holon.dev/moving-since";
/// Annotation on a Distribution: how many replicas were found to fit where pods waited for capacity, and when, as JSON.
pub const ESTIMATES: &str = "holon.dev/estimates";
/// Finalizer on a Distribution and on objects projected to users: objects elsewhere that exist because of it are
/// deleted first.
pub const SPLITTER: &str = "holon.dev/splitter";
/// Annotation on an object in a mailbox: a hash of what the splitter last wrote.
pub const PROPAGATED_HASH: &str = "holon.dev/propagated-hash";
/// Annotation on an object in a mailbox: the generation of the user's object it was made from.
pub const SOURCE_GENERATION: &str = "holon.dev/source-generation";

/// Annotation on an object in a mailbox: identifies its pod template, with everything that was transformed for its
/// physical cluster. On the pods of a Deployment: identifies the user's template, which the pods on all clusters have
/// in common.
pub const TEMPLATE: &str = "holon.dev/template";
/// Annotation on an object in a mailbox, with the value [`TRUE`]: an autoscaler on the physical cluster sets its
/// replicas.
pub const SCALED_DOWNSTREAM: &str = "holon.dev/scaled-downstream";
/// Annotation on a Service in a mailbox: the node ports that its user requested, separated by commas. The mailbox
/// allocates others, which mean nothing on the physical cluster.
pub const NODE_PORTS: &str = "holon.dev/node-ports";
/// Annotation on an object of a custom kind with a scale, with the value [`TRUE`]: its replicas are divided.
pub const DIVIDE: &str = "holon.dev/divide";

/// Annotation on a Secret in a mailbox with which pods reach their logical cluster: its service account
/// ([`Locator`](crate::fleet::Locator), as JSON).
pub const API_ACCESS: &str = "holon.dev/api-access";
/// Annotation on the same Secret: when its token is to be replaced, well before it expires.
pub const RENEW_AFTER: &str = "holon.dev/renew-after";
/// Annotation on an object in a mailbox that has pods: how they reach their logical cluster, as JSON.
pub const API_HOME: &str = "holon.dev/api-home";

/// The service account of the syncer, in namespace `kube-system` of the mailbox.
pub const SYNCER_ACCOUNT: &str = "holon-syncer";
/// The message for a client whose token is valid except that it has expired.
pub const TOKEN_EXPIRED: &str = "Unauthorized: the token has expired";

/// Annotation on the namespace on a physical cluster in which its syncer runs: the id of the syncer's mailbox.
pub const SYNCER_OF: &str = "holon.dev/syncer-of";
/// Annotation on the report of a syncer, in its mailbox: the syncer has nothing left to do and may uninstall itself.
/// Its value is [`TRUE`], and [`ACKNOWLEDGED`] once the syncer has read it.
pub const UNINSTALL: &str = "holon.dev/uninstall";
/// See [`UNINSTALL`].
pub const ACKNOWLEDGED: &str = "acknowledged";

/// Reports whether a label or annotation with this key is reserved for Holon.
pub fn is_own_key(key: &str) -> bool {
    key.strip_prefix(GROUP).is_some_and(|rest| rest.starts_with('/'))
}

/// The prefix of the names of mailboxes.
const MAILBOX_PREFIX: &str = "mailbox-";

/// Returns the name of the mailbox of a physical cluster: a logical cluster beside the PhysicalCluster object.
pub fn mailbox(physical_cluster: &str) -> String {
    format!("{MAILBOX_PREFIX}{physical_cluster}")
}

/// Returns the physical cluster of the mailbox with this name; none if it is not a mailbox.
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
