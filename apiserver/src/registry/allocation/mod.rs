//! Allocation of cluster IPs and node ports: each belongs to one Service of a logical cluster at a time.
//!
//! ```text
//!   allocation (create, if absent) ─► the Service is written ─► … ─► Service deleted ─► allocation released
//! ```
//!
//! An allocation is an entry of its own. Only one writer can create an absent entry, so the store alone keeps two
//! Services from getting the same address or port: no server keeps allocations in memory, and several servers need not
//! coordinate. The allocation of an address is its `IPAddress` object, as in Kubernetes. Kubernetes has no object for a
//! node port, so these allocations are in a collection that is not served.
//!
//! An allocation whose Service was never written, or was deleted without releasing it, is released by a
//! [controller](crate::controllers).

mod ip_allocator;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use api::cluster::Id;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::Status;
use serde_json::{Value, json};
use storage::{Change, Expect, Key, Revision, Store};

use crate::keys::{Collection, ObjectKey};
use crate::objects::{metadata, stored};

use crate::registry::allocation::ip_allocator::IpAllocator;

/// The range of node ports, as in Kubernetes.
const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// The label that names the manager of an IPAddress, as in Kubernetes.
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";

pub(crate) const SERVICES: Collection<'static> = Collection { group: "", plural: "services" };
/// The Endpoints of a Service have its name.
pub(crate) const ENDPOINTS: Collection<'static> = Collection { group: "", plural: "endpoints" };
pub(crate) const ADDRESS_ALLOCATIONS: Collection<'static> =
    Collection { group: "networking.k8s.io", plural: "ipaddresses" };
pub(crate) const PORT_ALLOCATIONS: Collection<'static> =
    Collection { group: "holon.dev", plural: "node-ports" };

/// An address or a port, allocated by one Service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Allocation {
    Address(Ipv4Addr),
    Port(u16),
}

impl Allocation {
    pub(crate) fn key(self, cluster: Id) -> Key {
        match self {
            Allocation::Address(address) => ADDRESS_ALLOCATIONS.key(cluster, None, &address.to_string()),
            Allocation::Port(port) => PORT_ALLOCATIONS.key(cluster, None, &port.to_string()),
        }
    }

    /// Returns the allocation with this key, or None if the key belongs to another kind of object.
    pub(crate) fn at(place: &ObjectKey<'_>) -> Option<Allocation> {
        match place.collection {
            ADDRESS_ALLOCATIONS => place.name.parse().ok().map(Allocation::Address),
            PORT_ALLOCATIONS => place.name.parse().ok().map(Allocation::Port),
            _ => None,
        }
    }

    fn object(self, namespace: &str, service: &str) -> Value {
        let mut object = match self {
            Allocation::Port(port) => {
                metadata::made("holon.dev/v1alpha1", "NodePort", None, &port.to_string())
            }
            Allocation::Address(address) => {
                let mut object =
                    metadata::made("networking.k8s.io/v1", "IPAddress", None, &address.to_string());
                let labels = json!({ "ipaddress.kubernetes.io/ip-family": "IPv4", MANAGED_BY: ALLOCATOR });
                object["metadata"]["labels"] = labels;
                object
            }
        };
        let parent = json!({ "resource": "services", "namespace": namespace, "name": service });
        object["spec"] = json!({ "parentRef": parent });
        object
    }
}

/// Reports whether objects of this resource need allocations.
pub(crate) fn concern(resource: &ResourceInfo) -> bool {
    Collection { group: &resource.group, plural: &resource.plural } == SERVICES
}

/// Returns the addresses and ports in the spec of a Service.
pub(crate) fn allocations_of(service: &Value) -> BTreeSet<Allocation> {
    let spec = &service["spec"];
    let addresses = spec["clusterIPs"].as_array().into_iter().flatten().chain([&spec["clusterIP"]]);
    let addresses = addresses.filter_map(|address| address.as_str()?.parse().ok()).map(Allocation::Address);
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    let ports = ports.chain([&spec["healthCheckNodePort"]]).filter_map(port_of).map(Allocation::Port);
    addresses.chain(ports).collect()
}

