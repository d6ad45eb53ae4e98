//! The addresses of this machine.

use nix::ifaddrs::getifaddrs;
use std::net::{IpAddr, Ipv4Addr};

/// Every address of every interface, loopback included.
fn interfaces() -> Vec<(String, IpAddr)> {
    let Ok(found) = getifaddrs() else { return Vec::new() };
    found
        .filter_map(|interface| {
            let address = interface.address?;
            let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => IpAddr::V4(v4.ip()),
                (_, Some(v6)) => IpAddr::V6(v6.ip()),
                _ => return None,
            };
            Some((interface.interface_name, ip))
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
/// loopback, else 127.0.0.1, so that a box without a network still starts.
pub fn of_this_node() -> IpAddr {
    let all = interfaces();
    let preferred = default_route_interface();
    let usable = |ip: &IpAddr| ip.is_ipv4() && !ip.is_loopback();
    let by_route = all.iter().find(|(name, ip)| Some(name) == preferred.as_ref() && usable(ip));
    by_route
        .or_else(|| all.iter().find(|(_, ip)| usable(ip)))
        .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(_, ip)| *ip)
}
