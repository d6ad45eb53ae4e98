//! The addresses of a cluster: what is said of them, checked.

use super::File;
use crate::address::{Choice, NodeIps};
use crate::args::ServerArgs;
use crate::cidrs::{Cidrs, CidrsError};

/// The ranges of pods and of Services, and the node's place among them.
pub struct Networks {
    pub cluster_cidr: Cidrs,
    pub service_cidr: Cidrs,
    pub node_ips: NodeIps,
    /// How the node's addresses are chosen; `None` where somebody says them.
    pub address_choice: Option<Choice>,
}

impl Networks {
    /// As flags and the file say, else the defaults; mistakes are told.
    pub(super) fn of(args: &mut ServerArgs, file: &mut File, mistakes: &mut Vec<String>) -> Self {
        let said = (args.cluster_cidr.take().or(file.cluster_cidr.take()), args.service_cidr.take());
        let cluster_cidr = cidr("cluster-cidr", said.0, "10.42.0.0/16", mistakes);
        let service_cidr =
            cidr("service-cidr", said.1.or(file.service_cidr.take()), "10.43.0.0/16", mistakes);
        check_sizes(&cluster_cidr, &service_cidr, mistakes);
        let said = args.node_ip.or(file.node_ip);
        let address_choice = said.is_none().then(|| address_choice(&cluster_cidr, &service_cidr));
        let node_ips =
            said.or(address_choice.as_ref().map(Choice::now)).unwrap_or_else(|| Choice::default().now());
        Self { cluster_cidr, service_cidr, node_ips, address_choice }
    }
}

fn cidr(flag: &str, asked: Option<String>, default: &str, mistakes: &mut Vec<String>) -> Cidrs {
    let text = asked.unwrap_or_else(|| default.to_owned());
    text.parse().unwrap_or_else(|why: CidrsError| {
        let example = if why == CidrsError::NoCidr { format!(" such as {default}") } else { String::new() };
        mistakes.push(format!("{flag}: \"{text}\" {why}{example}"));
        Cidrs::default()
    })
}

/// Addresses of a Service are counted in 64 bits at most, as upstream's; a node's range of pods is cut from the cluster's.
fn check_sizes(pods: &Cidrs, services: &Cidrs, mistakes: &mut Vec<String>) {
    if let Some(large) = services.iter().find(|range| range.addr().is_ipv6() && range.prefix_len() < 64) {
        mistakes.push(format!("service-cidr: {large} is too large, a prefix of IPv6 has 64 bits or more"));
    }
    if let Err(why) = pods.to_string().parse::<coracle_controllers::ClusterCidr>()
        && pods.first().is_some()
    {
        mistakes.push(format!("cluster-cidr: {why}"));
    }
}

/// In the families of the cluster's Services.
fn address_choice(pods: &Cidrs, services: &Cidrs) -> Choice {
    Choice {
        ranges: pods.iter().chain(services.iter()).collect(),
        families: services.iter().map(|range| range.addr().is_ipv6()).collect(),
    }
}