fn port_of(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

/// Returns namespace and name of the Service that an allocation was made for. An IPAddress that a client created has
/// none.
pub(crate) fn service_of(allocation: &Value) -> Option<(&str, &str)> {
    let parent = &allocation["spec"]["parentRef"];
    let ours = parent["resource"] == "services" && parent["group"].as_str().unwrap_or_default().is_empty();
    let labelled =
        allocation["metadata"]["labels"][MANAGED_BY] == ALLOCATOR || allocation["kind"] == "NodePort";
    (ours && labelled).then_some((parent["namespace"].as_str()?, parent["name"].as_str()?))
}

/// The allocations made for a write that may still fail, and the allocations to release once it succeeds.
#[derive(Debug, Default)]
#[must_use = "call done() after the write succeeds, undo() after it fails"]
pub(crate) struct Allocations {
    /// Each with the revision of its creation.
    made: BTreeMap<Allocation, Revision>,
    free: BTreeSet<Allocation>,
    service: Option<Service>,
}

/// The Service that allocations are made for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Service {
    cluster: Id,
    namespace: String,
    name: String,
}

impl Service {
    fn of(cluster: Id, service: &Value) -> Service {
        let text = |field| metadata::text(service, field).to_owned();
        Service { cluster, namespace: text("namespace"), name: text("name") }
    }

    /// Releases an allocation if it belongs to this Service and is not newer than `since`: a later Service with the
    /// same name may have allocated it again. If the release fails, the controller does it later.
    async fn release(&self, store: &dyn Store, allocation: Allocation, since: Revision) {
        let key = allocation.key(self.cluster);
        let Ok(Some(entry)) = store.get(&key).await.map(|found| found.value) else { return };
        let tree = stored::tree(&entry).unwrap_or_default();
        if entry.revision() <= since && service_of(&tree) == Some((&self.namespace, &self.name)) {
            let _ = store.commit(key, Expect::Revision(entry.revision()), Change::Delete).await;
        }
    }
}

impl Allocations {
    /// Releases the allocations that the Service no longer uses, after it was written at this revision.
    pub(crate) async fn done(self, store: &dyn Store, at: Revision) {
        let Some(service) = &self.service else { return };
        for allocation in &self.free {
            service.release(store, *allocation, at).await;
        }
    }

    /// Releases the allocations made for a write that failed.
    pub(crate) async fn undo(self, store: &dyn Store) {
        let Some(service) = &self.service else { return };
        for (allocation, made) in &self.made {
            service.release(store, *allocation, *made).await;
        }
    }
}

/// Releases all allocations of a Service that was deleted at this revision.
pub(crate) async fn release_all(store: &dyn Store, cluster: Id, service: &Value, at: Revision) {
    let owner = Service::of(cluster, service);
    for allocation in allocations_of(service) {
        owner.release(store, allocation, at).await;
    }
}

