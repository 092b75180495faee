//! Allocates the cluster IP and the node ports of a Service.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use api::cluster::Id;
use api::meta::field::FieldError;
use openapi::meta::status::{GroupResource, Status};
use rand::RngExt;
use serde_json::{Value, json};
use storage::{Change, CommitError, Expect, Store};

use crate::clusters::service_cidr::ADDRESSES;
use crate::objects::store_errors::{unreadable, unwritten_in};
use crate::objects::{metadata, stored};
use crate::registry::allocation::{Allocation, Allocations, PORTS, port_of};

/// Number of random draws before all addresses (or ports) are tried in order.
const DRAWS: usize = 32;

/// Allocates the cluster IP and the node ports of one Service.
pub(super) struct IpAllocator<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) cluster: Id,
    /// In a dry run addresses and ports are drawn and checked, but not allocated.
    pub(super) dry_run: bool,
    pub(super) before: BTreeSet<Allocation>,
    pub(super) allocations: Allocations,
}

impl IpAllocator<'_> {
    pub(super) async fn serve(&mut self, service: &mut Value) -> Result<(), Status> {
        let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
        if kind != "ExternalName" {
            families(service)?;
            self.address(service).await?;
        }
        let allocates = service["spec"]["allocateLoadBalancerNodePorts"] != json!(false);
        let has_ports = kind == "NodePort" || kind == "LoadBalancer";
        self.ports(service, kind == "NodePort" || kind == "LoadBalancer" && allocates).await?;
        if has_ports && kind == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local" {
            let port =
                self.port(service, &service["spec"]["healthCheckNodePort"], "spec.healthCheckNodePort");
            let port = port.await?;
            service["spec"]["healthCheckNodePort"] = port.into();
        }
        Ok(())
    }

    async fn address(&mut self, service: &mut Value) -> Result<(), Status> {
        let requested = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        let address = match requested.as_str() {
            "None" => return Ok(()),
            "" => self.any_address(service).await?,
            requested => self.this_address(service, requested).await?,
        };
        service["spec"]["clusterIP"] = address.clone().into();
        service["spec"]["clusterIPs"] = json!([address]);
        Ok(())
    }

    async fn this_address(&mut self, service: &Value, requested: &str) -> Result<String, Status> {
        let refused = |why: &str| {
            let why = format!("failed to allocate IP {requested}: {why}");
            invalid(service, "spec.clusterIPs", json!([requested]), &why)
        };
        let Ok(address) = requested.parse::<Ipv4Addr>() else {
            let why = "IPv6 is not configured on this cluster";
            return Err(invalid(service, "spec.clusterIPs[0]", json!([requested]), why));
        };
        if self.before.contains(&Allocation::Address(address)) {
            return Ok(requested.to_owned());
        }
        if !in_range(address) {
            let (first, bits) = ADDRESSES;
            return Err(refused(&format!(
                "the provided IP ({requested}) is not in the valid range. The range of valid IPs is {first}/{bits}"
            )));
        }
        match self.allocation(service, Allocation::Address(address)).await? {
            true => Ok(requested.to_owned()),
            false => Err(refused("provided IP is already allocated")),
        }
    }

    async fn any_address(&mut self, service: &Value) -> Result<String, Status> {
        let (first, count) = (u32::from(ADDRESSES.0), 1u32 << (32 - ADDRESSES.1));
        let draws = (0..DRAWS).map(|_| rand::rng().random_range(1..count - 1));
        for offset in draws.chain(1..count - 1) {
            let address = Ipv4Addr::from(first + offset);
            if self.allocation(service, Allocation::Address(address)).await? {
                return Ok(address.to_string());
            }
        }
        Err(Status::internal("failed to allocate a serviceIP: range is full"))
    }

    /// Allocates the node ports that the Service names. If `draws_ports`, draws node ports for its other ports.
    async fn ports(&mut self, service: &mut Value, draws_ports: bool) -> Result<(), Status> {
        let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
        let mut given: Vec<(Value, Value, u16)> = Vec::new();
        for index in 0..count {
            let port = service["spec"]["ports"][index].clone();
            if port_of(&port["nodePort"]).is_none() && !draws_ports {
                continue;
            }
            // A port number with two protocols, for example 53 with TCP and UDP, shares one node port.
            let twin = given
                .iter()
                .filter(|(number, protocol, _)| *number == port["port"] && *protocol != port["protocol"])
                .map(|(_, _, node_port)| *node_port)
                .find(|node_port| port_of(&port["nodePort"]).is_none_or(|requested| requested == *node_port));
            let node_port = match twin {
                Some(node_port) => node_port,
                None => {
                    let field = format!("spec.ports[{index}].nodePort");
                    self.port(service, &port["nodePort"], &field).await?
                }
            };
            service["spec"]["ports"][index]["nodePort"] = node_port.into();
            given.push((port["port"].clone(), port["protocol"].clone(), node_port));
        }
        Ok(())
    }

    async fn port(&mut self, service: &Value, requested: &Value, field: &str) -> Result<u16, Status> {
        let Some(port) = port_of(requested) else { return self.any_port(service).await };
        let allocation = Allocation::Port(port);
        if self.before.contains(&allocation) || self.allocations.made.contains_key(&allocation) {
            return Ok(port);
        }
        if !PORTS.contains(&port) {
            let (first, last) = (PORTS.start(), PORTS.end());
            let why = format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            );
            return Err(invalid(service, field, requested.clone(), &why));
        }
        match self.allocation(service, allocation).await? {
            true => Ok(port),
            false => Err(invalid(service, field, requested.clone(), "provided port is already allocated")),
        }
    }

    async fn any_port(&mut self, service: &Value) -> Result<u16, Status> {
        let draws = (0..DRAWS).map(|_| rand::rng().random_range(PORTS));
        for port in draws.chain(PORTS) {
            if self.allocation(service, Allocation::Port(port)).await? {
                return Ok(port);
            }
        }
        Err(Status::internal("failed to allocate a nodePort: range is full"))
    }

    /// Creates the allocation. Returns false if another Service has it.
    async fn allocation(&mut self, service: &Value, allocation: Allocation) -> Result<bool, Status> {
        let key = allocation.key(self.cluster);
        if self.dry_run {
            return Ok(self.store.get(&key).await.map_err(unreadable)?.value.is_none());
        }
        let (namespace, name) = (metadata::text(service, "namespace"), metadata::text(service, "name"));
        let value = Change::Put(stored::encode(&allocation.object(namespace, name)));
        match self.store.commit(key, Expect::Absent, value).await {
            Ok(event) => {
                self.allocations.made.insert(allocation, event.revision);
                Ok(true)
            }
            Err(CommitError::Conflict { .. }) => Ok(false),
            Err(error) => Err(unwritten_in(GroupResource::new("", "services"), name, error)),
        }
    }
}

