//! The ipvs mode: the kernel's own balancer (IP Virtual Server) chooses endpoints, by one of its schedulers.
//!
//! Each entrance of a Service (cluster IP, external address, node port on each address of this machine) is a virtual server,
//! each endpoint a real one behind it, over generic netlink. The addresses of Services lie on the dummy interface
//! `kube-ipvs0`, so that their packets come to the balancer. One table `kube-proxy-ipvs` of nftables for each family
//! masquerades, guards and refuses; its sets have the names of kube-proxy's, and they are also the record of which virtual
//! servers are ours: others' are never touched.
//!
//! The kernel tells nobody of changes to virtual servers: they are looked at each `syncPeriod`.

mod backend;
mod interface;
mod link;
mod packets;
mod servers;
mod settings;
mod wanted;

pub use backend::Ipvs;
pub use settings::{SCHEDULERS, Settings};
