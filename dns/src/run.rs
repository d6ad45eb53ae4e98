//! Wires the DNS server to the API: Services and slices in, where this node answers out.

use crate::addresses::Addresses;
use crate::announcement::Announcement;
use crate::configuration::source::Source;
use crate::configuration::{Configuration, Given};
use crate::endpoints;
use crate::metrics::{Metric, Metrics};
use crate::pages::{MayAsk, Shown, pages};
use crate::server::{Nodes, Server};
use crate::views::Views;
use crate::zone::{Directory, Zone};
use coracle_api::node_addresses::{CHECKED_ADDRESSES, checked};
use coracle_api::well_known;
use coracle_client::{Context, Informer, ObjectKey};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Socket, Type};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Notify;

/// Connections that wait to be accepted: tokio's own number.
const BACKLOG: i32 = 1024;
/// Bytes of datagrams that wait to be read, the kernel's own of each with them: some 2,700 questions.
const UDP_QUEUE: usize = 2 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen: the node's address and a port that the cluster's DNS Service leads to.
    pub listen: SocketAddr,
    pub node_name: String,
    /// Cluster IP of the Service `kube-dns`.
    pub cluster_dns: IpAddr,
    pub domain: String,
    /// Pods, Services and, beside them, the nodes: nobody else is answered.
    pub clients: Vec<IpNet>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("socket failed")]
    Socket(#[from] std::io::Error),
}

/// How the cluster learns that this node answers names.
pub enum Publication {
    /// It writes where the Service `kube-dns` leads, for itself and for all nodes that announce themselves.
    Endpoints,
    /// It announces itself on its Node, by a client that acts as the node.
    Announcement(kube::Client),
}

/// Answers until the context is stopped.
pub async fn run(context: Context, config: Config, publication: Publication) -> Result<(), Error> {
    let directory = Live::new(&context);
    let synced = futures::future::join3(
        directory.namespaces.synced(),
        directory.services.synced(),
        directory.slices.synced(),
    );
    if context.stop.run_until_cancelled(synced).await.is_none() {
        return Ok(());
    }
    let nodes = context.informers.of::<Node>();
    let Some(address) = context.stop.run_until_cancelled(reachable(&config, &nodes)).await else {
        return Ok(());
    };
    let config = Config { listen: address, ..config };
    let listen = |source| Error::Listen { address, source };
    let udp = UdpSocket::from_std(bind(address, Type::DGRAM).map_err(listen)?.into()).map_err(listen)?;
    let tcp = TcpListener::from_std(bind(address, Type::STREAM).map_err(listen)?.into()).map_err(listen)?;
    let zone = Zone { directory, domain: config.domain.clone() };
    let mut clients = config.clients.clone();
    clients.push(IpNet::from(address.ip()));
    let metrics = Arc::new(Metrics::default());
    let server = Server::new(zone, metrics, clients, follow_nodes(&nodes, &config.node_name));
    let mut source = Source::new(&context, Given { domain: config.domain.clone() }, &config.node_name);
    let Some(first) = context.stop.run_until_cancelled(source.first()).await else { return Ok(()) };
    let own = BTreeSet::from([config.cluster_dns, address.ip()]);
    *server.views.write() = Arc::new(Views::new(&first, &own, &server.metrics));
    let serving = async {
        tokio::select! {
            ended = server.clone().serve_udp(udp) => ended,
            ended = server.clone().serve_tcp(tcp) => ended,
            () = configure(&server, source, &first, own, address.ip()) => Ok(()),
        }
    };
    Box::pin(publishing(&context, &config, &nodes, publication, serving)).await.map_err(Error::Socket)
}

/// Says where this node answers for as long as it serves.
async fn publishing(
    context: &Context,
    config: &Config,
    nodes: &Informer<Node>,
    publication: Publication,
    serving: impl Future<Output = std::io::Result<()>>,
) -> std::io::Result<()> {
    let serving = async { context.stop.run_until_cancelled(serving).await.unwrap_or(Ok(())) };
    match publication {
        Publication::Endpoints => tokio::select! {
            ended = serving => ended,
            () = endpoints::publish(context, &config.node_name, config.listen) => Ok(()),
        },
        Publication::Announcement(client) => {
            let announcement = Announcement::new(client, &config.node_name, config.listen);
            let ended = tokio::select! {
                ended = serving => ended,
                () = announcement.keep(nodes) => Ok(()),
            };
            announcement.end().await;
            ended
        }
    }
}

/// Serves the pages, and takes each new configuration in; never ends.
async fn configure(
    server: &Arc<Server<Live>>,
    mut source: Source,
    first: &Configuration,
    own: BTreeSet<IpAddr>,
    address: IpAddr,
) {
    let asked = server.clone();
    let may_ask: MayAsk = Arc::new(move |ip| asked.may_ask(ip));
    let shown = Shown { metrics: server.metrics.clone(), views: server.views.clone(), may_ask };
    let mut shown_pages = pages(first, address, &shown).await;
    loop {
        match source.next().await {
            Ok(configuration) => {
                *server.views.write() = Arc::new(Views::new(&configuration, &own, &server.metrics));
                // The new ones may want the same ports.
                shown_pages.end().await;
                shown_pages = pages(&configuration, address, &shown).await;
                tracing::info!("the Corefile in the ConfigMap kube-system/coredns is in force");
            }
            Err(()) => server.metrics.add(Metric::ReloadFailed, &[], 1),
        }
    }
}

