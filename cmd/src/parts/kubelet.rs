//! `coracle kubelet`: a node's kubelet as a process of its own, in the place of upstream's. It is who its kubeconfig says,
//! and never joins by a token.

use super::args::KubeletPartArgs;
use crate::address::{Choice, NodeIps, follow};
use crate::certificates::terms::{Serving, Terms};
use crate::certificates::{CertificateManager, Role, end_of};
use crate::code;
use crate::flags::this_program;
use crate::kubelet::{KubeletSettings, Said};
use crate::node::{self, BoxError};
use crate::process::fail;
use crate::servers::Servers;
use crate::settings::{node_name, or_note};
use crate::supervise::Supervisor;
use crate::{cluster, kubeconfig, private};
use coracle_api::certificate::Holder;
use coracle_apiserver::health::Health;
use coracle_apiserver::pki::joined_kubelet_tls;
use coracle_client::{Context, Informers};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs until SIGTERM or SIGINT (exit code 0). Containers live on.
pub async fn command(args: KubeletPartArgs) -> ExitCode {
    run(args).await.map_or_else(|why| fail(&why), |()| ExitCode::SUCCESS)
}

async fn run(args: KubeletPartArgs) -> Result<(), String> {
    let settings = Arc::new(Settings::load(args).await?);
    private::directory(&settings.kubelet.data_dir)?;
    let all = CancellationToken::new();
    tokio::spawn(code::hand_back(all.clone()));
    tokio::spawn(coracle_client::clock::watch(all.clone()));
    let addresses = follow::followed(settings.address_choice.clone(), settings.node_ips());
    super::until_told(settings.files(), |stop| {
        let at = |ips, stop| run_until(Arc::new(settings.at(ips)), stop);
        follow::at_each(addresses.clone(), stop, at)
    })
    .await
}

/// What the flags say, checked.
#[derive(Clone)]
struct Settings {
    /// `None`: there is no API server.
    kubeconfig: Option<PathBuf>,
    kubelet: coracle_kubelet::Config,
    /// How its addresses are chosen, and followed as they change; `None` where somebody says them.
    address_choice: Option<Choice>,
    /// Whether somebody says where pods ask for names; else the cluster is asked.
    cluster_dns: bool,
}

impl Settings {
    /// All mistakes, one a line.
    async fn load(args: KubeletPartArgs) -> Result<Self, String> {
        let own = match &args.kubeconfig {
            Some(path) => holder(&kubeconfig::config(path).await?)?,
            None => None,
        };
        let mut mistakes = Vec::new();
        let asked = named(args.node_name, own.as_deref());
        let asked = or_note(asked, &mut mistakes).unwrap_or_else(|| own.clone());
        let name = node_name(asked, &mut mistakes);
        let node_ips = args.node_ip.unwrap_or_else(|| Choice::default().now());
        let mut kubelet = coracle_kubelet::Config::new(name, node_ips.first).with_second(node_ips.second);
        kubelet.data_dir = args.data_dir;
        kubelet.standalone = args.kubeconfig.is_none();
        let said = Said {
            kubelet: args.kubelet,
            eviction: args.eviction,
            streaming_idle: args.streaming_connection_idle_timeout.map(|time| time.0),
            runtime_endpoint: args.container_runtime_endpoint,
            config: args.config.as_deref(),
            config_dir: args.config_dir.as_deref(),
            ..Said::default()
        };
        let mut said = KubeletSettings::read(said, &mut mistakes);
        said.certificates(args.tls_cert_file.zip(args.tls_private_key_file), args.client_ca_file);
        if !args.cluster_dns.is_empty() {
            said.written.insert("clusterDNS".to_owned(), serde_json::json!(args.cluster_dns));
        }
        said.apply(&mut kubelet);
        kubelet.program = this_program();
        let settings = Self {
            kubeconfig: args.kubeconfig,
            address_choice: args.node_ip.is_none().then(Choice::default),
            cluster_dns: said.written.contains_key("clusterDNS"),
            kubelet,
        };
        if mistakes.is_empty() { Ok(settings) } else { Err(mistakes.join("\n")) }
    }

    fn node_ips(&self) -> NodeIps {
        NodeIps { first: self.kubelet.node_ip, second: self.kubelet.second_ip }
    }

    /// The same of a node that has these addresses.
    fn at(&self, ips: NodeIps) -> Self {
        let mut settings = self.clone();
        (settings.kubelet.node_ip, settings.kubelet.second_ip) = (ips.first, ips.second);
        settings
    }

