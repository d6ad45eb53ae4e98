//! An API server alone, with its own CA, for trying it with kubectl: `serve <data-dir> [port] [sled]`; with
//! `sled` what it stores stays in the directory.

use coracle_apiserver::admission;
use coracle_apiserver::authn::{Authenticator, ServiceAccountTokens};
use coracle_apiserver::authz::{Chain, Gate};
use coracle_apiserver::bootstrap::{self, BootstrapConfig};
use coracle_apiserver::health::Health;
use coracle_apiserver::pki::{Pki, PkiOptions};
use coracle_apiserver::server::{self, ApiServer, ServerConfig};
use coracle_apiserver::store::sled::Options;
use coracle_apiserver::store::{MemoryStore, SledStore, Store};
use coracle_apiserver::{connect::KubeletClient, kubeconfig};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let data_dir = PathBuf::from(args.next().ok_or("usage: serve <data-dir> [port] [sled]")?);
    let port: u16 = args.next().map_or(Ok(6443), |p| p.parse())?;
    let pki = Pki::ensure(&data_dir.join("pki"), PkiOptions::default())?;
    let store: Arc<dyn Store> = match args.next().as_deref() {
        Some("sled") => SledStore::open(data_dir.join("db"), Options::default())?,
        _ => MemoryStore::new(),
    };
    let stop = CancellationToken::new();
    let resources = server::load_resources(store.clone(), Arc::default()).await?;
    let cache = &resources.cache;
    let tokens = Arc::new(ServiceAccountTokens::new(pki.service_account_key()));
    let authenticator = Arc::new(Authenticator::new(&pki, tokens, cache.clone())?);
    let config = ServerConfig {
        authenticator: Some(authenticator),
        authorizer: Gate::new(Chain::new(cache.clone(), server::rbac_generation(cache.clone()))),
        admission: Arc::new(admission::Chain::new(cache.clone(), &admission::Config::default())?),
        kubelets: Some(KubeletClient::new(pki.client_config_for_kubelet(&[])?, stop.clone())),
        health: Health::default(),
        clock: Arc::new(jiff::Timestamp::now),
        stop: stop.clone(),
    };
    let api = ApiServer::new(config, store, resources);
    let url = format!("https://127.0.0.1:{port}");
    let cluster = BootstrapConfig {
        api_addresses: Vec::new(),
        api_port: port,
        service_ip: [10, 43, 0, 1].into(),
        cluster_cidr: "10.42.0.0/16".to_owned(),
        service_cidr: "10.43.0.0/16".to_owned(),
        local_path: true,
        dns: None,
        ca_pem: pki.ca_pem(),
        front_proxy_ca_pem: pki.front_proxy_ca_pem(),
        server_url: url.clone(),
    };
    let written = bootstrap::apply(api.registry(), &cluster).await?;
    kubeconfig::write_admin(&pki, &url, &data_dir.join("admin.conf"))?;
    println!("{written} objects made; export KUBECONFIG={}", data_dir.join("admin.conf").display());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    api.serve(listener, Some(pki.server_tls()?), api.stop().clone()).await;
    Ok(())
}
