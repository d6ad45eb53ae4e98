//! `coracle controllers`: the controllers as a process of their own, in the place of upstream's controller manager.

use super::accounts::Accounts;
use super::args::ControllersArgs;
use super::leading::{identity, work_while_leading};
use super::port::{self, Life};
use super::server_names;
use super::signing::Signing;
use crate::cidrs::Cidrs;
use crate::kubeconfig;
use crate::process::fail;
use crate::settings::or_note;
use coracle_api::error::chain;
use coracle_client::leader::{Candidate, Times};
use coracle_client::{Context, Informers};
use coracle_controllers::certificates::Reserved;
use coracle_controllers::metrics::Metrics;
use coracle_controllers::{ClusterCidr, Lifecycle};
use coracle_storage::metrics::Metrics as VolumeMetrics;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Upstream's port of health and metrics.
const SECURE_PORT: u16 = 10_257;
/// Upstream's lease, so that its controller manager and this one never work at the same time.
const LEASE: (&str, &str) = ("kube-system", "kube-controller-manager");

/// Runs until SIGTERM or SIGINT (exit code 0), or until leadership is lost (1), as upstream's.
pub async fn command(args: ControllersArgs) -> ExitCode {
    let done = match Settings::load(&args) {
        Ok(settings) => run(&args, &settings).await,
        Err(mistakes) => Err(mistakes),
    };
    done.map_or_else(|why| fail(&why), |()| ExitCode::SUCCESS)
}

/// What the flags say, checked.
struct Settings {
    times: Times,
    signing: Signing,
    root_ca_pem: Option<String>,
    cluster_cidr: Option<ClusterCidr>,
    networks: Vec<IpNet>,
    foreign_load_balancers: bool,
    lifecycle: Lifecycle,
}

impl Settings {
    /// All mistakes, one a line.
    fn load(args: &ControllersArgs) -> Result<Self, String> {
        let mut mistakes = Vec::new();
        let range = |flag: &str, asked: &Option<String>| {
            asked
                .as_ref()
                .map(|text| text.parse::<Cidrs>().map_err(|why| format!("{flag}: \"{text}\" {why}")))
        };
        let pods = range("cluster-cidr", &args.cluster_cidr);
        let pods: Option<Cidrs> = pods.and_then(|pods| or_note(pods, &mut mistakes));
        let services = range("service-cluster-ip-range", &args.service_cluster_ip_range);
        let services: Option<Cidrs> = services.and_then(|services| or_note(services, &mut mistakes));
        let of_nodes = |pods: &Cidrs| {
            pods.to_string().parse::<ClusterCidr>().map_err(|why| format!("cluster-cidr: {why}"))
        };
        let nodes = pods.as_ref().map(of_nodes);
        let root_ca = args.root_ca_file.as_ref().map(|path| {
            std::fs::read_to_string(path).map_err(|e| format!("root-ca-file: {}: {e}", path.display()))
        });
        for name in args.disable.iter().filter(|name| *name != "load-balancers") {
            mistakes.push(format!("disable: unknown controller \"{name}\", known is load-balancers"));
        }
        let settings = Self {
            times: args.election.times(&mut mistakes),
            signing: or_note(Signing::load(&args.signing), &mut mistakes).unwrap_or_default(),
            root_ca_pem: root_ca.and_then(|pem| or_note(pem, &mut mistakes)),
            cluster_cidr: nodes.and_then(|nodes| or_note(nodes, &mut mistakes)),
            networks: [&pods, &services].into_iter().flatten().flat_map(Cidrs::iter).collect(),
            foreign_load_balancers: !args.disable.is_empty(),
            lifecycle: args.lifecycle.checked(&mut mistakes),
        };
        if mistakes.is_empty() { Ok(settings) } else { Err(mistakes.join("\n")) }
    }

    fn candidate(&self, client: kube::Client) -> Candidate {
        let (namespace, lease) = LEASE;
        Candidate {
            client,
            namespace: namespace.to_owned(),
            lease: lease.to_owned(),
            identity: identity(),
            times: self.times,
        }
    }

    fn root_ca(&self, config: &kube::Config) -> Result<String, String> {
        self.root_ca_pem.clone().map_or_else(|| kubeconfig::authorities(config), Ok)
    }

    fn controllers(
        &self,
        root_ca_pem: String,
        server: BTreeSet<String>,
        accounts: &Accounts,
        (metrics, volume_metrics): (Arc<Metrics>, Arc<VolumeMetrics>),
    ) -> Controllers {
        let (of_controllers, of_volumes) = (accounts.clone(), accounts.clone());
        let reserved_names =
            Reserved { networks: self.networks.clone(), api_server: Some(Arc::new(move || server.clone())) };
        let controllers = coracle_controllers::Config {
            root_ca: root_ca_pem.into(),
            client_for: Some(Arc::new(move |name: &str| of_controllers.client(name))),
            legacy_tokens: self.signing.tokens.clone(),
            certificate_signer: self.signing.certificates.clone(),
            reserved_names,
            foreign_load_balancers: self.foreign_load_balancers,
            cluster_cidr: self.cluster_cidr.clone(),
            lifecycle: self.lifecycle,
            metrics,
        };
        let client_for: coracle_storage::ClientFor = Arc::new(move |name: &str| of_volumes.client(name));
        Controllers {
            controllers,
            volumes: coracle_storage::Config {
                client_for: Some(client_for),
                here: None,
                metrics: volume_metrics,
            },
        }
    }
}

