//! The device that wraps packets to pods of nodes on other networks (RFC 7348), by way of `ip` and `bridge` of iproute2.
//!
//! It learns nothing and asks nobody: each node's end has a hardware address that follows from the node's name, and where a
//! range is, is written down beside its route.

use super::plan::{Mac, Tunnel};
use super::routes::{RouteError, run};
use crate::family::Family;
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::net::IpAddr;

pub const DEVICE: &str = "coracle.vxlan";
/// Neither flannel's (1, 8472), Cilium's (8472) nor Calico's (4096, 4789): they may be on the machine, too.
pub const VNI: u32 = 4220;
pub const PORT: u16 = 8474;

/// What wrapping adds to a packet, in bytes: the outer IP header, UDP's, VXLAN's, and the inner frame's.
const fn overhead(outer: Family) -> u32 {
    match outer {
        Family::V4 => 20 + 8 + 8 + 14,
        Family::V6 => 40 + 8 + 8 + 14,
    }
}

/// An interface of this machine.
#[derive(Clone, Debug, Deserialize)]
struct Link {
    ifname: String,
    mtu: u32,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    local: IpAddr,
    prefixlen: u8,
}

impl Link {
    fn networks(&self) -> impl Iterator<Item = IpNet> {
        self.addr_info.iter().filter_map(|a| Some(IpNet::new(a.local, a.prefixlen).ok()?.trunc()))
    }

    fn has(&self, address: IpAddr) -> bool {
        self.addr_info.iter().any(|a| a.local == address)
    }
}

/// The networks that this machine is on.
pub async fn networks() -> Result<Vec<IpNet>, RouteError> {
    let links = links().await?;
    Ok(links.iter().filter(|link| link.ifname != DEVICE).flat_map(Link::networks).collect())
}

/// This machine's interfaces.
async fn links() -> Result<Vec<Link>, RouteError> {
    parse(&run("ip", &["-j", "address", "show"]).await?)
}

fn parse<T: DeserializeOwned>(output: &[u8]) -> Result<Vec<T>, RouteError> {
    // Without anything to show some versions print nothing at all.
    let text = if output.trim_ascii().is_empty() { b"[]" } else { output };
    Ok(serde_json::from_slice(text)?)
}

/// The device as the kernel has it.
#[derive(Debug, Deserialize)]
struct Shown {
    mtu: u32,
    address: String,
    linkinfo: LinkInfo,
}

#[derive(Debug, Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
    info_data: Option<serde_json::Value>,
}

impl Shown {
    /// Its MTU does not matter: that can be changed.
    fn is(&self, wanted: &Tunnel) -> bool {
        let data = self.linkinfo.info_data.as_ref();
        let field = |name: &str| data.and_then(|data| data.get(name)).cloned().unwrap_or_default();
        let local = ["local", "local6"].map(field).iter().find_map(|ip| ip.as_str()?.parse::<IpAddr>().ok());
        self.linkinfo.info_kind.as_deref() == Some("vxlan")
            && field("id") == VNI
            && field("port") == PORT
            && local == Some(wanted.local)
            && self.address == wanted.mac.to_string()
    }
}

fn is_there() -> bool {
    nix::net::if_::if_nametoindex(DEVICE).is_ok()
}

async fn shown() -> Result<Option<Shown>, RouteError> {
    if !is_there() {
        return Ok(None);
    }
    Ok(parse(&run("ip", &["-j", "-d", "link", "show", "dev", DEVICE]).await?)?.pop())
}

