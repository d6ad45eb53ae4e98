//! The addresses of this machine.

pub mod follow;

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use serde::Deserialize;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A node's own addresses: the first is of the cluster's primary family, a second one of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeIps {
    pub first: IpAddr,
    pub second: Option<IpAddr>,
}

impl NodeIps {
    /// With commas between.
    pub fn shown(self) -> String {
        self.all().map(|ip| ip.to_string()).collect::<Vec<_>>().join(",")
    }

    pub fn all(self) -> impl Iterator<Item = IpAddr> {
        std::iter::once(self.first).chain(self.second)
    }

    /// Where a server listens that nobody gave an address: on all of the machine's.
    pub fn anywhere(self) -> IpAddr {
        let six = self.all().any(|ip| ip.is_ipv6());
        if six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
    }
}

impl From<IpAddr> for NodeIps {
    fn from(first: IpAddr) -> Self {
        Self { first, second: None }
    }
}

impl FromStr for NodeIps {
    type Err = String;

    /// As the kubelet's `--node-ip`: an address, or one of each family with a comma between.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| format!("{text:?} is no address"));
        let Some((first, second)) = text.split_once(',') else { return parse(text).map(Self::from) };
        let (first, second) = (parse(first)?, parse(second)?);
        if first.is_ipv4() == second.is_ipv4() {
            return Err("must be an address, or one of each family".to_owned());
        }
        Ok(Self { first, second: Some(second) })
    }
}

impl TryFrom<String> for NodeIps {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// An address that an interface has.
#[derive(Clone)]
struct Found {
    interface: String,
    ip: IpAddr,
    /// Whether a network is behind it; what leads to a single pod has none.
    network: bool,
    /// Whether the kernel takes it away by itself before long: a temporary address of IPv6 (RFC 8981), or one that is
    /// deprecated.
    passing: bool,
}

/// Bits of /proc/net/if_inet6 (include/uapi/linux/if_addr.h).
const IFA_F_TEMPORARY: u32 = 0x01;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_DEPRECATED: u32 = 0x20;
const IFA_F_TENTATIVE: u32 = 0x40;

/// The flags of each address of IPv6 in /proc/net/if_inet6.
fn flags_of_v6(table: &str) -> HashMap<Ipv6Addr, u32> {
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let address = u128::from_str_radix(fields.first()?, 16).ok()?;
        Some((Ipv6Addr::from(address), u32::from_str_radix(fields.get(4)?, 16).ok()?))
    };
    table.lines().filter_map(entry).collect()
}

/// Every address of every interface, loopback included; of IPv6 those that can be used by now.
fn interfaces() -> Vec<Found> {
    let Ok(found) = getifaddrs() else { return Vec::new() };
    let flags = flags_of_v6(&std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default());
    let of = |ip: IpAddr| match ip {
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) => flags.get(&ip).copied().unwrap_or(0),
    };
    found
        .filter_map(|interface| {
            let (address, mask) = (interface.address?, interface.netmask);
            let (ip, network) = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => {
                    let mask = mask.as_ref().and_then(|mask| Some(mask.as_sockaddr_in()?.ip()));
                    (IpAddr::V4(v4.ip()), mask != Some(Ipv4Addr::BROADCAST))
                }
                (_, Some(v6)) => {
                    let mask = mask.as_ref().and_then(|mask| Some(mask.as_sockaddr_in6()?.ip()));
                    (IpAddr::V6(v6.ip()), mask != Some(Ipv6Addr::from(u128::MAX)))
                }
                _ => return None,
            };
            let passing = of(ip) & (IFA_F_TEMPORARY | IFA_F_DEPRECATED) != 0;
            Some(Found { interface: interface.interface_name, ip, network, passing })
        })
        .filter(|found| of(found.ip) & (IFA_F_TENTATIVE | IFA_F_DADFAILED) == 0)
        .collect()
}

/// Names of the interfaces with the default route, for IPv4 and IPv6, from the kernel's routing tables (proc(5),
/// /proc/net/route and /proc/net/ipv6_route).
fn default_route_interfaces() -> [Option<String>; 2] {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let of_v4 = read("/proc/net/route").lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?;
        (fields.next()? == "00000000").then(|| name.to_owned())
    });
    [of_v4, default_of_v6(&read("/proc/net/ipv6_route"))]
}

/// The kernel keeps one on loopback, too, that refuses.
fn default_of_v6(table: &str) -> Option<String> {
    let is_default =
        |fields: &[&str]| fields.first()?.bytes().all(|b| b == b'0').then_some(fields[1] == "00");
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let name = fields.get(9).filter(|name| **name != "lo")?;
        is_default(&fields)?.then(|| (*name).to_owned())
    })
}

/// How a node's addresses are chosen where nobody says them.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Of pods and Services: the machine's end of a pod's link is no address of the node's.
    pub ranges: Vec<IpNet>,
    /// IPv4 is false; the second only where there is one. None is as IPv4 alone.
    pub families: Vec<bool>,
}

impl Choice {
    /// As the kubelet chooses: of the interface with the default route, else any that is not loopback, else loopback's, so
    /// that a box without a network still starts.
    pub fn now(&self) -> NodeIps {
        let machine = Machine::now();
        let find = |six: bool| chosen(&machine, &self.ranges, six);
        let first_is_six = self.families.first().copied().unwrap_or(false);
        let loopback: IpAddr =
            if first_is_six { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        NodeIps {
            first: find(first_is_six).unwrap_or(loopback),
            second: self.families.get(1).and_then(|six| find(*six)),
        }
    }
}

/// What the kernel says of this machine's network.
#[derive(Default)]
struct Machine {
    addresses: Vec<Found>,
    /// With the default route, of IPv4 and IPv6.
    routes: [Option<String>; 2],
}

impl Machine {
    fn now() -> Self {
        Self { addresses: interfaces(), routes: default_route_interfaces() }
    }

