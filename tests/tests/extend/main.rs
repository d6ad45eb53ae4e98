//! Extending the API as operators and charts do: definitions made by others' tools, operators in Rust and Python,
//! charts with custom resources.

mod calico;
mod charts;
mod derived;
mod found;
mod operator;
mod restart;
mod scripts;
mod streams;
mod top;

use coracle_tests::Cluster;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use std::future::Future;
use std::time::Duration;

/// Longest wait for one thing.
const PATIENCE: Duration = Duration::from_secs(60);

async fn client(cluster: &Cluster) -> Client {
    // The second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = Kubeconfig::read_from(cluster.kubeconfig()).expect("the kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}
