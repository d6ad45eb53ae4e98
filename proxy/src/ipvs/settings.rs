//! The section `ipvs` of KubeProxyConfiguration, checked.

use ipnet::IpNet;
use std::net::IpAddr;
use std::time::Duration;

/// The kernel's schedulers (Documentation/networking/ipvs-sysctl and ipvsadm(8)). Whether this kernel has one shows when it
/// is asked for.
pub const SCHEDULERS: [&str; 13] =
    ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// One of [`SCHEDULERS`].
    pub scheduler: String,
    /// Virtual servers with such addresses are never taken away.
    pub exclude_cidrs: Vec<IpNet>,
    /// Whether this machine answers ARP for an address only on the interface that has it.
    pub strict_arp: bool,
    /// How long the balancer remembers idle connections of TCP, those that are being closed, and flows of UDP; zero leaves
    /// the kernel's.
    pub timeouts: [Duration; 3],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler: "rr".to_owned(),
            exclude_cidrs: Vec::new(),
            strict_arp: false,
            timeouts: [Duration::ZERO; 3],
        }
    }
}

impl Settings {
    pub fn excludes(&self, ip: IpAddr) -> bool {
        self.exclude_cidrs.iter().any(|cidr| cidr.contains(&ip))
    }

    /// Whether new connections go to another endpoint while one has weight 0. `dh` refuses whom it would send there.
    pub fn can_drain(&self) -> bool {
        self.scheduler != "dh"
    }
}
