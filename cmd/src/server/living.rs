//! Which servers on one store live: each renews a Lease, and the Service `kubernetes` leads to those that do.
//!
//! As upstream's lease endpoint reconciler, with Leases of the API in the place of keys in etcd. Every server comes to the
//! same result, so it matters little who writes it, and a lost race is made good in the next round.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort as SlicePort, EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LABEL: &str = "coracle.io/api-server";
const ADDRESS: &str = "coracle.io/address";
const NAMESPACE: &str = "kube-system";
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Upstream's `DefaultEndpointReconcilerTTL`: three rounds. It is judged by the observer's own clock.
const DEAD_AGE: Duration = Duration::from_secs(15);
/// A Lease of a server that does not come back is taken away.
const FORGOTTEN_AGE: Duration = Duration::from_secs(300);

pub struct Living {
    pub client: kube::Client,
    pub address: SocketAddr,
    /// Unique among the servers, and different after each start.
    pub identity: String,
}

/// When each Lease was last seen to change, and to what.
type Seen = HashMap<String, (Option<MicroTime>, Instant)>;

impl Living {
    /// Renews and looks, until `stop`; then this server is taken out.
    pub async fn run(self, stop: CancellationToken) -> Result<(), kube::Error> {
        let mut seen = Seen::new();
        loop {
            if let Err(error) = self.round(&mut seen).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the living servers are not known");
            }
            if stop.run_until_cancelled(tokio::time::sleep(RENEWAL_INTERVAL)).await.is_none() {
                break;
            }
        }
        self.leases().delete(&self.name(), &DeleteParams::default()).await.map(drop)?;
        let others = self.living(&mut seen).await?;
        self.write(&others).await
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn name(&self) -> String {
        let ip = self.address.ip().to_string().replace(['.', ':'], "-");
        format!("coracle-server-{ip}-{}", self.address.port())
    }

    async fn round(&self, seen: &mut Seen) -> Result<(), kube::Error> {
        self.renew().await?;
        let all = self.living(seen).await?;
        self.write(&all).await
    }

    async fn renew(&self) -> Result<(), kube::Error> {
        let api = self.leases();
        let present = api.get_opt(&self.name()).await?;
        let metadata = ObjectMeta {
            name: Some(self.name()),
            labels: Some(BTreeMap::from([(LABEL.to_owned(), "true".to_owned())])),
            annotations: Some(BTreeMap::from([(ADDRESS.to_owned(), self.address.to_string())])),
            resource_version: present.as_ref().and_then(|lease| lease.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        };
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DEAD_AGE.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        };
        let lease = Lease { metadata, spec: Some(spec) };
        match present {
            Some(_) => api.replace(&self.name(), &PostParams::default(), &lease).await.map(drop),
            None => api.create(&PostParams::default(), &lease).await.map(drop),
        }
    }

    /// The addresses of all that live, by the names of their Leases. Those that were dead for long are forgotten.
    async fn living(&self, seen: &mut Seen) -> Result<BTreeMap<String, SocketAddr>, kube::Error> {
        let leases = self.leases().list(&ListParams::default().labels(LABEL)).await?.items;
        let now = Instant::now();
        let mut living = BTreeMap::new();
        for lease in &leases {
            let (Some(name), Some(address)) = (lease.metadata.name.clone(), address_of(lease)) else {
                continue;
            };
            let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
            let last = seen.entry(name.clone()).or_insert((renewed.clone(), now));
            if last.0 != renewed {
                *last = (renewed, now);
            }
            let silent = now - last.1;
            if silent > FORGOTTEN_AGE {
                self.leases().delete(&name, &DeleteParams::default()).await.map(drop)?;
            } else if silent <= DEAD_AGE {
                living.insert(name, address);
            }
        }
        seen.retain(|name, _| leases.iter().any(|lease| lease.metadata.name.as_ref() == Some(name)));
        Ok(living)
    }