    fn files(&self) -> Vec<PathBuf> {
        let port = &self.kubelet.port;
        let given = port.tls.iter().flat_map(|(certificate, key)| [certificate.clone(), key.clone()]);
        self.kubeconfig.clone().into_iter().chain(given).chain(port.client_ca.clone()).collect()
    }

    /// Whom the port believes to be a client's authority, PEM.
    fn client_ca(&self, config: &kube::Config) -> Result<String, String> {
        match &self.kubelet.port.client_ca {
            Some(path) => read(path),
            None => kubeconfig::authorities(config),
        }
    }

    fn keeper(&self, client: kube::Client) -> CertificateManager {
        CertificateManager {
            dir: self.kubelet.data_dir.join("pki"),
            node_name: self.kubelet.node_name.clone(),
            node_ips: self.node_ips(),
            roles: &[Role::Serving],
            outdated_by: None,
            kubelet: Box::new(move || Ok(client.clone())),
            failures: Arc::default(),
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The node that the kubeconfig's certificate is for; `None` where it has another credential.
fn holder(config: &kube::Config) -> Result<Option<String>, String> {
    let Some(pem) = certificate(config)? else { return Ok(None) };
    let unreadable =
        |why: &dyn std::fmt::Display| format!("the kubeconfig's certificate cannot be read: {why}");
    let der = CertificateDer::from_pem_slice(&pem).map_err(|e| unreadable(&e))?;
    let holder = Holder::of_certificate(&der).map_err(|e| unreadable(&e))?;
    let user = holder.common_name().unwrap_or_default();
    match user.strip_prefix("system:node:") {
        Some(node) => Ok(Some(node.to_owned())),
        None => Err(format!(
            "the kubeconfig is of user \"{user}\", which is no node: coracle kubeconfig --for kubelet --node NAME makes one"
        )),
    }
}

fn certificate(config: &kube::Config) -> Result<Option<Vec<u8>>, String> {
    use base64::Engine as _;
    let auth = &config.auth_info;
    if let Some(data) = &auth.client_certificate_data {
        let pem = base64::engine::general_purpose::STANDARD.decode(data);
        return pem.map(Some).map_err(|e| format!("client-certificate-data of the kubeconfig: {e}"));
    }
    auth.client_certificate.as_deref().map(|path| read(Path::new(path)).map(String::into_bytes)).transpose()
}

/// What was asked for, if the kubeconfig's node is called so, or else that one's name.
fn named(asked: Option<String>, own: Option<&str>) -> Result<Option<String>, String> {
    match (asked, own) {
        (Some(asked), Some(own)) if asked != own => {
            Err(format!("node-name: \"{asked}\" is another node than the kubeconfig's, \"{own}\""))
        }
        (asked, own) => Ok(asked.or_else(|| own.map(str::to_owned))),
    }
}

/// What runs of one kubeconfig share.
struct Run {
    settings: Arc<Settings>,
    client: kube::Client,
    informers: Informers,
    client_ca_pem: String,
    /// When the kubeconfig's certificate ends, if it has one.
    client_end: Option<Timestamp>,
    keeper: CertificateManager,
}

async fn run_until(settings: Arc<Settings>, stop: CancellationToken) -> Result<(), String> {
    let Some(kubeconfig) = &settings.kubeconfig else { return alone(&settings, stop).await };
    let config = kubeconfig::config(kubeconfig).await?;
    let servers = Servers::load(config.cluster_url.clone(), Some(&settings.kubelet.data_dir));
    let make = kubeconfig::maker(config.clone());
    let client = servers.client(make.clone()).map_err(|why| format!("{}: {why}", kubeconfig.display()))?;
    let (asking, of_servers) = (servers.clone(), client.clone());
    let asked = async move { asking.ask(of_servers).await };
    tokio::spawn(stop.clone().run_until_cancelled_owned(asked));
    tokio::spawn(stop.clone().run_until_cancelled_owned(servers.watch_over(make)));
    let client_ca_pem = settings.client_ca(&config)?;
    let client_end = certificate(&config)?.and_then(|pem| end_of(&String::from_utf8_lossy(&pem)));
    if let Some((certificate, key)) = &settings.kubelet.port.tls {
        // A mistake that nobody mends while this runs.
        joined_kubelet_tls(&client_ca_pem, &read(certificate)?, &read(key)?)
            .map_err(|e| format!("{}: {}", certificate.display(), coracle_api::error::chain(&e)))?;
    }
    let mut kubelet = settings.kubelet.clone();
    if !settings.cluster_dns {
        let asked = cluster::dns_or_kept(&client, &config.cluster_url, &kubelet.data_dir);
        let Some(dns) = stop.run_until_cancelled(asked).await else { return Ok(()) };
        kubelet.cluster_dns = dns.into_iter().collect();
        let (client, server, data_dir) =
            (client.clone(), config.cluster_url.clone(), kubelet.data_dir.clone());
        let (changed, stop) = (stop.clone(), stop.clone());
        tokio::spawn(changed.run_until_cancelled_owned(async move {
            cluster::dns_changed(&client, &server, &data_dir, dns).await;
            // What is begun anew asks again.
            stop.cancel();
        }));
    }
    tracing::info!(node = kubelet.node_name, server = %config.cluster_url, "kubelet");
    let run = Arc::new(Run {
        informers: Informers::new(client.clone(), stop.clone()),
        keeper: settings.keeper(client.clone()),
        settings,
        client,
        client_ca_pem,
        client_end,
    });
    while !stop.is_cancelled() {
        run.clone().once(kubelet.clone(), &stop).await;
    }
    Ok(())
}

/// A kubelet that nobody tells anything but files and a web server, and that asks nobody.
async fn alone(settings: &Settings, stop: CancellationToken) -> Result<(), String> {
    tracing::info!(node = settings.kubelet.node_name, "kubelet without an API server: static pods alone run");
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
    });
    let client = kube::Client::new(nobody, "default");
    let kubelet = settings.kubelet.clone();
    let mut supervisor = Supervisor::new(stop.child_token(), Health::default());
    supervisor.spawn("kubelet", move |stop| {
        let informers = Informers::new(client.clone(), stop.clone());
        let context = Context { client: client.clone(), informers, stop };
        let port = async || Err::<node::Port, BoxError>("there is no port without an API server".into());
        node::run_kubelet(context, kubelet.clone(), port)
    });
    stop.cancelled().await;
    supervisor.shut_down().await;
    Ok(())
}

impl Run {
    /// Until `stop`, or until the port has another certificate.
    async fn once(self: Arc<Self>, kubelet: coracle_kubelet::Config, stop: &CancellationToken) {
        let mut supervisor = Supervisor::new(stop.child_token(), Health::default());
        let run = self.clone();
        supervisor.spawn("kubelet", move |stop| {
            let context = Context { client: run.client.clone(), informers: run.informers.clone(), stop };
            let run = run.clone();
            let certificate = move || {
                let run = run.clone();
                async move { run.port().await }
            };
            node::run_kubelet(context, kubelet.clone(), certificate)
        });
        let renewed = async {
            match self.settings.kubelet.port.tls {
                Some(_) => std::future::pending().await,
                None => self.keeper.renewed().await,
            }
        };
        stop.run_until_cancelled(renewed).await;
        // Containers outlive this, so a new certificate costs nobody anything.
        supervisor.shut_down().await;
    }

