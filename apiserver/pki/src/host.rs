//! What this host is called and where it can be reached.

use std::net::IpAddr;

/// The kernel's host name in lower case, or `localhost` where it has none that can stand in a certificate.
pub fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .map(|name| name.to_ascii_lowercase())
        .filter(|name| !name.is_empty() && name.is_ascii())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Addresses of every interface that is up, without loopback and IPv6 link-local ones. Empty if they cannot be read.
pub fn addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let mut found: Vec<IpAddr> = interfaces
        .filter(|i| i.flags.contains(nix::net::if_::InterfaceFlags::IFF_UP))
        .filter_map(|i| i.address)
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
        })
        .filter(is_reachable)
        .collect();
    found.sort();
    found.dedup();
    found
}

fn is_reachable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

/// Host name and addresses together, as a certificate's names.
pub(super) fn names() -> Vec<String> {
    let mut names = vec![host_name()];
    names.extend(addresses().iter().map(ToString::to_string));
    names
}