    async fn write(&self, living: &BTreeMap<String, SocketAddr>) -> Result<(), kube::Error> {
        let is_v4 = self.address.is_ipv4();
        let Some((ips, port)) = reachable(living, is_v4) else { return Ok(()) };
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), "default");
        replace(&slices, slice(&ips, port, is_v4), |old, new| {
            old.endpoints == new.endpoints && old.ports == new.ports
        })
        .await?;
        let endpoints: Api<Endpoints> = Api::namespaced(self.client.clone(), "default");
        replace(&endpoints, legacy(&ips, port), |old, new| old.subsets == new.subsets).await
    }
}

fn address_of(lease: &Lease) -> Option<SocketAddr> {
    lease.metadata.annotations.as_ref()?.get(ADDRESS)?.parse().ok()
}

/// Addresses, and the one port of all: that of the first, as upstream takes all servers to have the same.
fn reachable(living: &BTreeMap<String, SocketAddr>, is_v4: bool) -> Option<(BTreeSet<IpAddr>, u16)> {
    let fits = |address: &&SocketAddr| !address.ip().is_loopback() && address.is_ipv4() == is_v4;
    let port = living.values().find(fits)?.port();
    Some((living.values().filter(fits).map(SocketAddr::ip).collect(), port))
}

async fn replace<K>(api: &Api<K>, mut object: K, is_same: impl Fn(&K, &K) -> bool) -> Result<(), kube::Error>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    match api.get_opt("kubernetes").await? {
        Some(old) if is_same(&old, &object) => Ok(()),
        Some(old) => {
            object.meta_mut().resource_version.clone_from(&old.meta().resource_version);
            api.replace("kubernetes", &PostParams::default(), &object).await.map(drop)
        }
        None => api.create(&PostParams::default(), &object).await.map(drop),
    }
}

fn metadata(label: &str, value: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some("kubernetes".to_owned()),
        labels: Some(BTreeMap::from([(label.to_owned(), value.to_owned())])),
        ..ObjectMeta::default()
    }
}

fn slice(ips: &BTreeSet<IpAddr>, port: u16, is_v4: bool) -> EndpointSlice {
    let endpoint = |ip: &IpAddr| Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(true), ..EndpointConditions::default() }),
        ..Endpoint::default()
    };
    let port = SlicePort {
        name: Some("https".to_owned()),
        port: Some(i32::from(port)),
        protocol: Some("TCP".to_owned()),
        ..SlicePort::default()
    };
    EndpointSlice {
        metadata: metadata("kubernetes.io/service-name", "kubernetes"),
        address_type: if is_v4 { "IPv4" } else { "IPv6" }.to_owned(),
        endpoints: Some(ips.iter().map(endpoint).collect()),
        ports: Some(vec![port]),
    }
}

fn legacy(ips: &BTreeSet<IpAddr>, port: u16) -> Endpoints {
    let address = |ip: &IpAddr| EndpointAddress { ip: ip.to_string(), ..EndpointAddress::default() };
    let port = EndpointPort {
        name: Some("https".to_owned()),
        port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..EndpointPort::default()
    };
    let subset = EndpointSubset {
        addresses: Some(ips.iter().map(address).collect()),
        ports: Some(vec![port]),
        ..EndpointSubset::default()
    };
    Endpoints {
        metadata: metadata("endpointslice.kubernetes.io/skip-mirror", "true"),
        subsets: Some(vec![subset]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_comes_to_the_same_addresses_and_port() {
        let living = |all: &[&str]| -> BTreeMap<String, SocketAddr> {
            all.iter().map(|text| (text.to_string(), text.parse().expect("an address"))).collect()
        };
        let all = living(&["192.0.2.2:6443", "192.0.2.1:6443", "127.0.0.1:7000", "[2001:db8::1]:6443"]);
        let (ips, port) = reachable(&all, true).expect("some");
        let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
        assert_eq!((ips, port), (vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()], 6443));
        assert_eq!(reachable(&living(&["127.0.0.1:6443"]), true), None);
    }
}