/// Makes the device, or what is missing of it. Gives its MTU, and whether it is another than before: then nothing leads to
/// it yet.
///
/// # Errors
/// The kernel has no VXLAN, or this machine has not the address.
pub async fn ensure(wanted: &Tunnel) -> Result<(u32, bool), RouteError> {
    let under = links().await?.into_iter().find(|link| link.has(wanted.local));
    let mtu = under.map_or(1500, |link| link.mtu).saturating_sub(overhead(Family::of(wanted.local)));
    // What IPv6 needs at least; below it the device would have none.
    let mtu = mtu.max(1280);
    let before = shown().await?;
    let is_new = !before.as_ref().is_some_and(|device| device.is(wanted));
    if is_new {
        if before.is_some() {
            run("ip", &["link", "del", DEVICE]).await?;
        }
        let (vni, port) = (VNI.to_string(), PORT.to_string());
        let (local, mac) = (wanted.local.to_string(), wanted.mac.to_string());
        let kind = [
            "type",
            "vxlan",
            "id",
            vni.as_str(),
            "local",
            local.as_str(),
            "dstport",
            port.as_str(),
            "nolearning",
        ];
        run("ip", &[&["link", "add", DEVICE, "address", mac.as_str()][..], &kind].concat()).await?;
        run("ip", &["link", "set", DEVICE, "addrgenmode", "none"]).await?;
    }
    run("ip", &["link", "set", DEVICE, "mtu", &mtu.to_string(), "up"]).await?;
    // What this node sends to pods elsewhere is answered by the same way.
    for address in &wanted.addresses {
        let whole = format!("{address}/{}", Family::of(*address).bits());
        // Nobody else can have it, so nobody is asked.
        let parts = ["address", "replace", whole.as_str(), "dev", DEVICE, "nodad"];
        let parts = if address.is_ipv6() { &parts[..] } else { &parts[..5] };
        run("ip", parts).await?;
    }
    Ok((mtu, is_new))
}

/// Takes the device away with all that leads to it; gives the MTU that it had.
pub async fn remove() -> Result<Option<u32>, RouteError> {
    let Some(device) = shown().await? else { return Ok(None) };
    run("ip", &["link", "del", DEVICE]).await?;
    Ok(Some(device.mtu))
}

#[derive(Deserialize)]
struct Neighbour {
    dst: IpAddr,
    lladdr: Option<Mac>,
}

#[derive(Deserialize)]
struct Forwarding {
    mac: Mac,
    dst: Option<IpAddr>,
}

/// Where gateways on the device are: the machine, and its end's hardware address.
pub async fn ends() -> Result<BTreeMap<IpAddr, (IpAddr, Mac)>, RouteError> {
    let mut neighbours: Vec<Neighbour> = Vec::new();
    for family in Family::ALL.into_iter().filter(|family| family.is_there()) {
        let option = if family == Family::V6 { "-6" } else { "-4" };
        let shows = ["-j", option, "neighbour", "show", "dev", DEVICE, "nud", "permanent"];
        neighbours.extend(parse::<Neighbour>(&run("ip", &shows).await?)?);
    }
    let known: Vec<Forwarding> = parse(&run("bridge", &["-j", "fdb", "show", "dev", DEVICE]).await?)?;
    let known: BTreeMap<Mac, IpAddr> =
        known.into_iter().filter_map(|entry| Some((entry.mac, entry.dst?))).collect();
    let end = |neighbour: Neighbour| {
        let mac = neighbour.lladdr?;
        Some((neighbour.dst, (*known.get(&mac)?, mac)))
    };
    Ok(neighbours.into_iter().filter_map(end).collect())
}

/// Says where a gateway on the device is.
pub async fn place(gateway: IpAddr, machine: IpAddr, mac: Mac) -> Result<(), RouteError> {
    let (gateway, machine, mac) = (gateway.to_string(), machine.to_string(), mac.to_string());
    run("bridge", &["fdb", "replace", &mac, "dev", DEVICE, "dst", &machine]).await?;
    let known =
        ["neighbour", "replace", gateway.as_str(), "lladdr", mac.as_str(), "dev", DEVICE, "nud", "permanent"];
    run("ip", &known).await.map(drop)
}

/// Forgets a gateway; and its end, where it is `last` of it. Harmless when they are gone already.
pub async fn displace(gateway: IpAddr, mac: Mac, last: bool) -> Result<(), RouteError> {
    let (gateway, mac) = (gateway.to_string(), mac.to_string());
    let known = run("ip", &["neighbour", "del", &gateway, "dev", DEVICE]).await;
    let end = if last { run("bridge", &["fdb", "del", &mac, "dev", DEVICE]).await } else { Ok(Vec::new()) };
    for done in [known, end] {
        match done {
            Err(RouteError::Refused { .. }) | Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