/// Allocates the addresses and ports that `new` needs and does not have yet. `old` is the current object, if this is an
/// update.
pub(crate) async fn assign(
    store: &dyn Store,
    cluster: Id,
    dry_run: bool,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<Allocations, Status> {
    let before = old.map(allocations_of).unwrap_or_default();
    strip(new);
    let allocations = Allocations { service: Some(Service::of(cluster, new)), ..Allocations::default() };
    let mut allocator = IpAllocator { store, cluster, dry_run, before, allocations };
    match allocator.serve(new).await {
        Ok(()) => {
            // A dry run releases nothing.
            if !dry_run {
                let now = allocations_of(new);
                allocator.allocations.free = allocator.before.difference(&now).copied().collect();
            }
            Ok(allocator.allocations)
        }
        Err(status) => {
            allocator.allocations.undo(store).await;
            Err(status)
        }
    }
}

/// Removes the addresses and ports from the spec of an ExternalName Service.
fn strip(service: &mut Value) {
    let Some(spec) = service["spec"].as_object_mut() else { return };
    if spec.get("type") != Some(&json!("ExternalName")) {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
        spec.remove(field);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        port.as_object_mut().map(|port| port.remove("nodePort"));
    }
}

#[cfg(test)]
mod tests {
    use storage::memory::Memory;

    use super::*;

    const CLUSTER: Id = Id::new(3);

    async fn assigned(store: &Memory, old: Option<&Value>, spec: Value) -> Result<Value, String> {
        let mut service = json!({ "metadata": { "namespace": "shop", "name": "web" }, "spec": spec });
        let allocations =
            assign(store, CLUSTER, false, old, &mut service).await.map_err(|status| status.message)?;
        allocations.done(store, Revision(u64::MAX)).await;
        Ok(service)
    }

    async fn is_taken(store: &Memory, allocation: Allocation) -> bool {
        store.get(&allocation.key(CLUSTER)).await.unwrap().value.is_some()
    }

    #[tokio::test]
    async fn a_service_holds_its_address_and_ports_exclusively_until_it_releases_them() {
        let store = Memory::new();
        let ports =
            json!([{ "port": 53, "protocol": "TCP" }, { "port": 53, "protocol": "UDP" }, { "port": 80 }]);
        let first = assigned(&store, None, json!({ "type": "NodePort", "ports": ports })).await.unwrap();
        let allocations = allocations_of(&first);
        assert_eq!(allocations.len(), 3, "{first}");
        for allocation in &allocations {
            assert!(is_taken(&store, *allocation).await);
        }
        let node_port = first["spec"]["ports"][0]["nodePort"].clone();
        assert_eq!(first["spec"]["ports"][1]["nodePort"], node_port, "one port with two protocols");

        let address = &first["spec"]["clusterIP"];
        let taken = assigned(&store, None, json!({ "clusterIP": address })).await.unwrap_err();
        assert!(taken.contains("provided IP is already allocated"), "{taken}");
        let same = json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": node_port }] });
        let taken = assigned(&store, None, same).await.unwrap_err();
        assert!(taken.contains("spec.ports[0].nodePort") && taken.contains("already allocated"), "{taken}");

        // A port that the Service no longer names is released; its address stays allocated.
        let same_address = json!({ "clusterIP": address, "ports": [{ "port": 80 }] });
        let second = assigned(&store, Some(&first), same_address).await.unwrap();
        assert_eq!(second["spec"]["clusterIP"], *address);
        for allocation in allocations {
            assert_eq!(
                is_taken(&store, allocation).await,
                matches!(allocation, Allocation::Address(_)),
                "{allocation:?}"
            );
        }
        let alias = assigned(&store, Some(&second), json!({ "type": "ExternalName", "clusterIP": address }));
        assert!(allocations_of(&alias.await.unwrap()).is_empty());
        release_all(&store, CLUSTER, &second, Revision(u64::MAX)).await;
        assert!(assigned(&store, None, json!({ "clusterIP": address })).await.is_ok());
    }

    /// Regression: a dry run of a port change released the port while the Service still used it.
    #[tokio::test]
    async fn a_dry_run_allocates_and_releases_nothing() {
        let store = Memory::new();
        let port =
            |node_port: u16| json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": node_port }] });
        let first = assigned(&store, None, port(30080)).await.unwrap();
        let mut rehearsed = first.clone();
        rehearsed["spec"]["ports"][0]["nodePort"] = 30081.into();
        let allocations = assign(&store, CLUSTER, true, Some(&first), &mut rehearsed).await.unwrap();
        allocations.done(&store, Revision(u64::MAX)).await;
        assert!(
            is_taken(&store, Allocation::Port(30080)).await
                && !is_taken(&store, Allocation::Port(30081)).await
        );
    }

    /// Regression: a refused Service never released its address.
    #[tokio::test]
    async fn a_refused_service_leaves_no_allocation() {
        let store = Memory::new();
        let spec = json!({ "type": "NodePort", "ports": [{ "port": 80 }, { "port": 81, "nodePort": 80 }] });
        let refused = assigned(&store, None, spec).await.unwrap_err();
        assert!(refused.contains("The range of valid ports is 30000-32767"), "{refused}");
        let all = store.list(storage::Range::all(), storage::Page::default()).await.unwrap();
        assert_eq!(all.value.entries, []);
    }

    #[tokio::test]
    async fn only_needed_addresses_and_ports_are_allocated() {
        let store = Memory::new();
        let headless = assigned(&store, None, json!({ "clusterIP": "None", "ports": [{ "port": 80 }] }));
        assert!(allocations_of(&headless.await.unwrap()).is_empty());
        let outside = assigned(&store, None, json!({ "clusterIP": "1.2.3.4" })).await.unwrap_err();
        assert!(outside.contains("[\"1.2.3.4\"]: failed to allocate IP 1.2.3.4"), "{outside}");
        let balanced = json!({
            "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
            "externalTrafficPolicy": "Local", "ports": [{ "port": 80 }],
        });
        let balanced = assigned(&store, None, balanced).await.unwrap();
        assert!(balanced["spec"]["ports"][0].get("nodePort").is_none());
        assert!(port_of(&balanced["spec"]["healthCheckNodePort"]).is_some());
    }
}