/// Where pods reach this server. A node without any network has loopback alone, and no packet of a pod may go there: it
/// answers at the first address of its own range of pods, which the pod network gives the machine's end of every pod's
/// link. Waits until the node has a range.
async fn reachable(config: &Config, nodes: &Informer<Node>) -> SocketAddr {
    if !config.listen.ip().is_loopback() {
        return config.listen;
    }
    let changed = Arc::new(Notify::new());
    let wake = Arc::downgrade(&changed);
    nodes.on_change_while(move |_| {
        wake.upgrade().is_some_and(|wake| {
            wake.notify_one();
            true
        })
    });
    loop {
        let own = nodes.get("", &config.node_name);
        if let Some(first) = own.as_deref().and_then(first_of_range) {
            return SocketAddr::new(first, config.listen.port());
        }
        changed.notified().await;
    }
}

fn first_of_range(node: &Node) -> Option<IpAddr> {
    let range: IpNet = node.spec.as_ref()?.pod_cidr.as_deref()?.parse().ok()?;
    range.hosts().next()
}

/// The address may come only with the first pod.
fn bind(address: SocketAddr, kind: Type) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), None)?;
    if kind == Type::STREAM {
        // A server that was restarted need not wait for connections of the one before.
        socket.set_reuse_address(true)?;
    } else if setsockopt(&socket, sockopt::RcvBufForce, &UDP_QUEUE).is_err() {
        // Without the right to pass over the machine's limit it is what that allows.
        socket.set_recv_buffer_size(UDP_QUEUE)?;
    }
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    socket.bind(&address.into())?;
    if kind == Type::STREAM {
        socket.listen(BACKLOG)?;
    }
    Ok(socket)
}

/// What pods of other nodes ask leaves these under the node's own address.
fn follow_nodes(informer: &Informer<Node>, own: &str) -> Nodes {
    let (nodes, own) = (Nodes::default(), own.to_owned());
    let kept = Arc::downgrade(&nodes);
    informer.on_change_while(move |delta| {
        let Some(nodes) = kept.upgrade() else { return false };
        let name = delta.object().and_then(|node| node.metadata.name.clone()).unwrap_or_default();
        match &delta.new {
            Some(node) => {
                let addresses = addresses(node, name == own);
                nodes.write().insert(name, addresses)
            }
            None => nodes.write().remove(&name),
        };
        true
    });
    nodes
}

/// Where the API server has met the node: it can claim any address. Of this process' own node its word is enough.
fn addresses(node: &Node, own: bool) -> Vec<IpAddr> {
    let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(CHECKED_ADDRESSES));
    let met = checked(annotation.map(String::as_str));
    let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = all.filter(|a| a.type_ == "InternalIP").filter_map(|a| a.address.parse::<IpAddr>().ok());
    internal.filter(|ip| own || met.contains(&ip.to_canonical())).collect()
}

/// The zone's data, from the process's informers.
struct Live {
    namespaces: Informer<Namespace>,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    services_at: Arc<Addresses>,
    slices_at: Arc<Addresses>,
}

impl Live {
    fn new(context: &Context) -> Self {
        let (services, slices) = (context.informers.of(), context.informers.of());
        let services_at = Addresses::of_services(&services);
        let slices_at = Addresses::of_slices(&slices);
        Self { namespaces: context.informers.of(), services, slices, services_at, slices_at }
    }
}

impl Directory for Live {
    fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.get("", namespace).is_some()
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.services.get(namespace, name)
    }

    fn slices(&self, namespace: &str, service: &str) -> Vec<Arc<EndpointSlice>> {
        let mut slices = self.slices.list_in(namespace);
        slices.retain(|s| {
            let labels = s.metadata.labels.as_ref();
            labels.and_then(|l| l.get(well_known::SERVICE_NAME)).is_some_and(|n| n == service)
        });
        slices
    }

    fn service_at(&self, ip: IpAddr) -> Option<Arc<Service>> {
        let found = |key: ObjectKey| self.services.get(&key.namespace, &key.name);
        self.services_at.at(ip).into_iter().find_map(found)
    }

    fn slices_at(&self, ip: IpAddr) -> Vec<Arc<EndpointSlice>> {
        let found = |key: ObjectKey| self.slices.get(&key.namespace, &key.name);
        self.slices_at.at(ip).into_iter().filter_map(found).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_network_answers_at_the_first_address_of_its_pods() {
        let node = |range: &str| -> Node {
            serde_json::from_value(serde_json::json!({ "spec": { "podCIDR": range } })).expect("a node")
        };
        assert_eq!(first_of_range(&node("10.42.7.0/24")), Some([10, 42, 7, 1].into()));
        assert_eq!(first_of_range(&node("")), None);
    }

    #[tokio::test]
    async fn the_address_need_not_be_there_yet() {
        let address = "192.0.2.1:0".parse().expect("an address");
        for kind in [Type::DGRAM, Type::STREAM] {
            let socket = bind(address, kind).expect("bound to an address that no interface has");
            assert!(
                socket.local_addr().expect("an address").as_socket().is_some_and(|a| a.ip() == address.ip())
            );
        }
    }
}
