//! Where the servers are, as the Service `kubernetes` says it.

use super::Servers;
use axum::http::Uri;
use coracle_api::error::chain;
use coracle_client::FollowedObject;
use k8s_openapi::api::core::v1::{EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use rand::Rng;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Servers come and go seldom, and one that went is noticed by itself.
const ASK_INTERVAL: Duration = Duration::from_secs(60);
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

impl Servers {
    /// Follows what the Service leads to, for ever. The client needs the proxy's rights.
    pub async fn learn(&self, client: kube::Client) {
        let mut followed = FollowedObject::<EndpointSlice>::new(client, SLICES, "kubernetes");
        loop {
            if let Some(slice) = followed.next().await {
                self.know(of_slice(&slice));
            }
        }
    }

    /// Asks what the Service leads to, once a minute, for ever: a kubelet may read that, and not watch it.
    pub async fn ask(&self, client: kube::Client) {
        let endpoints: Api<Endpoints> = Api::namespaced(client, "default");
        loop {
            match endpoints.get("kubernetes").await {
                Ok(found) => self.know(of_endpoints(&found)),
                Err(error) => tracing::debug!(why = chain(&error), "the cluster's servers are not told"),
            }
            let jitter = rand::rng().random_range(0.0..ASK_INTERVAL.as_secs_f64() / 5.0);
            tokio::time::sleep(ASK_INTERVAL + Duration::from_secs_f64(jitter)).await;
        }
    }
}

fn url(address: &str, port: u16) -> Option<Uri> {
    let ip: IpAddr = address.parse().ok()?;
    format!("https://{}/", SocketAddr::new(ip, port)).parse().ok()
}

fn of_endpoints(endpoints: &Endpoints) -> Vec<Uri> {
    let subsets = endpoints.subsets.iter().flatten();
    let of_subset = |subset: &EndpointSubset| -> Vec<Uri> {
        let port = subset.ports.iter().flatten().find_map(|port| u16::try_from(port.port).ok());
        let addresses = subset.addresses.iter().flatten();
        addresses.filter_map(|address| url(&address.ip, port?)).collect()
    };
    subsets.flat_map(of_subset).collect()
}

fn of_slice(slice: &EndpointSlice) -> Vec<Uri> {
    let Some(port) = slice.ports.iter().flatten().find_map(|port| u16::try_from(port.port?).ok()) else {
        return Vec::new();
    };
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    });
    let addresses = ready.flat_map(|endpoint| &endpoint.addresses);
    addresses.filter_map(|address| url(address, port)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_the_endpoints_that_are_ready() {
        let slice = serde_json::json!({
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": 6443}],
            "endpoints": [
                {"addresses": ["192.0.2.1"], "conditions": {"ready": true}},
                {"addresses": ["192.0.2.2"], "conditions": {"ready": false}},
                {"addresses": ["2001:db8::1"]},
            ],
        });
        let found = of_slice(&serde_json::from_value(slice).expect("a slice"));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["https://192.0.2.1:6443/", "https://[2001:db8::1]:6443/"]);
        assert!(of_slice(&EndpointSlice::default()).is_empty());
        let legacy = serde_json::json!({
            "subsets": [{"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}], "ports": [{"port": 6443}]}],
        });
        let found = of_endpoints(&serde_json::from_value(legacy).expect("endpoints"));
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].to_string(), "https://192.0.2.2:6443/");
    }
}
