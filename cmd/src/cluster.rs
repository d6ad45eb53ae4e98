//! What a cluster tells its nodes: asked for until it is answered.

use crate::cidrs::Cidrs;
use crate::transport;
use axum::http::Uri;
use coracle_api::error::chain;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceSpec};
use kube::Api;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Between attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// What the names of Services end in.
pub const DOMAIN: &str = "cluster.local";

/// Where a node's DNS server listens; the Service `kube-dns` leads there. Not 53, which the machine's own resolver may
/// hold.
pub const DNS_PORT: u16 = 10_053;

/// Where pods ask for names: the address of the Service `kube-dns`; none in a cluster without.
pub async fn dns(client: &kube::Client, server: &Uri) -> Option<IpAddr> {
    dns_service(client, server).await?.cluster_ip?.parse().ok()
}

/// The same where the cluster's servers and nodes answer; none where the Service selects somebody else's pods.
pub async fn built_in_dns(client: &kube::Client, server: &Uri) -> Option<IpAddr> {
    let service = dns_service(client, server).await?;
    let selects = service.selector.is_some_and(|selector| !selector.is_empty());
    service.cluster_ip.filter(|_| !selects)?.parse().ok()
}

async fn dns_service(client: &kube::Client, server: &Uri) -> Option<ServiceSpec> {
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    loop {
        match services.get_opt("kube-dns").await {
            Ok(service) => return service?.spec,
            Err(error) => unread(server, "the Service kube-system/kube-dns", &error).await,
        }
    }
}

/// How long a start waits for the answer where an earlier one is kept.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Keeps it.
const KEPT: &str = "cluster-dns";

/// The same, and where the server is away, as it said last. A machine that has never been told waits.
pub async fn dns_or_kept(client: &kube::Client, server: &Uri, data_dir: &Path) -> Option<IpAddr> {
    let path = data_dir.join(KEPT);
    let Ok(kept) = tokio::fs::read_to_string(&path).await else {
        return asked_and_kept(client, server, &path).await;
    };
    match tokio::time::timeout(WAIT_TIMEOUT, asked_and_kept(client, server, &path)).await {
        Ok(told) => told,
        Err(_) => {
            tracing::warn!(
                address = kept.trim(),
                "the server is away, names are asked for where it said last"
            );
            kept.trim().parse().ok()
        }
    }
}

/// Returns when the server says something else than `used`.
pub async fn dns_changed(client: &kube::Client, server: &Uri, data_dir: &Path, used: Option<IpAddr>) {
    if asked_and_kept(client, server, &data_dir.join(KEPT)).await == used {
        std::future::pending().await
    }
}

async fn asked_and_kept(client: &kube::Client, server: &Uri, path: &Path) -> Option<IpAddr> {
    let told = dns(client, server).await;
    let text = told.map(|address| address.to_string()).unwrap_or_default();
    if tokio::fs::read_to_string(path).await.ok().as_ref() != Some(&text)
        && let Err(error) = keep(path, text).await
    {
        tracing::warn!(path = %path.display(), %error, "the address of the cluster's DNS is not kept");
    }
    told
}

async fn keep(path: &Path, text: String) -> std::io::Result<()> {
    let new = path.with_extension("new");
    tokio::fs::write(&new, text).await?;
    tokio::fs::rename(new, path).await
}

/// Where the API server is reached; empty where its name cannot be looked up.
pub async fn addresses(server: &Uri) -> Vec<IpAddr> {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    match tokio::net::lookup_host((host, server.port_u16().unwrap_or(443))).await {
        Ok(found) => found.map(|socket| socket.ip()).collect(),
        Err(_) => Vec::new(),
    }
}

/// What is read of upstream's configuration here; the proxy reads and checks all of it.
#[derive(Deserialize)]
struct ProxyConfiguration {
    #[serde(rename = "clusterCIDR", default)]
    cluster_cidr: String,
}

/// The addresses of all pods, from the proxies' configuration. A map that somebody broke is read again until it is mended.
pub async fn cidr(client: &kube::Client, server: &Uri) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    loop {
        match maps.get("kube-proxy").await {
            Ok(map) => match cidr_of(&map) {
                Ok(cidr) => return cidr,
                Err(why) => {
                    tracing::warn!(why, "the pod network waits for the ConfigMap kube-system/kube-proxy");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            },
            Err(error) => unread(server, "the ConfigMap kube-system/kube-proxy", &error).await,
        }
    }
}

/// The networks of the configuration, or those of the entry that the server keeps beside it.
pub fn cidr_of(map: &ConfigMap) -> Result<String, String> {
    let entry = |name: &str| map.data.as_ref().and_then(|data| data.get(name)).map_or("", String::as_str);
    let read: Result<ProxyConfiguration, _> = serde_saphyr::from_str(entry("config.conf"));
    let written = read.as_ref().map_or("", |read| read.cluster_cidr.as_str());
    let all = [written, entry(coracle_proxy::CLUSTER_CIDR_ENTRY)];
    let found = all.iter().find_map(|text| text.parse::<Cidrs>().ok());
    found.map(|cidrs| cidrs.to_string()).ok_or_else(|| match read {
        Err(error) => chain(&error),
        Ok(read) => format!("clusterCIDR \"{}\" is no network", read.cluster_cidr),
    })
}

async fn unread(server: &Uri, what: &str, error: &kube::Error) {
    tracing::warn!(why = transport::why(server, error), "{what} cannot be read, trying again");
    tokio::time::sleep(RETRY_INTERVAL).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(data: &[(&str, &str)]) -> ConfigMap {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ConfigMap { data: Some(data.collect()), ..ConfigMap::default() }
    }

    #[test]
    fn the_pods_addresses_are_found() {
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.42.0.0/16\n";
        assert_eq!(cidr_of(&map(&[("config.conf", text)])).as_deref(), Ok("10.42.0.0/16"));
        let both = "clusterCIDR: fd01::/64,10.42.0.0/16";
        assert_eq!(cidr_of(&map(&[("config.conf", both)])).as_deref(), Ok("fd01::/64,10.42.0.0/16"));
        // Somebody wrote another document in the place of the whole one.
        let patched = [("config.conf", "mode: nftables"), ("clusterCIDR", "10.42.0.0/16")];
        assert_eq!(cidr_of(&map(&patched)).as_deref(), Ok("10.42.0.0/16"));
        assert!(cidr_of(&map(&[("config.conf", "mode: [")])).is_err());
        assert!(cidr_of(&ConfigMap::default()).is_err());
    }
}
