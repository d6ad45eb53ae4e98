//! What commands read of kubeconfigs: a client, and the cluster that `cluster-info` describes.

use axum::http::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::error::chain;
use coracle_apiserver::pki::pem_of;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig};
use std::path::Path;
use std::time::Duration;

/// Where a kubeconfig file leads to, and as whom. The error names the file.
pub async fn config(path: &Path) -> Result<kube::Config, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = Kubeconfig::read_from(path).map_err(|e| failed(&e))?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(|e| failed(&e))
}

/// A server that is there answers a connection in milliseconds; a packet that is lost is sent again after seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection on which nothing has come for so long is dead. Watches carry a bookmark every minute.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(100);

/// With the patience of whoever watches.
pub fn patient(mut config: kube::Config) -> kube::Config {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(SILENCE_TIMEOUT);
    config.reset_reader_on_write = true;
    config
}

/// A client by a kubeconfig file.
pub async fn client(path: &Path) -> Result<kube::Client, String> {
    let config = patient(config(path).await?);
    kube::Client::try_from(config).map_err(|e| format!("{}: {}", path.display(), chain(&e)))
}

/// Makes clients of any server of the cluster with the credentials of a kubeconfig.
pub fn maker(config: kube::Config) -> impl Fn(&Uri) -> Result<kube::Client, String> + Clone {
    let config = patient(config);
    move |server| {
        let mut config = config.clone();
        config.cluster_url = server.clone();
        kube::Client::try_from(config).map_err(|e| chain(&e))
    }
}

/// The authorities (PEM) that a server is believed by; empty where the machine's own count.
pub fn authorities(config: &kube::Config) -> Result<String, String> {
    if let Some(path) = &config.root_cert_file {
        return std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    }
    let blocks = config.root_cert.iter().flatten().map(|der| pem_of(der));
    Ok(blocks.collect())
}

/// The only cluster in the kubeconfig of `cluster-info`.
pub fn public_cluster(kubeconfig: &str) -> Result<Cluster, String> {
    let read = Kubeconfig::from_yaml(kubeconfig).map_err(|e| format!("cluster-info cannot be read: {e}"))?;
    let first = read.clusters.into_iter().next();
    first.and_then(|named| named.cluster).ok_or_else(|| "cluster-info names no cluster".to_owned())
}

/// The cluster's CA (PEM).
pub fn authority(cluster: Cluster) -> Result<String, String> {
    let data = cluster.certificate_authority_data.ok_or("cluster-info names no CA")?;
    let unreadable = |why: &dyn std::fmt::Display| format!("the CA in cluster-info cannot be read: {why}");
    let pem = STANDARD.decode(data).map_err(|e| unreadable(&e))?;
    String::from_utf8(pem).map_err(|e| unreadable(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_info_names_a_server_and_its_authority() {
        let text = "clusters: [{name: '', cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: UEVN}}]";
        let cluster = public_cluster(text).expect("a cluster");
        assert_eq!(cluster.server.as_deref(), Some("https://192.0.2.1:6443"));
        assert_eq!(authority(cluster), Ok("PEM".to_owned()));
        let wrong = |text| public_cluster(text).and_then(authority).expect_err("no authority");
        assert_eq!(wrong("clusters: []"), "cluster-info names no cluster");
        assert_eq!(wrong("clusters: [{name: a, cluster: {server: b}}]"), "cluster-info names no CA");
        assert!(wrong("clusters: 1").starts_with("cluster-info cannot be read"));
        let garbage = wrong("clusters: [{name: a, cluster: {certificate-authority-data: '%'}}]");
        assert!(garbage.starts_with("the CA in cluster-info cannot be read"), "{garbage}");
    }
}
