//! `coracle proxy`: the Service proxy and the pod network of a machine as a process of their own, in the place of
//! upstream's kube-proxy.

use super::args::ProxyArgs;
use crate::address::of_this_node;
use crate::config::{node_name, or_note};
use crate::server::fail;
use crate::supervise::Supervisor;
use crate::{cluster, kubeconfig, node};
use coracle_apiserver::health::Health;
use coracle_client::{Context, Informers};
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

/// Runs until SIGTERM or SIGINT (exit code 0). The packet rules stay, so that traffic goes on over a restart.
pub async fn command(args: ProxyArgs) -> ExitCode {
    let done = match Settings::load(args) {
        Ok(settings) => {
            let files = vec![settings.kubeconfig.clone()];
            super::until_told(files, |stop| run_until(&settings, stop)).await
        }
        Err(mistakes) => Err(mistakes),
    };
    done.map_or_else(|why| fail(&why), |()| ExitCode::SUCCESS)
}

/// What the flags say, checked.
struct Settings {
    kubeconfig: PathBuf,
    node_name: String,
    node_ip: IpAddr,
    cluster_cidr: Option<IpNet>,
    network: bool,
    cni_conf_dir: PathBuf,
}

impl Settings {
    /// All mistakes, one a line.
    fn load(args: ProxyArgs) -> Result<Self, String> {
        let mut mistakes = Vec::new();
        let range = args.cluster_cidr.map(|text| {
            text.parse().map_err(|_| format!("cluster-cidr: \"{text}\" is no CIDR such as 10.42.0.0/16"))
        });
        for name in args.disable.iter().filter(|name| *name != "network") {
            mistakes
                .push(format!("disable: \"{name}\" is not among the proxy's components, known is network"));
        }
        let settings = Self {
            kubeconfig: args.kubeconfig,
            node_name: node_name(args.node_name, &mut mistakes),
            node_ip: args.node_ip.unwrap_or_else(|| of_this_node(&[])),
            cluster_cidr: range.and_then(|range| or_note(range, &mut mistakes)),
            network: args.disable.is_empty(),
            cni_conf_dir: args.cni_conf_dir,
        };
        if mistakes.is_empty() { Ok(settings) } else { Err(mistakes.join("\n")) }
    }

    fn site<'a>(&'a self, cluster_cidr: &'a str, addresses: Vec<IpAddr>) -> node::Site<'a> {
        node::Site {
            node_name: &self.node_name,
            cluster_cidr,
            service_cidr: None,
            addresses,
            cni_conf_dir: &self.cni_conf_dir,
            data_dir: Path::new(crate::config::DEFAULT_DATA_DIR),
            create: false,
        }
    }
}

async fn run_until(settings: &Settings, stop: CancellationToken) -> Result<(), String> {
    let config = kubeconfig::config(&settings.kubeconfig).await?;
    let client = kubeconfig::client(&settings.kubeconfig).await?;
    let server = &config.cluster_url;
    let told = stop.run_until_cancelled(async {
        let range = match settings.cluster_cidr {
            Some(range) => range.to_string(),
            None => cluster::cidr(&client, server).await?,
        };
        let addresses = std::iter::once(settings.node_ip).chain(cluster::addresses(server).await);
        Ok::<_, String>((range, addresses.collect()))
    });
    let Some(told) = told.await else { return Ok(()) };
    let (range, addresses) = told?;
    let informers = Informers::new(client.clone(), stop.clone());
    let mut supervisor = Supervisor::new(stop.clone(), Health::default());
    let context = move |stop| Context { client: client.clone(), informers: informers.clone(), stop };
    let site = settings.site(&range, addresses);
    let (proxy, network, of_network) = (site.proxy(), site.network(), context.clone());
    tracing::info!(node = settings.node_name, cluster_cidr = range, "proxying");
    supervisor.spawn("proxy", move |stop| coracle_proxy::run(context(stop), proxy.clone()));
    if let Some(network) = network.filter(|_| settings.network) {
        supervisor
            .spawn("network", move |stop| coracle_proxy::network::run(of_network(stop), network.clone()));
    }
    stop.cancelled().await;
    supervisor.shut_down().await;
    Ok(())
}
