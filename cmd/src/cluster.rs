//! What a cluster tells its nodes: asked for until it is answered.

use crate::agent::transport;
use axum::http::Uri;
use coracle_api::error::chain;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use serde::Deserialize;
use std::net::IpAddr;
use std::time::Duration;

/// Between attempts.
const RETRY: Duration = Duration::from_secs(2);

/// Where pods ask for names: the address of the Service `kube-dns`; none in a cluster without.
pub async fn dns(client: &kube::Client, server: &Uri) -> Option<IpAddr> {
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    loop {
        match services.get_opt("kube-dns").await {
            Ok(service) => return service?.spec?.cluster_ip?.parse().ok(),
            Err(error) => unread(server, "the Service kube-system/kube-dns", &error).await,
        }
    }
}

/// Where the API server is reached; empty where its name cannot be looked up.
pub async fn addresses(server: &Uri) -> Vec<IpAddr> {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    match tokio::net::lookup_host((host, server.port_u16().unwrap_or(443))).await {
        Ok(found) => found.map(|socket| socket.ip()).collect(),
        Err(_) => Vec::new(),
    }
}

#[derive(Deserialize)]
struct ProxyConfiguration {
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: String,
}

/// The addresses of all pods, from the proxies' configuration.
pub async fn cidr(client: &kube::Client, server: &Uri) -> Result<String, String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map = loop {
        match maps.get("kube-proxy").await {
            Ok(map) => break map,
            Err(error) => unread(server, "the ConfigMap kube-system/kube-proxy", &error).await,
        }
    };
    let text = map.data.unwrap_or_default().remove("config.conf").unwrap_or_default();
    let read: Result<ProxyConfiguration, _> = serde_saphyr::from_str(&text);
    let cidr = read.map_err(|e| format!("ConfigMap kube-system/kube-proxy: {}", chain(&e)))?.cluster_cidr;
    match cidr.parse::<ipnet::IpNet>() {
        Ok(_) => Ok(cidr),
        Err(_) => Err(format!("ConfigMap kube-system/kube-proxy: clusterCIDR \"{cidr}\" is no CIDR")),
    }
}

async fn unread(server: &Uri, what: &str, error: &kube::Error) {
    tracing::warn!(why = transport::why(server, error), "{what} cannot be read, trying again");
    tokio::time::sleep(RETRY).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_configuration_is_read() {
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.42.0.0/16\n";
        let read: ProxyConfiguration = serde_saphyr::from_str(text).expect("valid");
        assert_eq!(read.cluster_cidr, "10.42.0.0/16");
    }
}