    fn route(&self, six: bool) -> Option<&str> {
        self.routes[usize::from(six)].as_deref()
    }

    /// The node's address among those that fit; one that lasts, if it can be had.
    fn best(&self, ranges: &[IpNet], six: bool, fits: impl Fn(&Found) -> bool) -> Option<IpAddr> {
        let is_usable = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => !six && !ip.is_loopback(),
            IpAddr::V6(ip) => six && !ip.is_loopback() && !ip.is_unicast_link_local(),
        };
        let all = self.addresses.iter().filter(|found| is_usable(&found.ip) && fits(found));
        let own = all.filter(|found| !ranges.iter().any(|range| range.contains(&found.ip)));
        // The first of those that compare equal.
        own.min_by_key(|found| found.passing).map(|found| found.ip)
    }

    fn on(&self, interface: &str, ranges: &[IpNet], six: bool) -> Option<IpAddr> {
        self.best(ranges, six, |found| found.interface == interface)
    }
}

fn chosen(machine: &Machine, ranges: &[IpNet], six: bool) -> Option<IpAddr> {
    let by_route = machine.route(six).and_then(|interface| machine.on(interface, ranges, six));
    by_route.or_else(|| machine.best(ranges, six, |found| found.network))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(interface: &str, ip: &str, network: bool) -> Found {
        Found {
            interface: interface.to_owned(),
            ip: ip.parse().expect("an address"),
            network,
            passing: false,
        }
    }

    fn chosen(all: &[Found], route: Option<&str>, ranges: &[IpNet], six: bool) -> Option<IpAddr> {
        let routes = [route.map(str::to_owned), route.map(str::to_owned)];
        super::chosen(&Machine { addresses: all.to_vec(), routes }, ranges, six)
    }

    fn ip(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    #[test]
    fn a_link_to_a_pod_is_no_address_of_the_node() {
        let mut all = vec![found("lo", "127.0.0.1", true), found("veth1", "10.42.0.1", false)];
        let ranges = ["10.42.0.0/16".parse().expect("a range")];
        assert_eq!(chosen(&all, None, &ranges, false), None);
        assert_eq!(chosen(&all, None, &[], false), None, "an agent that knows no range yet");
        all.push(found("cni0", "10.42.0.1", true));
        all.push(found("eth1", "192.0.2.7", true));
        assert_eq!(chosen(&all, None, &ranges, false), ip("192.0.2.7"));
        // Machines of clouds often have a single address of a network that only the route knows.
        all.push(found("eth0", "198.51.100.7", false));
        assert_eq!(chosen(&all, Some("eth0"), &ranges, false), ip("198.51.100.7"));
    }

    #[test]
    fn of_ipv6_link_local_addresses_are_none() {
        let all = [
            found("lo", "::1", true),
            found("eth0", "fe80::1", true),
            found("veth1", "fd42::1", false),
            found("eth0", "2001:db8::7", true),
            found("eth0", "192.0.2.7", true),
        ];
        assert_eq!(chosen(&all, Some("eth0"), &[], true), ip("2001:db8::7"));
        assert_eq!(chosen(&all[..3], Some("eth0"), &[], true), None);
    }

    #[test]
    fn an_address_that_lasts_is_chosen() {
        let passing = Found { passing: true, ..found("eth0", "2001:db8::a", true) };
        let all = [passing, found("eth0", "2001:db8::7", true)];
        assert_eq!(chosen(&all, Some("eth0"), &[], true), ip("2001:db8::7"));
        assert_eq!(chosen(&all[..1], Some("eth0"), &[], true), ip("2001:db8::a"), "there is no other");
        let table = "20010db8000000000000000000000007 02 40 00 21     eth0\nx\n";
        let flags = flags_of_v6(table);
        assert_eq!(flags.len(), 1);
        assert_eq!(flags["2001:db8::7".parse::<Ipv6Addr>().as_ref().expect("an address")], 0x21);
    }

    #[test]
    fn the_default_route_of_ipv6_is_read() {
        let zero = "00000000000000000000000000000000";
        let line = |to: &str, bits: &str, name: &str| {
            format!("{to} {bits} {zero} 00 {zero} 00000400 00000001 00000000 00000003 {name}\n")
        };
        let table = line("20010db8000000000000000000000000", "40", "eth1")
            + &line(zero, "00", "lo")
            + &line(zero, "00", "eth0");
        assert_eq!(default_of_v6(&table).as_deref(), Some("eth0"));
        assert_eq!(default_of_v6("x\n"), None);
    }

    #[test]
    fn one_address_or_one_of_each_family() {
        let both: NodeIps = "192.0.2.1,2001:db8::1".parse().expect("both");
        assert_eq!((ip("192.0.2.1"), ip("2001:db8::1")), (Some(both.first), both.second));
        assert_eq!(both.anywhere().to_string(), "::");
        assert_eq!("192.0.2.1".parse::<NodeIps>().map(NodeIps::anywhere), Ok(IpAddr::from([0, 0, 0, 0])));
        for wrong in ["", "x", "192.0.2.1,", "192.0.2.1,192.0.2.2", "192.0.2.1,::1,::2"] {
            assert!(wrong.parse::<NodeIps>().is_err(), "{wrong}");
        }
    }
}