/// Everything that upstream's controller manager does.
struct Controllers {
    controllers: coracle_controllers::Config,
    volumes: coracle_storage::Config,
}

impl Controllers {
    async fn run(self, context: Context) -> Result<(), String> {
        let stop = context.stop.child_token();
        let context = Context { stop: stop.clone(), ..context };
        let ended = async |done: Result<(), String>| {
            // One of them alone is worth nothing: whoever supervises starts both again.
            stop.cancel();
            done
        };
        let controllers = async {
            let done = coracle_controllers::run(context.clone(), self.controllers).await;
            ended(done.map_err(|e| chain(&e))).await
        };
        let volumes = async {
            let done = coracle_storage::run_controllers(context.clone(), self.volumes).await;
            ended(done.map_err(|e| chain(&e))).await
        };
        let (controllers, volumes) = tokio::join!(controllers, volumes);
        controllers.and(volumes)
    }
}

async fn run(args: &ControllersArgs, settings: &Settings) -> Result<(), String> {
    let port = port::Wanted { address: args.bind_address, port: args.secure_port, default: SECURE_PORT };
    let listener = port.bind().await?;
    tokio::spawn(coracle_client::clock::watch(CancellationToken::new()));
    let files = vec![args.kubeconfig.clone()];
    super::until_told(files, |stop| run_until(args, settings, listener.clone(), stop)).await
}

async fn run_until(
    args: &ControllersArgs,
    settings: &Settings,
    listener: Option<Arc<TcpListener>>,
    stop: CancellationToken,
) -> Result<(), String> {
    let config = kubeconfig::patient(kubeconfig::config(&args.kubeconfig).await?);
    let client = kubeconfig::client(&args.kubeconfig).await?;
    let accounts = Accounts::new(&config, client.clone())?;
    let root_ca_pem = settings.root_ca(&config)?;
    let life = Life::default();
    let metrics = (Arc::<Metrics>::default(), Arc::<VolumeMetrics>::default());
    if let Some(listener) = listener {
        let shown = metrics.clone();
        let samples = Arc::new(move |text: &mut _| {
            shown.0.render(text);
            shown.1.render(text);
        });
        port::serve(
            "kube-controller-manager",
            listener,
            client.clone(),
            (samples, None),
            life.clone(),
            stop.clone(),
        )?;
    }
    let candidate = args.election.leader_elect.then(|| settings.candidate(client.clone()));
    let informers = Informers::new(client.clone(), stop.clone());
    work_while_leading(candidate, &life.leading, &stop, |leading| async move {
        // No machine may join under the API server's name.
        let server = leading.run_until_cancelled(server_names::of(&config)).await;
        let Some(server) = server else { return Ok(()) };
        let controllers = settings.controllers(root_ca_pem, server, &accounts, metrics);
        controllers.run(Context { client, informers, stop: leading }).await
    })
    .await
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn load(line: &[&str]) -> Result<super::Settings, String> {
        let line = ["coracle", "controllers", "--kubeconfig", "k"].iter().chain(line);
        let Command::Controllers(args) = Cli::parse_from(line).command else { panic!("another command") };
        super::Settings::load(&args)
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let bad = [
            "--cluster-cidr=x",
            "--service-cluster-ip-range=y",
            "--disable=nodes",
            "--unhealthy-zone-threshold=55",
            "--root-ca-file=/none",
            "--leader-elect-lease-duration=5s",
            "--leader-elect-retry-period=9s",
            "--service-account-private-key-file=/none",
            "--cluster-signing-cert-file=/none",
            "--cluster-signing-key-file=/none",
        ];
        let text = load(&bad).err().expect("nine mistakes");
        let lines = [
            "cluster-cidr: \"x\" is no CIDR",
            "service-cluster-ip-range: \"y\"",
            "disable: unknown controller \"nodes\"",
            "unhealthy-zone-threshold: has to be",
            "root-ca-file: /none",
            "leader-elect-lease-duration: must be longer",
            "leader-elect-renew-deadline: must be longer",
            "service-account-private-key-file: read /none",
            "cluster-signing-cert-file: read /none",
        ];
        for line in lines {
            assert!(text.lines().any(|found| found.starts_with(line)), "{line} is missing from {text}");
        }
        assert!(load(&[]).is_ok() && load(&["--leader-elect=false", "--cluster-cidr=10.42.0.0/16"]).is_ok());
    }
}
