//! Watches Services and EndpointSlices and keeps the kernel's rules in step with them.

use crate::health::{self, LastSync};
use crate::iptables::apply::{ApplyError, Iptables};
use crate::iptables::rules::{self, RuleSet};
use crate::model::{self, ServicePort};
use coracle_client::{Context, Informer};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::Notify;

/// Changes that come this close together are written at once.
const GATHER: Duration = Duration::from_millis(20);
/// How often to look whether somebody flushed the tables; kube-proxy looks every 30 s.
const LOOK_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    pub cluster_cidr: String,
    /// Whether traffic of pods to anybody but pods leaves under the node's address: where the pod network's own plugin
    /// does not see to it. One rule for all, where the plugin would run iptables several times at each pod's start.
    pub masquerade_pods: bool,
    pub health_address: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("kernel rules")]
    Apply(#[from] ApplyError),
}

/// Proxies in iptables mode until the context is stopped. The rules stay when it ends, so that traffic goes on over a
/// restart.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let services = context.informers.of::<Service>();
    let slices = context.informers.of::<EndpointSlice>();
    let stop = context.stop.clone();
    let ready = futures::future::join(services.synced(), slices.synced());
    if stop.run_until_cancelled(ready).await.is_none() {
        return Ok(());
    }
    let last = LastSync::default();
    let health = tokio::spawn(health::serve(config.health_address, last.clone(), stop.clone()));
    prepare_kernel().await;
    let mut proxy = Proxy {
        services,
        slices,
        config,
        kernel: Iptables::adopt().await?,
        written: RuleSet::default(),
        ports: Vec::new(),
        last,
    };
    let outcome = stop.run_until_cancelled(proxy.follow()).await.unwrap_or(Ok(()));
    health.abort();
    outcome
}

struct Proxy {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    config: Config,
    kernel: Iptables,
    written: RuleSet,
    ports: Vec<ServicePort>,
    last: LastSync,
}

impl Proxy {
    async fn follow(&mut self) -> Result<(), Error> {
        let changed = Arc::new(Notify::new());
        let wake = changed.clone();
        self.services.on_change(move |_| wake.notify_one());
        let wake = changed.clone();
        self.slices.on_change(move |_| wake.notify_one());
        self.sync().await?;
        self.kernel.hook().await?;
        loop {
            if tokio::time::timeout(LOOK_AFTER, changed.notified()).await.is_ok() {
                tokio::time::sleep(GATHER).await;
                self.sync().await.inspect_err(|_| self.last.failed())?;
            } else if self.kernel.flushed().await? {
                tracing::warn!("the kernel's tables were flushed, writing them again");
                self.written = RuleSet::default();
                self.sync().await?;
                self.kernel.hook().await?;
            }
        }
    }

    async fn sync(&mut self) -> Result<(), Error> {
        let ports = model::build(&self.services.list(), &self.slices.list(), &self.config.node_name, false);
        let set = rules::render_with(&ports, &self.config.cluster_cidr, self.config.masquerade_pods);
        if set != self.written {
            self.kernel.apply(&set).await?;
            self.written = set;
            forget_flows(&self.ports, &ports).await;
        }
        self.ports = ports;
        self.last.now();
        Ok(())
    }
}

/// Packets of pods are forwarded, and node ports answer on 127.0.0.1, only where the kernel is told so.
async fn prepare_kernel() {
    for (path, value) in
        [("/proc/sys/net/ipv4/ip_forward", "1"), ("/proc/sys/net/ipv4/conf/all/route_localnet", "1")]
    {
        if let Err(error) = tokio::fs::write(path, value).await {
            tracing::warn!(path, %error, "kernel setting not written");
        }
    }
}

/// UDP has no end of connection: the kernel would go on sending a client's packets to an endpoint that is gone, or
/// nowhere for a Service that had none.
async fn forget_flows(old: &[ServicePort], new: &[ServicePort]) {
    let flows = |ports: &[ServicePort]| -> BTreeSet<(IpAddr, IpAddr)> {
        let udp = ports.iter().filter(|p| p.name.protocol == "udp");
        udp.flat_map(|p| p.endpoints.iter().map(|e| (p.cluster_ip, e.ip))).collect()
    };
    let had_none = |ip: &IpAddr| !old.iter().any(|p| p.cluster_ip == *ip && !p.endpoints.is_empty());
    let (before, now) = (flows(old), flows(new));
    let gone = before.difference(&now).map(|(service, endpoint)| (*service, Some(*endpoint)));
    let came = now.iter().filter(|(service, _)| had_none(service)).map(|(service, _)| (*service, None));
    for (service, endpoint) in gone.chain(came).collect::<BTreeSet<_>>() {
        let mut command = Command::new("conntrack");
        command.args(["-D", "-p", "udp", "--orig-dst", &service.to_string()]);
        if let Some(endpoint) = endpoint {
            command.args(["--dst-nat", &endpoint.to_string()]);
        }
        // It fails when there is no such flow, which is the usual case.
        if let Err(error) = command.output().await {
            tracing::warn!(%error, "conntrack could not be run, old UDP flows may live on");
            return;
        }
    }
}
