//! The addresses of this machine, and what becomes of them.

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::net::UnixDatagram;

/// RTMGRP_IPV4_IFADDR and RTMGRP_IPV4_ROUTE (include/uapi/linux/rtnetlink.h): addresses and routes that come and go.
const GROUPS: u32 = 0x10 | 0x40;
/// How long the network may take from its first change to its last: a DHCP client takes the old address away, sets the new
/// one, then the route. Too short and an address between two is taken; too long and the node is not reached meanwhile.
const SETTLES: Duration = Duration::from_secs(2);

/// An address that an interface has.
struct Found {
    interface: String,
    ip: IpAddr,
    /// Whether a network is behind it; what leads to a single pod has none.
    network: bool,
    /// Of containers, mostly, and there before any cable is in.
    bridge: bool,
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
            let bridge = std::path::Path::new("/sys/class/net")
                .join(&interface.interface_name)
                .join("bridge")
                .exists();
            Some(Found { interface: interface.interface_name, ip, network, bridge })
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
        .or_else(|| usable.iter().find(|found| found.network && !found.bridge))
        .or_else(|| usable.iter().find(|found| found.network))
        .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |found| found.ip)
}

/// The interface that has the address.
fn interface_of(all: &[Found], ip: IpAddr) -> Option<&str> {
    all.iter().find(|found| found.ip == ip).map(|found| found.interface.as_str())
}

/// The address that the machine has in the place of one that it has no more. An address that is still there is kept, and
/// so is one that has no successor: of the same interface, or of the one with the default route. Else a bridge of containers
/// would do while the cable is out. Loopback, which stands for none at all, is given up for any, and a bridge that was there
/// before the network for the interface with the default route.
fn successor(
    now: IpAddr,
    interface: Option<&str>,
    all: &[Found],
    preferred: Option<&str>,
    ranges: &[IpNet],
) -> Option<IpAddr> {
    let stopgap = |found: &&Found| found.bridge && preferred.is_some_and(|name| name != found.interface);
    let there = all.iter().find(|found| found.ip == now);
    if !now.is_loopback() && there.is_some() && there.filter(stopgap).is_none() {
        return None;
    }
    let next = chosen(all, preferred.or(interface), ranges);
    let at = interface_of(all, next);
    let fits = now.is_loopback() || at == preferred || at == interface;
    (fits && !next.is_loopback()).then_some(next)
}

/// Returns when the machine has another address than `now`, which it has then. Costs nothing while no address and no route
/// changes; without the kernel's word for it, which every kernel gives, it never returns.
pub async fn moved(now: IpAddr, ranges: &[&str]) -> IpAddr {
    let ranges: Vec<IpNet> = ranges.iter().filter_map(|range| range.parse().ok()).collect();
    let interface = interface_of(&interfaces(), now).map(str::to_owned);
    let changes = match listen() {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!(%error, "the kernel does not tell of changed addresses; this node keeps its own");
            return std::future::pending().await;
        }
    };
    loop {
        // It may have changed before anybody listened.
        let preferred = default_route_interface();
        if let Some(next) = successor(now, interface.as_deref(), &interfaces(), preferred.as_deref(), &ranges)
        {
            return next;
        }
        changes.next().await;
        tokio::time::sleep(SETTLES).await;
        changes.forget();
    }
}

struct Changes(UnixDatagram);

fn listen() -> io::Result<Changes> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
    // To the runtime all sockets of packets are alike: this is its type for one that is no UDP.
    UnixDatagram::from_std(socket.into()).map(Changes)
}

impl Changes {
    /// What changed is looked up, not read: an error means that more has changed than the kernel could tell.
    async fn next(&self) {
        let mut message = [0; 64];
        if let Err(error) = self.0.recv(&mut message).await {
            tracing::debug!(%error, "more addresses changed than could be told");
        }
    }

    fn forget(&self) {
        let mut message = [0; 64];
        while self.0.try_recv(&mut message).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_followed_and_no_bridge_of_containers_is() {
        let (old, new) = (IpAddr::from([192, 0, 2, 7]), IpAddr::from([192, 0, 2, 8]));
        let lo = || found("lo", [127, 0, 0, 1], true);
        let bridge = || found("docker0", [172, 17, 0, 1], true);
        let next = |all: &[Found], preferred| successor(old, Some("eth0"), all, preferred, &[]);
        let both = [lo(), found("eth0", [192, 0, 2, 7], true), found("eth0", [192, 0, 2, 8], true)];
        assert_eq!(next(&both, Some("eth0")), None, "it is still there");
        assert_eq!(next(&[lo(), bridge()], None), None, "the cable is out");
        assert_eq!(next(&[lo()], None), None);
        assert_eq!(next(&[lo(), bridge(), found("eth0", [192, 0, 2, 8], true)], Some("eth0")), Some(new));
        assert_eq!(
            next(&[lo(), bridge(), found("eth0", [192, 0, 2, 8], true)], None),
            Some(new),
            "no route yet"
        );
        assert_eq!(next(&[lo(), bridge(), found("wlan0", [192, 0, 2, 8], true)], Some("wlan0")), Some(new));
        assert_eq!(
            next(&[lo(), found("wlan0", [192, 0, 2, 8], true)], None),
            None,
            "nobody says that it leads anywhere"
        );
        let first = IpAddr::from([172, 17, 0, 1]);
        let all = [lo(), bridge(), found("eth0", [192, 0, 2, 8], true)];
        assert_eq!(successor(first, Some("docker0"), &all, None, &[]), None);
        assert_eq!(
            successor(first, Some("docker0"), &all, Some("eth0"), &[]),
            Some(new),
            "a start before the network"
        );
        assert_eq!(chosen(&all, None, &[]), new);
        assert_eq!(chosen(&all[..2], None, &[]), first);
        let none = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(successor(none, Some("lo"), &[lo()], None, &[]), None);
        let up = [lo(), found("eth0", [192, 0, 2, 8], true)];
        assert_eq!(
            successor(none, Some("lo"), &up, None, &[]),
            Some(new),
            "the first address after a start without"
        );
    }

    fn found(interface: &str, ip: [u8; 4], network: bool) -> Found {
        let bridge = interface.starts_with("docker");
        Found { interface: interface.to_owned(), ip: ip.into(), network, bridge }
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
