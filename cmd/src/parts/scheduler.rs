//! `coracle scheduler`: a scheduler as its own process, beside or instead of the server's own.

use super::args::SchedulerArgs;
use super::leading::{identity, work_while_leading};
use super::port::{self, Life};
use crate::kubeconfig::client;
use crate::process::fail;
use coracle_client::leader::{Candidate, Times};
use coracle_client::{Context, Informers};
use coracle_scheduler::metrics::resources;
use coracle_scheduler::plugins::Registry;
use coracle_scheduler::{Config, Options};
use k8s_openapi::api::core::v1::Pod;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Upstream's port of health and metrics.
const SECURE_PORT: u16 = 10_259;

/// Runs until SIGTERM or SIGINT (exit code 0), or until leadership is lost (1): whoever starts it again lets it queue
/// up anew, as upstream's does.
pub async fn command(args: SchedulerArgs) -> ExitCode {
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

/// Reads a configuration file; warnings go to the log.
fn configuration(path: Option<&Path>, registry: &Registry) -> Result<Config, String> {
    let Some(path) = path else { return Ok(Config::default()) };
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let parsed = Config::parse(&text, registry);
    let parsed = parsed.map_err(|mistakes| {
        let lines = mistakes.0.iter().map(|m| format!("{}: {m}", path.display()));
        lines.collect::<Vec<_>>().join("\n")
    })?;
    for warning in parsed.warnings {
        tracing::warn!(file = %path.display(), "{warning}");
    }
    Ok(parsed.config)
}

async fn run(args: &SchedulerArgs) -> Result<(), String> {
    let port = port::Wanted { address: args.bind_address, port: args.secure_port, default: SECURE_PORT };
    let listener = port.bind().await?;
    let files = vec![args.kubeconfig.clone()];
    super::until_told(files, |stop| run_until(args, listener.clone(), stop)).await
}

async fn run_until(
    args: &SchedulerArgs,
    listener: Option<Arc<TcpListener>>,
    stop: CancellationToken,
) -> Result<(), String> {
    let registry = Registry::in_tree();
    let config = configuration(args.config.as_deref(), &registry)?;
    let client = client(&args.kubeconfig).await?;
    let options = Options { config, registry, ..Options::default() };
    let life = Life { synced: Some(("sched-handler-sync", options.synced.clone())), ..Life::default() };
    let informers = Informers::new(client.clone(), stop.clone());
    if let Some(listener) = listener {
        let metrics = options.metrics.clone();
        let samples = Arc::new(move |text: &mut _| metrics.render(text));
        let resources = Some((resources::PATH, pods(informers.clone())));
        port::serve(
            "kube-scheduler",
            listener,
            client.clone(),
            (samples, resources),
            life.clone(),
            stop.clone(),
        )?;
    }
    let candidate = candidate(&options.config, client.clone());
    work_while_leading(candidate, &life.leading, &stop, |leading| async move {
        let names: Vec<&str> = options.config.profiles.iter().map(|p| p.scheduler_name.as_str()).collect();
        tracing::info!(profiles = names.join(","), "scheduling");
        let context = Context { client, informers, stop: leading };
        coracle_scheduler::run(context, options).await.map_err(|e| coracle_api::error::chain(&e))
    })
    .await
}

/// What pods ask for. Nobody reads them before the first asks, or this scheduler leads.
pub fn pods(informers: Informers) -> port::Samples {
    Arc::new(move |text| resources::render(&informers.of::<Pod>().list(), text))
}

/// `None` where the configuration wants no election.
fn candidate(config: &Config, client: kube::Client) -> Option<Candidate> {
    let election = &config.election;
    election.elect.then(|| Candidate {
        client,
        namespace: election.namespace.clone(),
        lease: election.lease.clone(),
        identity: identity(),
        times: Times {
            lease: election.lease_duration,
            renew: election.renew_deadline,
            retry: election.retry_period,
        },
    })
}
