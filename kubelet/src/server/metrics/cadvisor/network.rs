//! What went over networks: of a pod, whose network belongs to its sandbox, and of the machine.

use super::Row;
use crate::server::stats::{Interface, Node, PodSample, value};
use coracle_metrics::Text;

type Field = fn(&Interface) -> u64;

const FAMILIES: [(&str, &str, Field); 8] = [
    ("container_network_receive_bytes_total", "Cumulative count of bytes received", |i| i.rx_bytes),
    (
        "container_network_receive_errors_total",
        "Cumulative count of errors encountered while receiving",
        |i| i.rx_errors,
    ),
    (
        "container_network_receive_packets_dropped_total",
        "Cumulative count of packets dropped while receiving",
        |i| i.rx_dropped,
    ),
    ("container_network_receive_packets_total", "Cumulative count of packets received", |i| i.rx_packets),
    ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |i| i.tx_bytes),
    (
        "container_network_transmit_errors_total",
        "Cumulative count of errors encountered while transmitting",
        |i| i.tx_errors,
    ),
    (
        "container_network_transmit_packets_dropped_total",
        "Cumulative count of packets dropped while transmitting",
        |i| i.tx_dropped,
    ),
    ("container_network_transmit_packets_total", "Cumulative count of packets transmitted", |i| i.tx_packets),
];

/// The interfaces of one network, and whose it is.
struct Network<'a> {
    labels: Vec<(&'static str, &'a str)>,
    interfaces: Vec<Interface>,
    millis: i64,
}

/// `image` is that of sandboxes.
pub(super) fn write(page: &mut Text, node: &Node, pods: &[PodSample], rows: &[Row], image: &str) {
    let machine = rows.first().map(|row| Network {
        labels: row.labels(),
        interfaces: node.interfaces.clone(),
        millis: row.millis(),
    });
    let networks: Vec<Network<'_>> =
        machine.into_iter().chain(pods.iter().filter_map(|pod| of_pod(pod, rows, image))).collect();
    for (name, help, field) in FAMILIES {
        page.head(name, help, "counter");
        for network in &networks {
            for interface in &network.interfaces {
                let mut labels = network.labels.clone();
                labels.insert(3, ("interface", &interface.name));
                page.sample_at(name, &labels, field(interface), network.millis);
            }
        }
    }
}

/// As one of its processes sees it, or as far as the runtime tells. One on the machine's network has none of its own.
fn of_pod<'a>(pod: &'a PodSample, rows: &'a [Row], image: &'a str) -> Option<Network<'a>> {
    let handle = pod.handle.as_ref();
    if handle.is_some_and(|handle| handle.host_network) {
        return None;
    }
    let mut own = rows.iter().filter(|row| row.sample.uid == pod.uid);
    let seen = own.find_map(|row| Some(&row.processes.interfaces).filter(|all| !all.is_empty()));
    let interfaces = seen.cloned().unwrap_or_else(|| pod.network.iter().map(told).collect());
    let id = handle.and_then(|handle| handle.sandbox_id.as_deref()).unwrap_or_default();
    let labels = vec![
        ("container", ""),
        ("id", id),
        ("image", image),
        ("name", id),
        ("namespace", &*pod.namespace),
        ("pod", &*pod.pod),
    ];
    Some(Network { labels, interfaces, millis: pod.time_nanos() / 1_000_000 })
}

fn told(of: &crate::cri::api::NetworkInterfaceUsage) -> Interface {
    let of_field = |field: &Option<crate::cri::api::UInt64Value>| value(field.as_ref()).unwrap_or(0);
    Interface {
        name: of.name.clone(),
        rx_bytes: of_field(&of.rx_bytes),
        rx_errors: of_field(&of.rx_errors),
        tx_bytes: of_field(&of.tx_bytes),
        tx_errors: of_field(&of.tx_errors),
        ..Interface::default()
    }
}
