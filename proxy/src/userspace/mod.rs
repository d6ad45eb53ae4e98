//! The userspace mode: this process carries the bytes. It needs no right at all; without any, a Service is reached at a
//! port of 127.0.0.1 that the log and `/relays` on the metrics port name, and node ports answer on the machine's addresses.
//! With the right to change the network (CAP_NET_ADMIN), Services' addresses are given to an interface of the proxy's own,
//! and answer for themselves. Endpoints see this machine's address as their client's.

mod addresses;
mod balancer;
mod relay;

use crate::backend::{Backend, BackendError, Harm};
use crate::command::Own;
use crate::family::Family;
use crate::model::{PortName, ServicePort};
use crate::nftables::Nftables;
use crate::notices::Notice;
use crate::plan::{Plan, Settings};
use addresses::Addresses;
use async_trait::async_trait;
use balancer::Balancer;
use parking_lot::Mutex;
use relay::{Door, Room};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

/// The table that masquerades in this mode.
const TABLE: &str = "kube-proxy-userspace";

/// What the relays of both families share. Cloning shares it.
#[derive(Clone, Default)]
pub struct Relays {
    /// Where Services are reached without any right, by their port's name.
    at: Arc<Mutex<BTreeMap<PortName, SocketAddr>>>,
    room: Room,
}

impl Relays {
    /// As JSON: `namespace/service:port/protocol` and the address.
    pub fn json(&self) -> String {
        let all = self.at.lock();
        let named: BTreeMap<String, String> = all
            .iter()
            .map(|(name, at)| (format!("{}/{}", name.label(), name.protocol), at.to_string()))
            .collect();
        serde_json::json!(named).to_string()
    }
}

/// An entrance of one port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entrance {
    name: PortName,
    at: At,
    local: bool,
    guarded: bool,
    networks: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Socket(SocketAddr),
    /// Some port of loopback.
    Loopback,
}

struct Open(JoinHandle<()>);

impl Open {
    /// The socket is free when this returns.
    async fn close(mut self) {
        self.0.abort();
        // It was aborted, which is no news.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One family's relays.
pub struct Userspace {
    family: Family,
    addresses: Addresses,
    /// Masquerades what pods send elsewhere, where that is the proxy's to do.
    packets: Nftables,
    relays: Relays,
    balancers: BTreeMap<PortName, Arc<Balancer>>,
    open: BTreeMap<Entrance, Open>,
    plan: Option<Plan>,
    has_rights: bool,
}

impl Userspace {
    pub fn new(family: Family, own: Own, relays: Relays) -> Self {
        Self {
            family,
            addresses: Addresses::new(family, own.clone()),
            packets: Nftables::of_table(TABLE, family, own),
            relays,
            balancers: BTreeMap::new(),
            open: BTreeMap::new(),
            plan: None,
            has_rights: false,
        }
    }

    fn entrances(&self, port: &ServicePort, settings: &Settings) -> Vec<Entrance> {
        let make = |at: At, local: bool, guarded: bool| {
            let networks = if guarded { Vec::new() } else { settings.node_port_networks.clone() };
            let networks = if at == At::Loopback { Vec::new() } else { networks };
            Entrance { name: port.name.clone(), at, local, guarded, networks }
        };
        let of = |ip: IpAddr| At::Socket(SocketAddr::new(ip, port.port));
        let has = |local: bool| {
            let endpoints = if local { port.local_endpoints() } else { port.cluster_endpoints() };
            !endpoints.is_empty()
        };
        let mut all = Vec::new();
        // Nobody listens where nothing is behind: clients are refused, not kept waiting.
        if has(port.internal_local) {
            let at = if self.has_rights { of(port.cluster_ip) } else { At::Loopback };
            all.push(Entrance { networks: Vec::new(), ..make(at, port.internal_local, false) });
        }
        if has(port.external_local) {
            if self.has_rights {
                let open = port.external_ips.iter().map(|ip| make(of(*ip), port.external_local, false));
                all.extend(open.map(|entrance| Entrance { networks: Vec::new(), ..entrance }));
                all.extend(port.guarded_ips.iter().map(|ip| make(of(*ip), port.external_local, true)));
            }
            if port.node_port != 0 {
                let any: IpAddr = match self.family {
                    Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
                    Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
                };
                let at = At::Socket(SocketAddr::new(any, port.node_port));
                all.push(make(at, port.external_local, false));
            }
        }
        all
    }

    async fn open(&mut self, entrance: Entrance) -> std::io::Result<()> {
        let balancer = self.balancers.entry(entrance.name.clone()).or_default().clone();
        let networks = entrance.networks.iter().filter_map(|net| net.parse().ok()).collect();
        let room = self.relays.room.clone();
        let door = Door { room, balancer, local: entrance.local, guarded: entrance.guarded, networks };
        let loopback: IpAddr = match self.family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        let at = match entrance.at {
            At::Socket(at) => at,
            At::Loopback => SocketAddr::new(loopback, 0),
        };
        let (task, at) = match entrance.name.protocol.as_str() {
            "tcp" => {
                let listener = listen(at)?;
                let at = listener.local_addr()?;
                (tokio::spawn(relay::tcp(listener, door)), at)
            }
            "udp" => {
                let socket = UdpSocket::from_std(bound(at, socket2::Type::DGRAM)?.into())?;
                let at = socket.local_addr()?;
                (tokio::spawn(relay::udp(socket, door)), at)
            }
            other => return Err(std::io::Error::other(format!("{other} is not relayed"))),
        };
        if entrance.at == At::Loopback {
            let service = entrance.name.label();
            tracing::info!(service, protocol = entrance.name.protocol, address = %at, "a Service is reached here");
            self.relays.at.lock().insert(entrance.name.clone(), at);
        }
        self.open.insert(entrance, Open(task));
        Ok(())
    }

    /// Closes every entrance that is not wanted.
    async fn close_others(&mut self, wanted: &BTreeSet<Entrance>) {
        let open = std::mem::take(&mut self.open);
        for (entrance, relay) in open {
            if wanted.contains(&entrance) {
                self.open.insert(entrance, relay);
                continue;
            }
            if entrance.at == At::Loopback {
                self.relays.at.lock().remove(&entrance.name);
            }
            relay.close().await;
        }
    }
}

/// One family's socket: those of IPv6 leave IPv4 to others.
fn bound(at: SocketAddr, kind: socket2::Type) -> std::io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(at), kind, None)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if kind == socket2::Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// Connections that wait to be accepted; the system's own limit (net.core.somaxconn) holds too.
const BACKLOG: i32 = 1024;

fn listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = bound(at, socket2::Type::STREAM)?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[async_trait]
impl Backend for Userspace {
    async fn adopt(&mut self) -> Result<(), BackendError> {
        self.has_rights = self.addresses.begin().await?;
        if !self.has_rights {
            tracing::info!(
                "without the right to change the network, Services are reached at ports of loopback: see /relays on the metrics port"
            );
        }
        Ok(())
    }

