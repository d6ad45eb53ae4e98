//! `coracle proxy`: the Service proxy and the pod network of a machine as a process of their own, in the place of
//! upstream's kube-proxy.

use super::args::ProxyArgs;
use crate::address::{Choice, NodeIps, follow};
use crate::flags::this_program;
use crate::process::fail;
use crate::servers::Servers;
use crate::settings::node_name;
use crate::supervise::Supervisor;
use crate::{cluster, kubeconfig, node};
use coracle_apiserver::health::Health;
use coracle_client::{Context, Informers};
use coracle_proxy::configuration::{Configuration, Given};
use coracle_proxy::policy::metrics::Metrics as PolicyMetrics;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs until SIGTERM or SIGINT (exit code 0). The packet rules stay, so that traffic goes on over a restart.
pub async fn command(args: ProxyArgs) -> ExitCode {
    let done = match Settings::load(args) {
        Ok(settings) => {
            let files = vec![settings.kubeconfig.clone()];
            let addresses = follow::followed(settings.address_choice.clone(), settings.node_ips);
            super::until_told(files, |stop| {
                let at = |node_ips, stop| run_until(Settings { node_ips, ..settings.clone() }, stop);
                follow::at_each(addresses.clone(), stop, at)
            })
            .await
        }
        Err(mistakes) => Err(mistakes),
    };
    done.map_or_else(|why| fail(&why), |()| ExitCode::SUCCESS)
}

/// What the flags say, checked.
#[derive(Clone)]
struct Settings {
    kubeconfig: PathBuf,
    node_name: String,
    node_ips: NodeIps,
    /// How these are chosen, and followed as they change; `None` where somebody says them.
    address_choice: Option<Choice>,
    flags: coracle_proxy::Flags,
    source: coracle_proxy::Source,
    network: bool,
    cni_conf_dir: PathBuf,
    policy_metrics: Arc<PolicyMetrics>,
}

impl Settings {
    /// All mistakes, one a line.
    fn load(args: ProxyArgs) -> Result<Self, String> {
        let mut mistakes = Vec::new();
        let node_name = node_name(args.node_name, &mut mistakes);
        let given = Given { flags: args.settings.flags(), node_name: node_name.clone(), ..Given::default() };
        // What stands in a ConfigMap is told by events when it is wrong; who starts a process is told here.
        let text = args.config.as_ref().map_or(Ok(String::new()), |path| {
            std::fs::read_to_string(path).map_err(|e| format!("config: {}: {e}", path.display()))
        });
        match text.map(|text| Configuration::read(&text, &given)) {
            Ok(Ok(_)) => {}
            Ok(Err(wrong)) => mistakes.extend(wrong.0),
            Err(unreadable) => mistakes.push(unreadable),
        }
        for name in args.disable.iter().filter(|name| *name != "network") {
            mistakes
                .push(format!("disable: \"{name}\" is not among the proxy's components, known is network"));
        }
        let settings = Self {
            kubeconfig: args.kubeconfig,
            node_name,
            node_ips: args.node_ip.unwrap_or_else(|| Choice::default().now()),
            address_choice: args.node_ip.is_none().then(Choice::default),
            flags: given.flags,
            source: args.config.map_or(coracle_proxy::Source::Map, coracle_proxy::Source::File),
            network: args.disable.is_empty(),
            cni_conf_dir: args.cni_conf_dir,
            policy_metrics: Arc::default(),
        };
        if mistakes.is_empty() { Ok(settings) } else { Err(mistakes.join("\n")) }
    }

    fn site(&self, cluster_cidr: Option<String>, addresses: Vec<IpAddr>) -> node::Site<'_> {
        node::Site {
            node_name: &self.node_name,
            cluster_cidr,
            service_cidr: None,
            node_ips: self.node_ips,
            addresses,
            cni_conf_dir: &self.cni_conf_dir,
            data_dir: Path::new(crate::settings::DEFAULT_DATA_DIR),
            policy_metrics: self.policy_metrics.clone(),
            program: this_program(),
            create: false,
        }
    }
}

async fn run_until(settings: Settings, stop: CancellationToken) -> Result<(), String> {
    let config = kubeconfig::config(&settings.kubeconfig).await?;
    let servers = Servers::load(config.cluster_url.clone(), None);
    let make = kubeconfig::maker(config.clone());
    let shown = settings.kubeconfig.display();
    let client = servers.client(make.clone()).map_err(|why| format!("{shown}: {why}"))?;
    let (learning, of_servers) = (servers.clone(), client.clone());
    let learnt = async move { learning.learn(of_servers).await };
    tokio::spawn(stop.clone().run_until_cancelled_owned(learnt));
    tokio::spawn(stop.clone().run_until_cancelled_owned(servers.watch_over(make)));
    let server = &config.cluster_url;
    let informers = Informers::new(client.clone(), stop.clone());
    let mut supervisor = Supervisor::new(stop.clone(), Health::default());
    let of_network = client.clone();
    let context = move |stop| Context { client: client.clone(), informers: informers.clone(), stop };
    let proxy = coracle_proxy::Config {
        source: settings.source.clone(),
        flags: settings.flags.clone(),
        ..settings.site(None, Vec::new()).proxy()
    };
    tracing::info!(node = settings.node_name, "proxying");
    let of_proxy = context.clone();
    supervisor.spawn("proxy", move |stop| coracle_proxy::run(of_proxy(stop), proxy.clone()));
    if settings.network {
        let told = stop.run_until_cancelled(async {
            let range = match settings.flags.cluster_cidr.clone() {
                Some(range) => range,
                None => cluster::cidr(&of_network, server).await,
            };
            let addresses = settings.node_ips.all().chain(cluster::addresses(server).await);
            (range, addresses.collect())
        });
        if let Some((range, addresses)) = told.await
            && let Some(network) = settings.site(Some(range), addresses).network()
        {
            supervisor
                .spawn("network", move |stop| coracle_proxy::network::run(context(stop), network.clone()));
        }
    }
    stop.cancelled().await;
    supervisor.shut_down().await;
    Ok(())
}