    async fn port(&self) -> Result<node::Port, BoxError> {
        let (chain, key, end) = match &self.settings.kubelet.port.tls {
            Some((certificate, key)) => {
                let chain = read(certificate)?;
                let end = end_of(&chain);
                (chain, read(key)?, end)
            }
            None => {
                let own = self.keeper.certificate(Role::Serving).await?;
                (own.chain_pem, own.key_pem, Some(own.until))
            }
        };
        let (tls, verifier) = joined_kubelet_tls(&self.client_ca_pem, &chain, &key)?;
        let judge = Arc::new(move |chain: &[CertificateDer<'_>]| verifier.verify(chain));
        let (client, serving) = (self.client_end, Serving::Until(end));
        let certificates = Terms { client, serving, failures: self.keeper.failures.clone() };
        Ok(node::Port { tls, judge, certificates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_who_its_certificate_says() {
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(named(None, Some("n1")), Ok(some("n1")));
        assert_eq!(named(some("n1"), Some("n1")), Ok(some("n1")));
        assert_eq!(named(some("n2"), None), Ok(some("n2")));
        assert_eq!(named(None, None), Ok(None));
        let why = named(some("n2"), Some("n1")).expect_err("another node");
        assert_eq!(why, "node-name: \"n2\" is another node than the kubeconfig's, \"n1\"");
    }
}
