//! The addresses of this machine.

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use std::net::{IpAddr, Ipv4Addr};

/// An address that an interface has.
struct Found {
    interface: String,
    ip: IpAddr,
    /// Whether a network is behind it; what leads to a single pod has none.
    network: bool,
}

/// Every address of every interface, loopback included.
fn interfaces() -> Vec<Found> {
    let Ok(found) = getifaddrs() else { return Vec::new() };
    found
        .filter_map(|interface| {
            let address = interface.address?;
            let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => IpAddr::V4(v4.ip()),
                (_, Some(v6)) => IpAddr::V6(v6.ip()),
                _ => return None,
            };
            let mask = interface.netmask.as_ref().and_then(|mask| Some(mask.as_sockaddr_in()?.ip()));
            let network = mask != Some(Ipv4Addr::BROADCAST);
            Some(Found { interface: interface.interface_name, ip, network })
        })
        .collect()
}

/// Name of the interface with the default route, from the kernel's routing table (proc(5), /proc/net/route).
fn default_route_interface() -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/route").ok()?;
    let mut fields = table.lines().skip(1).map(|line| line.split_whitespace());
    fields.find_map(|mut f| {
        let name = f.next()?;
        (f.next()? == "00000000").then(|| name.to_owned())
    })
}

/// The node's address as the kubelet chooses it: of the interface with the default route, else any that is not
/// loopback, else 127.0.0.1, so that a box without a network still starts. `ranges` are of pods and Services: the
/// machine's end of a pod's link is no address of the node's.
pub fn of_this_node(ranges: &[&str]) -> IpAddr {
    let ranges: Vec<IpNet> = ranges.iter().filter_map(|range| range.parse().ok()).collect();
    chosen(&interfaces(), default_route_interface().as_deref(), &ranges)
}

fn chosen(all: &[Found], preferred: Option<&str>, ranges: &[IpNet]) -> IpAddr {
    let usable: Vec<&Found> = all
        .iter()
        .filter(|found| found.ip.is_ipv4() && !found.ip.is_loopback())
        .filter(|found| !ranges.iter().any(|range| range.contains(&found.ip)))
        .collect();
    let by_route = usable.iter().find(|found| Some(found.interface.as_str()) == preferred);
    by_route
        .or_else(|| usable.iter().find(|found| found.network))
        .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |found| found.ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(interface: &str, ip: [u8; 4], network: bool) -> Found {
        Found { interface: interface.to_owned(), ip: ip.into(), network }
    }

    #[test]
    fn a_link_to_a_pod_is_no_address_of_the_node() {
        let mut all = vec![found("lo", [127, 0, 0, 1], true), found("veth1", [10, 42, 0, 1], false)];
        let ranges = ["10.42.0.0/16".parse().expect("a range")];
        assert_eq!(chosen(&all, None, &ranges), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(chosen(&all, None, &[]), IpAddr::from([127, 0, 0, 1]), "an agent that knows no range yet");
        all.push(found("cni0", [10, 42, 0, 1], true));
        all.push(found("eth1", [192, 0, 2, 7], true));
        assert_eq!(chosen(&all, None, &ranges), IpAddr::from([192, 0, 2, 7]));
        // Machines of clouds often have a single address of a network that only the route knows.
        all.push(found("eth0", [198, 51, 100, 7], false));
        assert_eq!(chosen(&all, Some("eth0"), &ranges), IpAddr::from([198, 51, 100, 7]));
    }
}
