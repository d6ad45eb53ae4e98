//! The two families of addresses, as a value.

use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub const fn of(ip: IpAddr) -> Self {
        if ip.is_ipv6() { Self::V6 } else { Self::V4 }
    }

    /// As EndpointSlices (`addressType`), metrics and people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The length of one address as a prefix.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// Whether this machine's kernel has it.
    pub fn is_there(self) -> bool {
        self == Self::V4 || std::path::Path::new("/proc/sys/net/ipv6").exists()
    }

    /// The family of a network that is written as text.
    pub fn of_network(network: &str) -> Self {
        if network.contains(':') { Self::V6 } else { Self::V4 }
    }

    /// Loopback's own network.
    pub const fn loopback(self) -> &'static str {
        match self {
            Self::V4 => "127.0.0.0/8",
            Self::V6 => "::1/128",
        }
    }

    /// Everything that is sent to many.
    pub const fn multicast(self) -> &'static str {
        match self {
            Self::V4 => "224.0.0.0/4",
            Self::V6 => "ff00::/8",
        }
    }
}

/// An address and a port as rules write them.
pub fn socket(ip: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(ip, port).to_string()
}