    async fn sync(&mut self, plan: &Plan) -> Result<(), BackendError> {
        if self.has_rights {
            let of_ports = |port: &ServicePort| {
                let mut all = vec![port.cluster_ip];
                all.extend(port.external_ips.iter().chain(&port.guarded_ips));
                all
            };
            let wanted: BTreeSet<IpAddr> = plan.ports().flat_map(of_ports).collect();
            self.addresses.set(wanted, &plan.settings.service_cidrs).await?;
            let settings = Settings { service_cidrs: Vec::new(), ..(*plan.settings).clone() };
            let settings = Arc::new(settings);
            self.packets.sync(&Plan { settings, ..Plan::empty(self.family) }).await?;
        }
        for port in plan.ports() {
            self.balancers.entry(port.name.clone()).or_default().set(port);
        }
        let wanted: BTreeSet<Entrance> =
            plan.ports().flat_map(|port| self.entrances(port, &plan.settings)).collect();
        self.close_others(&wanted).await;
        for entrance in wanted {
            if self.open.contains_key(&entrance) {
                continue;
            }
            let (service, at) = (entrance.name.label(), entrance.at.clone());
            if let Err(error) = self.open(entrance).await {
                tracing::warn!(service, ?at, %error, "a Service is not reached here");
            }
        }
        let names: BTreeSet<&PortName> = plan.ports().map(|port| &port.name).collect();
        self.balancers.retain(|name, _| names.contains(name));
        self.plan = Some(plan.clone());
        Ok(())
    }

    fn harm(&self, notice: &Notice) -> Harm {
        if self.has_rights { self.packets.harm(notice) } else { Harm::None }
    }

    async fn is_intact(&mut self) -> Result<bool, BackendError> {
        Ok(!self.has_rights || (self.addresses.is_intact().await? && self.packets.is_intact().await?))
    }

    async fn repair(&mut self) -> Result<(), BackendError> {
        if !self.has_rights {
            return Ok(());
        }
        self.addresses.repair().await?;
        self.packets.repair().await
    }

    async fn clean_up(&mut self) -> Result<(), BackendError> {
        self.close_others(&BTreeSet::new()).await;
        self.plan = None;
        self.addresses.clean_up().await?;
        self.packets.clean_up().await
    }

    fn rules(&self) -> Vec<(&'static str, usize)> {
        vec![("relays", self.open.len())]
    }

    fn needs_looks(&self) -> bool {
        self.has_rights
    }
}
