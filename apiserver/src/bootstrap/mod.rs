//! What a cluster has from the first moment: namespaces, default RBAC objects, priority and storage classes, the
//! `kubernetes` Service, cluster DNS's objects.
//!
//! [`plan`] compares with what is there and says what to write; [`apply`] writes it. On a later start the plan is
//! usually empty. What users changed stays: objects are created when they are missing, default roles and bindings get
//! back the rules and subjects they lack unless `rbac.authorization.kubernetes.io/autoupdate` is `false`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#auto-reconciliation>), and what describes this
//! server (its address, its CA) follows it.

mod addresses;
mod api_services;
mod apply;
mod cluster;
mod plan;
mod rbac;

#[cfg(test)]
mod tests;

pub use apply::{BootstrapError, apply};
pub use plan::{Planned, plan};

use coracle_api::Object;
use std::net::IpAddr;

/// The cluster's DNS.
#[derive(Clone, Debug)]
pub struct ClusterDns {
    /// Of the Service `kube-dns`.
    pub ip: IpAddr,
    /// What it does at first, in the ConfigMap `coredns`.
    pub corefile: String,
}

/// The facts of this cluster that the objects carry.
#[derive(Clone, Debug)]
pub struct BootstrapConfig {
    /// Where pods reach the API server behind the `kubernetes` Service; loopback addresses are left out, and without
    /// any other the Service has no endpoints.
    pub api_addresses: Vec<IpAddr>,
    pub api_port: u16,
    /// The first address of the service CIDR.
    pub service_ip: IpAddr,
    /// Where the addresses of Services come from: the ServiceCIDR `kubernetes`; of both families with a comma between.
    /// `service_ip` is of the first.
    pub service_cidr: String,
    /// The addresses of all pods, told to the proxies of machines that join; written like the Services'.
    pub cluster_cidr: String,
    /// Whether the built-in provisioner runs, and so whether there is a default class of it.
    pub local_path: bool,
    /// `None`: the cluster has no DNS of its own.
    pub dns: Option<ClusterDns>,
    pub ca_pem: String,
    pub front_proxy_ca_pem: String,
    /// URL in the public `cluster-info`, for machines that join.
    pub server_url: String,
}

/// One object that must exist, and how it is kept.
pub(crate) struct Wanted {
    /// `<plural>.<group>`
    pub resource: &'static str,
    pub object: Object,
    pub keep: Keep,
}

/// What happens to an object that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is the users' now.
    AsItIs,
    /// Missing rules are added, unless the role is aggregated: then its rules are the aggregation controller's.
    Rules,
    /// Missing subjects are added.
    Subjects,
    /// These top-level fields become ours again.
    Fields(&'static [&'static str]),
    /// This entry of `data` becomes ours again.
    Entry(&'static str),
    /// The range of pods beside the proxies' document becomes ours again, and with it a document that nobody has changed.
    Range,
    /// This entry of `data` becomes ours again if it is no day such as `2026-01-31`.
    Day(&'static str),
    /// Gets the range of a second family that it lacks, and its condition Ready, if it has none and is still as it was made.
    Ready,
}

/// Everything; namespaces and the range of the Services' addresses come first.
pub(crate) fn wanted(config: &BootstrapConfig) -> Vec<Wanted> {
    let mut all = cluster::objects(config);
    all.extend(rbac::objects());
    all.extend(api_services::objects());
    all
}
