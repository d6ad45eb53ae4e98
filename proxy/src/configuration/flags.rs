//! Fields that a command line sets; they win over any document.

use super::document::{Document, Iptables, Nftables, Period};
use std::time::Duration;

/// Under the names of upstream's flags; `None` leaves a field to the document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    pub proxy_mode: Option<String>,
    pub cluster_cidr: Option<String>,
    pub masquerade_all: Option<bool>,
    pub iptables_masquerade_bit: Option<i32>,
    pub iptables_sync_period: Option<Duration>,
    pub iptables_min_sync_period: Option<Duration>,
    pub nodeport_addresses: Option<Vec<String>>,
    pub detect_local_mode: Option<String>,
    pub healthz_bind_address: Option<String>,
    pub metrics_bind_address: Option<String>,
}

fn set<T: Clone>(field: &mut Option<T>, flag: &Option<T>) {
    if flag.is_some() {
        field.clone_from(flag);
    }
}

impl Flags {
    pub(super) fn over(&self, mut document: Document) -> Document {
        set(&mut document.mode, &self.proxy_mode);
        set(&mut document.cluster_cidr, &self.cluster_cidr);
        set(&mut document.node_port_addresses, &self.nodeport_addresses);
        set(&mut document.detect_local_mode, &self.detect_local_mode);
        set(&mut document.healthz_bind_address, &self.healthz_bind_address);
        set(&mut document.metrics_bind_address, &self.metrics_bind_address);
        let iptables = document.iptables.get_or_insert_with(Iptables::default);
        set(&mut iptables.masquerade_all, &self.masquerade_all);
        set(&mut iptables.masquerade_bit, &self.iptables_masquerade_bit);
        set(&mut iptables.sync_period, &self.iptables_sync_period.map(Period));
        set(&mut iptables.min_sync_period, &self.iptables_min_sync_period.map(Period));
        let nftables = document.nftables.get_or_insert_with(Nftables::default);
        set(&mut nftables.masquerade_all, &self.masquerade_all);
        document
    }
}
