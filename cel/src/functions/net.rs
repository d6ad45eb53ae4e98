//! Kubernetes' IP and CIDR libraries.

use super::{Cost, Function, text};
use crate::error::EvalError;
use crate::value::{Library, Value};
use ipnet::IpNet;
use std::net::IpAddr;

macro_rules! address {
    ($name:literal, $test:expr) => {
        Function {
            name: $name,
            signatures: &[concat!("net.IP.", $name, "(): bool")],
            run: |args| {
                let test: fn(&IpAddr) -> bool = $test;
                Ok(Value::Bool(test(&ip(&args[0])?)))
            },
            cost: Cost::Flat,
        }
    };
}

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "ip",
        signatures: &["ip(string): net.IP", "net.CIDR.ip(): net.IP"],
        run: |args| match &args[0] {
            Value::String(shown) => {
                let address = parse_ip(shown).map(|ip| Value::library(Library::Ip(ip)));
                address.ok_or_else(|| {
                    EvalError::Message(format!(
                        "IP Address \"{}\" parse error during conversion from string",
                        &**shown
                    ))
                })
            }
            other => Ok(Value::library(Library::Ip(cidr(other)?.addr()))),
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "isIP",
        signatures: &["isIP(string): bool"],
        run: |args| Ok(Value::Bool(parse_ip(text(&args[0])?).is_some())),
        cost: Cost::Traverse,
    },
    Function {
        name: "ip.isCanonical",
        signatures: &["ip.isCanonical(string): bool"],
        run: |args| {
            let shown = text(&args[0])?;
            match parse_ip(shown) {
                Some(address) => Ok(Value::Bool(address.to_string() == shown)),
                None => {
                    EvalError::of(format!("IP Address \"{shown}\" parse error during conversion from string"))
                }
            }
        },
        cost: Cost::Rewrite,
    },
    Function {
        name: "family",
        signatures: &["net.IP.family(): int"],
        run: |args| Ok(Value::Int(if ip(&args[0])?.is_ipv4() { 4 } else { 6 })),
        cost: Cost::Flat,
    },
    address!("isUnspecified", IpAddr::is_unspecified),
    address!("isLoopback", IpAddr::is_loopback),
    address!("isLinkLocalMulticast", |ip| match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }),
    address!("isLinkLocalUnicast", link_local),
    address!("isGlobalUnicast", |ip| {
        let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
        !(broadcast || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local(ip))
    }),
    Function {
        name: "cidr",
        signatures: &["cidr(string): net.CIDR"],
        run: |args| {
            let shown = text(&args[0])?;
            let net = parse_cidr(shown).map(|net| Value::library(Library::Cidr(net)));
            net.ok_or_else(|| {
                EvalError::Message(format!(
                    "network address parse error during conversion from string: {shown}"
                ))
            })
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "isCIDR",
        signatures: &["isCIDR(string): bool"],
        run: |args| Ok(Value::Bool(parse_cidr(text(&args[0])?).is_some())),
        cost: Cost::Traverse,
    },
    Function {
        name: "containsIP",
        signatures: &["net.CIDR.containsIP(net.IP): bool", "net.CIDR.containsIP(string): bool"],
        run: |args| {
            let address = match &args[1] {
                Value::String(shown) => parse_ip(shown).ok_or_else(|| {
                    EvalError::Message(format!(
                        "IP Address \"{}\" parse error during conversion from string",
                        &**shown
                    ))
                })?,
                other => ip(other)?,
            };
            Ok(Value::Bool(cidr(&args[0])?.contains(&address)))
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "containsCIDR",
        signatures: &["net.CIDR.containsCIDR(net.CIDR): bool", "net.CIDR.containsCIDR(string): bool"],
        run: |args| {
            let inner = match &args[1] {
                Value::String(shown) => parse_cidr(shown).ok_or_else(|| {
                    let what = "network address parse error during conversion from string";
                    EvalError::Message(format!("{what}: {}", &**shown))
                })?,
                other => cidr(other)?,
            };
            Ok(Value::Bool(cidr(&args[0])?.contains(&inner)))
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "prefixLength",
        signatures: &["net.CIDR.prefixLength(): int"],
        run: |args| Ok(Value::Int(i64::from(cidr(&args[0])?.prefix_len()))),
        cost: Cost::Flat,
    },
    Function {
        name: "masked",
        signatures: &["net.CIDR.masked(): net.CIDR"],
        run: |args| Ok(Value::library(Library::Cidr(cidr(&args[0])?.trunc()))),
        cost: Cost::Flat,
    },
];

fn link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Neither zones nor IPv4 addresses written as IPv6 ones are taken, as upstream takes none.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    (!mapped).then_some(address)
}

fn parse_cidr(text: &str) -> Option<IpNet> {
    let net: IpNet = text.parse().ok()?;
    let mapped = matches!(net.addr(), IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    (!mapped).then_some(net)
}

fn ip(value: &Value<'_>) -> Result<IpAddr, EvalError> {
    match value {
        Value::Library(library) => match library.as_ref() {
            Library::Ip(ip) => Ok(*ip),
            _ => Err(EvalError::NoOverload),
        },
        _ => Err(EvalError::NoOverload),
    }
}

fn cidr(value: &Value<'_>) -> Result<IpNet, EvalError> {
    match value {
        Value::Library(library) => match library.as_ref() {
            Library::Cidr(net) => Ok(*net),
            _ => Err(EvalError::NoOverload),
        },
        _ => Err(EvalError::NoOverload),
    }
}