/// Refuses IPv6 and dual-stack: cluster IPs are IPv4. A headless Service without a selector needs no address and may
/// name both families.
fn families(service: &Value) -> Result<(), Status> {
    let spec = &service["spec"];
    let selects = spec["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    if spec["clusterIP"] == "None" && !selects {
        return Ok(());
    }
    let both = (spec["ipFamilyPolicy"] == "RequireDualStack").then(|| {
        let why = "this cluster is not configured for dual-stack services";
        FieldError::invalid("spec.ipFamilyPolicy", "RequireDualStack", why)
    });
    let families = spec["ipFamilies"].as_array().into_iter().flatten().enumerate();
    let other = families.filter(|(_, family)| *family == "IPv6").map(|(place, _)| {
        FieldError::invalid(format!("spec.ipFamilies[{place}]"), "IPv6", "not configured on this cluster")
    });
    let errors: Vec<FieldError> = both.into_iter().chain(other).collect();
    if errors.is_empty() { Ok(()) } else { Err(invalid_for(service, &errors)) }
}

fn in_range(address: Ipv4Addr) -> bool {
    let mask = u32::MAX << (32 - ADDRESSES.1);
    u32::from(address) & mask == u32::from(ADDRESSES.0)
}

fn invalid(service: &Value, field: &str, value: Value, why: &str) -> Status {
    invalid_for(service, &[FieldError::invalid(field, value, why)])
}

fn invalid_for(service: &Value, errors: &[FieldError]) -> Status {
    Status::invalid(GroupResource::new("", "Service"), metadata::text(service, "name"), errors)
}
