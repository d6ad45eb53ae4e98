//! Where the Service `kube-dns` leads: to every node that answers names, and from each node to itself first.
//!
//! A server publishes its own address, and those of the nodes that announce theirs (see `announcement`): a node can say no
//! more of itself than where it is met.

use crate::announcement::{Announced, announced};
use coracle_api::well_known;
use coracle_client::{Context, Informer};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "kube-dns";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Slices of servers, each written by that server.
const OF_SERVER: &str = "dns.coracle.io";
/// Slices of nodes that announce themselves, written and taken away by any server.
const OF_NODE: &str = "announced.dns.coracle.io";
/// Until a write that was refused is tried again: twice as long each time, and so long at most.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// What a slice is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    node: String,
    manager: &'static str,
    at: Announced,
}

/// Keeps the slices as they should be; never ends.
pub async fn publish(context: &Context, node_name: &str, own: SocketAddr) {
    let (nodes, slices) = (context.informers.of::<Node>(), context.informers.of::<EndpointSlice>());
    let changed = Arc::new(Notify::new());
    follow(&nodes, &slices, &changed);
    // Loopback is each node's own: nobody else is led there.
    let own = (!own.ip().is_loopback()).then(|| Wanted {
        node: node_name.to_owned(),
        manager: OF_SERVER,
        at: Announced { at: own, ready: true },
    });
    let api: Api<EndpointSlice> = Api::namespaced(context.client.clone(), NAMESPACE);
    let mut pause = RETRY_INTERVAL;
    loop {
        match settle(&api, &slices, &wanted(&nodes.list(), own.as_ref())).await {
            Ok(()) => {
                pause = RETRY_INTERVAL;
                changed.notified().await;
            }
            Err(error) => {
                tracing::warn!(%error, "the endpoints of kube-dns were not written, trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_RETRY_INTERVAL);
            }
        }
    }
}

/// Wakes `changed` for each change that can matter.
fn follow(nodes: &Informer<Node>, slices: &Informer<EndpointSlice>, changed: &Arc<Notify>) {
    let waking = |changed: &Arc<Notify>| {
        let changed = Arc::downgrade(changed);
        move |matters: bool| {
            let changed = changed.upgrade();
            if let Some(changed) = changed.as_ref().filter(|_| matters) {
                changed.notify_one();
            }
            changed.is_some()
        }
    };
    let wake = waking(changed);
    nodes.on_change_while(move |delta| {
        let [old, new] = [&delta.old, &delta.new].map(|node| node.as_deref().and_then(announced));
        wake(old != new)
    });
    let wake = waking(changed);
    slices.on_change_while(move |delta| wake(delta.object().is_some_and(|slice| manager(slice).is_some())));
}

fn wanted(nodes: &[Arc<Node>], own: Option<&Wanted>) -> BTreeMap<String, Wanted> {
    let of_nodes = nodes.iter().filter_map(|node| {
        let (name, at) = (node.metadata.name.clone()?, announced(node)?);
        Some(Wanted { node: name, manager: OF_NODE, at })
    });
    // What this process answers itself it knows best.
    of_nodes.chain(own.cloned()).map(|wanted| (format!("{SERVICE}-{}", wanted.node), wanted)).collect()
}

/// The manager of a slice of ours.
fn manager(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    let of_dns = labels.get(well_known::SERVICE_NAME).is_some_and(|service| service == SERVICE);
    labels.get(MANAGED_BY).map(String::as_str).filter(|by| of_dns && [OF_SERVER, OF_NODE].contains(by))
}

/// One round. What somebody else wrote meanwhile is looked at again when its news arrives.
async fn settle(
    api: &Api<EndpointSlice>,
    slices: &Informer<EndpointSlice>,
    wanted: &BTreeMap<String, Wanted>,
) -> Result<(), kube::Error> {
    for (name, wanted) in wanted {
        let slice = slice(name, wanted)?;
        match slices.get(NAMESPACE, name) {
            None => or_overtaken(api.create(&PostParams::default(), &slice).await)?,
            Some(present) if is_same(&present, &slice) => {}
            // A slice keeps its family for life: the next round makes it anew.
            Some(present) if present.address_type != slice.address_type => {
                or_overtaken(api.delete(name, &DeleteParams::default()).await)?;
            }
            Some(present) => {
                let mut slice = slice;
                slice.metadata.resource_version.clone_from(&present.metadata.resource_version);
                or_overtaken(api.replace(name, &PostParams::default(), &slice).await)?;
            }
        }
    }
    for slice in slices.iter_in(NAMESPACE).filter(|slice| manager(slice) == Some(OF_NODE)) {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        if !wanted.contains_key(name) {
            or_overtaken(api.delete(name, &DeleteParams::default()).await)?;
        }
    }
    Ok(())
}

fn is_same(present: &EndpointSlice, slice: &EndpointSlice) -> bool {
    present.endpoints == slice.endpoints
        && present.ports == slice.ports
        && present.address_type == slice.address_type
        && manager(present) == manager(slice)
}

fn or_overtaken<T>(done: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        done => done.map(drop),
    }
}

fn slice(name: &str, wanted: &Wanted) -> Result<EndpointSlice, kube::Error> {
    let Wanted { node, manager, at: Announced { at, ready } } = wanted;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": {
            well_known::SERVICE_NAME: SERVICE,
            MANAGED_BY: manager,
        }},
        "addressType": if at.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{ "addresses": [at.ip().to_string()], "nodeName": node,
            "conditions": { "ready": ready, "serving": ready, "terminating": false },
            // A pod asks its own node where that answers.
            "hints": { "forNodes": [{ "name": node }] } }],
        "ports": [{ "name": "dns", "protocol": "UDP", "port": at.port() },
                  { "name": "dns-tcp", "protocol": "TCP", "port": at.port() }],
    });
    serde_json::from_str(&slice.to_string()).map_err(kube::Error::SerdeError)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, announced: &str) -> Arc<Node> {
        let annotations = json!({ "coracle.io/dns": announced, "coracle.io/checked-addresses": "192.0.2.2" });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let node = json!({ "metadata": { "name": name, "annotations": annotations }, "status": { "conditions": ready } });
        Arc::new(serde_json::from_value(node).expect("a node"))
    }

    fn own() -> Wanted {
        let at = Announced { at: "192.0.2.1:10053".parse().expect("an address"), ready: true };
        Wanted { node: "one".to_owned(), manager: OF_SERVER, at }
    }

    #[test]
    fn every_node_that_answers_is_led_to_and_the_own_one_by_its_own_word() {
        let nodes =
            [node("one", "192.0.2.2:1"), node("two", "192.0.2.2:10053"), node("three", "192.0.2.9:10053")];
        let all = wanted(&nodes, Some(&own()));
        let of = |name: &str| all.get(name).map(|wanted| (wanted.manager, wanted.at.at.to_string()));
        assert_eq!(of("kube-dns-one"), Some((OF_SERVER, "192.0.2.1:10053".to_owned())));
        assert_eq!(of("kube-dns-two"), Some((OF_NODE, "192.0.2.2:10053".to_owned())));
        assert_eq!(of("kube-dns-three"), None, "nobody has met it there");
    }

    #[test]
    fn a_slice_is_for_its_own_node() {
        let slice = slice("kube-dns-one", &own()).expect("a slice");
        let endpoint = slice.endpoints.iter().flatten().next().expect("an endpoint");
        let hints = endpoint.hints.as_ref().and_then(|hints| hints.for_nodes.as_ref());
        assert_eq!(hints.map(|nodes| nodes[0].name.as_str()), Some("one"));
        assert_eq!(manager(&slice), Some(OF_SERVER));
        assert!(is_same(&slice, &slice.clone()));
        let mut elsewhere = own();
        elsewhere.at.at.set_port(53);
        assert!(!is_same(&slice, &super::slice("kube-dns-one", &elsewhere).expect("a slice")));
    }
}
